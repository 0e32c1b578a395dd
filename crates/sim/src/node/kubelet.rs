//! Kubelet of all nodes: a few workers share one queue of pods.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::DeleteOptions;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PodStatus};

use super::admit::{Rejection, Reservation};
use super::bodies::Running;
use super::files::Directory;
use super::lifecycle::{Effect, Machine, MachineInputs, Role, containers};
use super::mounts::{misconfigured, missing, pod_directory};
use super::nodes::{Inner, Nodes, VirtualNode, lock};
use super::status::{Addresses, rejected, status};
use super::{Events, ExistingPods, Reports};
use crate::Pod;
use crate::events::{Severity, reference};
use crate::informer::{Change, Kind, key_of};
use crate::scheduler::pod::is_finished;
use crate::writer::{is_conflict, is_not_found};

/// First retry interval for a missing volume.
const FIRST_MOUNT_RETRY: Duration = Duration::from_millis(500);
/// Longest retry interval for a missing volume.
const LAST_MOUNT_RETRY: Duration = Duration::from_secs(122);

/// A pod that a node runs.
pub(super) struct Tracked {
    pub(super) uid: String,
    pub(super) node: Arc<VirtualNode>,
    pub(super) machine: Machine,
    /// Resources of the pod, until it terminates.
    reservation: Option<Reservation>,
    pub(super) address: Option<u8>,
    /// Why the node rejects it.
    rejection: Option<Rejection>,
    pub(super) bodies: HashMap<usize, Running>,
    pub(super) directories: HashMap<String, Directory>,
    /// The pod with all its volumes, once a body needed them.
    pub(super) full_pod: Option<Arc<Pod>>,
    mount_attempts: u32,
    /// When its status was last written.
    pub(super) reported: Option<Timestamp>,
    /// Whether the final deletion was sent.
    removed: bool,
}

/// Result of a step.
struct Outcome {
    effects: Vec<Effect>,
    /// The new status, if it is to be written.
    status: Option<PodStatus>,
    due: Option<Timestamp>,
    remove: bool,
}

pub(super) fn start(nodes: &Nodes) {
    let inner = nodes.inner.clone();
    let queue = inner.queue.clone();
    let names = Arc::downgrade(&inner);
    inner.context.caches.pods.subscribe(move |change: &Change<'_, Pod>| {
        if names.upgrade().is_some_and(|inner| inner.needs_sync(change)) {
            queue.add(change.key.clone());
        }
    });
    let weak = Arc::downgrade(&inner);
    inner.context.caches.nodes.subscribe(move |change| {
        if let Some(node) = weak.upgrade().and_then(|inner| inner.node(change.key)) {
            node.changes.send_modify(|count| *count += 1);
        }
    });
    let holder = Arc::downgrade(&inner);
    inner.context.caches.volume_claims.subscribe(move |change| {
        // A later claim of the same name is another disk.
        if change.new.is_none()
            && let Some(inner) = holder.upgrade()
        {
            lock(&inner.claims).remove(&**change.key);
        }
    });
    for _ in 0..inner.settings.workers.max(1) {
        let nodes = nodes.clone();
        inner.context.spawn(async move {
            loop {
                let key = nodes.inner.queue.next().await;
                match nodes.sync(&key).await {
                    Ok(due) => {
                        nodes.inner.queue.forget(&key);
                        if let Some(due) = due {
                            nodes.inner.queue.add_after(key.clone(), nodes.inner.until(due));
                        }
                    }
                    Err(error) if is_not_found(&error) => nodes.inner.queue.forget(&key),
                    Err(error) => {
                        if !is_conflict(&error) {
                            tracing::debug!(pod = %key, %error, "sync failed");
                        }
                        nodes.inner.queue.retry(key.clone());
                    }
                }
                nodes.inner.queue.done(&key);
                tokio::task::yield_now().await;
            }
        });
    }
}

/// Index of a container in its pod.
pub(super) fn position(pod: &Pod, container: &str) -> Option<usize> {
    containers(pod.spec.as_ref()?).position(|(_, c)| c.name == container)
}

/// Aborts all bodies on a node.
pub(super) fn abort_bodies(nodes: &Nodes, node: &str) {
    nodes.inner.each_on(node, |tracked| {
        for (_, running) in tracked.bodies.drain() {
            running.abort.abort();
        }
    });
}

/// Restarts all containers of a node.
pub(super) fn reboot(nodes: &Nodes, node: &str) {
    let now = nodes.inner.context.clock().now();
    nodes.inner.each_on(node, |tracked| tracked.machine.reboot(now));
}

impl Inner {
    /// Whether a change requires a sync of the pod. The kubelet's own status writes do not.
    fn needs_sync(&self, change: &Change<'_, Pod>) -> bool {
        let Some(name) = change.last().node() else { return false };
        if let (Some(old), Some(new)) = (change.old, change.new) {
            let gates = new.spec.as_ref().is_some_and(|spec| spec.readiness_gates.is_some());
            let same = old.metadata.uid == new.metadata.uid
                && old.metadata.generation == new.metadata.generation
                && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
                && old.metadata.deletion_grace_period_seconds == new.metadata.deletion_grace_period_seconds
                && !gates
                && old.node().is_some();
            if same {
                return false;
            }
        }
        self.node(name).is_some()
    }

