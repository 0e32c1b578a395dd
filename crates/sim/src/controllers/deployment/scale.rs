//! Proportional scaling: a new replica count is spread over the existing revisions during a rollout.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use k8s_openapi::api::apps::v1::ReplicaSet;

use super::super::common::{created_at, name_of, parse_annotation};
use super::{DESIRED, MAX, Step, available, recreates, replicas, total};

impl Step<'_> {
    /// Scales the ReplicaSets to the desired replica count without moving pods between revisions.
    pub(super) async fn scale(&mut self) -> Result<()> {
        if let Some(only) = self.active_or_latest() {
            if replicas(&only) != self.replicas() || self.is_scaled() {
                self.resize(&only, self.replicas()).await?;
            }
            return Ok(());
        }
        if self.new_set().is_some_and(|new| self.is_saturated(&new)) {
            for old in self.old_sets().iter().filter(|set| replicas(set) > 0) {
                self.resize(old, 0).await?;
            }
            return Ok(());
        }
        if recreates(&self.deployment) { Ok(()) } else { self.scale_in_proportion().await }
    }

    /// The only ReplicaSet with replicas, or the newest if none has any; `None` if several have.
    fn active_or_latest(&self) -> Option<Arc<ReplicaSet>> {
        let active: Vec<_> = self.sets.iter().filter(|set| replicas(set) > 0).cloned().collect();
        match active.as_slice() {
            [] => self.new_set().or_else(|| self.old_sets().last().cloned()),
            [only] => Some(only.clone()),
            _ => None,
        }
    }

    /// Whether the new ReplicaSet has all replicas of the Deployment, available.
    fn is_saturated(&self, set: &ReplicaSet) -> bool {
        let wanted = self.replicas();
        replicas(set) == wanted && parse_annotation(&set.metadata, DESIRED) == Some(wanted) && available(set) == wanted
    }

    async fn scale_in_proportion(&mut self) -> Result<()> {
        let mut sets: Vec<_> = self.sets.iter().filter(|set| replicas(set) > 0).cloned().collect();
        let allowed = if self.replicas() > 0 { self.replicas() + self.max_surge() } else { 0 };
        let change = allowed - total(&sets);
        // Larger ones get a larger share; of equal ones the newer when scaling up, the older when scaling down.
        sets.sort_by_key(|set| {
            let age = if change > 0 { -created_at(&**set) } else { created_at(&**set) };
            (-replicas(set), age, name_of(&**set).to_owned())
        });
        let mut given = 0;
        let mut sizes: Vec<i32> = Vec::with_capacity(sets.len());
        for set in &sets {
            let share = if change == 0 { 0 } else { self.share(set, change, given) };
            given += share;
            sizes.push(replicas(set) + share);
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + change - given).max(0);
        }
        for (set, size) in sets.iter().zip(sizes) {
            self.resize(set, size).await?;
        }
        Ok(())
    }

    /// A ReplicaSet's share of a change, of which `given` went to others.
    fn share(&self, set: &ReplicaSet, change: i32, given: i32) -> i32 {
        let fraction = self.fraction(set);
        let left = change - given;
        if change > 0 { fraction.min(left) } else { fraction.max(left) }
    }

    fn fraction(&self, set: &ReplicaSet) -> i32 {
        if self.replicas() == 0 {
            return -replicas(set);
        }
        let now = self.replicas() + self.max_surge();
        let before = parse_annotation(&set.metadata, MAX)
            .filter(|max| *max > 0)
            .or_else(|| self.deployment.status.as_ref().and_then(|status| status.replicas))
            .filter(|max| *max > 0)
            .unwrap_or(now);
        let size = f64::from(replicas(set)) * f64::from(now) / f64::from(before);
        size.round() as i32 - replicas(set)
    }
}
