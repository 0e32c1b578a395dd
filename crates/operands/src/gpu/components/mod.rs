//! Components of the GPU stack, a file for each: what it consists of, whoever asks for it.
//!
//! A [`Daemon`](daemon::Daemon) is written as a template first, then changed as the custom resource says.

pub(crate) mod access;
pub(crate) mod cc_manager;
pub(crate) mod daemon;
pub(crate) mod dcgm;
pub(crate) mod dcgm_exporter;
pub(crate) mod device_plugin;
pub(crate) mod driver;
pub(crate) mod feature_discovery;
pub(crate) mod kata_device_plugin;
pub(crate) mod mig_manager;
pub(crate) mod mig_parted;
pub(crate) mod monitor;
pub(crate) mod mps;
pub(crate) mod node_agent;
pub(crate) mod node_status;
pub(crate) mod operator_metrics;
pub(crate) mod own;
pub(crate) mod pod;
pub(crate) mod prerequisites;
pub(crate) mod sandbox_device_plugin;
pub(crate) mod sandbox_validation;
pub(crate) mod snippets;
pub(crate) mod toolkit;
pub(crate) mod validation;
pub(crate) mod vfio_manager;
pub(crate) mod vgpu_device_manager;
pub(crate) mod vgpu_devices;
pub(crate) mod vgpu_manager;

use capstan_api::gpu::cluster_policy::sandbox::SandboxMode;
use capstan_api::gpu::cluster_policy::stack::{MigStrategy, Validator};
use capstan_api::gpu::component::{Component, Image};
use capstan_api::gpu::driver_parts::DriverSidecar;
use capstan_api::gpu::{ClusterPolicy, ClusterPolicySpec};
use capstan_plan::{Facts, Object, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::{Resource, ResourceExt};

use super::fleet::ContainerRuntime;
use super::{Cluster, image};

/// Value of `app.kubernetes.io/managed-by` on everything that a ClusterPolicy makes.
pub const MANAGER: &str = "gpu-operator";

/// What a part of the plan came to; an error is a sentence for the user.
pub(crate) type Outcome<T> = Result<T, String>;

/// A part of the stack that is deployed and judged as one.
pub struct Operand {
    /// Its name in conditions and messages.
    pub name: &'static str,
    /// Its condition.
    pub(crate) condition: &'static str,
    /// The deploy label of the nodes that should run it, if that is all that selects them.
    pub(crate) deploy: Option<&'static str>,
    /// Whether the policy wants it.
    pub(crate) enabled: fn(&Cx<'_>) -> bool,
    /// What it consists of.
    pub(crate) objects: fn(&Cx<'_>) -> Outcome<Vec<Object>>,
}

/// What every part of the plan needs.
pub(crate) struct Cx<'a> {
    pub(crate) policy: &'a ClusterPolicy,
    pub(crate) facts: &'a Facts,
    pub(crate) cluster: &'a Cluster,
    /// What messages call the custom resource.
    pub(crate) source: &'static str,
}

/// What messages call a ClusterPolicy.
pub(crate) const SOURCE: &str = "ClusterPolicy CR";

impl<'a> Cx<'a> {
    pub(crate) fn spec(&self) -> &'a ClusterPolicySpec {
        &self.policy.spec
    }

    pub(crate) fn namespace(&self) -> &'a str {
        &self.cluster.namespace
    }

    pub(crate) fn runtime(&self) -> ContainerRuntime {
        if self.cluster.openshift.is_some() { ContainerRuntime::Crio } else { self.cluster.fleet.runtime() }
    }

    pub(crate) fn image(&self, image: &Image, variable: &str) -> Outcome<String> {
        image::path(image, variable, &self.cluster.images, self.source)
    }

    pub(crate) fn runtime_class(&self) -> &'a str {
        self.spec().operator.runtime_class.as_deref().filter(|class| !class.is_empty()).unwrap_or("nvidia")
    }

    /// Whether GPUs get into containers through CDI.
    pub(crate) fn cdi(&self) -> bool {
        self.spec().cdi.as_ref().and_then(|cdi| cdi.enabled).unwrap_or(true)
    }

    /// Whether they get there through the NRI plugin.
    pub(crate) fn nri(&self) -> bool {
        self.spec().cdi.as_ref().and_then(|cdi| cdi.nri_plugin_enabled).unwrap_or(false)
    }

    pub(crate) fn toolkit_dir(&self) -> &'a str {
        self.spec().toolkit.install_dir.as_deref().filter(|dir| !dir.is_empty()).unwrap_or(toolkit::DIR)
    }

    /// Root of the hosts.
    pub(crate) fn root(&self) -> &'a str {
        let paths = self.spec().host_paths.as_ref();
        paths.and_then(|paths| paths.root_fs.as_deref()).filter(|root| !root.is_empty()).unwrap_or("/")
    }

    /// Where the driver's root shows on the hosts.
    pub(crate) fn driver_dir(&self) -> &'a str {
        let paths = self.spec().host_paths.as_ref();
        let dir = paths.and_then(|paths| paths.driver_install_dir.as_deref());
        dir.filter(|dir| !dir.is_empty()).unwrap_or(daemon::DRIVER_DIR)
    }

    pub(crate) fn kubelet_dir(&self) -> &'a str {
        let paths = self.spec().host_paths.as_ref();
        let dir = paths.and_then(|paths| paths.kubelet_root_dir.as_deref());
        dir.filter(|dir| !dir.is_empty()).unwrap_or(daemon::KUBELET_DIR)
    }

    pub(crate) fn mig_strategy(&self) -> Option<MigStrategy> {
        self.spec().mig.as_ref().and_then(|mig| mig.strategy)
    }

    pub(crate) fn driver_enabled(&self) -> bool {
        enabled(&self.spec().driver.component)
    }

    /// Whether NVIDIADrivers describe the drivers.
    pub(crate) fn drivers_apart(&self) -> bool {
        self.spec().driver.use_nvidia_driver_crd == Some(true)
    }

    /// GPUDirect Storage, where it is switched on.
    pub(crate) fn gds(&self) -> Option<&'a DriverSidecar> {
        self.spec().gds.as_ref().filter(|sidecar| sidecar.enabled == Some(true))
    }

    /// GDRCopy, where it is switched on.
    pub(crate) fn gdrcopy(&self) -> Option<&'a DriverSidecar> {
        self.spec().gdrcopy.as_ref().filter(|sidecar| sidecar.enabled == Some(true))
    }

    pub(crate) fn validator(&self) -> Validator {
        self.spec().validator.clone().unwrap_or_default()
    }

    /// Whether nodes may run anything but containers.
    pub(crate) fn sandboxes(&self) -> bool {
        self.spec().sandbox_workloads.as_ref().and_then(|sandbox| sandbox.enabled).unwrap_or(false)
    }

    pub(crate) fn sandbox_mode(&self) -> SandboxMode {
        self.spec().sandbox_workloads.as_ref().and_then(|sandbox| sandbox.mode).unwrap_or_default()
    }

    /// The ConfigMap of the operator's namespace; an error names what asks for it.
    pub(crate) fn config_map(&self, name: &str, field: &str) -> Outcome<ConfigMap> {
        self.facts.live.typed(self.namespace(), name).ok_or_else(|| {
            format!("{field} is {name:?}, but namespace {} has no ConfigMap of that name: create it", self.namespace())
        })
    }

    /// Complains unless the Secret is in the operator's namespace.
    pub(crate) fn secret(&self, name: &str, field: &str) -> Outcome<()> {
        match self.facts.live.get(&Ref::of::<Secret>(self.namespace(), name)) {
            Some(_) => Ok(()),
            None => Err(format!(
                "{field} is {name:?}, but namespace {} has no Secret of that name: create it",
                self.namespace()
            )),
        }
    }
}

