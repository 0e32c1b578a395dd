//! Sandbox validator: the validator of nodes that run virtual machines or confidential containers.

use capstan_api::gpu::cluster_policy::sandbox::Workload;
use capstan_plan::Object;

use super::access::{Rights, Shares, access, constraints, rule};
use super::daemon::Daemon;
use super::pod::{Build, Mount, at, host, host_make, set_env};
use super::validation::{check, idle, standard};
use super::{Cx, Operand, Outcome, cc_manager};

pub(crate) const OPERAND: Operand = Operand {
    name: "state-sandbox-validation",
    condition: "SandboxValidation",
    deploy: Some("sandbox-validator"),
    enabled: |cx| cx.sandboxes(),
    objects,
};

const NAME: &str = "nvidia-sandbox-validator";

fn objects(cx: &Cx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights { everywhere: vec![rule("", &["nodes"], &["get"])], ..Rights::default() };
    let mut objects = access(cx, NAME, rights);
    objects.extend(constraints(cx, NAME, Shares { anything: true, ..Shares::default() }));
    objects.push(daemon(cx)?.object(cx));
    Ok(objects)
}

/// What nodes without a label run.
fn default_workload(cx: &Cx<'_>) -> &'static str {
    match cx.spec().sandbox_workloads.as_ref().and_then(|sandbox| sandbox.default_workload).unwrap_or_default() {
        Workload::Container => "container",
        Workload::VmPassthrough => "vm-passthrough",
        Workload::VmVgpu => "vm-vgpu",
    }
}

fn daemon(cx: &Cx<'_>) -> Outcome<Daemon> {
    let root = || at("host-root", "/host").read_only().host_to_container();
    let waiting = |component: &str| check(component).with("WITH_WAIT", "true").with("COMPONENT", component).node_name();
    let checks = vec![
        waiting("cc-manager"),
        waiting("vfio-pci").mounts(vec![root()]),
        waiting("vgpu-manager")
            .mounts(vec![root(), at("driver-install-dir", "/run/nvidia/driver").host_to_container()]),
        waiting("vgpu-devices"),
    ];
    let mut daemon = Daemon::new(NAME, NAME, "sandbox-validator").part_of("gpu-operator").with(
        checks,
        vec![idle(NAME, "rm -f /run/nvidia/validations/*")],
        vec![
            host_make("run-nvidia-validations", "/run/nvidia/validations"),
            host("driver-install-dir", "/run/nvidia/driver"),
            host("host-root", "/"),
        ],
    );
    daemon = daemon.with_last_words();
    daemon.common(cx)?;
    standard(cx, &mut daemon, "")?;
    // Nobody would ever say that it is ready.
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
