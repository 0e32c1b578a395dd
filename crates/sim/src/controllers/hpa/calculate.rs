//! Desired replica count from metrics.

use capstan_semantics::LabelSelector;
use capstan_semantics::Quantity;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricStatus, HorizontalPodAutoscaler, MetricSpec, MetricStatus,
    MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use std::sync::Arc;

use super::super::common::{Controller, namespace_of};
use super::super::pods;
use super::metrics::{Metrics, Sample};
use super::status::Report;
use crate::Pod;

/// Tolerance around the target within which nothing is scaled, in thousandths.
const TOLERANCE: i64 = 100;

/// Desired replica count over all metrics.
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// The metric with the highest count.
    pub(super) name: String,
    pub(super) statuses: Vec<MetricStatus>,
}

/// Desired replica count by one metric.
struct MetricProposal {
    replicas: i32,
    name: String,
    status: MetricStatus,
}

/// Evaluates all metrics; the largest count wins. `None` if none is available, or if the unavailable ones could raise
/// the count.
pub(super) fn propose(
    this: &Controller,
    metrics: Option<&dyn Metrics>,
    hpa: &HorizontalPodAutoscaler,
    selector: &str,
    current: i32,
    report: &mut Report,
) -> Option<Proposal> {
    let selector = LabelSelector::parse(selector).unwrap_or_default();
    let mut pods = this.context.caches.pods.in_namespace(namespace_of(hpa));
    pods.retain(|pod| {
        let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
        !selector.is_empty() && selector.matches(label)
    });
    let view = View { metrics, hpa, pods, current };
    let (mut best, mut statuses, mut failure) = (None::<MetricProposal>, Vec::new(), None);
    let specs = hpa.spec.metrics.clone().unwrap_or_default();
    for spec in &specs {
        match view.evaluate(spec) {
            Ok(answer) => {
                statuses.push(answer.status.clone());
                if best.as_ref().is_none_or(|best| answer.replicas > best.replicas) {
                    best = Some(answer);
                }
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let hidden = failure.is_some() && best.as_ref().is_none_or(|best| best.replicas < current);
    if let (true, Some((reason, message))) = (best.is_none() || hidden, failure) {
        this.warning(hpa, reason, message.clone());
        let message = format!("the HPA was unable to compute the replica count: {message}");
        report.set("ScalingActive", "False", reason, message);
        return None;
    }
    let MetricProposal { replicas, name, .. } = best?;
    let message = format!("the HPA was able to successfully calculate a replica count from {name}");
    report.set("ScalingActive", "True", "ValidMetricFound", message);
    Some(Proposal { replicas, name, statuses })
}

type Failure = (&'static str, String);

struct View<'a> {
    metrics: Option<&'a dyn Metrics>,
    hpa: &'a HorizontalPodAutoscaler,
    pods: Vec<Arc<Pod>>,
    current: i32,
}

impl View<'_> {
    fn evaluate(&self, spec: &MetricSpec) -> Result<MetricProposal, Failure> {
        match spec.type_.as_str() {
            "Resource" => self.resource(spec),
            "ContainerResource" => self.container_resource(spec),
            "Pods" => self.pods_metric(spec),
            "Object" => self.object(spec),
            "External" => self.external(spec),
            other => Err(("InvalidMetricSourceType", format!("unknown metric source type \"{other}\""))),
        }
    }

    fn resource(&self, spec: &MetricSpec) -> Result<MetricProposal, Failure> {
        let source = spec.resource.as_ref().ok_or_else(invalid)?;
        let samples = self.samples(|pod| Sample {
            value: self.usage(pod, &source.name, None),
            request: request(pod, &source.name, None),
            ready: pods::is_ready(pod),
        });
        let what = format!("{} resource", source.name);
        let (replicas, current) = self.of_samples(&samples, &source.target, "FailedGetResourceMetric", &source.name)?;
        let status = ResourceMetricStatus { name: source.name.clone(), current };
        let status = MetricStatus { type_: spec.type_.clone(), resource: Some(status), ..MetricStatus::default() };
        Ok(MetricProposal { replicas, name: described(&what, &source.target), status })
    }

    fn container_resource(&self, spec: &MetricSpec) -> Result<MetricProposal, Failure> {
        let source = spec.container_resource.as_ref().ok_or_else(invalid)?;
        let only = Some(source.container.as_str());
        let samples = self.samples(|pod| Sample {
            value: self.usage(pod, &source.name, only),
            request: request(pod, &source.name, only),
            ready: pods::is_ready(pod),
        });
        let what = format!("{} container resource", source.name);
        let reason = "FailedGetContainerResourceMetric";
        let (replicas, current) = self.of_samples(&samples, &source.target, reason, &source.name)?;
        let status =
            ContainerResourceMetricStatus { name: source.name.clone(), container: source.container.clone(), current };
        let status =
            MetricStatus { type_: spec.type_.clone(), container_resource: Some(status), ..MetricStatus::default() };
        Ok(MetricProposal { replicas, name: described(&what, &source.target), status })
    }

    fn pods_metric(&self, spec: &MetricSpec) -> Result<MetricProposal, Failure> {
        let source = spec.pods.as_ref().ok_or_else(invalid)?;
        let samples = self.samples(|pod| Sample {
            value: self.metrics.and_then(|metrics| metrics.pod(pod, &source.metric)),
            request: None,
            ready: pods::is_ready(pod),
        });
        let (replicas, current) =
            self.of_samples(&samples, &source.target, "FailedGetPodsMetric", &source.metric.name)?;
        let status = PodsMetricStatus { metric: source.metric.clone(), current };
        let status = MetricStatus { type_: spec.type_.clone(), pods: Some(status), ..MetricStatus::default() };
        Ok(MetricProposal { replicas, name: format!("pods metric {}", source.metric.name), status })
    }

    fn object(&self, spec: &MetricSpec) -> Result<MetricProposal, Failure> {
        let source = spec.object.as_ref().ok_or_else(invalid)?;
        let object = &source.described_object;
        let found = self.metrics.and_then(|one| one.object(namespace_of(self.hpa), object, &source.metric));
        let value = found.ok_or_else(|| {
            let message = format!(
                "failed to get object metric value: unable to get metric {}: {} on {} {}/unable to fetch metrics from \
                 custom metrics API",
                source.metric.name,
                object.kind,
                namespace_of(self.hpa),
                object.name
            );
            ("FailedGetObjectMetric", message)
        })?;
        let (replicas, current) = self.of_total(value, &source.target)?;
        let status = ObjectMetricStatus { metric: source.metric.clone(), described_object: object.clone(), current };
        let status = MetricStatus { type_: spec.type_.clone(), object: Some(status), ..MetricStatus::default() };
        Ok(MetricProposal { replicas, name: format!("{} metric {}", object.kind, source.metric.name), status })
    }

    fn external(&self, spec: &MetricSpec) -> Result<MetricProposal, Failure> {
        let source = spec.external.as_ref().ok_or_else(invalid)?;
        let found = self.metrics.and_then(|one| one.external(namespace_of(self.hpa), &source.metric));
        let value: i64 = found.map(|values| values.iter().sum()).ok_or_else(|| {
            let (namespace, name) = (namespace_of(self.hpa), &source.metric.name);
            let message = format!(
                "failed to get {name} external metric value: unable to get external metric \
                                   {namespace}/{name}: unable to fetch metrics from external metrics API"
            );
            ("FailedGetExternalMetric", message)
        })?;
        let (replicas, current) = self.of_total(value, &source.target)?;
        let status = ExternalMetricStatus { metric: source.metric.clone(), current };
        let status = MetricStatus { type_: spec.type_.clone(), external: Some(status), ..MetricStatus::default() };
        Ok(MetricProposal { replicas, name: format!("external metric {}", source.metric.name), status })
    }

    fn samples(&self, of: impl Fn(&Pod) -> Sample) -> Vec<Sample> {
        self.pods.iter().filter(|pod| pods::is_active(pod)).map(|pod| of(pod)).collect()
    }

    /// Usage of a resource by a pod or one of its containers.
    fn usage(&self, pod: &Pod, resource: &str, container: Option<&str>) -> Option<i64> {
        let metrics = self.metrics?;
        let containers = containers(pod).filter(|one| container.is_none_or(|name| one.name == name));
        containers.map(|one| metrics.container(pod, &one.name, resource)).sum()
    }

    /// A metric with a value per pod.
    fn of_samples(
        &self,
        samples: &[Sample],
        target: &MetricTarget,
        reason: &'static str,
        name: &str,
    ) -> Result<(i32, MetricValueStatus), Failure> {
        let ready: Vec<&Sample> = samples.iter().filter(|one| one.ready && one.value.is_some()).collect();
        if ready.is_empty() {
            let message = match self.metrics {
                None => format!(
                    "unable to get metrics for resource {name}: unable to fetch metrics from resource \
                                 metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)"
                ),
                Some(_) => format!(
                    "unable to get metrics for resource {name}: no metrics returned from resource \
                                    metrics API"
                ),
            };
            return Err((reason, format!("failed to get {name} utilization: {message}")));
        }
        let used: i64 = ready.iter().filter_map(|one| one.value).sum();
        let count = i64::try_from(ready.len()).unwrap_or(i64::MAX);
        let average = Amount(milli(used / count));
        let (goal, of, utilization) = match target.average_utilization {
            Some(goal) => {
                if samples.iter().any(|one| one.request.is_none()) {
                    let message = format!("failed to get {name} utilization: missing request for {name}");
                    return Err((reason, message));
                }
                let requested: i64 = ready.iter().filter_map(|one| one.request).sum();
                let percent = used.saturating_mul(100) / requested.max(1);
                (i64::from(goal), TargetBasis::Request, Some(i32::try_from(percent).unwrap_or(i32::MAX)))
            }
            None => (value_of(target.average_value.as_ref()), TargetBasis::Pod, None),
        };
        let replicas = self.replicas(samples, goal, of);
        let current = MetricValueStatus { average_value: Some(average), average_utilization: utilization, value: None };
        Ok((replicas, current))
    }

    /// The replica count at which the average meets the target. A pod without a sample is assumed to oppose the change.
    fn replicas(&self, samples: &[Sample], goal: i64, of: TargetBasis) -> i32 {
        let goal = goal.max(1);
        let share = |samples: &[(i64, i64)]| -> i64 {
            let (used, base): (i64, i64) = samples.iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
            match of {
                TargetBasis::Request => used.saturating_mul(100_000) / base.max(1) / goal,
                TargetBasis::Pod => {
                    used.saturating_mul(1000) / (goal * i64::try_from(samples.len()).unwrap_or(1)).max(1)
                }
            }
        };
        let known = |one: &Sample| Some((one.value?, one.request.unwrap_or(0)));
        let mut counted: Vec<(i64, i64)> = samples.iter().filter(|one| one.ready).filter_map(known).collect();
        let ratio = share(&counted);
        let missing = samples.iter().filter(|one| !one.ready || one.value.is_none());
        let missing: Vec<i64> = missing.map(|one| one.request.unwrap_or(0)).collect();
        if missing.is_empty() || self.is_close(ratio) {
            return self.scaled(ratio, counted.len());
        }
        for request in &missing {
            let value = match (ratio > 1000, of) {
                (true, _) => 0,
                (false, TargetBasis::Request) => request.saturating_mul(goal) / 100,
                (false, TargetBasis::Pod) => goal,
            };
            counted.push((value, *request));
        }
        let again = share(&counted);
        // If pods without samples reverse the direction, do not scale.
        if self.is_close(again) || (ratio > 1000) != (again > 1000) {
            return self.current;
        }
        let replicas = self.scaled(again, counted.len());
        if (ratio > 1000 && replicas < self.current) || (ratio < 1000 && replicas > self.current) {
            return self.current;
        }
        replicas
    }

    fn is_close(&self, ratio: i64) -> bool {
        (ratio - 1000).abs() <= TOLERANCE
    }

    fn scaled(&self, ratio: i64, pods: usize) -> i32 {
        if self.is_close(ratio) {
            return self.current;
        }
        let pods = i64::try_from(pods).unwrap_or(i64::MAX);
        i32::try_from((ratio * pods + 999) / 1000).unwrap_or(i32::MAX)
    }

    /// A metric with one value for all pods.
    fn of_total(&self, value: i64, target: &MetricTarget) -> Result<(i32, MetricValueStatus), Failure> {
        if let Some(average) = &target.average_value {
            let goal = value_of(Some(average)).max(1);
            let ratio = value.saturating_mul(1000) / (goal * i64::from(self.current.max(1)));
            let replicas = if self.is_close(ratio) {
                self.current
            } else {
                i32::try_from((value + goal - 1) / goal).unwrap_or(i32::MAX)
            };
            let per_pod = Amount(milli((value + i64::from(self.current.max(1)) - 1) / i64::from(self.current.max(1))));
            return Ok((replicas, MetricValueStatus { average_value: Some(per_pod), ..MetricValueStatus::default() }));
        }
        let goal = value_of(target.value.as_ref()).max(1);
        let ready = self.pods.iter().filter(|pod| pods::is_active(pod) && pods::is_ready(pod)).count();
        let replicas = self.scaled(value.saturating_mul(1000) / goal, ready);
        Ok((replicas, MetricValueStatus { value: Some(Amount(milli(value))), ..MetricValueStatus::default() }))
    }
}

/// What a target relates to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TargetBasis {
    /// Percentage of the resource request.
    Request,
    /// A value per pod.
    Pod,
}

fn invalid() -> Failure {
    ("InvalidMetricSourceType", "the metric says nothing about its source".to_owned())
}

fn described(what: &str, target: &MetricTarget) -> String {
    match target.average_utilization {
        Some(_) => format!("{what} utilization (percentage of request)"),
        None => what.to_owned(),
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pods::spec(pod);
    let sidecars = spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    spec.containers.iter().chain(sidecars)
}

fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Option<i64> {
    let containers = containers(pod).filter(|one| container.is_none_or(|name| one.name == name));
    containers
        .map(|one| one.resources.as_ref()?.requests.as_ref()?.get(resource).map(|amount| value_of(Some(amount))))
        .sum()
}

fn value_of(amount: Option<&Amount>) -> i64 {
    amount.and_then(|amount| Quantity::parse(&amount.0).ok()).map_or(0, |amount| amount.milli())
}

/// Formats a quantity in thousandths.
fn milli(value: i64) -> String {
    Quantity::parse(&format!("{value}m")).map_or_else(|_| value.to_string(), |amount| amount.to_string())
}
