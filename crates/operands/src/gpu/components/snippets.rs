//! Shared by several operands: validation, MIG, device plugin configs, container settings.

use capstan_api::gpu::cluster_policy::stack::MigStrategy;
use capstan_api::gpu::component::{EnvVar, Image, Resources};
use capstan_plan::kit::Daemon;
use capstan_plan::kit::pod::{Build, Mount, at, config, container, empty_dir_volume, set_env};
use k8s_openapi::api::core::v1::{Container, ResourceRequirements, SecurityContext};

use super::Outcome;
use super::context::PolicyCx;
use super::daemon::GpuDaemon;
use super::own::{self, OwnImage};
use crate::gpu::image;

/// Waits until the toolkit was validated.
pub(crate) const UNTIL_TOOLKIT: &str = "until [ -f /run/nvidia/validations/toolkit-ready ]; do echo waiting for the toolkit to be validated; sleep 5; done";

/// MIG strategy and monitoring devices.
pub(crate) fn mig(cx: &PolicyCx<'_>, daemon: &mut Daemon) {
    let strategy = cx.mig_strategy();
    let main = daemon.main();
    if let Some(strategy) = strategy {
        set_env(main, "MIG_STRATEGY", strategy_name(strategy));
    }
    if strategy != Some(MigStrategy::None) {
        set_env(main, "NVIDIA_MIG_MONITOR_DEVICES", "all");
    }
}

/// Device plugin configs, selected by node label; nothing is mounted without. `own` is whether the main container is
/// ours, which reloads a changed config itself.
pub(crate) fn configured(
    cx: &PolicyCx<'_>,
    daemon: &mut Daemon,
    resources: Option<&Resources>,
    own: bool,
) -> Outcome<()> {
    let plugin = &cx.spec().device_plugin;
    let chosen = plugin.config.as_ref();
    let Some(name) = chosen.and_then(|config| config.name.as_deref()).filter(|name| !name.is_empty()) else {
        daemon.remove("config-manager-init");
        daemon.remove("config-manager");
        return Ok(());
    };
    let default = chosen.and_then(|config| config.default.clone()).unwrap_or_default();
    let found = cx.found(&plugin.component.image, "DEVICE_PLUGIN_IMAGE")?;
    if found.own {
        daemon.pull_own(cx);
    }
    if !own {
        daemon.restarts_with(cx, name);
    }
    let main = daemon.main();
    set_env(main, "CONFIG_FILE", "/config/config.yaml");
    let mounts = || vec![at("config", "/config"), at(name, "/available-configs")];
    main.volume_mounts.get_or_insert_default().extend(mounts());
    if daemon.pod.host_pid != Some(true) {
        daemon.pod.share_process_namespace = Some(true);
    }
    daemon.pod.volumes.get_or_insert_default().extend([config(name, name, None, &[]), empty_dir_volume("config")]);
    for container in ["config-manager-init", "config-manager"] {
        let Some(container) = daemon.container(container) else { continue };
        container.image = Some(found.path.clone());
        pull_if_set(container, &plugin.component.image);
        if found.own {
            own::own(cx, &plugin.component.image, container, &["agent", capstan_node::CONFIG_MANAGER.name]);
        }
        if let Some(resources) = resources {
            container.resources = Some(requirements(resources));
        }
        set_env(container, "DEFAULT_CONFIG", &default);
        set_env(container, "FALLBACK_STRATEGIES", "empty");
        container.volume_mounts.get_or_insert_default().extend(mounts());
    }
    Ok(())
}

/// The config-manager init container and sidecar, which copy the config that the node label selects.
pub(crate) fn config_managers(process: &str) -> (Container, Container) {
    let manager = |name: &str, once: bool| {
        let bool_text = |flag: bool| if flag { "true" } else { "false" };
        container(name)
            .runs(&["config-manager"], &[])
            .with("ONESHOT", bool_text(once))
            .with("KUBECONFIG", "")
            .node_name()
            .with("NODE_LABEL", capstan_node::labels::DEVICE_PLUGIN_CONFIG)
            .with("CONFIG_FILE_SRCDIR", "/available-configs")
            .with("CONFIG_FILE_DST", "/config/config.yaml")
            .with("DEFAULT_CONFIG", "")
            .with("SEND_SIGNAL", bool_text(!once))
            .with("SIGNAL", if once { "" } else { "1" })
            .with("PROCESS_TO_SIGNAL", if once { "" } else { process })
    };
    (manager("config-manager-init", true), manager("config-manager", false).privileged())
}

/// Resources as the API has them.
pub(crate) fn requirements(resources: &Resources) -> ResourceRequirements {
    ResourceRequirements {
        limits: resources.limits.clone(),
        requests: resources.requests.clone(),
        ..ResourceRequirements::default()
    }
}

/// Sets the pull policy only if the user did.
pub(crate) fn pull_if_set(container: &mut Container, image: &Image) {
    if image.image_pull_policy.as_deref().is_some_and(|policy| !policy.is_empty()) {
        container.image_pull_policy = Some(image::pull_policy(image).into());
    }
}

/// Sets the user's environment variables.
pub(crate) fn set_all(container: &mut Container, env: Option<&Vec<EnvVar>>) {
    for variable in env.into_iter().flatten() {
        set_env(container, &variable.name, variable.value.as_deref().unwrap_or_default());
    }
}

/// Runs as root.
pub(crate) fn as_root(container: &mut Container) {
    let context: &mut SecurityContext = container.security_context.get_or_insert_default();
    context.run_as_user = Some(0);
}

/// The name of a strategy.
pub(crate) fn strategy_name(strategy: MigStrategy) -> &'static str {
    match strategy {
        MigStrategy::None => "none",
        MigStrategy::Single => "single",
        MigStrategy::Mixed => "mixed",
    }
}

/// The init container that waits for toolkit validation; `volume` has the validation files at `path`.
pub(crate) fn after_toolkit(volume: &str, path: &str) -> Container {
    container("toolkit-validation")
        .runs(&["sh", "-c"], &[UNTIL_TOOLKIT])
        .mounts(vec![at(volume, path).host_to_container()])
        .privileged()
}
