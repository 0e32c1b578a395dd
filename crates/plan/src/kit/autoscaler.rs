//! Horizontal autoscaling of a Deployment.

use capstan_api::common::Autoscaling;
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The HorizontalPodAutoscaler of a Deployment, if enabled. It then manages the replicas.
pub fn autoscaler(
    metadata: ObjectMeta,
    scale: Option<&Autoscaling>,
    deployment: &str,
) -> Option<HorizontalPodAutoscaler> {
    let limits = scale.filter(|scale| scale.enabled == Some(true))?.hpa.as_ref()?;
    // The order of the user's list has no meaning; sorting avoids writes.
    let mut metrics = limits.metrics.clone().unwrap_or_default();
    metrics.sort_by(|a, b| a.type_.cmp(&b.type_));
    Some(HorizontalPodAutoscaler {
        metadata,
        spec: HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".into()),
                kind: "Deployment".into(),
                name: deployment.into(),
            },
            min_replicas: limits.min_replicas,
            max_replicas: limits.max_replicas,
            metrics: Some(metrics).filter(|metrics| !metrics.is_empty()),
            behavior: limits.behavior.clone(),
        },
        ..HorizontalPodAutoscaler::default()
    })
}

#[cfg(test)]
mod tests {
    use capstan_api::common::HorizontalPodAutoscaling;

    use super::*;

    #[test]
    fn only_what_is_switched_on_scales() {
        let hpa = Some(HorizontalPodAutoscaling { max_replicas: 3, ..HorizontalPodAutoscaling::default() });
        let on = Autoscaling { enabled: Some(true), hpa, ..Autoscaling::default() };
        let made = |scale: Option<&Autoscaling>| autoscaler(ObjectMeta::default(), scale, "d");
        assert_eq!(made(Some(&on)).unwrap().spec.max_replicas, 3);
        assert!(made(Some(&Autoscaling { enabled: None, ..on.clone() })).is_none());
        assert!(made(Some(&Autoscaling { hpa: None, ..on })).is_none());
        assert!(made(None).is_none());
    }
}
