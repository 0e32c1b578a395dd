//! The HorizontalPodAutoscaler.

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec,
};

use super::parts::Parts;
use super::{Cx, names};

/// Adds it where autoscaling is on. From then on it sets the replicas of the Deployment.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    let scale = cx.spec().scale.as_ref().filter(|_| cx.autoscaled());
    let Some((scale, limits)) = scale.and_then(|scale| Some((scale, scale.hpa.as_ref()?))) else { return };
    // The order of the user's list has no meaning; one order means fewer writes.
    let mut metrics = limits.metrics.clone().unwrap_or_default();
    metrics.sort_by(|a, b| a.type_.cmp(&b.type_));
    parts.add(&HorizontalPodAutoscaler {
        metadata: names::annotated(cx, scale.annotations.as_ref()),
        spec: HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".into()),
                kind: "Deployment".into(),
                name: cx.name.clone(),
            },
            min_replicas: limits.min_replicas,
            max_replicas: limits.max_replicas,
            metrics: Some(metrics).filter(|metrics| !metrics.is_empty()),
            behavior: limits.behavior.clone(),
        },
        ..HorizontalPodAutoscaler::default()
    });
}
