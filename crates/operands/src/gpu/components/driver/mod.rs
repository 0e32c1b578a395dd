//! Driver: one DaemonSet for all GPU nodes, or one per kernel, RHCOS version or operating system where nodes differ.
//!
//! [`template`] is the base DaemonSet, [`settings`] applies the user's settings, [`files`] the mounts, [`toolkit`]
//! OpenShift's driver toolkit, [`digest`] the config digest.

pub(crate) mod digest;
pub(crate) mod files;
pub(crate) mod settings;
pub(crate) mod template;
mod toolkit;

use std::collections::BTreeMap;

use capstan_plan::kit::Daemon;
use capstan_plan::kit::monitoring::labelled;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::rbac::{Rights, rule};
use capstan_plan::{Gvk, Object, kit};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::PolicyRule;

pub(crate) use files::mount_map;
pub(crate) use settings::{DriverSettings, manage};
pub(crate) use template::manager;
pub(crate) use toolkit::{TOOLKIT, build_with_toolkit, toolkit_builds, toolkit_container};

use super::access::{access, constraints};
use super::daemon::GpuDaemon;
use super::{Cx, Operand, Outcome, PolicyCx, vgpu_manager};
use crate::gpu::fleet::{KERNEL, OS_ID, OS_VERSION, Os};
use crate::gpu::upgrade::hold_back;

pub(crate) const OPERAND: Operand = Operand {
    name: "state-driver",
    condition: "Driver",
    deploy: Some("driver"),
    enabled: |cx| cx.driver_enabled() && !cx.drivers_apart(),
    objects,
};

pub(crate) const NAME: &str = "nvidia-driver-daemonset";
const ACCOUNT: &str = "nvidia-driver";
pub(crate) const MAIN: &str = "nvidia-driver-ctr";
const PROBE: &str = "nvidia-driver-startup-probe";

/// Variant of a driver DaemonSet.
pub(crate) enum Flavour {
    /// The only one.
    Plain(Os),
    /// For nodes with this operating system; the first one keeps the default name.
    System(Os, bool),
    /// For nodes with this kernel.
    Kernel(String, Os),
    /// For nodes with this RHCOS version.
    Rhcos(String, Os),
}

impl Flavour {
    pub(crate) fn os(&self) -> &Os {
        match self {
            Self::Plain(os) | Self::System(os, _) | Self::Kernel(_, os) | Self::Rhcos(_, os) => os,
        }
    }

    pub(crate) fn kernel(&self) -> Option<&str> {
        match self {
            Self::Kernel(kernel, _) => Some(kernel),
            _ => None,
        }
    }
}

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights { everywhere: rules(), ..Rights::default() };
    let mut objects = access(cx, ACCOUNT, rights);
    objects.extend(constraints(cx, ACCOUNT, Shares { pid: true, anything: true, ..Shares::default() }));
    objects.push(startup_probe(cx));
    objects.extend(files::trusted_ca(cx));
    for flavour in flavours(cx)? {
        let set = daemon(cx, &flavour)?.object(&cx.scope);
        let set = set.preserve("/spec/selector").preserve("/spec/template/metadata/labels/app");
        objects.push(hold_back(set, &cx.facts.live));
    }
    Ok(objects)
}

/// RBAC rules of driver pods in the cluster.
pub(crate) fn rules() -> Vec<PolicyRule> {
    vec![
        rule("config.openshift.io", &["clusterversions"], &["get", "list"]),
        rule("", &["nodes"], &["get", "list", "patch", "update", "watch"]),
        rule("", &["pods"], &["get", "list", "watch"]),
        rule("", &["pods/eviction"], &["create"]),
        rule("resource.k8s.io", &["resourceclaims"], &["get", "list"]),
        rule("apps", &["daemonsets"], &["get"]),
    ]
}

