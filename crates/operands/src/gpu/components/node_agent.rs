//! The node agent: one pod per node in which device plugin, feature discovery and exporter of our own image share a
//! process.
//!
//! Each remains an operand with its own deploy label and condition; [`objects`] is the shared part, planned once. A
//! component that cannot share a pod keeps its own DaemonSet: see [`fits`].

use std::collections::BTreeMap;

use capstan_api::gpu::component::Component;
use capstan_node::Role;
use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, container, on_nodes, set_env};
use capstan_plan::kit::rbac::Rights;
use k8s_openapi::api::core::v1::{PodAffinityTerm, PodAntiAffinity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::own::OwnImage;
use super::{Outcome, PolicyCx, dcgm_exporter, device_plugin, enabled, feature_discovery};
use crate::gpu::agent::{LAYOUT, Layout};

pub(crate) const NAME: &str = "capstan-node-agent";
/// The label that selects its pods.
const SELECTED: &str = "app.kubernetes.io/name";
/// The role of which a node may run only one: the kubelet has one socket per resource.
const PLUGIN: &Role = &capstan_node::DEVICE_PLUGIN;

/// A role that may share the pod.
struct Member {
    /// Its role, which has a deploy label.
    role: &'static Role,
    /// The `app` label of its own pods. Managers that stop GPU clients wait until pods with that label are gone.
    app: &'static str,
    /// Environment variable that sets another image.
    variable: &'static str,
    /// Its settings.
    component: for<'a> fn(&PolicyCx<'a>) -> &'a Component,
    /// Whether its settings prevent sharing.
    apart: fn(&PolicyCx<'_>) -> bool,
    /// Its RBAC rules.
    rights: fn(&PolicyCx<'_>) -> Rights,
    /// Its own DaemonSet, whose pod is merged.
    daemon: fn(&PolicyCx<'_>) -> Outcome<Daemon>,
}

const MEMBERS: &[Member] = &[
    Member {
        role: PLUGIN,
        app: device_plugin::NAME,
        variable: "DEVICE_PLUGIN_IMAGE",
        component: |cx| &cx.spec().device_plugin.component,
        apart: |_| false,
        rights: device_plugin::rights,
        daemon: device_plugin::daemon,
    },
    Member {
        role: &capstan_node::FEATURE_DISCOVERY,
        app: feature_discovery::NAME,
        variable: "GFD_IMAGE",
        component: |cx| &cx.spec().gfd,
        apart: |_| false,
        rights: feature_discovery::rights,
        daemon: feature_discovery::daemon,
    },
    Member {
        role: &capstan_node::EXPORTER,
        app: dcgm_exporter::NAME,
        variable: "DCGM_EXPORTER_IMAGE",
        component: |cx| &cx.spec().dcgm_exporter.component,
        // Host PID or network namespaces must not be shared with the others.
        apart: |cx| cx.spec().dcgm_exporter.host_pid == Some(true),
        rights: dcgm_exporter::own_rights,
        daemon: dcgm_exporter::policy_daemon,
    },
];

impl PolicyCx<'_> {
    /// The grouping of roles: the policy's annotation, else the operator's default.
    fn layout(&self) -> Outcome<Layout> {
        match self.policy.annotations().get(LAYOUT) {
            Some(text) => Layout::parse(text).map_err(|error| format!("annotation {LAYOUT}: {error}")),
            None => Ok(self.cluster.agent.layout),
        }
    }
}

/// Whether a component can share a pod: its settings must not affect others.
fn fits(component: &Component) -> bool {
    let none = |list: Option<&Vec<String>>| list.is_none_or(Vec::is_empty);
    none(component.args.as_ref()) && component.resources.is_none() && component.host_network != Some(true)
}

/// The members of the shared pod; a single one keeps its own pod.
fn members(cx: &PolicyCx<'_>) -> Outcome<Vec<&'static Member>> {
    let mut members: Vec<&Member> = Vec::new();
    let mut merged_env: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for member in MEMBERS {
        let component = (member.component)(cx);
        let own = enabled(component) && cx.is_own(&component.image, member.variable);
        if !own || !fits(component) || (member.apart)(cx) {
            continue;
        }
        let env: Vec<_> = component.env.iter().flatten().map(|one| (one.name.as_str(), one.value.as_deref())).collect();
        if env.iter().all(|(name, value)| merged_env.get(name).is_none_or(|other| other == value)) {
            merged_env.extend(env);
            members.push(member);
        }
    }
    match members.len() >= 2 && cx.layout()? == Layout::Combined {
        true => Ok(members),
        false => Ok(Vec::new()),
    }
}

/// Whether a role is a member of the shared pod.
pub(crate) fn has(cx: &PolicyCx<'_>, role: &Role) -> Outcome<bool> {
    Ok(members(cx)?.iter().any(|member| member.role == role))
}

/// The pod and its RBAC, the same for every member.
pub(crate) fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let members = members(cx)?;
    let mut rights = Rights::default();
    for member in &members {
        let more = (member.rights)(cx);
        rights.here.extend(more.here.into_iter().filter(|rule| !rights.here.contains(rule)).collect::<Vec<_>>());
        let new = more.everywhere.into_iter().filter(|rule| !rights.everywhere.contains(rule)).collect::<Vec<_>>();
        rights.everywhere.extend(new);
    }
    // Every role reads its label on the node.
    let node = device_plugin::rights(cx).everywhere;
    rights.everywhere.extend(node.into_iter().filter(|rule| !rights.everywhere.contains(rule)).collect::<Vec<_>>());
    let mut objects = access(cx, NAME, rights);
    objects.extend(constraints(cx, NAME, Shares { ports: true, anything: true, ..Shares::default() }));
    if members.iter().any(|member| member.app == feature_discovery::NAME) {
        objects.extend(feature_discovery::own_node_only(cx, NAME));
    }
    objects.push(daemon(cx, &members)?.object(&cx.scope));
    Ok(objects)
}

fn daemon(cx: &PolicyCx<'_>, members: &[&Member]) -> Outcome<Daemon> {
    let mut daemon = gpu_daemon(NAME, NAME, PLUGIN.deploy()).with_scc(NAME).with(
        vec![],
        vec![container(NAME).node_name().with("FOLLOW_NODE_LABELS", "true")],
        vec![],
    );
    daemon.common(cx)?;
    let mut roles = Vec::new();
    let mut configured = false;
    for member in members {
        let part = (member.daemon)(cx)?;
        configured |= part.pod.containers.iter().any(|one| one.name == "config-manager");
        roles.push(member.role.name);
        merge_pod(&mut daemon, part);
    }
    if configured {
        // A role of the same process instead of a sidecar.
        roles.insert(0, capstan_node::CONFIG_MANAGER.name);
        let default = cx.spec().device_plugin.config.as_ref().and_then(|config| config.default.as_deref());
        set_env(daemon.main(), "DEFAULT_CONFIG", default.unwrap_or_default());
        set_env(daemon.main(), "FALLBACK_STRATEGIES", "empty");
    }
    let plugs = members.iter().any(|member| member.role == PLUGIN);
    daemon.main().args = Some(vec!["agent".into(), "--roles".into(), roles.join(",")]);
    if plugs {
        daemon.after_driver();
    }
    daemon.pod_annotations.retain(|key, _| !key.starts_with("nvidia.cdi.k8s.io/container."));
    daemon.sees_gpus(cx, NAME);
    daemon.selector = BTreeMap::from([(SELECTED.to_owned(), NAME.to_owned())]);
    daemon.pod_labels = daemon.selector.clone();
    daemon.pod_labels.extend(members.first().map(|member| ("app".to_owned(), member.app.to_owned())));
    daemon.pod.node_selector = None;
    let wanted: Vec<(&str, &str)> = members.iter().map(|member| (member.role.deploy_label(), "true")).collect();
    let mut affinity = on_nodes(&wanted);
    affinity.pod_anti_affinity = plugs.then(plugin_anti_affinity);
    daemon.pod.affinity = Some(affinity);
    Ok(daemon)
}

/// Pod anti-affinity between this pod and standalone device plugins: they would overwrite each other's registration,
/// and the terminating one would remove the socket.
fn plugin_anti_affinity() -> PodAntiAffinity {
    let selector = LabelSelector {
        match_labels: Some(BTreeMap::from([("app".to_owned(), device_plugin::NAME.to_owned())])),
        ..LabelSelector::default()
    };
    let term = PodAffinityTerm {
        label_selector: Some(selector),
        topology_key: "kubernetes.io/hostname".into(),
        ..PodAffinityTerm::default()
    };
    PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Some(vec![term]),
        ..PodAntiAffinity::default()
    }
}

/// Points the Service of a member at this pod.
pub(crate) fn retarget_service(mut service: Object) -> Object {
    service.body["spec"]["selector"] = serde_json::json!({SELECTED: NAME});
    service
}

/// Merges another pod: its init containers, and the settings of its main container.
fn merge_pod(daemon: &mut Daemon, mut other: Daemon) {
    let theirs = std::mem::take(other.main());
    let pod = other.pod;
    for secret in pod.image_pull_secrets.into_iter().flatten() {
        daemon.add_pull_secrets(Some(&vec![secret.name]));
    }
    let init = daemon.pod.init_containers.get_or_insert_default();
    for one in pod.init_containers.into_iter().flatten() {
        if !init.iter().any(|known| known.name == one.name) {
            init.push(one);
        }
    }
    let main = daemon.pod.containers.first_mut().expect("the pod has its main container");
    main.image = theirs.image;
    main.image_pull_policy = main.image_pull_policy.take().or(theirs.image_pull_policy);
    main.command = theirs.command;
    main.security_context = theirs.security_context;
    let env = main.env.get_or_insert_default();
    for one in theirs.env.into_iter().flatten() {
        if !env.iter().any(|known| known.name == one.name) {
            env.push(one);
        }
    }
    let mounts = main.volume_mounts.get_or_insert_default();
    for one in theirs.volume_mounts.into_iter().flatten() {
        if !mounts.iter().any(|known| known.mount_path == one.mount_path) {
            mounts.push(one);
        }
    }
    if let Some(ports) = theirs.ports {
        main.ports.get_or_insert_default().extend(ports);
    }
    let all = init.iter().chain([&*main]).flat_map(|one| one.volume_mounts.iter().flatten());
    let used: Vec<String> = all.map(|mount| mount.name.clone()).collect();
    let volumes = daemon.pod.volumes.get_or_insert_default();
    for one in pod.volumes.into_iter().flatten().filter(|volume| used.contains(&volume.name)) {
        if !volumes.iter().any(|known| known.name == one.name) {
            volumes.push(one);
        }
    }
    daemon.pod_annotations.extend(other.pod_annotations);
}
