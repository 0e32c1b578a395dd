//! Pods that are copies of one that was admitted: where thousands of nodes are played, each would be admitted to the same
//! effect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_apiserver::error::{Result, Status};
use k8s_openapi::api::apps::v1::DaemonSet;

use super::super::common::uid_of;
use super::{Step, place};
use crate::Pod;
use crate::informer::Cache;
use crate::writer::{Mould, Place};

/// Of each set, by its UID, the generation and a pod of it.
type Kept = HashMap<String, (Option<i64>, Arc<Mould>)>;

/// What copies are made of.
pub(super) struct Moulds {
    /// Whether pods are copied at all.
    copies: bool,
    kept: Mutex<Kept>,
}

impl Moulds {
    /// Keeps them as long as there are their sets.
    pub(super) fn keep(sets: &Cache<DaemonSet>, copies: bool) -> Arc<Self> {
        let moulds = Arc::new(Self { copies, kept: Mutex::default() });
        let told = Arc::downgrade(&moulds);
        sets.subscribe(move |change| {
            if change.new.is_none()
                && let Some(moulds) = told.upgrade()
            {
                moulds.kept().remove(uid_of(&**change.last()));
            }
        });
        moulds
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Step<'_> {
    /// Creates pods for nodes. Answers why there are not all of them.
    pub(super) async fn create(&self, nodes: &[Arc<str>]) -> Option<Status> {
        // A quota counts pods one by one.
        if !self.moulds.copies || !self.this.context.caches.resource_quotas.is_empty() {
            let pods = nodes.iter().map(|node| self.pod_for(node)).collect();
            return self.this.create_pods(&*self.set, pods).await.1;
        }
        for node in nodes {
            if let Err(error) = self.copy(node).await {
                return Some(error);
            }
            // Whoever places and runs pods must get on as fast as pods come.
            tokio::task::yield_now().await;
        }
        None
    }

    /// Deletes a pod.
    pub(super) async fn delete(&self, pod: &Pod) -> Result<()> {
        // What is wrong, the longer way tells.
        let marked = self.moulds.copies && self.this.writer.mark(pod).await.unwrap_or(false);
        if marked { Ok(()) } else { self.this.delete_pod(&*self.set, pod).await }
    }

    fn pod_for(&self, node: &str) -> Pod {
        place::pod_for(&self.set, node, &self.hash)
    }

    /// Creates a pod: the first one of a generation in full, others like it. Where a scheduler could only agree they are
    /// on their nodes at once.
    async fn copy(&self, node: &str) -> Result<()> {
        let (uid, generation) = (uid_of(&*self.set), self.set.metadata.generation);
        let kept = self.moulds.kept().get(uid).filter(|(of, _)| *of == generation).cloned();
        if let Some((_, mould)) = kept {
            let affinity = place::affinity_for(&self.set, node);
            let place = Place { affinity, node: mould.is_light().then_some(node) };
            return self.this.writer.cast(&mould, place).await.map(drop);
        }
        let mould = self.this.writer.mould(&self.pod_for(node)).await?;
        self.moulds.kept().insert(uid.to_owned(), (generation, Arc::new(mould)));
        Ok(())
    }
}
