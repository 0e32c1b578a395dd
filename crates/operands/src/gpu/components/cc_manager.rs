//! Manager of confidential computing modes of GPUs.

use capstan_api::gpu::cluster_policy::sandbox::{CcMode, SandboxMode};
use capstan_plan::Object;

use super::access::{Rights, Shares, access, constraints, rule};
use super::daemon::Daemon;
use super::pod::{Build, at, container, host_dir, host_make, set_env};
use super::vfio_manager::small;
use super::{Cx, Operand, Outcome, switched_on};

pub(crate) const OPERAND: Operand = Operand {
    name: "state-cc-manager",
    condition: "CcManager",
    deploy: Some("cc-manager"),
    enabled: |cx| {
        cx.sandboxes()
            && switched_on(cx.spec().cc_manager.as_ref().map(|manager| &manager.component))
            && cx.sandbox_mode() == SandboxMode::Kata
    },
    objects,
};

const NAME: &str = "nvidia-cc-manager";

fn objects(cx: &Cx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights {
        here: vec![rule("", &["pods"], &["get", "list", "watch"])],
        everywhere: vec![rule("", &["nodes"], &["get", "list", "patch", "watch"])],
    };
    let mut objects = access(cx, NAME, rights);
    objects.extend(constraints(cx, NAME, Shares { anything: true, ..Shares::default() }));
    objects.push(daemon(cx)?.object(cx));
    Ok(objects)
}

fn daemon(cx: &Cx<'_>) -> Outcome<Daemon> {
    let manager = cx.spec().cc_manager.clone().unwrap_or_default();
    let mut main = container(NAME)
        .node_name()
        .with("NVIDIA_VISIBLE_DEVICES", "void")
        .mounts(vec![at("host-sys", "/sys"), at("run-nvidia", "/run/nvidia")])
        .privileged()
        .before_stop("rm -f /run/nvidia/validations/.cc-manager-ctr-ready");
    main.resources = Some(small());
    let volumes = vec![host_dir("host-sys", "/sys"), host_make("run-nvidia", "/run/nvidia")];
    let mut daemon = Daemon::new(NAME, NAME, "cc-manager").selected_by_name().with(vec![], vec![main], volumes);
    daemon.pod.termination_grace_period_seconds = Some(30);
    daemon.common(cx)?;
    daemon.runs_as(cx, &manager.component, "CC_MANAGER_IMAGE")?;
    if let Some(mode) = manager.default_mode {
        let mode = match mode {
            CcMode::On => "on",
            CcMode::Off => "off",
            CcMode::Devtools => "devtools",
        };
        set_env(daemon.main(), "DEFAULT_CC_MODE", mode);
    }
    daemon.finishes_as(&manager.component);
    Ok(daemon)
}
