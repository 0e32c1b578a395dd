//! Where metrics come from: whoever runs the cluster says.

use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, MetricIdentifier};

use crate::Pod;

/// What autoscalers look at. Values are in thousandths: `250` is a quarter.
pub trait Metrics: Send + Sync + 'static {
    /// How much of a resource (`cpu` in thousandths of a core, `memory` in thousandths of a byte …) a container uses
    /// now; nothing if it is not known.
    fn container(&self, pod: &Pod, container: &str, resource: &str) -> Option<i64> {
        let _ = (pod, container, resource);
        None
    }

    /// A metric of a pod.
    fn pod(&self, pod: &Pod, metric: &MetricIdentifier) -> Option<i64> {
        let _ = (pod, metric);
        None
    }

    /// A metric of any object in a namespace.
    fn object(&self, namespace: &str, object: &CrossVersionObjectReference, metric: &MetricIdentifier) -> Option<i64> {
        let _ = (namespace, object, metric);
        None
    }

    /// A metric from outside of the cluster: all its series.
    fn external(&self, namespace: &str, metric: &MetricIdentifier) -> Option<Vec<i64>> {
        let _ = (namespace, metric);
        None
    }
}

/// What a pod says about a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The value, in thousandths; nothing if it is not known.
    pub(super) value: Option<i64>,
    /// What the pod asked for, in thousandths, where utilization is of that.
    pub(super) request: Option<i64>,
    /// Whether the pod is ready; what one that is not ready says counts for little.
    pub(super) ready: bool,
}
