//! Writes of the scheduler: bindings with their volumes and devices, conditions of unschedulable pods, and deletions of
//! preempted pods.

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::{Result, Status};
use capstan_apiserver::ops::{DeleteOptions, PatchKind, UserInfo};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PodCondition};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimStatus};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::Settings;
use super::actor::{ClusterEvent, Inbox};
use super::cycle::Extras;
use super::devices::Allocation;
use super::message::cut;
use super::pod::PodInfo;
use super::volumes::{Choice, bound_to};
use crate::Pod;
use crate::context::Context;
use crate::events::{Recorder, Severity};
use crate::writer::{Writer, is_conflict, is_not_found};

/// Timeout of the volume binding of a pod.
const VOLUME_BINDING_TIMEOUT: Duration = Duration::from_secs(600);
/// Retains a claim while it has devices.
const CLAIM_FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// A pod to bind, and its node.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) pod: Arc<PodInfo>,
    pub(super) node: Arc<str>,
    pub(super) extras: Extras,
}

/// Writes the decisions of the scheduler.
pub(super) struct Binder {
    work: Work,
    queue: mpsc::Sender<Binding>,
}

#[derive(Clone)]
struct Work {
    context: Context,
    writer: Writer,
    recorder: Recorder,
    inbox: Inbox,
    scheduler: Arc<str>,
    report_success: bool,
    claims_changed: watch::Receiver<u64>,
}

impl Binder {
    pub(super) fn start(context: &Context, settings: &Settings, inbox: Inbox) -> Self {
        let user = UserInfo::new("system:kube-scheduler", &["system:authenticated"]);
        let (changes, claims_changed) = watch::channel(0);
        context.caches.volume_claims.subscribe(move |_| changes.send_modify(|count| *count += 1));
        let work = Work {
            context: context.clone(),
            writer: context.writer(user, "kube-scheduler"),
            recorder: context.recorder(&settings.name),
            inbox,
            scheduler: settings.name.as_str().into(),
            report_success: settings.report_success,
            claims_changed,
        };
        let (queue, bindings) = mpsc::channel(64);
        let bindings = Arc::new(tokio::sync::Mutex::new(bindings));
        for _ in 0..settings.binders.max(1) {
            context.spawn(work.clone().run(bindings.clone()));
        }
        Self { work, queue }
    }

    /// Queues a pod for binding.
    pub(super) async fn bind(&self, binding: Binding) {
        if binding.extras.volumes.is_empty() {
            // The receiver lives as long as the cluster.
            let _ = self.queue.send(binding).await;
        } else {
            let work = self.work.clone();
            self.work.context.spawn(async move { work.bind(binding).await });
        }
    }

    /// Reports why a pod is unschedulable, and its nominated node.
    pub(super) async fn report_unschedulable(&self, pod: &PodInfo, message: &str, node: Option<&str>) {
        self.work.recorder.event(&*pod.pod, Severity::Warning, "FailedScheduling", cut(message));
        self.work.report(pod, "Unschedulable", message, node).await;
    }

    /// Clears the nominated node of a pod.
    pub(super) async fn clear_nomination(&self, pod: &PodInfo) {
        let body = json!({"metadata": {"uid": pod.uid()}, "status": {"nominatedNodeName": null}});
        self.work.patch_status(pod, body).await;
    }

    /// Deletes victims so that a pod can take their place.
    pub(super) async fn preempt(&self, pod: &PodInfo, node: &str, victims: &[Arc<PodInfo>]) {
        for victim in victims.iter().filter(|victim| !victim.is_terminating()) {
            if let Err(error) = self.work.end(pod, node, victim).await
                && !is_not_found(&error)
            {
                tracing::debug!(victim = %victim.key, %error, "preemption failed");
            }
        }
    }
}

impl Work {
    async fn run(self, bindings: Arc<tokio::sync::Mutex<mpsc::Receiver<Binding>>>) {
        loop {
            let next = bindings.lock().await.recv().await;
            let Some(binding) = next else { return };
            self.bind(binding).await;
            tokio::task::yield_now().await;
        }
    }

    async fn bind(&self, binding: Binding) {
        let PodInfo { pod, key, .. } = &*binding.pod;
        match self.try_bind(&binding).await {
            Ok(()) => {
                if self.report_success {
                    let message = format!("Successfully assigned {key} to {}", binding.node);
                    self.recorder.event(&**pod, Severity::Normal, "Scheduled", message);
                }
            }
            Err(error) => {
                if !is_not_found(&error) {
                    self.recorder.event(&**pod, Severity::Warning, "FailedScheduling", cut(&error.message));
                    self.report(&binding.pod, "SchedulerError", &error.message, None).await;
                }
                self.inbox.add(ClusterEvent::BindFailed(Box::new(binding)));
            }
        }
    }

