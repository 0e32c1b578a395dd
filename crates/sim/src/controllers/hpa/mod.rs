//! HorizontalPodAutoscaler controller.
//!
//! Metrics come from [`Metrics`]. Each autoscaler syncs every 15 seconds: it computes a replica count and applies the
//! bounds, scaling policies and stabilization windows.

mod calculate;
mod metrics;
mod scaling_history;
mod status;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_apiserver::error::{Result, Status};
use capstan_apiserver::ops::{GetOptions, Patch, PatchKind, Target, WriteOptions};
use capstan_apiserver::registry::group_version;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::{Value, json};

use super::common::{Controller, Outcome, Reconciled, namespace_of, uid_of};
use crate::context::Context;
use calculate::Proposal;
pub use metrics::Metrics;
use scaling_history::ScalingHistory;
use status::Report;

/// Sync period.
const SYNC_PERIOD: Duration = Duration::from_secs(15);

pub(crate) fn start(context: &Context, metrics: Option<Arc<dyn Metrics>>) {
    let controller = Controller::new(context, "horizontal-pod-autoscaler", "horizontal-pod-autoscaler");
    let queue = controller.queue.clone();
    context.caches.autoscalers.subscribe(move |change| {
        // An update, most often our own, must not shorten the sync period.
        let delay = if change.old.is_some() && change.new.is_some() { SYNC_PERIOD } else { Duration::ZERO };
        queue.add_after(change.key.clone(), delay);
    });
    let state = Arc::new(State { metrics, histories: Mutex::default() });
    controller.run(2, move |this, key| {
        let state = state.clone();
        async move { reconcile(&this, &state, &key).await }
    });
}

/// State of the controller between syncs.
struct State {
    metrics: Option<Arc<dyn Metrics>>,
    /// Recent recommendations and scale events, by UID of the autoscaler.
    histories: Mutex<HashMap<String, ScalingHistory>>,
}

async fn reconcile(this: &Controller, state: &State, key: &str) -> Reconciled {
    let Some(hpa) = this.context.caches.autoscalers.get(key) else {
        let known = this.context.caches.autoscalers.list();
        let mut histories = state.histories.lock().unwrap_or_else(PoisonError::into_inner);
        histories.retain(|uid, _| known.iter().any(|hpa| uid_of(&**hpa) == uid));
        return Ok(Outcome::Done);
    };
    let mut report = Report::of(&hpa, this.now());
    let scale = match read_scale(this, &hpa).await {
        Ok(scale) => scale,
        Err(error) => {
            this.warning(&*hpa, "FailedGetScale", error.to_string());
            let message = format!("the HPA controller was unable to get the target's current scale: {error}");
            report.set("AbleToScale", "False", "FailedGetScale", message);
            report.write(this, &hpa).await?;
            return Ok(Outcome::RequeueAfter(SYNC_PERIOD));
        }
    };
    let message = "the HPA controller was able to get the target's current scale";
    report.set("AbleToScale", "True", "SucceededGetScale", message);
    let current = i32::try_from(scale["spec"]["replicas"].as_i64().unwrap_or(0)).unwrap_or(i32::MAX);
    report.status.current_replicas =
        Some(i32::try_from(scale["status"]["replicas"].as_i64().unwrap_or(0)).unwrap_or(i32::MAX));
    let decided = decide(this, state, &hpa, &scale, current, &mut report);
    match decided {
        Decision::Stay => report.status.desired_replicas = current,
        Decision::Unknown => {}
        Decision::Resize(wanted, reason) => resize(this, state, &hpa, current, wanted, &reason, &mut report).await?,
    }
    report.write(this, &hpa).await?;
    Ok(Outcome::RequeueAfter(SYNC_PERIOD))
}

enum Decision {
    Stay,
    /// No metric is available; the previous status remains.
    Unknown,
    Resize(i32, String),
}

