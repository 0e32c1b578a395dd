//! The pod spec: shared by Deployment, LeaderWorkerSet and KServe.

use std::collections::BTreeSet;

use capstan_api::common::Image;
use capstan_plan::Orchestrator;
use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, PodSecurityContext, PodSpec, SeccompProfile, Volume,
};

use super::{Cx, containers, devices};

/// Default user and group of the pods.
const USER: i64 = 1000;
const GROUP: i64 = 2000;

/// A pod with this main container and these volumes.
pub(super) fn spec(cx: &Cx<'_>, main: Container, volumes: Vec<Volume>) -> PodSpec {
    let spec = cx.spec();
    let text = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let init = containers::init(cx);
    let sidecars = containers::sidecars(cx, main.volume_mounts.as_deref().unwrap_or_default());
    let extra = [&spec.init_containers, &spec.sidecar_containers].into_iter().flatten().flatten();
    let images = std::iter::once(&spec.image).chain(extra.map(|container| &container.image));
    let mut pod = PodSpec {
        init_containers: Some(init).filter(|init| !init.is_empty()),
        containers: std::iter::once(main).chain(sidecars).collect(),
        volumes: Some(volumes),
        service_account_name: Some(cx.name.clone()),
        scheduler_name: text(&spec.scheduler_name),
        priority_class_name: text(&spec.priority_class_name),
        runtime_class_name: text(&spec.runtime_class_name),
        affinity: spec.affinity.clone(),
        node_selector: spec.node_selector.clone().filter(|selector| !selector.is_empty()),
        tolerations: spec.tolerations.clone().filter(|tolerations| !tolerations.is_empty()),
        image_pull_secrets: pull_secrets(images),
        security_context: Some(PodSecurityContext {
            run_as_user: Some(spec.user_id.unwrap_or(USER)),
            run_as_group: Some(spec.group_id.unwrap_or(GROUP)),
            fs_group: Some(spec.group_id.unwrap_or(GROUP)),
            // Required by Tanzu's Pod Security.
            seccomp_profile: (cx.facts.orchestrator == Orchestrator::Tkgs)
                .then(|| SeccompProfile { type_: "RuntimeDefault".into(), ..SeccompProfile::default() }),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    };
    devices::assign(cx, &mut pod);
    pod
}

/// The registry secrets of all images, each once.
pub(super) fn pull_secrets<'a>(images: impl IntoIterator<Item = &'a Image>) -> Option<Vec<LocalObjectReference>> {
    let mut seen = BTreeSet::new();
    let names = images.into_iter().flat_map(|image| image.pull_secrets.iter().flatten());
    let secrets: Vec<_> = names
        .filter(|name| seen.insert(name.as_str()))
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect();
    Some(secrets).filter(|secrets| !secrets.is_empty())
}