    async fn try_bind(&self, binding: &Binding) -> Result<()> {
        for (claim, choice) in &binding.extras.volumes {
            self.prepare_volume(claim, choice, &binding.node).await?;
        }
        if !binding.extras.volumes.is_empty() {
            self.volumes_bound(binding).await?;
        }
        for allocation in &binding.extras.devices {
            self.allocate(&binding.pod, allocation).await?;
        }
        if self.writer.bind_pod(&binding.pod.pod, &binding.node).await? {
            return Ok(());
        }
        let (namespace, name) = (binding.pod.namespace(), binding.pod.name());
        let body = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": binding.pod.uid()},
            "target": {"kind": "Node", "name": &*binding.node},
        });
        self.writer.post::<Pod>(namespace, name, "binding", body).await.map(drop)
    }

    /// Binds a claim to its volume, or selects the node for provisioning.
    async fn prepare_volume(&self, key: &str, choice: &Choice, node: &str) -> Result<()> {
        let (namespace, name) = crate::informer::split_key(key);
        match choice {
            Choice::Provision => {
                let body = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}});
                let kind = PatchKind::Merge;
                self.writer.patch::<PersistentVolumeClaim>(Some(namespace), name, None, kind, body).await.map(drop)
            }
            Choice::Volume(volume) => {
                let claim = self.context.caches.volume_claims.get(key);
                let Some(claim) = claim else {
                    return Err(Status::internal(format!("persistentvolumeclaim {name:?} not found")));
                };
                let reference = crate::events::reference(&*claim);
                let body = json!({
                    "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                    "spec": {"claimRef": reference},
                });
                self.writer.patch::<PersistentVolume>(None, volume, None, PatchKind::Merge, body).await.map(drop)
            }
        }
    }

    async fn volumes_bound(&self, binding: &Binding) -> Result<()> {
        let mut changed = self.claims_changed.clone();
        let claims = &self.context.caches.volume_claims;
        let bound = |key: &Arc<str>| claims.get(key).is_some_and(|claim| bound_to(&claim).is_some());
        let all_bound = async {
            while !binding.pod.volume_claims.iter().all(bound) {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        let waited = tokio::time::timeout(VOLUME_BINDING_TIMEOUT, all_bound).await;
        waited.map_err(|_| Status::internal("binding volumes: context deadline exceeded"))
    }

    /// Allocates devices to a claim, and reserves it for the pod.
    async fn allocate(&self, pod: &PodInfo, allocation: &Allocation) -> Result<()> {
        let key = crate::informer::key_of(&allocation.claim.metadata);
        loop {
            let claim = self.context.caches.resource_claims.get(&key);
            let claim = claim.filter(|claim| claim.metadata.uid == allocation.claim.metadata.uid);
            let Some(mut claim) = claim else {
                return Err(Status::internal(format!("resourceclaim {key:?} not found")));
            };
            let written = self.try_allocate(pod, allocation, &mut claim).await;
            match written {
                Err(error) if is_conflict(&error) => {
                    // The cache is stale; read the object from the server.
                    let (namespace, name) = crate::informer::split_key(&key);
                    let target = self.writer.read::<ResourceClaim>(Some(namespace), name).await?;
                    let mut fresh = Arc::new(target);
                    match self.try_allocate(pod, allocation, &mut fresh).await {
                        Err(error) if is_conflict(&error) => tokio::time::sleep(Duration::from_millis(10)).await,
                        other => return other,
                    }
                }
                other => return other,
            }
        }
    }

    async fn try_allocate(&self, pod: &PodInfo, allocation: &Allocation, claim: &mut Arc<ResourceClaim>) -> Result<()> {
        let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == CLAIM_FINALIZER) {
            let mut protected = ResourceClaim::clone(claim);
            protected.metadata.finalizers.get_or_insert_default().push(CLAIM_FINALIZER.to_owned());
            *claim = self.writer.update(claim, &protected).await?;
        }
        let mut reserved = ResourceClaim::clone(claim);
        let status = reserved.status.get_or_insert_with(ResourceClaimStatus::default);
        if status.allocation.is_none() {
            let mut result = allocation.result.clone();
            result.allocation_timestamp = Some(self.context.now());
            status.allocation = Some(result);
        }
        let users = status.reserved_for.get_or_insert_default();
        if !users.iter().any(|user| user.uid == pod.uid()) {
            users.push(ResourceClaimConsumerReference {
                api_group: None,
                resource: "pods".to_owned(),
                name: pod.name().to_owned(),
                uid: pod.uid().to_owned(),
            });
        }
        self.writer.update_status(claim, &reserved).await.map(drop)
    }

    /// Sets the `PodScheduled` condition.
    async fn report(&self, pod: &PodInfo, reason: &str, message: &str, node: Option<&str>) {
        let status = pod.pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
        let before = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
        let since = before.filter(|before| before.status == "False").and_then(|b| b.last_transition_time.clone());
        let condition = PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            observed_generation: pod.pod.metadata.generation,
            last_transition_time: since.or_else(|| Some(self.context.now())),
            last_probe_time: None,
        };
        let same = before == Some(&condition) && pod.nominated_node() == node;
        if !same {
            let body = json!({
                "metadata": {"uid": pod.uid()},
                "status": {"conditions": [condition], "nominatedNodeName": node},
            });
            self.patch_status(pod, body).await;
        }
    }

    async fn patch_status(&self, pod: &PodInfo, body: serde_json::Value) {
        let (namespace, name) = (pod.namespace(), pod.name());
        let patched = self.writer.patch::<Pod>(Some(namespace), name, Some("status"), PatchKind::Strategic, body).await;
        if let Err(error) = patched
            && !is_not_found(&error)
        {
            tracing::debug!(pod = %pod.key, %error, "scheduling result not reported");
        }
    }

    async fn end(&self, pod: &PodInfo, node: &str, victim: &PodInfo) -> Result<()> {
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": format!("{}: preempting to accommodate a higher priority pod", self.scheduler),
            "observedGeneration": victim.pod.metadata.generation,
            "lastTransitionTime": self.context.now(),
        });
        let body = json!({"metadata": {"uid": victim.uid()}, "status": {"conditions": [condition]}});
        self.patch_status(victim, body).await;
        self.writer.delete(&*victim.pod, DeleteOptions::default()).await?;
        let message = format!("Preempted by pod {} on node {node}", pod.uid());
        self.recorder.event(&*victim.pod, Severity::Normal, "Preempted", message);
        Ok(())
    }
}