/// Whether a component is deployed that is on unless switched off.
pub(crate) fn enabled(component: &Component) -> bool {
    component.enabled.unwrap_or(true)
}

/// Whether a component is deployed that is off unless switched on.
pub(crate) fn switched_on(component: Option<&Component>) -> bool {
    component.is_some_and(|component| component.enabled == Some(true))
}

/// The rules of all roles among `objects`: in the operator's namespace, and in the cluster.
pub(crate) fn rules_of(objects: Vec<Object>) -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let (mut here, mut everywhere) = (Vec::new(), Vec::new());
    for object in objects {
        let rules = || serde_json::from_value::<Vec<PolicyRule>>(object.body["rules"].clone()).unwrap_or_default();
        match &*object.reference.gvk.kind {
            "Role" => here.extend(rules()),
            "ClusterRole" => everywhere.extend(rules()),
            _ => {}
        }
    }
    (here, everywhere)
}

impl Cx<'_> {
    /// `objects` as children of the policy. Without a GPU node no DaemonSet has anything to do.
    pub(crate) fn children(&self, objects: Vec<Object>) -> Vec<Object> {
        let owner = self.policy.controller_owner_ref(&());
        let idle = self.cluster.fleet.gpu_nodes == 0;
        let wanted = objects.into_iter().filter(|object| !idle || object.reference.gvk.kind != "DaemonSet");
        match owner {
            Some(owner) => wanted.map(|object| object.owned_by(&owner)).collect(),
            None => wanted.collect(),
        }
    }

    pub(crate) fn name(&self) -> String {
        self.policy.name_any()
    }
}
