//! The base DaemonSet of all drivers.

use capstan_plan::kit::Daemon;
use capstan_plan::kit::daemon_set::on_delete;
use capstan_plan::kit::pod::{Build, Mount, at, config, container, host, host_dir, host_make};
use capstan_plan::kit::probe;
use k8s_openapi::api::core::v1::{Affinity, Container, PodAffinityTerm, PodAntiAffinity, Probe};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::toolkit::toolkit_container;
use super::{ACCOUNT, MAIN, NAME, PROBE};
use crate::gpu::components::daemon::gpu_daemon;

/// The driver manager init container; `evicts` is whether it may evict GPU pods.
pub(crate) fn manager(evicts: bool) -> Container {
    let mut one = container("k8s-driver-manager")
        .runs(&["driver-manager"], &["uninstall_driver"])
        .node_name()
        .with("NVIDIA_VISIBLE_DEVICES", "void")
        .with("ENABLE_GPU_POD_EVICTION", if evicts { "true" } else { "false" })
        .with("ENABLE_AUTO_DRAIN", "false");
    if evicts {
        one = one
            .with("DRAIN_USE_FORCE", "false")
            .with("DRAIN_POD_SELECTOR_LABEL", "")
            .with("DRAIN_TIMEOUT_SECONDS", "0s")
            .with("DRAIN_DELETE_EMPTYDIR_DATA", "false");
    }
    let mut mounts = vec![
        at("run-nvidia", "/run/nvidia").bidirectional(),
        at("host-root", "/host").read_only().host_to_container(),
        at("host-sys", "/sys"),
    ];
    if evicts {
        mounts.push(at("run-mellanox-drivers", "/run/mellanox/drivers").host_to_container());
    }
    one = one.field("OPERATOR_NAMESPACE", "metadata.namespace").mounts(mounts).privileged();
    one.image_pull_policy = Some("IfNotPresent".into());
    one
}

pub(crate) fn template() -> Daemon {
    let mut daemon = gpu_daemon(NAME, ACCOUNT, "driver").with_scc(ACCOUNT).with(
        vec![manager(true)],
        vec![driver(), peermem(), storage(), gdrcopy(), toolkit_container()],
        vec![
            host_make("run-nvidia", "/run/nvidia"),
            host("var-log", "/var/log"),
            host("dev-log", "/dev/log"),
            host("host-os-release", "/etc/os-release"),
            host_make("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager"),
            host_make("run-nvidia-topologyd", "/run/nvidia-topologyd"),
            host_make("mlnx-ofed-usr-src", "/run/mellanox/drivers/usr/src"),
            host_make("run-mellanox-drivers", "/run/mellanox/drivers"),
            host_make("run-nvidia-validations", "/run/nvidia/validations"),
            host("host-root", "/"),
            host_dir("host-sys", "/sys"),
            host("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
            host_dir("host-sys-devices-system", "/sys/devices/system"),
            host_make("nv-firmware", "/run/nvidia/driver/lib/firmware"),
            config("driver-startup-probe-script", PROBE, Some(0o755), &[]),
        ],
    );
    daemon = daemon.with_log_fallback();
    daemon.strategy = Some(on_delete());
    daemon.pod.host_pid = Some(true);
    for labels in [&mut daemon.labels, &mut daemon.pod_labels] {
        labels.insert("nvidia.com/precompiled".into(), "false".into());
        labels.insert("app.kubernetes.io/component".into(), "nvidia-driver".into());
    }
    daemon.pod_annotations.insert("kubectl.kubernetes.io/default-container".into(), MAIN.into());
    daemon.pod.affinity = Some(anti_affinity(&["nvidia-driver"]));
    daemon
}

/// Pod anti-affinity: at most one driver pod per node.
pub(crate) fn anti_affinity(components: &[&str]) -> Affinity {
    let drivers = LabelSelectorRequirement {
        key: "app.kubernetes.io/component".into(),
        operator: "In".into(),
        values: Some(components.iter().map(|one| (*one).into()).collect()),
    };
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector { match_expressions: Some(vec![drivers]), ..LabelSelector::default() }),
        topology_key: "kubernetes.io/hostname".into(),
        ..PodAffinityTerm::default()
    };
    let apart = PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Some(vec![term]),
        ..PodAntiAffinity::default()
    };
    Affinity { pod_anti_affinity: Some(apart), ..Affinity::default() }
}

fn driver() -> Container {
    let mut one = container(MAIN)
        .runs(&["nvidia-driver"], &["init"])
        .node_name()
        .field("NODE_IP", "status.hostIP")
        .mounts(vec![
            at("run-nvidia", "/run/nvidia").bidirectional(),
            at("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager"),
            at("run-nvidia-topologyd", "/run/nvidia-topologyd"),
            at("var-log", "/var/log"),
            at("dev-log", "/dev/log"),
            at("host-os-release", "/host-etc/os-release").read_only(),
            at("mlnx-ofed-usr-src", "/run/mellanox/drivers/usr/src").host_to_container(),
            at("run-mellanox-drivers", "/run/mellanox/drivers").host_to_container(),
            at("host-sys-devices-system", "/sys/devices/system"),
            at("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
            at("nv-firmware", "/lib/firmware"),
            at("driver-startup-probe-script", "/usr/local/bin/startup-probe.sh").sub("startup-probe.sh"),
        ])
        .privileged_s0()
        .before_stop("rm -f /run/nvidia/validations/.driver-ctr-ready /run/nvidia/validations/.driver-daemons-status");
    let command = ["sh", "/usr/local/bin/startup-probe.sh"];
    one.startup_probe = Some(Probe { success_threshold: Some(1), ..probe::exec(&command, 60, 10, 60, 120) });
    one
}

fn peermem() -> Container {
    let mut one = container("nvidia-peermem-ctr")
        .runs(&["nvidia-driver"], &["reload_nvidia_peermem"])
        .mounts(vec![
            at("run-nvidia", "/run/nvidia").bidirectional(),
            at("var-log", "/var/log"),
            at("dev-log", "/dev/log").read_only(),
            at("run-mellanox-drivers", "/run/mellanox/drivers").host_to_container(),
        ])
        .privileged_s0();
    let command = ["sh", "-c", "nvidia-driver probe_nvidia_peermem"];
    one.startup_probe = Some(probe::exec(&command, 10, 10, 10, 120));
    one.liveness_probe = Some(probe::exec(&command, 30, 30, 10, 1));
    one
}

fn storage() -> Container {
    module("nvidia-fs-ctr", "nvidia-gds-driver install", "nvidia_fs")
}

fn gdrcopy() -> Container {
    module("nvidia-gdrcopy-ctr", "nvidia-gdrcopy-driver install", "gdrdrv")
}

/// A sidecar that installs another module once the driver is loaded.
fn module(name: &str, install: &str, module: &str) -> Container {
    let script = format!(
        "until [ -d /run/nvidia/driver/usr/src ] && grep -q '^nvidia ' /proc/modules; do \
         echo waiting for the driver to be loaded; sleep 10; done; exec {install}"
    );
    let mut one = container(name)
        .runs(&["bash", "-xc"], &[&script])
        .mounts(vec![
            at("run-nvidia", "/run/nvidia").host_to_container(),
            at("var-log", "/var/log"),
            at("dev-log", "/dev/log").read_only(),
        ])
        .privileged_s0();
    let loaded = format!("grep -q '^{module} ' /proc/modules");
    let probe = probe::exec(&["sh", "-c", &loaded], 10, 10, 10, 120);
    one.startup_probe = Some(Probe { success_threshold: Some(1), ..probe });
    one
}