    fn until(&self, due: Timestamp) -> Duration {
        Duration::try_from(due.duration_since(self.context.clock().now())).unwrap_or_default()
    }

    fn each_on(&self, node: &str, with: impl Fn(&mut Tracked)) {
        let pods = self.context.caches.pods.on_node(node);
        for tracked in pods.iter().filter_map(|pod| self.tracked(&key_of(&pod.metadata))) {
            with(&mut lock(&tracked));
        }
    }

    /// Releases everything of a deleted pod.
    fn forget(&self, key: &Arc<str>) {
        let Some(tracked) = lock(&self.pods).remove(key) else { return };
        let mut tracked = lock(&tracked);
        for (_, running) in tracked.bodies.drain() {
            running.abort.abort();
        }
        tracked.release();
        if tracked.node.host.path().is_some() {
            tracked.node.host.remove(&pod_directory(&tracked.uid));
        }
        if let Some(address) = tracked.address.take() {
            lock(&tracked.node.addresses).give_back(address);
        }
        self.logs.forget(key);
    }

    pub(super) fn directory_of_claim(&self, key: String) -> Directory {
        lock(&self.claims).entry(key).or_default().clone()
    }
}

impl Tracked {
    fn release(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.node.usage.release(&reservation);
        }
    }
}

impl Nodes {
    /// Syncs a pod: does what is due, and writes the changed status. Returns when to sync again.
    async fn sync(&self, key: &Arc<str>) -> Result<Option<Timestamp>> {
        let inner = &self.inner;
        let pod = inner.context.caches.pods.get(key);
        let known = inner.tracked(key);
        let uid = pod.as_ref().and_then(|pod| pod.metadata.uid.clone()).unwrap_or_default();
        if known.as_ref().is_some_and(|known| lock(known).uid != uid) {
            inner.forget(key);
        }
        let Some(pod) = pod else { return Ok(None) };
        let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let Some(node) = inner.node(name).filter(|node| node.is_up()) else { return Ok(None) };
        let deleting = pod.metadata.deletion_timestamp.is_some();
        let tracked = match inner.tracked(key) {
            Some(tracked) => tracked,
            None if is_finished(&pod) => {
                if deleting {
                    self.remove(&node, &pod).await?;
                }
                return Ok(None);
            }
            None => self.track(key, &pod, &node),
        };
        let outcome = self.step(key, &pod, &mut lock(&tracked));
        self.apply(key, &pod, &tracked, outcome.effects);
        let later = match &outcome.status {
            Some(status) => self.report_status(&node, &pod, &tracked, status).await?,
            None => None,
        };
        let due = outcome.due.into_iter().chain(later).min();
        if outcome.remove {
            self.remove(&node, &pod).await?;
            lock(&tracked).removed = true;
        }
        Ok(due)
    }

    fn track(&self, key: &Arc<str>, pod: &Arc<Pod>, node: &Arc<VirtualNode>) -> Arc<Mutex<Tracked>> {
        let inner = &self.inner;
        let admitted = match inner.context.caches.nodes.get(&node.name) {
            Some(object) => node.usage.admit(pod, &object),
            None => Ok(Reservation::default()),
        };
        let (reservation, rejection) = match admitted {
            Ok(reservation) => (Some(reservation), None),
            Err(rejection) => (None, Some(rejection)),
        };
        if let Some(Rejection { reason, message }) = &rejection {
            node.recorder.event(&**pod, Severity::Warning, reason.clone(), message.clone());
        }
        let now = inner.context.clock().now();
        let machine = match inner.settings.existing_pods {
            ExistingPods::New => Machine::new(pod, now),
            ExistingPods::Rebooted => Machine::rebooted(pod, now),
        };
        let tracked = Tracked {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            node: node.clone(),
            address: node.remember(pod, &machine),
            machine,
            reservation,
            rejection,
            bodies: HashMap::new(),
            directories: HashMap::new(),
            full_pod: None,
            mount_attempts: 0,
            reported: Some(inner.context.clock().now()),
            removed: false,
        };
        let tracked = Arc::new(Mutex::new(tracked));
        lock(&inner.pods).insert(key.clone(), tracked.clone());
        tracked
    }

