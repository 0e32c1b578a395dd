//! Copies of an admitted pod: with thousands of simulated nodes, admission would give the same result for each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_apiserver::error::{Result, Status};
use k8s_openapi::api::apps::v1::DaemonSet;

use super::super::common::uid_of;
use super::{Step, eligibility};
use crate::Pod;
use crate::informer::Cache;
use crate::writer::{Placement, PodTemplateCopy};

/// Per DaemonSet UID: the generation and an admitted pod of it.
type TemplatesByUid = HashMap<String, (Option<i64>, Arc<PodTemplateCopy>)>;

/// Admitted pods that serve as templates of copies.
pub(super) struct PodTemplates {
    /// Whether pods are copied at all.
    copies: bool,
    templates: Mutex<TemplatesByUid>,
}

impl PodTemplates {
    /// Retains templates while their DaemonSets exist.
    pub(super) fn start(sets: &Cache<DaemonSet>, copies: bool) -> Arc<Self> {
        let template_copies = Arc::new(Self { copies, templates: Mutex::default() });
        let weak = Arc::downgrade(&template_copies);
        sets.subscribe(move |change| {
            if change.new.is_none()
                && let Some(template_copies) = weak.upgrade()
            {
                template_copies.lock().remove(uid_of(&**change.last()));
            }
        });
        template_copies
    }

    fn lock(&self) -> MutexGuard<'_, TemplatesByUid> {
        self.templates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Step<'_> {
    /// Creates pods for nodes. Returns the error that stopped it, if any.
    pub(super) async fn create(&self, nodes: &[Arc<str>]) -> Option<Status> {
        // A ResourceQuota counts pods one by one.
        if !self.template_copies.copies || !self.this.context.caches.resource_quotas.is_empty() {
            let pods = nodes.iter().map(|node| self.pod_for(node)).collect();
            return self.this.create_pods(&*self.set, pods).await.1;
        }
        for node in nodes {
            if let Err(error) = self.copy(node).await {
                return Some(error);
            }
            // Scheduler and kubelets must keep up with the creates.
            tokio::task::yield_now().await;
        }
        None
    }

    /// Deletes a pod.
    pub(super) async fn delete(&self, pod: &Pod) -> Result<()> {
        // On an error, the full request below reports it.
        let marked = self.template_copies.copies && self.this.writer.mark_for_deletion(pod).await.unwrap_or(false);
        if marked { Ok(()) } else { self.this.delete_pod(&*self.set, pod).await }
    }

    fn pod_for(&self, node: &str) -> Pod {
        eligibility::pod_for(&self.set, node, &self.hash)
    }

    /// Creates a pod: the first of a generation through full admission, the others as copies. Copies are bound to their
    /// nodes at once where the scheduler could only agree.
    async fn copy(&self, node: &str) -> Result<()> {
        let (uid, generation) = (uid_of(&*self.set), self.set.metadata.generation);
        let templates = self.template_copies.lock().get(uid).filter(|(of, _)| *of == generation).cloned();
        if let Some((_, template_copy)) = templates {
            let affinity = eligibility::affinity_for(&self.set, node);
            let placement = Placement { affinity, node: template_copy.fits_everywhere().then_some(node) };
            return self.this.writer.create_copy(&template_copy, placement).await.map(drop);
        }
        let template_copy = self.this.writer.template_copy(&self.pod_for(node)).await?;
        self.template_copies.lock().insert(uid.to_owned(), (generation, Arc::new(template_copy)));
        Ok(())
    }
}
