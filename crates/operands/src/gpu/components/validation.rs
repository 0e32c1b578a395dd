//! Validator: checks driver, toolkit, CUDA and device plugin on each node, in order; other operands wait for its files.

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, container, host, host_make, set_env};
use capstan_plan::kit::rbac::{Rights, rule};
use k8s_openapi::api::core::v1::Container;

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::own::{CLEARS, own_hold};
use super::snippets::{as_root, requirements, set_all, strategy_name};
use super::toolkit::driver_validation;
use super::{Operand, Outcome, PolicyCx, enabled};
use crate::gpu::image;

pub(crate) const OPERAND: Operand = Operand {
    name: capstan_node::VALIDATOR.operand(),
    condition: "Validation",
    deploy: Some("operator-validator"),
    enabled: |_| true,
    objects,
};

const NAME: &str = "nvidia-operator-validator";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let all = &["create", "get", "list", "watch", "update", "patch", "delete"];
    let clears: &[&str] = if cx.validates_itself() { &[CLEARS] } else { &[] };
    let rights = Rights {
        here: vec![
            rule("", &["pods"], &[all, clears].concat()),
            rule("apps", &["daemonsets"], &["get", "list", "watch"]),
        ],
        everywhere: vec![
            rule("", &["nodes"], &["get", "list", "watch"]),
            rule("nvidia.com", &["clusterpolicies/finalizers", "nvidiadrivers/finalizers"], all),
        ],
    };
    let mut objects = access(cx, NAME, rights);
    objects.extend(constraints(cx, NAME, Shares { pid: true, anything: true, ..Shares::default() }));
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

/// An init container that runs one check of the validator, without its environment.
pub(crate) fn check(component: &str) -> Container {
    container(&format!("{component}-validation"))
        .runs(&["sh", "-c"], &["nvidia-validator"])
        .mounts(vec![at("run-nvidia-validations", "/run/nvidia/validations").bidirectional()])
        .privileged()
}

/// The main container, which only idles.
pub(crate) fn idle(name: &str, before_stop: &str) -> Container {
    container(name)
        .runs(&["sh", "-c"], &["echo all validations are successful; sleep infinity"])
        .mounts(vec![at("run-nvidia-validations", "/run/nvidia/validations").bidirectional()])
        .privileged()
        .before_stop(before_stop)
}

fn template() -> Daemon {
    let toolkit =
        check("toolkit").with("NVIDIA_VISIBLE_DEVICES", "all").with("WITH_WAIT", "false").with("COMPONENT", "toolkit");
    let cuda = check("cuda")
        .with("WITH_WAIT", "false")
        .with("COMPONENT", "cuda")
        .node_name()
        .field("OPERATOR_NAMESPACE", "metadata.namespace");
    let plugin = check("plugin")
        .with("COMPONENT", "plugin")
        .with("WITH_WAIT", "false")
        .with("WITH_WORKLOAD", "false")
        .with("MIG_STRATEGY", "")
        .node_name()
        .field("OPERATOR_NAMESPACE", "metadata.namespace");
    gpu_daemon(NAME, NAME, "operator-validator")
        .part_of("gpu-operator")
        .with(
            vec![driver_validation(), toolkit, cuda, plugin],
            vec![idle(NAME, "rm -f /run/nvidia/validations/*-ready")],
            vec![
                host_make("run-nvidia-validations", "/run/nvidia/validations"),
                host("driver-install-dir", "/run/nvidia/driver"),
                host("host-root", "/"),
                host("host-dev-char", "/dev/char"),
            ],
        )
        .with_log_fallback()
}

fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let mut daemon = template();
    daemon.common(cx)?;
    standard(cx, &mut daemon, "-ready")?;
    daemon.sees_gpus(cx, "toolkit-validation");
    if cx.validates_itself() {
        // It runs CUDA itself before a workload pod does.
        daemon.sees_gpus(cx, "cuda-validation");
        if let Some(check) = daemon.container("cuda-validation") {
            set_env(check, "NVIDIA_VISIBLE_DEVICES", "all");
        }
    }
    if !enabled(&cx.spec().device_plugin.component) {
        daemon.remove("plugin-validation");
    }
    workloads(cx, &mut daemon)?;
    if let (Some(plugin), Some(strategy)) = (daemon.container("plugin-validation"), cx.mig_strategy()) {
        set_env(plugin, "MIG_STRATEGY", strategy_name(strategy));
    }
    daemon.validated(cx)?;
    Ok(daemon)
}

/// The main container of a validator, which removes the files with that suffix when it stops.
pub(crate) fn standard(cx: &PolicyCx<'_>, daemon: &mut Daemon, suffix: &str) -> Outcome<()> {
    let validator = &cx.validator;
    let found = cx.found(&validator.image, "VALIDATOR_IMAGE")?;
    daemon.add_pull_secrets(validator.image.image_pull_secrets.as_ref());
    let main = daemon.main();
    main.image = Some(found.path);
    main.image_pull_policy = Some(image::pull_policy(&validator.image).into());
    if found.own {
        own_hold(cx, &validator.image, main, suffix);
    }
    if let Some(resources) = &validator.resources {
        main.resources = Some(requirements(resources));
    }
    if let Some(args) = validator.args.as_ref().filter(|args| !args.is_empty()) {
        main.args = Some(args.clone());
    }
    set_all(main, validator.env.as_ref());
    as_root(main);
    daemon.host_network(validator.host_network);
    Ok(())
}

/// Checks with workload pods, which run the same image with the same settings.
fn workloads(cx: &PolicyCx<'_>, daemon: &mut Daemon) -> Outcome<()> {
    let validator = &cx.validator;
    let found = cx.found(&validator.image, "VALIDATOR_IMAGE")?;
    let mut secrets = validator.image.image_pull_secrets.clone().unwrap_or_default();
    let mut policy = image::pull_policy(&validator.image).to_owned();
    if found.own {
        secrets.extend(cx.cluster.agent.pull_secrets.clone());
        policy = cx.own_pull_policy(&validator.image);
    }
    let secrets = secrets.join(",");
    let class = daemon.pod.runtime_class_name.clone();
    for name in ["cuda-validation", "plugin-validation"] {
        let Some(check) = daemon.container(name) else { continue };
        set_env(check, "VALIDATOR_IMAGE", &found.path);
        set_env(check, "VALIDATOR_IMAGE_PULL_POLICY", &policy);
        if !secrets.is_empty() {
            set_env(check, "VALIDATOR_IMAGE_PULL_SECRETS", &secrets);
        }
        if let Some(class) = &class {
            set_env(check, "VALIDATOR_RUNTIME_CLASS", class);
        }
    }
    Ok(())
}
