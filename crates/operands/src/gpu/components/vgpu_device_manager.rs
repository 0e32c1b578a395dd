//! vGPU device manager: creates the vGPU devices of the node label.

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, config, container, host, host_dir, host_make, set_env};
use capstan_plan::kit::rbac::{Rights, rule};

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::mig_manager::map;
use super::{Operand, Outcome, PolicyCx, switched_on, vgpu_devices};

pub(crate) const OPERAND: Operand = Operand {
    name: "state-vgpu-device-manager",
    condition: "VgpuDeviceManager",
    deploy: Some("vgpu-device-manager"),
    enabled: |cx| {
        cx.sandboxes() && switched_on(cx.spec().vgpu_device_manager.as_ref().map(|manager| &manager.component))
    },
    objects,
};

const NAME: &str = "nvidia-vgpu-device-manager";
const DEVICES: &str = "default-vgpu-devices-config";

/// The vGPU manager may be ours or the host's.
const WAIT: &str = "until [ -f /run/nvidia/validations/vgpu-manager-ready ] || \
    [ -f /run/nvidia/validations/host-vgpu-manager-ready ]; do echo waiting for the vGPU manager; sleep 5; done";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights {
        here: vec![rule("", &["pods"], &["get", "list", "watch"])],
        everywhere: vec![
            rule("config.openshift.io", &["clusterversions"], &["get", "list"]),
            rule("", &["nodes"], &["get", "list", "watch", "update"]),
        ],
    };
    let mut objects = access(cx, NAME, rights);
    objects.extend(constraints(cx, NAME, Shares { anything: true, ..Shares::default() }));
    if devices(cx) == DEVICES {
        objects.push(map(cx, DEVICES, "config.yaml", vgpu_devices::config()));
    }
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

/// The ConfigMap with the vGPU configs.
fn devices<'a>(cx: &PolicyCx<'a>) -> &'a str {
    let config = cx.spec().vgpu_device_manager.as_ref().and_then(|manager| manager.config.as_ref());
    config.and_then(|config| config.name.as_deref()).filter(|name| !name.is_empty()).unwrap_or(DEVICES)
}

fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let manager = cx.spec().vgpu_device_manager.clone().unwrap_or_default();
    let wait = container("vgpu-manager-validation")
        .runs(&["sh", "-c"], &[WAIT])
        .mounts(vec![at("run-nvidia-validations", "/run/nvidia/validations").host_to_container()])
        .privileged();
    let main = container(NAME)
        .field("NAMESPACE", "metadata.namespace")
        .node_name()
        .with("CONFIG_FILE", "/vgpu-config/config.yaml")
        .mounts(vec![
            at("vgpu-config", "/vgpu-config"),
            at("host-sys", "/sys"),
            at("host-root", "/host").host_to_container(),
            at("driver-install-dir", "/driver-root").host_to_container(),
        ])
        .privileged();
    let mut daemon = gpu_daemon(NAME, NAME, "vgpu-device-manager").with_scc(NAME).with(
        vec![wait],
        vec![main],
        vec![
            config("vgpu-config", devices(cx), None, &[]),
            host_make("run-nvidia-validations", "/run/nvidia/validations"),
            host_dir("host-sys", "/sys"),
            host("host-root", "/"),
            host_make("driver-install-dir", "/run/nvidia/driver"),
        ],
    );
    daemon.common(cx)?;
    daemon.validated(cx)?;
    daemon.runs_as(cx, &manager.component, "VGPU_DEVICE_MANAGER_IMAGE")?;
    let default = manager.config.as_ref().and_then(|config| config.default.as_deref());
    let default = default.filter(|default| !default.is_empty()).unwrap_or("default");
    set_env(daemon.main(), "DEFAULT_VGPU_CONFIG", default);
    daemon.finishes_as(&manager.component);
    Ok(daemon)
}
