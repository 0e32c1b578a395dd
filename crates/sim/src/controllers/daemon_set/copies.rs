//! Copies of an admitted pod: with thousands of simulated nodes, admission would give the same result for each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_apiserver::error::{Result, Status};
use k8s_openapi::api::apps::v1::DaemonSet;

use super::super::common::uid_of;
use super::{Step, place};
use crate::Pod;
use crate::informer::Cache;
use crate::writer::{Place, PodTemplateCopy};

/// Per DaemonSet UID: the generation and an admitted pod of it.
type Kept = HashMap<String, (Option<i64>, Arc<PodTemplateCopy>)>;

/// Admitted pods that serve as templates of copies.
pub(super) struct PodTemplates {
    /// Whether pods are copied at all.
    copies: bool,
    kept: Mutex<Kept>,
}

impl PodTemplates {
    /// Retains templates while their DaemonSets exist.
    pub(super) fn keep(sets: &Cache<DaemonSet>, copies: bool) -> Arc<Self> {
        let template_copies = Arc::new(Self { copies, kept: Mutex::default() });
        let told = Arc::downgrade(&template_copies);
        sets.subscribe(move |change| {
            if change.new.is_none()
                && let Some(template_copies) = told.upgrade()
            {
                template_copies.kept().remove(uid_of(&**change.last()));
            }
        });
        template_copies
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
        let marked = self.template_copies.copies && self.this.writer.mark(pod).await.unwrap_or(false);
        if marked { Ok(()) } else { self.this.delete_pod(&*self.set, pod).await }
    }

    fn pod_for(&self, node: &str) -> Pod {
        place::pod_for(&self.set, node, &self.hash)
    }

    /// Creates a pod: the first of a generation through full admission, the others as copies. Copies are bound to their
    /// nodes at once where the scheduler could only agree.
    async fn copy(&self, node: &str) -> Result<()> {
        let (uid, generation) = (uid_of(&*self.set), self.set.metadata.generation);
        let kept = self.template_copies.kept().get(uid).filter(|(of, _)| *of == generation).cloned();
        if let Some((_, template_copy)) = kept {
            let affinity = place::affinity_for(&self.set, node);
            let place = Place { affinity, node: template_copy.is_light().then_some(node) };
            return self.this.writer.cast(&template_copy, place).await.map(drop);
        }
        let template_copy = self.this.writer.template_copy(&self.pod_for(node)).await?;
        self.template_copies.kept().insert(uid.to_owned(), (generation, Arc::new(template_copy)));
        Ok(())
    }
}
