//! MPS control daemon: lets processes share a GPU, on nodes whose device plugin is configured so.

use std::collections::BTreeMap;

use capstan_api::gpu::component::Component;
use capstan_plan::Object;

use super::access::{Rights, access, rule};
use super::daemon::Daemon;
use super::device_plugin::{MPS_ROOT, mps_root};
use super::pod::{Build, Mount, at, container, host, host_dir, host_make};
use super::snippets::{after_toolkit, config_managers, pull_if_set, requirements};
use super::{Cx, Operand, Outcome, enabled};

pub(super) const OPERAND: Operand = Operand {
    name: capstan_node::MPS_CONTROL_DAEMON.operand(),
    condition: "MpsControlDaemon",
    // The device plugin's configuration chooses the nodes.
    deploy: None,
    enabled: |cx| enabled(&cx.spec().device_plugin.component),
    objects,
};

const NAME: &str = "nvidia-device-plugin-mps-control-daemon";
const MAIN: &str = "mps-control-daemon-ctr";
const MOUNTS: &str = "mps-control-daemon-mounts";

fn objects(cx: &Cx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights { everywhere: vec![rule("", &["nodes"], &["get", "list", "watch"])], ..Rights::default() };
    let mut objects = access(cx, NAME, rights);
    objects.push(daemon(cx)?.object(cx));
    Ok(objects)
}

fn template() -> Daemon {
    let (first, sidecar) = config_managers("/usr/bin/mps-control-daemon");
    let toolkit = after_toolkit("run-nvidia", "/run/nvidia");
    let mounts = container(MOUNTS)
        .runs(&["mps-control-daemon", "mount-shm"], &[])
        .mounts(vec![at("mps-root", "/mps").both_ways()])
        .privileged();
    let main = container(MAIN)
        .runs(&["mps-control-daemon"], &[])
        .node_name()
        .with("NVIDIA_VISIBLE_DEVICES", "all")
        .with("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
        .mounts(vec![at("mps-shm", "/dev/shm"), at("mps-root", "/mps")])
        .privileged();
    let mut daemon =
        Daemon::new(NAME, NAME, capstan_node::DEVICE_PLUGIN.deploy()).constrained("hostmount-anyuid").with(
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

fn daemon(cx: &Cx<'_>) -> Outcome<Daemon> {
    let plugin = &cx.spec().device_plugin.component;
    let mut daemon = template();
    daemon.common(cx)?;
    daemon.validated(cx)?;
    // Arguments and variables are those of the device plugin, another program.
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
    daemon.configured(cx, plugin.resources.as_ref(), own)?;
    daemon.sees_gpus(cx, MAIN);
    daemon.mig(cx);
    mps_root(cx, &mut daemon);
    daemon.host_network(plugin.host_network);
    Ok(daemon)
}
