//! The Deployment that runs a service, and the pod in it.

use capstan_api::common::Image;
use capstan_api::nemo::NemoServer;
use capstan_plan::kit::expose::container_port;
use capstan_plan::kit::probe;
use capstan_plan::kit::{merge_env, rolling};
use capstan_plan::{Object, Orchestrator, Ref, is_subset};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, EnvVarSource, LocalObjectReference, ObjectFieldSelector, PodSecurityContext, PodSpec,
    PodTemplateSpec, Probe, SeccompProfile, SecurityContext, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::config::Config;
use super::description::{Form, Health, Parts};
use super::{Cx, access, names, references, routes};

pub(super) fn object(cx: &Cx<'_>, parts: &Parts, config: Option<&Config>) -> Object {
    let mut object = Object::new(&Deployment {
        metadata: names::meta(cx),
        spec: DeploymentSpec {
            replicas: replicas(cx),
            selector: LabelSelector { match_labels: Some(names::selector(cx)), ..LabelSelector::default() },
            strategy: Some(strategy()),
            template: template(cx, form(cx)),
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    });
    if let Some(config) = config {
        config.mark(&mut object.body["spec"]["template"]);
    }
    let read = rolling::contents(cx.live(), references::read_at_start(cx, parts));
    let object = rolling::remember(cx.live(), object, &read, &["/spec/template/metadata"]);
    // An autoscaler, or whoever scales a service without a number, sets the replicas from then on.
    if cx.autoscaled() || cx.service.server().replicas.is_none() { object.preserve("/spec/replicas") } else { object }
}

/// A Deployment that runs as the NIM Operator described it keeps that form: a fix alone replaces no pod.
fn form(cx: &Cx<'_>) -> Form {
    let Some(live) = cx.own(&Ref::of::<Deployment>(&cx.namespace, &cx.name)) else { return Form::Own };
    let runs = |form: Form| {
        let wanted = serde_json::to_value(template(cx, form)).unwrap_or_default();
        is_subset(&wanted, &live["spec"]["template"])
    };
    if !runs(Form::Own) && runs(Form::Reference) { Form::Reference } else { Form::Own }
}

/// The number to begin with.
fn replicas(cx: &Cx<'_>) -> Option<i32> {
    let server = cx.service.server();
    let limits = server.scale.as_ref().filter(|_| cx.autoscaled()).and_then(|scale| scale.hpa.as_ref());
    limits.map_or(server.replicas, |limits| Some(limits.min_replicas.unwrap_or(1)))
}

fn strategy() -> DeploymentStrategy {
    DeploymentStrategy {
        type_: Some("RollingUpdate".into()),
        rolling_update: Some(RollingUpdateDeployment {
            max_unavailable: Some(IntOrString::String("25%".into())),
            max_surge: Some(IntOrString::Int(0)),
        }),
    }
}

fn template(cx: &Cx<'_>, form: Form) -> PodTemplateSpec {
    let parts = cx.service.parts(&cx.place(form));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(names::pod_labels(cx)),
            annotations: Some(names::pod_annotations(cx)),
            ..ObjectMeta::default()
        }),
        spec: Some(pod(cx, form, parts)),
    }
}

fn pod(cx: &Cx<'_>, form: Form, parts: Parts) -> PodSpec {
    let server = cx.service.server();
    let secrets = server.image.pull_secrets.iter().flatten().filter(|name| !name.is_empty());
    let secrets: Vec<_> = secrets.map(|name| LocalObjectReference { name: name.clone() }).collect();
    let main = main(cx, &parts);
    let confined = |container| confined(container, form, &parts.security);
    let tolerations = server.tolerations.iter().flatten().map(|one| toleration(one, form));
    PodSpec {
        init_containers: Some(parts.init.into_iter().map(confined).collect()).filter(|list: &Vec<_>| !list.is_empty()),
        containers: vec![confined(main)],
        volumes: Some(parts.volumes).filter(|volumes| !volumes.is_empty()),
        service_account_name: Some(access::account(cx).into()),
        runtime_class_name: server.runtime_class.clone().filter(|name| !name.is_empty()),
        affinity: affinity(cx, form),
        node_selector: server.node_selector.clone().filter(|selector| !selector.is_empty()),
        tolerations: Some(tolerations.collect()).filter(|list: &Vec<_>| !list.is_empty()),
        image_pull_secrets: Some(secrets).filter(|secrets| !secrets.is_empty()),
        security_context: Some(PodSecurityContext { seccomp_profile: seccomp(cx, form), ..parts.security.clone() }),
        ..PodSpec::default()
    }
}

