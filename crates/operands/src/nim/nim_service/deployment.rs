//! The Deployment.

use capstan_plan::Object;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Cx, containers, image, names, pod, references, rolling};

pub(super) fn object(cx: &Cx<'_>) -> Object {
    let selector = names::selector(cx);
    let object = Object::new(&Deployment {
        metadata: names::meta(cx),
        spec: DeploymentSpec {
            replicas: replicas(cx),
            selector: LabelSelector { match_labels: Some(selector.clone()), ..LabelSelector::default() },
            strategy: Some(strategy()),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(names::pod_labels(cx, selector)),
                    annotations: Some(names::pod_annotations(cx)),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod::spec(cx, containers::main(cx), containers::volumes(cx))),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    });
    let object = rolling::remember(cx, object, &references::of_server(cx), &["/spec/template/metadata"]);
    let object = image::annotate(cx, object);
    // Replicas of an autoscaled service, or of one without a number, are preserved after creation.
    if cx.autoscaled() || cx.spec().replicas.is_none() { object.preserve("/spec/replicas") } else { object }
}

/// The initial replicas.
fn replicas(cx: &Cx<'_>) -> Option<i32> {
    let limits = cx.spec().scale.as_ref().filter(|_| cx.autoscaled()).and_then(|scale| scale.hpa.as_ref());
    limits.map_or(cx.spec().replicas, |limits| Some(limits.min_replicas.unwrap_or(1)))
}

/// Recreate: GPUs are rarely free for a surge pod.
pub(super) fn strategy() -> DeploymentStrategy {
    DeploymentStrategy {
        type_: Some("RollingUpdate".into()),
        rolling_update: Some(RollingUpdateDeployment {
            max_unavailable: Some(IntOrString::String("25%".into())),
            max_surge: Some(IntOrString::Int(0)),
        }),
    }
}