    /// Does what is due.
    fn step(&self, key: &Arc<str>, pod: &Arc<Pod>, tracked: &mut Tracked) -> Outcome {
        let inner = &self.inner;
        let now = inner.context.clock().now();
        let deleting = pod.metadata.deletion_timestamp.is_some();
        // With brief reports, a terminating pod gets no status updates.
        let is_reported = !deleting || inner.settings.reports == Reports::Full;
        if let Some(Rejection { reason, message }) = &tracked.rejection {
            let status = (is_reported && !is_finished(pod)).then(|| rejected(pod, reason, message, now));
            let remove = deleting && !tracked.removed;
            return Outcome { effects: Vec::new(), status, due: None, remove };
        }
        let mut effects = self.prepare(pod, tracked, now);
        let mut images = lock(&tracked.node.images);
        let mut inputs = MachineInputs {
            behaviour: &|container| inner.rules.behaviour(pod, container),
            misconfigured: &|container| misconfigured(&inner.context.server, pod, container),
            log_tail: &|container| inner.logs.tail(key, &container.name),
            images: &mut images,
        };
        effects.extend(tracked.machine.step(pod, now, &mut inputs));
        drop(images);
        if tracked.machine.finished {
            tracked.release();
        }
        let build_status = || {
            let ip = tracked.address.map(|address| tracked.node.pod_ip(address));
            let addresses = Addresses { host: &tracked.node.host_ip, pod: ip.as_deref() };
            status(&tracked.machine, pod, addresses, now)
        };
        Outcome {
            effects,
            status: is_reported.then(build_status),
            due: tracked.machine.due(pod, now),
            remove: deleting && tracked.machine.finished && !tracked.removed,
        }
    }

    /// Prepares what a pod needs before any container starts: its volumes and an IP.
    fn prepare(&self, pod: &Pod, tracked: &mut Tracked, now: Timestamp) -> Vec<Effect> {
        let inner = &self.inner;
        let mut effects = Vec::new();
        let due = tracked.machine.blocked.is_none_or(|at| at <= now);
        if !tracked.machine.is_new() || pod.metadata.deletion_timestamp.is_some() || !due {
            return effects;
        }
        let mut block = |tracked: &mut Tracked, reason: &'static str, message: String| {
            let wait = FIRST_MOUNT_RETRY.saturating_mul(1 << tracked.mount_attempts.min(10)).min(LAST_MOUNT_RETRY);
            tracked.mount_attempts += 1;
            tracked.machine.blocked = Some(super::backoff::after(now, wait));
            effects.push(Effect::Event { container: None, severity: Severity::Warning, reason, message });
        };
        if let Some(message) = missing(&inner.context.server, &inner.context.caches, pod) {
            block(tracked, "FailedMount", message);
            return effects;
        }
        let host_network = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        if tracked.address.is_none() && !host_network {
            tracked.address = lock(&tracked.node.addresses).take();
            if tracked.address.is_none() {
                let message = "Failed to create pod sandbox: no IP addresses available in the range of the node";
                block(tracked, "FailedCreatePodSandBox", message.to_owned());
                return effects;
            }
        }
        tracked.machine.blocked = None;
        effects
    }

    fn apply(&self, key: &Arc<str>, pod: &Arc<Pod>, tracked: &Arc<Mutex<Tracked>>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Event { container, severity, reason, message } => {
                    self.report(pod, &lock(tracked).node, container, severity, reason, message);
                }
                Effect::Start { container, run } => self.start_body(key, pod, tracked, container, run),
                Effect::Stop { container } => {
                    if let Some(running) = lock(tracked).bodies.get(&container) {
                        running.stop.send_replace(true);
                    }
                }
                Effect::Kill { container } => {
                    if let Some(running) = lock(tracked).bodies.remove(&container) {
                        running.abort.abort();
                    }
                    if let Some((_, spec)) = pod.spec.as_ref().and_then(|spec| containers(spec).nth(container)) {
                        self.inner.logs.close(key, &spec.name);
                    }
                }
            }
        }
    }

    fn report(
        &self,
        pod: &Pod,
        node: &VirtualNode,
        container: Option<usize>,
        severity: Severity,
        reason: &'static str,
        message: String,
    ) {
        match (self.inner.settings.events, severity) {
            (Events::All, _) | (Events::Warnings, Severity::Warning) => {}
            _ => return,
        }
        let container = container.and_then(|at| containers(pod.spec.as_ref()?).nth(at));
        let field_path = container.map(|(role, container)| {
            let list = match role {
                Role::Init | Role::Sidecar => "initContainers",
                Role::Main => "containers",
                Role::Ephemeral => "ephemeralContainers",
            };
            format!("spec.{list}{{{}}}", container.name)
        });
        let about = ObjectReference { field_path, ..reference(pod) };
        node.recorder.event_on(about, severity, reason, message);
    }

    /// The pod has terminated: confirms the deletion of its object.
    async fn remove(&self, node: &VirtualNode, pod: &Pod) -> Result<()> {
        let ended = match self.inner.settings.reports {
            Reports::Brief(_) => node.writer.remove_terminated(pod).await,
            Reports::Full => Ok(false),
        };
        let removed = match ended {
            Ok(false) => node.writer.delete(pod, DeleteOptions { grace: Some(0), ..DeleteOptions::default() }).await,
            ended => ended.map(drop),
        };
        match removed {
            Err(error) if !is_not_found(&error) => Err(error),
            _ => Ok(()),
        }
    }
}
