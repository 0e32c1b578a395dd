//! Status of a DaemonSet.

use std::time::Duration;

use capstan_apiserver::error::Result;
use k8s_openapi::api::apps::v1::DaemonSetStatus;

use super::super::common::nonzero;
use super::Step;
use super::eligibility::Eligibility;

impl Step<'_> {
    /// Writes the status. Returns the delay until the next ready pod becomes available.
    pub(super) async fn write_status(&mut self) -> Result<Option<Duration>> {
        let old = self.set.status.clone().unwrap_or_default();
        let mut status = DaemonSetStatus {
            observed_generation: self.set.metadata.generation,
            collision_count: old.collision_count,
            conditions: old.conditions,
            ..DaemonSetStatus::default()
        };
        let (mut available, mut updated, mut wait) = (0, 0, None::<Duration>);
        for (_, eligibility, pods) in self.set_index.nodes() {
            if eligibility != Eligibility::ShouldRun {
                status.number_misscheduled += i32::from(!pods.is_empty());
                continue;
            }
            status.desired_number_scheduled += 1;
            // With several pods on a node, the available one counts.
            let indexed = match pods {
                [one] => Some(one),
                several => several.iter().min_by_key(|indexed| (!indexed.is_ready, indexed.created, &indexed.key)),
            };
            let Some(indexed) = indexed else { continue };
            status.current_number_scheduled += 1;
            if let Some(left) = indexed.until_available(self.set.spec.min_ready_seconds, &self.now) {
                status.number_ready += 1;
                if left.is_zero() {
                    available += 1;
                } else {
                    wait = Some(wait.map_or(left, |wait| wait.min(left)));
                }
            }
            updated += i32::from(indexed.is_updated);
        }
        status.number_available = nonzero(available);
        status.number_unavailable = nonzero(status.desired_number_scheduled - available);
        status.updated_number_scheduled = nonzero(updated);
        self.set = self.this.writer.replace_status(&self.set, &self.set.status, &status).await?;
        Ok(wait)
    }
}
