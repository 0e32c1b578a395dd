//! Deletes finished Jobs after `ttlSecondsAfterFinished`.

use std::time::Duration;

use capstan_apiserver::ops::{DeleteOptions, Propagation};
use k8s_openapi::api::batch::v1::Job;

use super::super::common::{Controller, Outcome, Reconciled, ignore_not_found};
use super::policy::is_finished;
use crate::context::Context;

pub(super) fn start(context: &Context) {
    let controller = Controller::new(context, "ttl-after-finished-controller", "ttl-after-finished-controller");
    let queue = controller.queue.clone();
    context.caches.jobs.subscribe(move |change| {
        if change.new.is_some_and(|job| ttl(job).is_some() && is_finished(job)) {
            queue.add(change.key.clone());
        }
    });
    controller.run(1, |this, key| async move { reconcile(&this, &key).await });
}

fn ttl(job: &Job) -> Option<i64> {
    job.spec.as_ref()?.ttl_seconds_after_finished.map(i64::from)
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(job) = this.context.caches.jobs.get(key) else { return Ok(Outcome::Done) };
    let (Some(ttl), Some(ended)) = (ttl(&job), ended(&job)) else { return Ok(Outcome::Done) };
    if job.metadata.deletion_timestamp.is_some() {
        return Ok(Outcome::Done);
    }
    let left = ended + ttl - this.now().0.as_second();
    if left > 0 {
        return Ok(Outcome::RequeueAfter(Duration::from_secs(u64::try_from(left).unwrap_or(0))));
    }
    let options = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
    ignore_not_found(this.writer.delete(&*job, options).await)?;
    Ok(Outcome::Done)
}

/// When the Job finished, in seconds.
fn ended(job: &Job) -> Option<i64> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let last =
        conditions.iter().find(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True");
    last?.last_transition_time.as_ref().map(|time| time.0.as_second())
}
