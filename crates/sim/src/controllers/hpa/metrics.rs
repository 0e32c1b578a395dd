//! Source of metrics, implemented by the code that runs the cluster.

use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, MetricIdentifier};

use crate::Pod;

/// Metrics API for autoscalers. Values are in thousandths: `250` is a quarter.
pub trait Metrics: Send + Sync + 'static {
    /// Current usage of a resource (`cpu` in thousandths of a core, `memory` in thousandths of a byte …) by a
    /// container; `None` if unknown.
    fn container(&self, pod: &Pod, container: &str, resource: &str) -> Option<i64> {
        let _ = (pod, container, resource);
        None
    }

    /// A custom metric of a pod.
    fn pod(&self, pod: &Pod, metric: &MetricIdentifier) -> Option<i64> {
        let _ = (pod, metric);
        None
    }

    /// A custom metric of an object in a namespace.
    fn object(&self, namespace: &str, object: &CrossVersionObjectReference, metric: &MetricIdentifier) -> Option<i64> {
        let _ = (namespace, object, metric);
        None
    }

    /// An external metric: all its series.
    fn external(&self, namespace: &str, metric: &MetricIdentifier) -> Option<Vec<i64>> {
        let _ = (namespace, metric);
        None
    }
}

/// Sample of a metric for one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The value in thousandths; `None` if unknown.
    pub(super) value: Option<i64>,
    /// The resource request in thousandths, for utilization targets.
    pub(super) request: Option<i64>,
    /// Whether the pod is ready; samples of unready pods are discounted.
    pub(super) ready: bool,
}
