//! Multi-node models: a LeaderWorkerSet whose leader serves requests, started with MPI or Ray.

use std::collections::BTreeMap;

use capstan_api::compute_domain::ComputeDomain;
use capstan_api::compute_domain::domain::{AllocationMode, Channel, ClaimTemplate, ComputeDomainSpec};
use capstan_api::foreign::leader_worker_set::{
    LeaderWorkerSetSpec, LeaderWorkerTemplate, NetworkConfig, RollingUpdateConfiguration, RolloutStrategy,
};
use capstan_api::foreign::volcano::PodGroupSpec;
use capstan_api::foreign::{LeaderWorkerSet, PodGroup};
use capstan_api::nim::multi_node::MultiNode;
use capstan_plan::Object;
use capstan_plan::kit::expose::container_port;
use capstan_plan::kit::{env, merge_env};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, ExecAction, ObjectFieldSelector, PodTemplateSpec, Probe,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::parts::{Parts, Stop, lacking};
use super::{Cx, containers, devices, env as environments, mpi, names, pod, references, rolling};

/// Annotation with the Volcano PodGroup of a pod.
const GROUP: &str = "scheduling.k8s.io/group-name";
/// Default startup timeout in seconds.
const STARTUP_TIMEOUT_SECONDS: i64 = 300;

/// Why the group cannot be created yet.
pub(super) fn blocked_by(cx: &Cx<'_>) -> Option<Stop> {
    let spread = cx.multi_node()?;
    if let Some(message) = lacking::<LeaderWorkerSet>(cx, "spec.multiNode") {
        return Some(Stop::wait("MissingAPI", message));
    }
    let domain = spread.compute_domain.as_ref()?;
    if let Some(message) = lacking::<ComputeDomain>(cx, "spec.multiNode.computeDomain") {
        return Some(Stop::wait("MissingAPI", message));
    }
    let name = domain.name.as_deref().filter(|_| domain.create != Some(true))?;
    devices::domain(cx, name).is_none().then(|| {
        Stop::wait("ComputeDomainNotFound", format!("ComputeDomain {name} not found: create it, or set create: true"))
    })
}

/// Name of the ComputeDomain, ours or the user's.
pub(super) fn domain_name<'a>(cx: &'a Cx<'_>) -> Option<&'a str> {
    let domain = cx.multi_node()?.compute_domain.as_ref()?;
    if domain.create == Some(true) { Some(&cx.name) } else { domain.name.as_deref() }
}

/// Template of the claims by which pods join the ComputeDomain.
pub(super) fn domain_template(cx: &Cx<'_>) -> Option<String> {
    let domain = cx.multi_node()?.compute_domain.as_ref()?;
    if domain.create == Some(true) {
        return Some(format!("cd-claimtemplate-{}", devices::short_hash(&cx.name)));
    }
    Some(devices::domain(cx, domain.name.as_deref()?)?.spec.channel.resource_claim_template.name)
}

/// Adds the group and what it needs.
pub(super) fn add(cx: &Cx<'_>, spread: &MultiNode, parts: &mut Parts) {
    let created = spread.compute_domain.as_ref().filter(|domain| domain.create == Some(true));
    if let Some(name) = created.and_then(|_| domain_template(cx)) {
        let channel =
            Channel { resource_claim_template: ClaimTemplate { name }, allocation_mode: Some(AllocationMode::Single) };
        let spec = ComputeDomainSpec { num_nodes: Some(nodes(spread).into()), channel };
        let domain = ComputeDomain { metadata: names::meta(cx), spec, status: None };
        parts.objects.push(Object::new(&domain).preserve("/spec"));
    }
    let gang = cx.spec().scheduler_name.as_deref() == Some("volcano") && replicas(cx) > 0;
    if gang {
        let group =
            PodGroup { metadata: names::named(cx, &names::of_group(cx)), spec: group(cx, spread), status: None };
        parts.add_if_served(cx, "spec.schedulerName", &group);
    }
    if spread.ray.is_none()
        && let Some(stop) = mpi::add(cx, spread, parts)
    {
        return parts.stop(cx, stop);
    }
    let annotations = pod_annotations(cx, gang && cx.facts.serves::<PodGroup>());
    let template = |role: &str, main: Container, volumes| PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(names::pod_labels(cx, names::role(cx, role))),
            annotations: Some(annotations.clone()),
            ..ObjectMeta::default()
        }),
        spec: Some(pod::spec(cx, main, volumes)),
    };
    let mut volumes = [containers::volumes(cx), containers::volumes(cx)];
    let mut both = [leader(cx, spread), worker(cx, spread)];
    if spread.ray.is_none() {
        mpi::mount(cx, &mut volumes, &mut both);
    }
    let ([first, others], [leader_volumes, worker_volumes]) = (both, volumes);
    let spec = LeaderWorkerSetSpec {
        replicas: Some(replicas(cx)),
        leader_worker_template: Some(LeaderWorkerTemplate {
            size: Some(nodes(spread)),
            leader_template: Some(template("leader", first, leader_volumes)),
            worker_template: Some(template("worker", others, worker_volumes)),
            restart_policy: Some("RecreateGroupOnPodRestart".into()),
        }),
        network_config: Some(NetworkConfig { subdomain_policy: Some("Shared".into()) }),
        rollout_strategy: Some(RolloutStrategy {
            type_: Some("RollingUpdate".into()),
            rolling_update_configuration: Some(RollingUpdateConfiguration {
                max_surge: Some(IntOrString::Int(0)),
                max_unavailable: Some(IntOrString::Int(1)),
            }),
        }),
        startup_policy: Some("LeaderCreated".into()),
    };
    let metadata = names::named(cx, &names::of_group(cx));
    let object = Object::new(&LeaderWorkerSet { metadata, spec, status: None });
    let templates = ["leader", "worker"].map(|role| format!("/spec/leaderWorkerTemplate/{role}Template/metadata"));
    parts.objects.push(rolling::remember(
        cx,
        object,
        &references::of_server(cx),
        &templates.each_ref().map(String::as_str),
    ));
}

