//! What several operands share: images, validation, runtime classes, MIG, configurations of the device plugin.

use capstan_api::gpu::cluster_policy::stack::MigStrategy;
use capstan_api::gpu::component::{Component, EnvVar, Image, Resources};
use capstan_plan::kit;
use k8s_openapi::api::core::v1::{ConfigMap, Container, ResourceRequirements, SecurityContext};
use serde_json::json;

use super::daemon::Daemon;
use super::own::own_check;
use super::pod::{Build, Mount, at, config, container, scratch, set_env};
use super::{Cx, Outcome};
use crate::gpu::image;

/// The value under which the runtime gives a management container every GPU.
const ALL_GPUS: &str = "management.nvidia.com/gpu=all";

/// Waits until the toolkit was validated.
pub(super) const UNTIL_TOOLKIT: &str = "until [ -f /run/nvidia/validations/toolkit-ready ]; do echo waiting for the toolkit to be validated; sleep 5; done";

/// Annotation of pods with the hash of the ConfigMaps that they read when they start.
pub(super) const CONFIG_HASH: &str = "nvidia.com/config-hash";

impl Daemon {
    /// Image, pull policy, credentials, resources and arguments of the main container.
    pub(super) fn runs_as(&mut self, cx: &Cx<'_>, component: &Component, variable: &str) -> Outcome<()> {
        let path = cx.image(&component.image, variable)?;
        self.runs_image(&path, component);
        Ok(())
    }

    /// The same with an image that is known.
    pub(super) fn runs_image(&mut self, path: &str, component: &Component) {
        let main = self.main();
        main.image = Some(path.into());
        main.image_pull_policy = Some(image::pull_policy(&component.image).into());
        self.pull_with(component.image.image_pull_secrets.as_ref());
        self.limit(component.resources.as_ref());
        if let Some(args) = component.args.as_ref().filter(|args| !args.is_empty()) {
            self.main().args = Some(args.clone());
        }
    }

    /// Resources of every main container.
    pub(super) fn limit(&mut self, resources: Option<&Resources>) {
        if let Some(resources) = resources {
            self.pod.containers.iter_mut().for_each(|container| container.resources = Some(requirements(resources)));
        }
    }

    /// Variables of the main container, and its network.
    pub(super) fn finishes_as(&mut self, component: &Component) {
        set_all(self.main(), component.env.as_ref());
        self.host_network(component.host_network);
    }

    /// Shares the node's network if asked to.
    pub(super) fn host_network(&mut self, wanted: Option<bool>) {
        if wanted == Some(true) {
            self.pod.host_network = Some(true);
            self.pod.dns_policy = Some("ClusterFirstWithHostNet".into());
        }
    }

    /// The init containers that wait for another operand run the validator.
    pub(super) fn validated(&mut self, cx: &Cx<'_>) -> Outcome<()> {
        let checks: Vec<String> = self
            .pod
            .init_containers
            .iter()
            .flatten()
            .map(|one| one.name.clone())
            .filter(|name| name.contains("validation"))
            .collect();
        for name in checks {
            self.check(cx, &name)?;
        }
        Ok(())
    }

    /// One init container that runs the validator.
    pub(super) fn check(&mut self, cx: &Cx<'_>, name: &str) -> Outcome<()> {
        let validator = cx.validator();
        let found = cx.found(&validator.image, "VALIDATOR_IMAGE")?;
        self.pull_with(validator.image.image_pull_secrets.as_ref());
        if found.own {
            self.pull_own(cx);
        }
        let Some(check) = self.container(name) else { return Ok(()) };
        check.image = Some(found.path);
        pull_if_set(check, &validator.image);
        if found.own {
            own_check(cx, &validator.image, check)?;
        }
        if let Some(resources) = &validator.resources {
            check.resources = Some(requirements(resources));
        }
        as_root(check);
        let settings = match name {
            name if name.starts_with("driver") => validator.driver,
            name if name.starts_with("toolkit") => validator.toolkit,
            name if name.starts_with("cuda") => validator.cuda,
            name if name.starts_with("plugin") => validator.plugin,
            name if name.starts_with("vfio-pci") => validator.vfio_pci,
            name if name.starts_with("vgpu-manager") => validator.vgpu_manager,
            name if name.starts_with("vgpu-devices") => validator.vgpu_devices,
            _ => None,
        };
        set_all(check, settings.unwrap_or_default().env.as_ref());
        Ok(())
    }

    /// Replaces the pods when a ConfigMap changes that they read only when they start.
    pub(super) fn restarts_with(&mut self, cx: &Cx<'_>, config_map: &str) {
        let Some(map) = cx.facts.live.typed::<ConfigMap>(cx.namespace(), config_map) else { return };
        let hash = self.pod_annotations.entry(CONFIG_HASH.into()).or_default();
        *hash = kit::hash(&json!([*hash, map.data, map.binary_data]).to_string());
    }

