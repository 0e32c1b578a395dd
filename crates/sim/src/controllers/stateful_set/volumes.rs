//! Claims of a StatefulSet: created with the pod of their ordinal, retained or deleted by the retention policy.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::super::common::{name_of, namespace_of, uid_of};
use super::super::pods::controller_ref;
use super::Step;
use super::identity::ordinal;
use crate::Pod;
use crate::writer::is_already_exists;

/// Claim name of an ordinal.
pub(super) fn claim_name(set: &StatefulSet, template: &str, ordinal: i32) -> String {
    format!("{template}-{}-{ordinal}", name_of(set))
}

/// When claims are deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Retention {
    delete_with_set: bool,
    delete_with_scale: bool,
}

fn retention(set: &StatefulSet) -> Retention {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = |value: Option<&String>| value.map(String::as_str) == Some("Delete");
    Retention {
        delete_with_set: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
        delete_with_scale: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
    }
}

impl Step<'_> {
    /// Creates the missing claims of an ordinal.
    pub(super) async fn create_claims(&self, ordinal: i32, pod: &Pod) -> Result<()> {
        let cache = &self.this.context.caches.volume_claims;
        for template in self.set.spec.volume_claim_templates.iter().flatten() {
            let name = claim_name(&self.set, name_of(template), ordinal);
            if cache.find(namespace_of(&*self.set), &name).is_none() {
                self.create_claim(template, name, pod).await?;
            }
        }
        Ok(())
    }

    async fn create_claim(&self, template: &PersistentVolumeClaim, name: String, pod: &Pod) -> Result<()> {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(self.set.spec.selector.match_labels.clone().unwrap_or_default());
        let owners = retention(&self.set).delete_with_set.then(|| vec![controller_ref(&*self.set)]);
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: self.set.metadata.namespace.clone(),
                labels: Some(labels),
                annotations: template.metadata.annotations.clone(),
                owner_references: owners,
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        };
        let (set, pod) = (name_of(&*self.set), name_of(pod));
        match self.this.writer.create(&claim).await {
            Ok(_) => {
                let message = format!("create Claim {name} Pod {pod} in StatefulSet {set} success");
                self.this.normal(&*self.set, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) if is_already_exists(&error) => Ok(()),
            Err(error) => {
                let message = format!("create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {error}");
                self.this.warning(&*self.set, "FailedCreate", message);
                Err(error)
            }
        }
    }

    /// Adds or removes the set as owner of the claims of desired pods, by the policy.
    pub(super) async fn sync_claim_owners(&self) -> Result<()> {
        if self.set.spec.persistent_volume_claim_retention_policy.is_none() {
            return Ok(());
        }
        let policy = retention(&self.set);
        for pod in self.replicas.iter().flatten() {
            for claim in self.claims_of(pod) {
                let by_set = policy.delete_with_set.then(|| controller_ref(&*self.set));
                self.own(&claim, by_set, uid_of(&*self.set), uid_of(&**pod)).await?;
            }
        }
        Ok(())
    }

    /// Makes a surplus pod the owner of its claims, if the policy deletes them on scale-down.
    pub(super) async fn own_claims_by_pod(&self, pod: &Pod) -> Result<()> {
        if !retention(&self.set).delete_with_scale {
            return Ok(());
        }
        for claim in self.claims_of(pod) {
            let by_pod = Some(OwnerReference { controller: Some(true), ..controller_ref(pod) });
            self.own(&claim, by_pod, uid_of(pod), uid_of(&*self.set)).await?;
        }
        Ok(())
    }

    fn claims_of(&self, pod: &Pod) -> Vec<Arc<PersistentVolumeClaim>> {
        let Some(ordinal) = ordinal(&self.set, pod) else { return Vec::new() };
        let cache = &self.this.context.caches.volume_claims;
        let templates = self.set.spec.volume_claim_templates.iter().flatten();
        let names = templates.map(|template| claim_name(&self.set, name_of(template), ordinal));
        names.filter_map(|name| cache.find(namespace_of(&*self.set), &name)).collect()
    }

    /// Makes `owner` (with UID `mine`) an owner of the claim, and removes `other`.
    async fn own(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        owner: Option<OwnerReference>,
        mine: &str,
        other: &str,
    ) -> Result<()> {
        let mut next = PersistentVolumeClaim::clone(claim);
        let owners = next.metadata.owner_references.get_or_insert_default();
        owners.retain(|reference| reference.uid != mine && reference.uid != other);
        owners.extend(owner);
        if owners.is_empty() {
            next.metadata.owner_references = None;
        }
        self.this.writer.update(claim, &next).await.map(drop)
    }
}