/// The startup probe script: module loaded, daemons up, nvidia-smi works.
pub(crate) fn startup_probe(cx: &Cx<'_>) -> Object {
    let script = r#"#!/bin/sh
set -e
dir=/run/nvidia/validations
mkdir -p "$dir"
[ -f /sys/module/nvidia/refcnt ] || { echo "the nvidia module is not loaded"; exit 1; }
if [ -f "$dir/.driver-daemons-status" ] && [ "$(cat "$dir/.driver-daemons-status")" != Ready ]; then
  echo "daemons of the driver: $(cat "$dir/.driver-daemons-status")"
  exit 1
fi
nvidia-smi
ready=$(mktemp "$dir/.driver-ctr-ready.XXXXXX")
{
  echo "GDRCOPY_ENABLED: ${GDRCOPY_ENABLED:-false}"
  echo "GDS_ENABLED: ${GDS_ENABLED:-false}"
  echo "GPU_DIRECT_RDMA_ENABLED: ${GPU_DIRECT_RDMA_ENABLED:-false}"
} > "$ready"
mv "$ready" "$dir/.driver-ctr-ready"
"#;
    let mut metadata = labelled(&cx.scope, PROBE, NAME);
    let labels = metadata.labels.get_or_insert_default();
    labels.insert("app.kubernetes.io/component".into(), "nvidia-driver".into());
    let data = BTreeMap::from([("startup-probe.sh".to_owned(), script.to_owned())]);
    Object::new(&ConfigMap { metadata, data: Some(data), ..ConfigMap::default() })
}

/// The operating system of the GPU nodes; an error names the missing label.
pub(crate) fn system(cx: &PolicyCx<'_>) -> Outcome<Os> {
    cx.cluster.fleet.system().cloned().ok_or_else(|| {
        let missing = cx.cluster.fleet.unknown.iter().next();
        let (label, node) = missing.map_or((OS_ID, ""), |(label, node)| (*label, node.as_str()));
        let what = if label == OS_VERSION { "OS version" } else { "OS name" };
        format!(
            "failed to retrieve GPU node OS info: unable to retrieve {what} from label {label}: node {node} has no such \
             label, so feature discovery has not run there yet"
        )
    })
}

/// The DaemonSets that this cluster needs.
fn flavours(cx: &PolicyCx<'_>) -> Outcome<Vec<Flavour>> {
    let fleet = &cx.cluster.fleet;
    if fleet.gpu_nodes == 0 {
        return Ok(Vec::new());
    }
    let os = system(cx)?;
    if cx.spec().driver.use_precompiled == Some(true) {
        if let Some(node) = &fleet.without_kernel {
            return Err(format!("node {node} has no label {KERNEL}, so the driver built for its kernel is not known"));
        }
        let one = |(kernel, systems): (&String, &std::collections::BTreeSet<Os>)| {
            let mut systems = systems.iter();
            match (systems.next(), systems.next()) {
                (Some(first), Some(second)) => {
                    Err(format!("different OS versions found for the same kernel version {kernel}: {first}, {second}"))
                }
                (first, _) => Ok(Flavour::Kernel(kernel.clone(), first.unwrap_or(&os).clone())),
            }
        };
        return fleet.kernels.iter().map(one).collect();
    }
    if let Some(versions) = toolkit_builds(cx) {
        return Ok(versions.into_iter().map(|version| Flavour::Rhcos(version, os.clone())).collect());
    }
    let systems = systems(cx)?;
    if systems.len() < 2 {
        return Ok(vec![Flavour::Plain(os)]);
    }
    Ok(systems.into_iter().enumerate().map(|(place, os)| Flavour::System(os, place == 0)).collect())
}

/// The operating systems of GPU nodes that need different images, most frequent first.
pub(crate) fn systems(cx: &PolicyCx<'_>) -> Outcome<Vec<Os>> {
    let first = system(cx)?;
    let mut tags = BTreeMap::new();
    for one in cx.cluster.fleet.systems.keys() {
        tags.entry(one.tag()).or_insert_with(|| one.clone());
    }
    tags.remove(&first.tag());
    Ok(std::iter::once(first).chain(tags.into_values()).collect())
}