    /// The runtime gives `main` the GPUs: through a runtime class, or through the NRI plugin.
    pub(super) fn sees_gpus(&mut self, cx: &Cx<'_>, main: &str) {
        if cx.nri() {
            let key = format!("nvidia.cdi.k8s.io/container.{main}");
            self.pod_annotations.insert(key, ALL_GPUS.into());
        } else if cx.cdi() || cx.runtime() != crate::gpu::fleet::ContainerRuntime::Crio {
            self.pod.runtime_class_name = Some(cx.runtime_class().into());
        }
    }

    /// How MIG devices are looked at.
    pub(super) fn mig(&mut self, cx: &Cx<'_>) {
        let strategy = cx.mig_strategy();
        let main = self.main();
        if let Some(strategy) = strategy {
            set_env(main, "MIG_STRATEGY", strategy_name(strategy));
        }
        if strategy != Some(MigStrategy::None) {
            set_env(main, "NVIDIA_MIG_MONITOR_DEVICES", "all");
        }
    }

    /// Configurations of the device plugin, of which the node's label chooses one; without, nobody looks for them. `own`
    /// is whether the main container is ours, which notices a change by itself.
    pub(super) fn configured(&mut self, cx: &Cx<'_>, resources: Option<&Resources>, own: bool) -> Outcome<()> {
        let plugin = &cx.spec().device_plugin;
        let chosen = plugin.config.as_ref();
        let Some(name) = chosen.and_then(|config| config.name.as_deref()).filter(|name| !name.is_empty()) else {
            self.remove("config-manager-init");
            self.remove("config-manager");
            return Ok(());
        };
        let default = chosen.and_then(|config| config.default.clone()).unwrap_or_default();
        let found = cx.found(&plugin.component.image, "DEVICE_PLUGIN_IMAGE")?;
        if found.own {
            self.pull_own(cx);
        }
        if !own {
            self.restarts_with(cx, name);
        }
        let main = self.main();
        set_env(main, "CONFIG_FILE", "/config/config.yaml");
        let mounts = || vec![at("config", "/config"), at(name, "/available-configs")];
        main.volume_mounts.get_or_insert_default().extend(mounts());
        if self.pod.host_pid != Some(true) {
            self.pod.share_process_namespace = Some(true);
        }
        self.pod.volumes.get_or_insert_default().extend([config(name, name, None, &[]), scratch("config")]);
        for container in ["config-manager-init", "config-manager"] {
            let Some(container) = self.container(container) else { continue };
            container.image = Some(found.path.clone());
            pull_if_set(container, &plugin.component.image);
            if found.own {
                super::own::own(cx, &plugin.component.image, container, &["agent", capstan_node::CONFIG_MANAGER.name]);
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
}

/// The init container and the sidecar that copy the configuration which the node's label chooses.
pub(super) fn config_managers(process: &str) -> (Container, Container) {
    let manager = |name: &str, once: bool| {
        let said = |flag: bool| if flag { "true" } else { "false" };
        container(name)
            .runs(&["config-manager"], &[])
            .with("ONESHOT", said(once))
            .with("KUBECONFIG", "")
            .node_name()
            .with("NODE_LABEL", capstan_node::labels::DEVICE_PLUGIN_CONFIG)
            .with("CONFIG_FILE_SRCDIR", "/available-configs")
            .with("CONFIG_FILE_DST", "/config/config.yaml")
            .with("DEFAULT_CONFIG", "")
            .with("SEND_SIGNAL", said(!once))
            .with("SIGNAL", if once { "" } else { "1" })
            .with("PROCESS_TO_SIGNAL", if once { "" } else { process })
    };
    (manager("config-manager-init", true), manager("config-manager", false).privileged())
}

/// Resources as the API has them.
pub(super) fn requirements(resources: &Resources) -> ResourceRequirements {
    ResourceRequirements {
        limits: resources.limits.clone(),
        requests: resources.requests.clone(),
        ..ResourceRequirements::default()
    }
}

/// Sets the pull policy only if the user did.
pub(super) fn pull_if_set(container: &mut Container, image: &Image) {
    if image.image_pull_policy.as_deref().is_some_and(|policy| !policy.is_empty()) {
        container.image_pull_policy = Some(image::pull_policy(image).into());
    }
}

/// Sets every variable that the user gave.
pub(super) fn set_all(container: &mut Container, env: Option<&Vec<EnvVar>>) {
    for variable in env.into_iter().flatten() {
        set_env(container, &variable.name, variable.value.as_deref().unwrap_or_default());
    }
}

/// Runs as root.
pub(super) fn as_root(container: &mut Container) {
    let context: &mut SecurityContext = container.security_context.get_or_insert_default();
    context.run_as_user = Some(0);
}

/// The name of a strategy.
pub(super) fn strategy_name(strategy: MigStrategy) -> &'static str {
    match strategy {
        MigStrategy::None => "none",
        MigStrategy::Single => "single",
        MigStrategy::Mixed => "mixed",
    }
}

/// The init container that waits until the toolkit was validated; `volume` shows the validator's files at `path`.
pub(super) fn after_toolkit(volume: &str, path: &str) -> Container {
    container("toolkit-validation")
        .runs(&["sh", "-c"], &[UNTIL_TOOLKIT])
        .mounts(vec![at(volume, path).host_to_container()])
        .privileged()
}
