//! DaemonSets of GPU nodes: common settings of every template.

use std::collections::BTreeMap;

use capstan_api::gpu::component::Component;
use capstan_plan::kit::pod::{env_of, set_env};
use capstan_plan::kit::{self, Daemon};
use k8s_openapi::api::core::v1::{ConfigMap, Toleration};
use serde_json::json;

use super::Outcome;
use super::context::{Cx, DRIVER_DIR, KUBELET_DIR};
use super::own::{OwnImage, own_check};
use super::snippets::{as_root, pull_if_set, requirements, set_all};
use crate::gpu::fleet::{ContainerRuntime, DEPLOY};
use crate::gpu::image;

/// CDI device of all GPUs, for management containers.
const ALL_GPUS: &str = "management.nvidia.com/gpu=all";

/// Annotation with the hash of the ConfigMaps that pods read at their start.
pub(crate) const CONFIG_HASH: &str = "nvidia.com/config-hash";

/// The deploy label of an operand.
pub(crate) fn deployed(deploy: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(format!("{DEPLOY}{deploy}"), "true".into())])
}

/// A DaemonSet for nodes with that deploy label, with a toleration for GPU taints.
pub(crate) fn gpu_daemon(name: &str, account: &str, deploy: &str) -> Daemon {
    let mut daemon = Daemon::new(name, account, deployed(deploy));
    daemon.pod.tolerations = Some(vec![Toleration {
        key: Some("nvidia.com/gpu".into()),
        operator: Some("Exists".into()),
        effect: Some("NoSchedule".into()),
        ..Toleration::default()
    }]);
    daemon
}

/// Builder methods for GPU nodes.
pub(crate) trait GpuDaemon {
    /// Applies `spec.daemonsets` and `spec.hostPaths`, before the operand's own settings.
    fn common(&mut self, cx: &Cx<'_>) -> Outcome<()>;
    /// Image, pull policy, credentials, resources and arguments of the main container.
    fn runs_as(&mut self, cx: &Cx<'_>, component: &Component, variable: &str) -> Outcome<()>;
    /// The same with an image that is known.
    fn runs_image(&mut self, path: &str, component: &Component);
    /// Environment and network of the main container.
    fn finishes_as(&mut self, component: &Component);
    /// Init containers that wait for another operand run the validator.
    fn validated(&mut self, cx: &Cx<'_>) -> Outcome<()>;
    /// One init container that runs the validator.
    fn check(&mut self, cx: &Cx<'_>, name: &str) -> Outcome<()>;
    /// Restarts the pods when a ConfigMap changes that they read at their start.
    fn restarts_with(&mut self, cx: &Cx<'_>, config_map: &str);
    /// Injects the GPUs into `main`: by a RuntimeClass, or by the NRI plugin.
    fn sees_gpus(&mut self, cx: &Cx<'_>, main: &str);
}

impl GpuDaemon for Daemon {
    fn common(&mut self, cx: &Cx<'_>) -> Outcome<()> {
        // OnDelete DaemonSets are rolled out by the upgrade controller, node by node.
        if !self.is_on_delete()
            && let Some(strategy) = cx.update.clone()?
        {
            self.strategy = Some(strategy);
        }
        self.with_defaults(&cx.scope);
        move_paths(self, cx);
        Ok(())
    }

    fn runs_as(&mut self, cx: &Cx<'_>, component: &Component, variable: &str) -> Outcome<()> {
        let path = cx.image(&component.image, variable)?;
        self.runs_image(&path, component);
        Ok(())
    }

    fn runs_image(&mut self, path: &str, component: &Component) {
        let main = self.main();
        main.image = Some(path.into());
        main.image_pull_policy = Some(image::pull_policy(&component.image).into());
        self.add_pull_secrets(component.image.image_pull_secrets.as_ref());
        if let Some(resources) = &component.resources {
            self.limit(&requirements(resources));
        }
        if let Some(args) = component.args.as_ref().filter(|args| !args.is_empty()) {
            self.main().args = Some(args.clone());
        }
    }

    fn finishes_as(&mut self, component: &Component) {
        set_all(self.main(), component.env.as_ref());
        self.host_network(component.host_network);
    }

    fn validated(&mut self, cx: &Cx<'_>) -> Outcome<()> {
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

    fn check(&mut self, cx: &Cx<'_>, name: &str) -> Outcome<()> {
        let validator = &cx.validator;
        let found = cx.found(&validator.image, "VALIDATOR_IMAGE")?;
        self.add_pull_secrets(validator.image.image_pull_secrets.as_ref());
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
            name if name.starts_with("driver") => &validator.driver,
            name if name.starts_with("toolkit") => &validator.toolkit,
            name if name.starts_with("cuda") => &validator.cuda,
            name if name.starts_with("plugin") => &validator.plugin,
            name if name.starts_with("vfio-pci") => &validator.vfio_pci,
            name if name.starts_with("vgpu-manager") => &validator.vgpu_manager,
            name if name.starts_with("vgpu-devices") => &validator.vgpu_devices,
            _ => &None,
        };
        set_all(check, settings.as_ref().and_then(|settings| settings.env.as_ref()));
        Ok(())
    }

    fn restarts_with(&mut self, cx: &Cx<'_>, config_map: &str) {
        let Some(map) = cx.facts.live.typed::<ConfigMap>(cx.namespace(), config_map) else { return };
        let hash = self.pod_annotations.entry(CONFIG_HASH.into()).or_default();
        *hash = kit::hash(&json!([*hash, map.data, map.binary_data]).to_string());
    }

    fn sees_gpus(&mut self, cx: &Cx<'_>, main: &str) {
        if cx.runtime.nri {
            let key = format!("nvidia.cdi.k8s.io/container.{main}");
            self.pod_annotations.insert(key, ALL_GPUS.into());
        } else if cx.runtime.cdi || cx.container_runtime() != ContainerRuntime::Crio {
            self.pod.runtime_class_name = Some(cx.runtime.class.into());
        }
    }
}

/// Directories on the node.
fn move_paths(daemon: &mut Daemon, cx: &Cx<'_>) {
    let root = cx.paths.root;
    if root != "/" {
        if daemon.volume("host-root").is_some() {
            daemon.set_host_path("host-root", root);
            let init = daemon.pod.init_containers.iter_mut().flatten();
            for container in init.chain(&mut daemon.pod.containers) {
                // Paths inside the container do not change.
                if env_of(container, "HOST_ROOT").is_none() {
                    set_env(container, "HOST_ROOT", root);
                }
            }
        }
        daemon.set_host_path("host-dev-char", &format!("{}/dev/char", root.trim_end_matches('/')));
    }
    let driver = cx.paths.driver;
    if driver != DRIVER_DIR && daemon.volume("driver-install-dir").is_some() {
        daemon.set_host_path("driver-install-dir", driver);
        if let Some(check) = daemon.container("driver-validation") {
            set_env(check, "DRIVER_INSTALL_DIR", driver);
            set_env(check, "DRIVER_INSTALL_DIR_CTR_PATH", driver);
            for mount in check.volume_mounts.iter_mut().flatten().filter(|one| one.name == "driver-install-dir") {
                mount.mount_path = driver.into();
            }
        }
    }
    let kubelet = cx.paths.kubelet;
    if kubelet != KUBELET_DIR {
        daemon.set_host_path("device-plugin", &format!("{kubelet}/device-plugins"));
    }
}