/// Restricts it to nodes with this operating system; the most frequent one keeps the default name.
pub(crate) fn only_on(daemon: &mut Daemon, os: &Os, first: bool) {
    if !first {
        rename(daemon, &os.tag());
    }
    select_system(daemon, os);
}

/// One DaemonSet.
fn daemon(cx: &PolicyCx<'_>, flavour: &Flavour) -> Outcome<Daemon> {
    let mut daemon = template::template();
    daemon.common(cx)?;
    settings::apply(cx, &mut daemon, &DriverSettings::of_policy(cx.spec()), flavour)?;
    match flavour {
        Flavour::Plain(_) => {}
        Flavour::System(os, first) => only_on(&mut daemon, os, *first),
        Flavour::Kernel(kernel, os) => {
            rename(&mut daemon, &format!("{}-{os}", sanitized(kernel)));
            for labels in [&mut daemon.labels, &mut daemon.pod_labels] {
                labels.insert("nvidia.com/precompiled".into(), "true".into());
            }
            select(&mut daemon, KERNEL, kernel);
        }
        Flavour::Rhcos(..) => {}
    }
    digest::stamp(&mut daemon);
    Ok(daemon)
}

/// Renames it, with a selector of its own.
fn rename(daemon: &mut Daemon, suffix: &str) {
    let base = std::mem::take(&mut daemon.name);
    daemon.name = format!("{base}-{suffix}");
    // Labels are shorter than names.
    let app = if daemon.name.len() <= 63 { daemon.name.clone() } else { format!("{base}-{}", kit::hash(suffix)) };
    for labels in [&mut daemon.labels, &mut daemon.selector, &mut daemon.pod_labels] {
        labels.insert("app".into(), app.clone());
    }
}

fn select(daemon: &mut Daemon, label: &str, value: &str) {
    daemon.pod.node_selector.get_or_insert_default().insert(label.into(), value.into());
}

fn select_system(daemon: &mut Daemon, os: &Os) {
    select(daemon, OS_ID, &os.id);
    let tagged = os.tag();
    if tagged == format!("{}{}", os.id, os.version) {
        select(daemon, OS_VERSION, &os.version);
    } else {
        select(daemon, &format!("{OS_VERSION}.major"), tagged.trim_start_matches(&os.id));
    }
}

/// A kernel version for names: without architecture, with dots only.
pub(crate) fn sanitized(kernel: &str) -> String {
    let bare = ["x86_64_64k", "aarch64_64k", "x86_64", "aarch64"]
        .into_iter()
        .fold(kernel.to_owned(), |text, architecture| text.replace(architecture, ""));
    let dotted = bare.replace('_', ".");
    dotted.strip_suffix('.').unwrap_or(&dotted).to_lowercase()
}

/// Driver DaemonSets to delete with orphan propagation because NVIDIADrivers take over: their pods are upgraded one by
/// one.
pub(crate) fn released(cx: &PolicyCx<'_>) -> Vec<Object> {
    let drivers = |name: &str| name.starts_with(NAME) || name.starts_with(vgpu_manager::NAME);
    let live = cx.facts.live.iter().map(|(reference, _)| reference);
    live.filter(|one| one.gvk == Gvk::of::<DaemonSet>() && drivers(&one.name))
        .cloned()
        .map(Object::orphan_deleted)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_lose_their_architecture() {
        let table = [
            ("5.14.0-427.37.1.el9_4.aarch64_64k", "5.14.0-427.37.1.el9.4"),
            ("5.14.0-427.37.1.el9_4.x86_64", "5.14.0-427.37.1.el9.4"),
            ("5.15.0-70-generic", "5.15.0-70-generic"),
            ("6.8.0-1015-AWS", "6.8.0-1015-aws"),
        ];
        for (kernel, expected) in table {
            assert_eq!(sanitized(kernel), expected);
        }
    }
}
