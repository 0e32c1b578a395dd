//! Status of a StatefulSet.

use std::time::Duration;

use capstan_apiserver::error::Result;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};

use super::super::common::{name_of, nonzero, uid_of};
use super::super::pods;
use super::{Step, is_healthy, ordinal, revision_of};

impl Step<'_> {
    /// Writes the status after all steps. Returns the delay until the next ready pod becomes available.
    pub(super) async fn write_status(&mut self) -> Result<Option<Duration>> {
        let now = self.this.now();
        let cache = &self.this.context.caches.pods;
        let pods = cache.controlled_by(uid_of(&*self.set));
        let old = self.set.status.clone().unwrap_or_default();
        let (current, update) = (name_of(&*self.current), name_of(&*self.update));
        let (mut all, mut ready, mut available, mut currents, mut updates) = (0, 0, 0, 0, 0);
        let mut wait = None::<Duration>;
        for pod in pods.iter().filter(|pod| ordinal(&self.set, pod).is_some()) {
            all += 1;
            if is_healthy(pod) {
                ready += 1;
                match pods::until_available(pod, self.set.spec.min_ready_seconds, &now) {
                    Some(Duration::ZERO) => available += 1,
                    Some(left) => wait = Some(wait.map_or(left, |wait| wait.min(left))),
                    None => {}
                }
            }
            if !pods::is_deleting(pod) {
                currents += i32::from(revision_of(pod) == Some(current));
                updates += i32::from(revision_of(pod) == Some(update));
            }
        }
        let mut status = StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            replicas: all,
            ready_replicas: nonzero(ready),
            available_replicas: Some(available),
            current_replicas: nonzero(currents),
            updated_replicas: nonzero(updates),
            current_revision: Some(current.to_owned()),
            update_revision: Some(update.to_owned()),
            collision_count: Some(old.collision_count.unwrap_or(0)),
            conditions: old.conditions,
        };
        let wanted = self.set.spec.replicas.unwrap_or(1);
        if self.is_rolling_update() && [all, ready, updates] == [wanted; 3] {
            status.current_replicas = nonzero(updates);
            status.current_revision.clone_from(&status.update_revision);
        }
        let mut next = StatefulSet::clone(&self.set);
        next.status = Some(status);
        self.set = self.this.writer.update_status(&self.set, &next).await?;
        Ok(wait)
    }
}