/// Number of groups.
pub(super) fn replicas(cx: &Cx<'_>) -> i32 {
    cx.spec().replicas.unwrap_or(1)
}

/// Nodes per group.
pub(super) fn nodes(spread: &MultiNode) -> i32 {
    spread.parallelism.pipeline.unwrap_or(0)
}

/// GPUs per node.
pub(super) fn gpus(spread: &MultiNode) -> i32 {
    spread.parallelism.tensor.unwrap_or(0)
}

/// Gang scheduling: a partly scheduled group holds GPUs without serving.
fn group(cx: &Cx<'_>, spread: &MultiNode) -> PodGroupSpec {
    PodGroupSpec {
        min_member: Some(nodes(spread) * replicas(cx)),
        priority_class_name: cx.spec().priority_class_name.clone().filter(|name| !name.is_empty()),
        ..PodGroupSpec::default()
    }
}

fn pod_annotations(cx: &Cx<'_>, gang: bool) -> BTreeMap<String, String> {
    let mut annotations = names::pod_annotations(cx);
    if gang {
        annotations.insert(GROUP.into(), names::of_group(cx));
    }
    annotations
}

fn leader(cx: &Cx<'_>, spread: &MultiNode) -> Container {
    let patience = spread.mpi.as_ref().map_or(STARTUP_TIMEOUT_SECONDS, |mpi| mpi.mpi_start_timeout);
    let own = vec![
        env("NIM_LEADER_ROLE", "1"),
        env("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
        env("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=20"),
        env("GPUS_PER_NODE", gpus(spread).to_string()),
        env("CLUSTER_START_TIMEOUT", patience.to_string()),
        from_field("CLUSTER_SIZE", &annotation("size")),
        from_field("GROUP_INDEX", &label("group-index")),
    ];
    let args = spread
        .ray
        .as_ref()
        .map(|ray| ["nim-serve-ray".to_owned(), "--head".into(), "--port".into(), ray.ray_port.to_string()].into());
    container(cx, spread, "nim-leader", own, args)
}

fn worker(cx: &Cx<'_>, spread: &MultiNode) -> Container {
    let own = vec![
        env("NIM_LEADER_ROLE", "0"),
        from_field("LEADER_NAME", &annotation("leader-name")),
        from_field("NAMESPACE", "metadata.namespace"),
        from_field("LWS_NAME", &label("name")),
    ];
    let args = spread.ray.as_ref().map(|ray| {
        let head = format!("$(LWS_LEADER_ADDRESS):{}", ray.ray_port);
        ["nim-serve-ray".to_owned(), "--head-address".into(), head].into()
    });
    // Only the leader serves; a worker is up when it has joined.
    let startup_probe = spread.ray.as_ref().map(|_| Probe {
        exec: Some(ExecAction { command: Some(["/bin/sh", "-c", "ray status"].map(Into::into).into()) }),
        initial_delay_seconds: Some(30),
        timeout_seconds: Some(5),
        period_seconds: Some(10),
        failure_threshold: Some(3),
        ..Probe::default()
    });
    Container {
        liveness_probe: None,
        readiness_probe: None,
        startup_probe,
        ..container(cx, spread, "nim-worker", own, args)
    }
}

/// The serving container in a role of the group.
fn container(cx: &Cx<'_>, spread: &MultiNode, name: &str, own: Vec<EnvVar>, args: Option<Vec<String>>) -> Container {
    let mut list = merge_env(own, environment(cx, spread));
    environments::add_model(cx, &mut list);
    let mut container = containers::main(cx);
    container.name = name.into();
    container.env = Some(list);
    container.args = container.args.or(args);
    if let Some(ray) = &spread.ray {
        container.ports.get_or_insert_default().push(container_port("ray", ray.ray_port));
    }
    container
}

/// The environment that all containers of a group share. The user's wins.
pub(super) fn environment(cx: &Cx<'_>, spread: &MultiNode) -> Vec<EnvVar> {
    let (nodes, gpus) = (nodes(spread).to_string(), gpus(spread).to_string());
    let own = vec![
        env("NIM_MPI_ALLOW_RUN_AS_ROOT", "0"),
        env("NIM_NUM_COMPUTE_NODES", nodes.clone()),
        env("NIM_MULTI_NODE", "1"),
        env("NIM_TENSOR_PARALLEL_SIZE", gpus),
        env("NIM_PIPELINE_PARALLEL_SIZE", nodes),
        from_field("NIM_NODE_RANK", &label("worker-index")),
    ];
    merge_env(own, environments::base(cx))
}

fn label(name: &str) -> String {
    format!("metadata.labels['leaderworkerset.sigs.k8s.io/{name}']")
}

fn annotation(name: &str) -> String {
    format!("metadata.annotations['leaderworkerset.sigs.k8s.io/{name}']")
}

fn from_field(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: path.into(), ..ObjectFieldSelector::default() };
    EnvVar {
        name: name.into(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}
