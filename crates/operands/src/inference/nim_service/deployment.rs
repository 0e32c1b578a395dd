//! The Deployment that serves.

use capstan_plan::Object;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Cx, containers, names};

/// User and group of the pods when the spec names none.
const USER: i64 = 1000;
const GROUP: i64 = 2000;

pub(super) fn object(cx: &Cx<'_>) -> Object {
    Object::new(&Deployment {
        metadata: names::meta(cx),
        spec: DeploymentSpec {
            replicas: cx.spec().replicas,
            selector: LabelSelector { match_labels: Some(names::selector(cx)), ..LabelSelector::default() },
            // A GPU is rarely free twice: the old pod goes before the new one comes.
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_unavailable: Some(IntOrString::String("25%".into())),
                    max_surge: Some(IntOrString::Int(0)),
                }),
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(names::pod_labels(cx)),
                    annotations: Some(names::pod_annotations(cx)),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(cx)),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    })
}

fn pod(cx: &Cx<'_>) -> PodSpec {
    let spec = cx.spec();
    let text = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let secrets = spec.image.pull_secrets.iter().flatten().map(|name| LocalObjectReference { name: name.clone() });
    let secrets: Vec<_> = secrets.collect();
    let init = containers::init(cx);
    let mut all = vec![containers::main(cx)];
    all.extend(containers::sidecars(cx));
    PodSpec {
        init_containers: Some(init).filter(|init| !init.is_empty()),
        containers: all,
        volumes: Some(containers::volumes(cx)),
        service_account_name: Some(cx.name.clone()),
        scheduler_name: text(&spec.scheduler_name),
        priority_class_name: text(&spec.priority_class_name),
        runtime_class_name: text(&spec.runtime_class_name),
        affinity: spec.affinity.clone(),
        node_selector: spec.node_selector.clone().filter(|selector| !selector.is_empty()),
        tolerations: spec.tolerations.clone().filter(|tolerations| !tolerations.is_empty()),
        image_pull_secrets: Some(secrets).filter(|secrets| !secrets.is_empty()),
        security_context: Some(PodSecurityContext {
            run_as_user: Some(spec.user_id.unwrap_or(USER)),
            run_as_group: Some(spec.group_id.unwrap_or(GROUP)),
            fs_group: Some(spec.group_id.unwrap_or(GROUP)),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    }
}
