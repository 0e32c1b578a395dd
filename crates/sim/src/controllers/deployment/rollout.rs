//! Rollout strategies: `RollingUpdate` and `Recreate`.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::apps::v1::ReplicaSet;

use super::super::common::{Reconciled, ignore_not_found, parse_annotation, uid_of};
use super::super::pods;
use super::sets::IfMissing;
use super::{REVISION, Step, available, replicas, total};

impl Step<'_> {
    /// Rolling update: scales the new ReplicaSet up within `maxSurge`, then old ones down within `maxUnavailable`.
    pub(super) async fn roll(&mut self) -> Reconciled {
        self.sync_new_set(IfMissing::Create).await?;
        if !self.scale_new_up().await? && !self.scale_old_down().await? && self.is_complete() {
            self.clean_up().await?;
        }
        self.write_rollout_status().await
    }

    /// Recreate: scales the new ReplicaSet up once all old pods are gone.
    pub(super) async fn recreate(&mut self) -> Reconciled {
        self.sync_new_set(IfMissing::Skip).await?;
        let mut scaled = false;
        for set in self.old_sets() {
            if replicas(&set) > 0 {
                self.resize(&set, 0).await?;
                scaled = true;
            }
        }
        if scaled || self.has_old_pods() {
            return self.write_rollout_status().await;
        }
        self.sync_new_set(IfMissing::Create).await?;
        if let Some(new) = self.new_set() {
            self.resize(&new, self.replicas()).await?;
        }
        if self.is_complete() {
            self.clean_up().await?;
        }
        self.write_rollout_status().await
    }

    fn has_old_pods(&self) -> bool {
        let cache = &self.this.context.caches.pods;
        self.old_sets().iter().any(|set| cache.controlled_by(uid_of(&**set)).iter().any(|pod| !pods::is_terminal(pod)))
    }

    async fn scale_new_up(&mut self) -> Result<bool> {
        let Some(new) = self.new_set() else { return Ok(false) };
        let (has, wants) = (replicas(&new), self.replicas());
        if has == wants {
            return Ok(false);
        }
        let size = if has > wants { wants } else { self.new_size(has) };
        self.resize(&new, size).await
    }

    /// Allowed size of the new ReplicaSet if it has `has` replicas.
    pub(super) fn new_size(&self, has: i32) -> i32 {
        if super::recreates(&self.deployment) {
            return self.replicas();
        }
        let room = self.replicas() + self.max_surge() - total(&self.sets);
        if room <= 0 { has } else { has + room.min(self.replicas() - has) }
    }

    async fn scale_old_down(&mut self) -> Result<bool> {
        let old = self.old_sets();
        if total(&old) == 0 {
            return Ok(false);
        }
        let min_available = self.replicas() - self.max_unavailable();
        let new_unavailable = self.new_set().map_or(0, |new| replicas(&new) - available(&new));
        let room = total(&self.sets) - min_available - new_unavailable;
        if room <= 0 {
            return Ok(false);
        }
        let cleaned = self.drop_unhealthy(room).await?;
        let scaled = self.drop_available(min_available).await?;
        Ok(cleaned || scaled)
    }

    /// Scales down unavailable old pods first.
    async fn drop_unhealthy(&mut self, mut room: i32) -> Result<bool> {
        let mut scaled = false;
        for set in self.old_sets() {
            let unhealthy = (replicas(&set) - available(&set)).min(room);
            if unhealthy > 0 {
                room -= unhealthy;
                scaled |= self.resize(&set, replicas(&set) - unhealthy).await?;
            }
        }
        Ok(scaled)
    }

    async fn drop_available(&mut self, min_available: i32) -> Result<bool> {
        let mut room = self.sets.iter().map(|set| available(set)).sum::<i32>() - min_available;
        let mut scaled = false;
        for set in self.old_sets() {
            let surplus = replicas(&set).min(room);
            if surplus > 0 {
                room -= surplus;
                scaled |= self.resize(&set, replicas(&set) - surplus).await?;
            }
        }
        Ok(scaled)
    }

    /// Deletes the oldest empty ReplicaSets beyond `revisionHistoryLimit`.
    pub(super) async fn clean_up(&mut self) -> Result<()> {
        let limit = usize::try_from(self.deployment.spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
        let mut old: Vec<Arc<ReplicaSet>> = self.old_sets();
        old.retain(|set| set.metadata.deletion_timestamp.is_none());
        old.sort_by_key(|set| parse_annotation::<i64>(&set.metadata, REVISION).unwrap_or(0));
        let surplus = old.len().saturating_sub(limit);
        for set in &old[..surplus] {
            let status = set.status.clone().unwrap_or_default();
            if status.replicas != 0 || replicas(set) != 0 || set.metadata.generation > status.observed_generation {
                continue;
            }
            ignore_not_found(self.this.writer.delete(&**set, DeleteOptions::default()).await)?;
            self.sets.retain(|mine| mine.metadata.uid != set.metadata.uid);
        }
        Ok(())
    }
}
