//! ReplicaSets of a Deployment: finds or creates that of the current template, and syncs its annotations.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_apiserver::error::{Result, Status};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::common::{annotation, name_of, namespace_of, parse_annotation, set_in, uid_of};
use super::super::{hash, pods::controller_ref};
use super::status::Progress;
use super::{DESIRED, MAX, REVISION, REVISION_HISTORY, Step, TEMPLATE_HASH, replicas};
use crate::informer::controller_of;
use crate::writer::is_already_exists;

/// Annotations of the Deployment that are not copied to its ReplicaSets.
const SKIPPED_ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// What to do when no ReplicaSet has the current template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfMissing {
    /// Create one.
    Create,
    /// Skip it.
    Skip,
}

/// Whether a ReplicaSet has the template of a Deployment.
pub(super) fn same_template(set: &ReplicaSet, deployment: &Deployment) -> bool {
    let Some(mut theirs) = set.spec.template.clone() else { return false };
    let mut ours = deployment.spec.template.clone();
    for template in [&mut theirs, &mut ours] {
        if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
            labels.remove(TEMPLATE_HASH);
        }
    }
    theirs == ours
}

fn revision(meta: &ObjectMeta) -> i64 {
    parse_annotation(meta, REVISION).unwrap_or(0)
}

impl Step<'_> {
    /// Ensures that the ReplicaSet of the current template exists and has the highest revision.
    pub(super) async fn sync_new_set(&mut self, if_missing: IfMissing) -> Result<()> {
        let revision = self.old_sets().iter().map(|set| revision(&set.metadata)).max().unwrap_or(0) + 1;
        match self.new_set() {
            Some(set) => self.refresh(set, revision).await,
            None if if_missing == IfMissing::Create => self.create_new(revision).await,
            None => Ok(()),
        }
    }

    async fn refresh(&mut self, set: Arc<ReplicaSet>, revision: i64) -> Result<()> {
        let mut next = ReplicaSet::clone(&set);
        annotate(&mut next.metadata, &self.deployment, revision, true);
        next.spec.min_ready_seconds = self.deployment.spec.min_ready_seconds;
        let set = self.this.writer.update(&set, &next).await?;
        let found = Progress::found(name_of(&*set));
        let revision = annotation(&set.metadata, REVISION).unwrap_or_default().to_owned();
        self.put(set);
        self.record_revision(&revision, found).await
    }

    async fn create_new(&mut self, revision: i64) -> Result<()> {
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count);
        let mut set = self.build_new_set(collisions);
        annotate(&mut set.metadata, &self.deployment, revision, false);
        let size = self.new_size(0);
        set.spec.replicas = Some(size);
        set_in(&mut set.metadata.annotations, DESIRED, self.replicas().to_string());
        set_in(&mut set.metadata.annotations, MAX, (self.replicas() + self.max_surge()).to_string());
        let created = match self.this.writer.create(&set).await {
            Ok(created) => created,
            Err(error) if is_already_exists(&error) => self.existing(&set, error).await?,
            Err(error) => return self.record_failure(error).await,
        };
        let name = name_of(&*created).to_owned();
        if size > 0 {
            let message = format!("Scaled up replica set {name} from 0 to {size}");
            self.this.normal(&*self.deployment, "ScalingReplicaSet", message);
        }
        self.put(created);
        self.record_revision(&revision.to_string(), Progress::created(&name)).await
    }

    /// A ReplicaSet of that name exists: ours after all, or a hash collision, which the next attempt avoids.
    async fn existing(&mut self, set: &ReplicaSet, error: Status) -> Result<Arc<ReplicaSet>> {
        let (namespace, name) = (namespace_of(set), name_of(set));
        let live_set: ReplicaSet = self.this.writer.read(Some(namespace), name).await?;
        let ours = controller_of(&live_set.metadata).is_some_and(|owner| owner.uid == uid_of(&*self.deployment));
        if ours && same_template(&live_set, &self.deployment) {
            return Ok(Arc::new(live_set));
        }
        self.record_collision().await?;
        Err(error)
    }

    fn build_new_set(&self, collisions: Option<i32>) -> ReplicaSet {
        let hash = hash::short(&self.deployment.spec.template, collisions);
        let mut template: PodTemplateSpec = self.deployment.spec.template.clone();
        set_in(&mut template.metadata.get_or_insert_default().labels, TEMPLATE_HASH, &hash);
        let mut selector = self.deployment.spec.selector.clone();
        set_in(&mut selector.match_labels, TEMPLATE_HASH, &hash);
        ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", name_of(&*self.deployment))),
                namespace: self.deployment.metadata.namespace.clone(),
                labels: template.metadata.as_ref().and_then(|meta| meta.labels.clone()),
                owner_references: Some(vec![controller_ref(&*self.deployment)]),
                ..ObjectMeta::default()
            },
            spec: ReplicaSetSpec {
                replicas: Some(0),
                min_ready_seconds: self.deployment.spec.min_ready_seconds,
                selector,
                template: Some(template),
            },
            status: None,
        }
    }

    /// Scales a ReplicaSet. Returns whether its size changed.
    pub(super) async fn resize(&mut self, set: &Arc<ReplicaSet>, size: i32) -> Result<bool> {
        let mut next = ReplicaSet::clone(set);
        next.spec.replicas = Some(size);
        set_in(&mut next.metadata.annotations, DESIRED, self.replicas().to_string());
        set_in(&mut next.metadata.annotations, MAX, (self.replicas() + self.max_surge()).to_string());
        let before = replicas(set);
        let set = self.this.writer.update(set, &next).await?;
        let name = name_of(&*set).to_owned();
        self.put(set);
        if size == before {
            return Ok(false);
        }
        let way = if size > before { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {name} from {before} to {size}");
        self.this.normal(&*self.deployment, "ScalingReplicaSet", message);
        Ok(true)
    }
}

/// Copies the Deployment's annotations to a ReplicaSet and sets its revision, which never decreases.
fn annotate(meta: &mut ObjectMeta, deployment: &Deployment, new: i64, exists: bool) {
    let theirs: BTreeMap<_, _> = deployment.metadata.annotations.clone().unwrap_or_default();
    for (key, value) in theirs.into_iter().filter(|(key, _)| !SKIPPED_ANNOTATIONS.contains(&key.as_str())) {
        set_in(&mut meta.annotations, &key, value);
    }
    let old = annotation(meta, REVISION).map(str::to_owned);
    if revision(meta) >= new {
        return;
    }
    set_in(&mut meta.annotations, REVISION, new.to_string());
    if let Some(old) = old.filter(|_| exists) {
        let history = match annotation(meta, REVISION_HISTORY) {
            Some(history) if !history.is_empty() => format!("{history},{old}"),
            _ => old,
        };
        set_in(&mut meta.annotations, REVISION_HISTORY, history);
    }
}
