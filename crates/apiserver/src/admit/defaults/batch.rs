//! Defaults of jobs.

use serde_json::Value;

use super::template;
use crate::admit::json::{Fill, Read};

/// A Job.
pub(super) fn job(job: &mut Value) {
    let Some(spec) = job.inner_or_new("spec") else { return };
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.put("completions", 1);
    }
    spec.fill("parallelism", 1);
    let retries = if spec.has("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    spec.fill("backoffLimit", retries);
    spec.fill("completionMode", "NonIndexed");
    spec.fill("suspend", false);
    spec.fill("manualSelector", false);
    let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.fill("podReplacementPolicy", replacement);
    failure_policy(spec);
    template(spec, "template");
    let labels = spec["template"]["metadata"]["labels"].clone();
    if labels.is_object()
        && let Some(meta) = job.inner_or_new("metadata")
    {
        meta.fill_zero("labels", labels);
    }
}

fn failure_policy(spec: &mut Value) {
    let Some(policy) = spec.inner("podFailurePolicy") else { return };
    policy.items("rules").flat_map(|rule| rule.items("onPodConditions")).for_each(|condition| {
        condition.fill_zero("status", "True");
    });
}

/// A CronJob. Its jobs get their own defaults when they are created.
pub(super) fn cron_job(job: &mut Value) {
    let Some(spec) = job.inner_or_new("spec") else { return };
    spec.fill_zero("concurrencyPolicy", "Allow");
    spec.fill("suspend", false);
    spec.fill("successfulJobsHistoryLimit", 3);
    spec.fill("failedJobsHistoryLimit", 1);
    if let Some(job) = spec.inner("jobTemplate").and_then(|template| template.inner("spec")) {
        failure_policy(job);
        template(job, "template");
    }
}