fn decide(
    this: &Controller,
    state: &State,
    hpa: &HorizontalPodAutoscaler,
    scale: &Value,
    current: i32,
    report: &mut Report,
) -> Decision {
    let (min, max) = (hpa.spec.min_replicas.unwrap_or(1), hpa.spec.max_replicas);
    if current == 0 && min != 0 {
        let message = "scaling is disabled since the replica count of the target is zero";
        report.set("ScalingActive", "False", "ScalingDisabled", message);
        return Decision::Stay;
    }
    if current > max {
        return Decision::Resize(max, "Current number of replicas above Spec.MaxReplicas".to_owned());
    }
    if current < min {
        return Decision::Resize(min, "Current number of replicas below Spec.MinReplicas".to_owned());
    }
    let selector = scale["status"]["selector"].as_str().unwrap_or_default();
    let Some(Proposal { replicas, name, statuses }) =
        calculate::propose(this, state.metrics.as_deref(), hpa, selector, current, report)
    else {
        return Decision::Unknown;
    };
    report.status.current_metrics = Some(statuses);
    let mut histories = state.histories.lock().unwrap_or_else(PoisonError::into_inner);
    let scaling_history = histories.entry(uid_of(hpa).to_owned()).or_default();
    let wanted = scaling_history.limit(hpa, current, replicas, report);
    match wanted.cmp(&current) {
        std::cmp::Ordering::Equal => Decision::Stay,
        std::cmp::Ordering::Greater => Decision::Resize(wanted, format!("{name} above target")),
        std::cmp::Ordering::Less => Decision::Resize(wanted, "All metrics below target".to_owned()),
    }
}

async fn resize(
    this: &Controller,
    state: &State,
    hpa: &HorizontalPodAutoscaler,
    current: i32,
    wanted: i32,
    reason: &str,
    report: &mut Report,
) -> Result<()> {
    match write_scale(this, hpa, wanted).await {
        Ok(()) => {
            let message = format!("the HPA controller was able to update the target scale to {wanted}");
            report.set("AbleToScale", "True", "SucceededRescale", message);
            report.status.desired_replicas = wanted;
            report.status.last_scale_time = Some(this.now());
            this.normal(hpa, "SuccessfulRescale", format!("New size: {wanted}; reason: {reason}"));
            let mut histories = state.histories.lock().unwrap_or_else(PoisonError::into_inner);
            histories.entry(uid_of(hpa).to_owned()).or_default().record_scale_event(current, wanted);
            Ok(())
        }
        Err(error) => {
            let message = format!("New size: {wanted}; reason: {reason}; error: {error}");
            this.warning(hpa, "FailedRescale", message);
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            report.set("AbleToScale", "False", "FailedUpdateScale", message);
            Ok(())
        }
    }
}

/// The scale subresource of the target.
fn scale_target(this: &Controller, hpa: &HorizontalPodAutoscaler) -> Result<Target> {
    let reference = &hpa.spec.scale_target_ref;
    let (group, version) = group_version(reference.api_version.as_deref().unwrap_or_default());
    let resource = this.context.server.registry().by_kind(group, version, &reference.kind);
    let resource = resource.filter(|resource| resource.has("scale")).ok_or_else(|| {
        Status::new(404, "NotFound", format!("no matches for kind \"{}\" in group \"{group}\"", reference.kind))
    })?;
    Ok(Target::one(resource, Some(namespace_of(hpa)), &reference.name).sub("scale"))
}

async fn read_scale(this: &Controller, hpa: &HorizontalPodAutoscaler) -> Result<Value> {
    let target = scale_target(this, hpa)?;
    let scale = this.context.server.get(this.writer.caller(), &target, &GetOptions::default()).await?;
    Ok(scale.value())
}

async fn write_scale(this: &Controller, hpa: &HorizontalPodAutoscaler, replicas: i32) -> Result<()> {
    let target = scale_target(this, hpa)?;
    let patch = Patch { kind: PatchKind::Merge, body: json!({"spec": {"replicas": replicas}}).into() };
    let options = WriteOptions { field_manager: "kube-controller-manager".to_owned(), ..WriteOptions::default() };
    this.context.server.patch(this.writer.caller(), &target, patch, &options).await.map(drop)
}
