//! MPS control daemon: GPU sharing between processes, on nodes whose device plugin is configured for it.

use std::collections::BTreeMap;

use capstan_api::gpu::component::Component;
use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::pod::{Build, Mount, at, container, host, host_dir, host_make};
use capstan_plan::kit::rbac::{Rights, rule};

use super::access::access;
use super::daemon::{GpuDaemon, gpu_daemon};
use super::device_plugin::{MPS_ROOT, mps_root};
use super::own::OwnImage;
use super::snippets::{after_toolkit, config_managers, configured, mig, pull_if_set, requirements};
use super::{Operand, Outcome, PolicyCx, enabled};

pub(crate) const OPERAND: Operand = Operand {
    name: capstan_node::MPS_CONTROL_DAEMON.operand(),
    condition: "MpsControlDaemon",
    // The device plugin config selects the nodes.
    deploy: None,
    enabled: |cx| enabled(&cx.spec().device_plugin.component),
    objects,
};

const NAME: &str = "nvidia-device-plugin-mps-control-daemon";
const MAIN: &str = "mps-control-daemon-ctr";
const MOUNTS: &str = "mps-control-daemon-mounts";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights { everywhere: vec![rule("", &["nodes"], &["get", "list", "watch"])], ..Rights::default() };
    let mut objects = access(cx, NAME, rights);
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

fn template() -> Daemon {
    let (first, sidecar) = config_managers("/usr/bin/mps-control-daemon");
    let toolkit = after_toolkit("run-nvidia", "/run/nvidia");
    let mounts = container(MOUNTS)
        .runs(&["mps-control-daemon", "mount-shm"], &[])
        .mounts(vec![at("mps-root", "/mps").bidirectional()])
        .privileged();
    let main = container(MAIN)
        .runs(&["mps-control-daemon"], &[])
        .node_name()
        .with("NVIDIA_VISIBLE_DEVICES", "all")
        .with("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
        .mounts(vec![at("mps-shm", "/dev/shm"), at("mps-root", "/mps")])
        .privileged();
    let mut daemon = gpu_daemon(NAME, NAME, capstan_node::DEVICE_PLUGIN.deploy()).with_scc("hostmount-anyuid").with(
        vec![toolkit, mounts, first],
        vec![main, sidecar],
        vec![
            host_dir("run-nvidia", "/run/nvidia"),
            host_make("mps-root", MPS_ROOT),
            host("mps-shm", "/run/nvidia/mps/shm"),
        ],
    );
    daemon.pod.host_pid = Some(true);
    let selector: &mut BTreeMap<_, _> = daemon.pod.node_selector.get_or_insert_default();
    selector.insert("nvidia.com/mps.capable".into(), "true".into());
    daemon
}

fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let plugin = &cx.spec().device_plugin.component;
    let mut daemon = template();
    daemon.common(cx)?;
    daemon.validated(cx)?;
    // Arguments and environment are those of the device plugin, a different program.
    let component = Component { args: None, env: None, ..plugin.clone() };
    let own = daemon.runs_role(cx, &component, "DEVICE_PLUGIN_IMAGE", &capstan_node::MPS_CONTROL_DAEMON)?;
    let path = cx.found(&plugin.image, "DEVICE_PLUGIN_IMAGE")?.path;
    if let Some(mounts) = daemon.container(MOUNTS) {
        mounts.image = Some(path);
        pull_if_set(mounts, &plugin.image);
        if own {
            super::own::own(cx, &plugin.image, mounts, &["agent", capstan_node::MPS_CONTROL_DAEMON.name, "mount-shm"]);
        }
        if let Some(resources) = &plugin.resources {
            mounts.resources = Some(requirements(resources));
        }
    }
    configured(cx, &mut daemon, plugin.resources.as_ref(), own)?;
    daemon.sees_gpus(cx, MAIN);
    mig(cx, &mut daemon);
    mps_root(cx, &mut daemon);
    daemon.host_network(plugin.host_network);
    Ok(daemon)
}
