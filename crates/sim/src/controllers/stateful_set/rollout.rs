//! Rolling update: highest ordinal first, down to the partition.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use k8s_openapi::api::apps::v1::RollingUpdateStatefulSetStrategy;

use super::super::common::{Round, name_of, scaled};
use super::super::pods;
use super::{Step, revision_of};
use crate::Pod;

impl Step<'_> {
    /// Whether the update strategy is `RollingUpdate`.
    pub(super) fn is_rolling_update(&self) -> bool {
        let strategy = self.set.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    /// Whether the pod of an ordinal remains at the current revision.
    pub(super) fn keeps_current_revision(&self, ordinal: i32) -> bool {
        if !self.is_rolling_update() {
            return false;
        }
        match self.rolling() {
            Some(rolling) => ordinal < self.first() + rolling.partition.unwrap_or(0),
            None => {
                let current = self.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0);
                ordinal < self.first() + current
            }
        }
    }

    /// Replaces outdated pods within `maxUnavailable`.
    pub(super) async fn roll(&mut self) -> Result<()> {
        if !self.is_rolling_update() {
            return Ok(());
        }
        let partition = self.rolling().and_then(|rolling| rolling.partition).unwrap_or(0);
        let from = usize::try_from(partition).unwrap_or(0).min(self.replicas.len());
        let mut room = self.max_unavailable();
        // An unavailable pod blocks those below it, but not its own replacement.
        for pod in self.replicas[from..].iter().rev() {
            if room == 0 {
                return Ok(());
            }
            match pod {
                Some(pod) if self.is_outdated(pod) => {
                    self.delete(pod).await?;
                    room -= 1;
                }
                Some(pod) if self.is_available(pod) => {}
                _ => room -= 1,
            }
        }
        Ok(())
    }

    fn is_outdated(&self, pod: &Arc<Pod>) -> bool {
        revision_of(pod) != Some(name_of(&*self.update)) && !pods::is_deleting(pod)
    }

    fn rolling(&self) -> Option<&RollingUpdateStatefulSetStrategy> {
        self.set.spec.update_strategy.as_ref()?.rolling_update.as_ref()
    }

    fn max_unavailable(&self) -> usize {
        let total = i32::try_from(self.replicas.len()).unwrap_or(i32::MAX);
        let value = self.rolling().and_then(|rolling| rolling.max_unavailable.as_ref());
        usize::try_from(scaled(value, total, Round::Up)).unwrap_or(1).max(1)
    }
}
