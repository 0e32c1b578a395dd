//! Sandbox validator: the validator of nodes that run virtual machines or confidential containers.

use capstan_api::gpu::cluster_policy::sandbox::Workload;
use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, host, host_make, set_env};
use capstan_plan::kit::rbac::{Rights, rule};

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::validation::{check, idle, standard};
use super::{Operand, Outcome, PolicyCx, cc_manager};

pub(crate) const OPERAND: Operand = Operand {
    name: "state-sandbox-validation",
    condition: "SandboxValidation",
    deploy: Some("sandbox-validator"),
    enabled: |cx| cx.sandboxes(),
    objects,
};

const NAME: &str = "nvidia-sandbox-validator";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights { everywhere: vec![rule("", &["nodes"], &["get"])], ..Rights::default() };
    let mut objects = access(cx, NAME, rights);
    objects.extend(constraints(cx, NAME, Shares { anything: true, ..Shares::default() }));
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

/// The default workload of unlabelled nodes.
fn default_workload(cx: &PolicyCx<'_>) -> &'static str {
    match cx.spec().sandbox_workloads.as_ref().and_then(|sandbox| sandbox.default_workload).unwrap_or_default() {
        Workload::Container => "container",
        Workload::VmPassthrough => "vm-passthrough",
        Workload::VmVgpu => "vm-vgpu",
    }
}

fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let root = || at("host-root", "/host").read_only().host_to_container();
    let waiting = |component: &str| check(component).with("WITH_WAIT", "true").with("COMPONENT", component).node_name();
    let checks = vec![
        waiting("cc-manager"),
        waiting("vfio-pci").mounts(vec![root()]),
        waiting("vgpu-manager")
            .mounts(vec![root(), at("driver-install-dir", "/run/nvidia/driver").host_to_container()]),
        waiting("vgpu-devices"),
    ];
    let mut daemon = gpu_daemon(NAME, NAME, "sandbox-validator").part_of("gpu-operator").with(
        checks,
        vec![idle(NAME, "rm -f /run/nvidia/validations/*")],
        vec![
            host_make("run-nvidia-validations", "/run/nvidia/validations"),
            host("driver-install-dir", "/run/nvidia/driver"),
            host("host-root", "/"),
        ],
    );
    daemon = daemon.with_log_fallback();
    daemon.common(cx)?;
    standard(cx, &mut daemon, "")?;
    // Its readiness file would never be written.
    if !(cc_manager::OPERAND.enabled)(cx) {
        daemon.remove("cc-manager-validation");
    }
    for name in ["vfio-pci-validation", "vgpu-manager-validation", "vgpu-devices-validation"] {
        if let Some(check) = daemon.container(name) {
            set_env(check, "DEFAULT_GPU_WORKLOAD_CONFIG", default_workload(cx));
        }
    }
    daemon.validated(cx)?;
    Ok(daemon)
}