/// Tanzu admits no pod without a profile; elsewhere it is a fix.
fn seccomp(cx: &Cx<'_>, form: Form) -> Option<SeccompProfile> {
    let needed = form == Form::Own || cx.facts.orchestrator == Orchestrator::Tkgs;
    needed.then(|| SeccompProfile { type_: "RuntimeDefault".into(), ..SeccompProfile::default() })
}

/// A container that cannot get more rights than its user has. Images that choose their user may start as root.
fn confined(container: Container, form: Form, pod: &PodSecurityContext) -> Container {
    if form == Form::Reference || pod.run_as_user.is_none() {
        return container;
    }
    let context = SecurityContext { allow_privilege_escalation: Some(false), ..SecurityContext::default() };
    Container { security_context: Some(context), ..container }
}

/// The NIM Operator drops the time for which a taint is tolerated.
fn toleration(one: &Toleration, form: Form) -> Toleration {
    let toleration_seconds = one.toleration_seconds.filter(|_| form == Form::Own);
    Toleration { toleration_seconds, ..one.clone() }
}

/// The deprecated field counts where the newer one says nothing about pods. The NIM Operator ignores it.
fn affinity(cx: &Cx<'_>, form: Form) -> Option<Affinity> {
    let server = cx.service.server();
    let Some(pods) = server.pod_affinity.clone().filter(|_| form == Form::Own) else { return server.affinity.clone() };
    let given = server.affinity.clone().unwrap_or_default();
    Some(Affinity { pod_affinity: given.pod_affinity.clone().or(Some(pods)), ..given })
}

/// The container that serves.
fn main(cx: &Cx<'_>, parts: &Parts) -> Container {
    let (server, about) = (cx.service.server(), cx.service.about());
    Container {
        name: format!("{}-ctr", cx.name),
        image: Some(reference(&server.image)),
        image_pull_policy: pull_policy(&server.image),
        command: server.command.clone().filter(|words| !words.is_empty()),
        args: server.args.clone().filter(|words| !words.is_empty()),
        env: Some(merge_env(parts.env.clone(), server.env.clone().unwrap_or_default())),
        ports: Some(about.ports.iter().map(|(name, number)| container_port(name, *number)).collect()),
        resources: server.resources.clone(),
        startup_probe: Some(probe(&about.startup)),
        liveness_probe: Some(probe(&about.liveness)),
        readiness_probe: Some(probe(&about.readiness)),
        volume_mounts: Some(parts.mounts.clone()).filter(|mounts| !mounts.is_empty()),
        ..Container::default()
    }
}

fn probe(Health(path, timing): &Health) -> Probe {
    timing.of(probe::http(path, IntOrString::String(routes::API.into())))
}

/// An image as pods name it.
pub(crate) fn reference(image: &Image) -> String {
    format!("{}:{}", image.repository, image.tag)
}

/// When it is pulled, if the user says so.
pub(crate) fn pull_policy(image: &Image) -> Option<String> {
    image.pull_policy.clone().filter(|policy| !policy.is_empty())
}

/// User and group of the pods when the spec names none.
const USER: i64 = 1000;
const GROUP: i64 = 2000;

/// Security context of the pods of most kinds.
pub(crate) fn security(server: &NemoServer) -> PodSecurityContext {
    PodSecurityContext {
        run_as_user: Some(server.user_id.unwrap_or(USER)),
        run_as_group: Some(server.group_id.unwrap_or(GROUP)),
        fs_group: Some(server.group_id.unwrap_or(GROUP)),
        ..PodSecurityContext::default()
    }
}

/// The address of the node, which some servers tell their jobs.
pub(crate) fn host_ip() -> EnvVar {
    let field = ObjectFieldSelector { api_version: Some("v1".into()), field_path: "status.hostIP".into() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: "HOST_IP".into(), value_from: Some(source), ..EnvVar::default() }
}
