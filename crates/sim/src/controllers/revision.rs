//! ControllerRevisions: template history of DaemonSets and StatefulSets, for rollbacks.

use std::collections::HashSet;
use std::sync::Arc;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

use super::common::{Controller, created_at, ignore_not_found, name_of, namespace_of, set_in};
use super::hash;
use super::pods::controller_ref;
use crate::informer::Kind;
use crate::writer::is_already_exists;

/// Label that separates the pods of one revision from others.
pub(crate) const REVISION_HASH: &str = "controller-revision-hash";

/// A DaemonSet or StatefulSet whose template is versioned.
#[derive(Clone, Copy)]
pub(crate) struct VersionedSet<'a, K> {
    /// The set.
    pub(crate) owner: &'a K,
    /// Its selector, which revisions must match.
    pub(crate) selector: &'a LabelSelector,
    /// Its template.
    pub(crate) template: &'a PodTemplateSpec,
    /// `collisionCount`.
    pub(crate) collisions: Option<i32>,
    /// Label of a ControllerRevision with its hash.
    pub(crate) hash_label: &'static str,
}

/// Revisions of a set.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The revision of the template.
    pub(crate) current: Arc<ControllerRevision>,
    /// All others, oldest first.
    pub(crate) old: Vec<Arc<ControllerRevision>>,
}

/// Result of a revision lookup.
pub(crate) enum Found {
    /// The history is complete.
    History(History),
    /// The name of the new revision is taken by another one.
    Collision,
}

impl<K: Kind> VersionedSet<'_, K> {
    /// The revisions of a set. Creates that of its template if it is missing, and gives it the highest number.
    pub(crate) async fn history(&self, this: &Controller) -> Result<Found> {
        let data = data(self.template);
        let mut revisions = this.claim(self.owner, self.selector, &this.context.caches.controller_revisions).await?;
        sort(&mut revisions);
        let (mut same, old): (Vec<_>, Vec<_>) = revisions.into_iter().partition(|one| one.data.0 == data);
        let number = old.iter().map(|one| one.revision()).max().unwrap_or(0) + 1;
        let current = match same.pop() {
            Some(current) => {
                for surplus in same {
                    ignore_not_found(this.writer.delete(&*surplus, DeleteOptions::default()).await)?;
                }
                if current.revision() < number {
                    let mut next = ControllerRevision::clone(&current);
                    next.revision = Some(number);
                    this.writer.update(&current, &next).await?
                } else {
                    current
                }
            }
            None => match this.writer.create(&self.build_revision(data.clone(), number)).await {
                Ok(current) => current,
                Err(error) if is_already_exists(&error) => return Ok(Found::Collision),
                Err(error) => return Err(error),
            },
        };
        Ok(Found::History(History { current, old }))
    }

    fn build_revision(&self, data: Value, number: i64) -> ControllerRevision {
        let hash = hash::short(&data, self.collisions);
        let mut labels = self.template.metadata.as_ref().and_then(|meta| meta.labels.clone());
        set_in(&mut labels, self.hash_label, &hash);
        ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", name_of(self.owner))),
                namespace: Some(namespace_of(self.owner).to_owned()),
                labels,
                annotations: self.owner.metadata().annotations.clone(),
                owner_references: Some(vec![controller_ref(self.owner)]),
                ..ObjectMeta::default()
            },
            data: RawExtension(data),
            revision: Some(number),
        }
    }
}

impl History {
    /// Whether there are more revisions than the limit, regardless of which are in use.
    pub(crate) fn is_longer_than(&self, limit: Option<i32>) -> bool {
        self.old.len() > retained(limit)
    }

    /// Deletes the oldest unused revisions beyond the limit.
    pub(crate) async fn clean_up(&self, this: &Controller, limit: Option<i32>, live: &HashSet<String>) -> Result<()> {
        let dead: Vec<_> = self.old.iter().filter(|one| !live.contains(name_of(&***one))).collect();
        let surplus = dead.len().saturating_sub(retained(limit));
        for revision in &dead[..surplus] {
            ignore_not_found(this.writer.delete(&***revision, DeleteOptions::default()).await)?;
        }
        Ok(())
    }
}

/// The revision history limit.
fn retained(limit: Option<i32>) -> usize {
    usize::try_from(limit.unwrap_or(10)).unwrap_or(0)
}

/// The number of a revision.
pub(crate) trait Number {
    /// The number.
    fn revision(&self) -> i64;
}

impl Number for ControllerRevision {
    fn revision(&self) -> i64 {
        self.revision.unwrap_or(0)
    }
}

fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by_key(|one| (one.revision(), created_at(&**one), name_of(&**one).to_owned()));
}

/// A template as stored in a ControllerRevision: a patch that restores it.
pub(crate) fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).expect("typed values encode");
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template of a ControllerRevision.
pub(crate) fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}
