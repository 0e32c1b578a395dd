//! ClusterPolicy: the operands that make the GPUs of a cluster usable, and how far they are.
//!
//! [`OPERANDS`] is the list, in the order in which nodes need them; each has a file of its own that says what it
//! consists of. A [`Daemon`](daemon::Daemon) is written as a template first, then changed as the policy says.

mod access;
mod cc_manager;
mod daemon;
mod dcgm;
mod dcgm_exporter;
mod device_plugin;
mod driver;
mod feature_discovery;
pub mod gpu_cluster;
mod kata_device_plugin;
pub mod measures;
mod mig_manager;
mod mig_parted;
mod monitor;
mod mps;
mod node_agent;
mod node_status;
mod operator_metrics;
mod own;
mod pod;
mod prerequisites;
mod sandbox_device_plugin;
mod sandbox_validation;
mod snippets;
mod status;
mod toolkit;
mod validation;
mod vfio_manager;
mod vgpu_device_manager;
mod vgpu_devices;
mod vgpu_manager;

use std::collections::BTreeMap;

use capstan_api::gpu::cluster_policy::ClusterPolicyStatus;
use capstan_api::gpu::cluster_policy::sandbox::SandboxMode;
use capstan_api::gpu::cluster_policy::stack::{MigStrategy, Validator};
use capstan_api::gpu::component::{Component, Image};
use capstan_api::gpu::driver_parts::DriverSidecar;
use capstan_api::gpu::{ClusterPolicy, ClusterPolicySpec};
use capstan_plan::{Facts, Object, Plan, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::fleet::ContainerRuntime;
use super::{Agent, Cluster, Layout, OpenShift, image};

pub use driver::nvidia_driver;

/// Value of `app.kubernetes.io/managed-by` on everything that a ClusterPolicy makes.
pub const MANAGER: &str = "gpu-operator";

/// What a part of the plan came to; an error is a sentence for the user.
type Outcome<T> = Result<T, String>;

/// A part of the stack that is deployed and judged as one.
pub struct Operand {
    /// Its name in conditions and messages.
    pub name: &'static str,
    /// Its condition.
    condition: &'static str,
    /// The deploy label of the nodes that should run it, if that is all that selects them.
    deploy: Option<&'static str>,
    /// Whether the policy wants it.
    enabled: fn(&Cx<'_>) -> bool,
    /// What it consists of.
    objects: fn(&Cx<'_>) -> Outcome<Vec<Object>>,
}

/// Every operand, in the order in which nodes need them.
pub const OPERANDS: &[Operand] = &[
    prerequisites::OPERAND,
    operator_metrics::OPERAND,
    driver::OPERAND,
    toolkit::OPERAND,
    validation::OPERAND,
    device_plugin::OPERAND,
    mps::OPERAND,
    dcgm::OPERAND,
    dcgm_exporter::OPERAND,
    feature_discovery::OPERAND,
    mig_manager::OPERAND,
    node_status::OPERAND,
    vgpu_manager::OPERAND,
    vgpu_device_manager::OPERAND,
    sandbox_validation::OPERAND,
    vfio_manager::OPERAND,
    sandbox_device_plugin::OPERAND,
    kata_device_plugin::OPERAND,
    cc_manager::OPERAND,
];

/// What every part of the plan needs.
struct Cx<'a> {
    policy: &'a ClusterPolicy,
    facts: &'a Facts,
    cluster: &'a Cluster,
    /// What messages call the custom resource.
    source: &'static str,
}

/// What messages call a ClusterPolicy.
const SOURCE: &str = "ClusterPolicy CR";

impl<'a> Cx<'a> {
    fn spec(&self) -> &'a ClusterPolicySpec {
        &self.policy.spec
    }

    fn namespace(&self) -> &'a str {
        &self.cluster.namespace
    }

    fn runtime(&self) -> ContainerRuntime {
        if self.cluster.openshift.is_some() { ContainerRuntime::Crio } else { self.cluster.fleet.runtime() }
    }

    fn image(&self, image: &Image, variable: &str) -> Outcome<String> {
        image::path(image, variable, &self.cluster.images, self.source)
    }

    fn runtime_class(&self) -> &'a str {
        self.spec().operator.runtime_class.as_deref().filter(|class| !class.is_empty()).unwrap_or("nvidia")
    }

    /// Whether GPUs get into containers through CDI.
    fn cdi(&self) -> bool {
        self.spec().cdi.as_ref().and_then(|cdi| cdi.enabled).unwrap_or(true)
    }

    /// Whether they get there through the NRI plugin.
    fn nri(&self) -> bool {
        self.spec().cdi.as_ref().and_then(|cdi| cdi.nri_plugin_enabled).unwrap_or(false)
    }

    fn toolkit_dir(&self) -> &'a str {
        self.spec().toolkit.install_dir.as_deref().filter(|dir| !dir.is_empty()).unwrap_or(toolkit::DIR)
    }

    /// Root of the hosts.
    fn root(&self) -> &'a str {
        let paths = self.spec().host_paths.as_ref();
        paths.and_then(|paths| paths.root_fs.as_deref()).filter(|root| !root.is_empty()).unwrap_or("/")
    }

    /// Where the driver's root shows on the hosts.
    fn driver_dir(&self) -> &'a str {
        let paths = self.spec().host_paths.as_ref();
        let dir = paths.and_then(|paths| paths.driver_install_dir.as_deref());
        dir.filter(|dir| !dir.is_empty()).unwrap_or(daemon::DRIVER_DIR)
    }

    fn kubelet_dir(&self) -> &'a str {
        let paths = self.spec().host_paths.as_ref();
        let dir = paths.and_then(|paths| paths.kubelet_root_dir.as_deref());
        dir.filter(|dir| !dir.is_empty()).unwrap_or(daemon::KUBELET_DIR)
    }

    fn mig_strategy(&self) -> Option<MigStrategy> {
        self.spec().mig.as_ref().and_then(|mig| mig.strategy)
    }

    fn driver_enabled(&self) -> bool {
        enabled(&self.spec().driver.component)
    }

    /// Whether NVIDIADrivers describe the drivers.
    fn drivers_apart(&self) -> bool {
        self.spec().driver.use_nvidia_driver_crd == Some(true)
    }

    /// GPUDirect Storage, where it is switched on.
    fn gds(&self) -> Option<&'a DriverSidecar> {
        self.spec().gds.as_ref().filter(|sidecar| sidecar.enabled == Some(true))
    }

    /// GDRCopy, where it is switched on.
    fn gdrcopy(&self) -> Option<&'a DriverSidecar> {
        self.spec().gdrcopy.as_ref().filter(|sidecar| sidecar.enabled == Some(true))
    }

    fn validator(&self) -> Validator {
        self.spec().validator.clone().unwrap_or_default()
    }

    /// Whether nodes may run anything but containers.
    fn sandboxes(&self) -> bool {
        self.spec().sandbox_workloads.as_ref().and_then(|sandbox| sandbox.enabled).unwrap_or(false)
    }

    fn sandbox_mode(&self) -> SandboxMode {
        self.spec().sandbox_workloads.as_ref().and_then(|sandbox| sandbox.mode).unwrap_or_default()
    }

    /// The ConfigMap of the operator's namespace; an error names what asks for it.
    fn config_map(&self, name: &str, field: &str) -> Outcome<ConfigMap> {
        self.facts.live.typed(self.namespace(), name).ok_or_else(|| {
            format!("{field} is {name:?}, but namespace {} has no ConfigMap of that name: create it", self.namespace())
        })
    }

    /// Complains unless the Secret is in the operator's namespace.
    fn secret(&self, name: &str, field: &str) -> Outcome<()> {
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
fn enabled(component: &Component) -> bool {
    component.enabled.unwrap_or(true)
}

/// Whether a component is deployed that is off unless switched on.
fn switched_on(component: Option<&Component>) -> bool {
    component.is_some_and(|component| component.enabled == Some(true))
}

/// What this policy should look like. A mistake of the user is part of the answer, never an error.
pub fn plan(policy: &ClusterPolicy, facts: &Facts, cluster: &Cluster) -> Plan<ClusterPolicyStatus> {
    let cx = Cx { policy, facts, cluster, source: SOURCE };
    if let Some(refused) = status::refused(&cx) {
        return refused;
    }
    let mut parts = Vec::new();
    for operand in OPERANDS.iter().filter(|operand| (operand.enabled)(&cx)) {
        parts.push((operand, (operand.objects)(&cx).map(|objects| cx.children(objects))));
    }
    let mut objects: Vec<Object> = Vec::new();
    for object in parts.iter().filter_map(|(_, part)| part.as_ref().ok()).flatten() {
        // What operands share, each of them has.
        if !objects.iter().any(|one| one.reference == object.reference) {
            objects.push(object.clone());
        }
    }
    if parts.iter().any(|(_, part)| part.is_err()) {
        // While something cannot be decided, nothing goes: what runs may be what could not be decided.
        let wanted: Vec<Ref> = objects.iter().map(|object| object.reference.clone()).collect();
        let rest = facts.live.iter().map(|(reference, _)| reference).filter(|one| !wanted.contains(one));
        objects.extend(rest.cloned().map(Object::left));
    } else if cx.drivers_apart() {
        objects.extend(driver::released(&cx));
    }
    Plan { objects: Some(objects), ..status::observed(&cx, &parts) }
}

/// The answer when something outside the spec is in the way: nothing more is written until it is gone.
pub fn blocked(
    policy: &ClusterPolicy,
    facts: &Facts,
    cluster: &Cluster,
    reason: &str,
    message: &str,
) -> Plan<ClusterPolicyStatus> {
    status::failed(&Cx { policy, facts, cluster, source: SOURCE }, reason, message)
}

/// Objects that a policy names: when one changes, the policy is looked at again.
pub fn references(policy: &ClusterPolicy, namespace: &str) -> Vec<Ref> {
    let spec = &policy.spec;
    let driver = &spec.driver;
    let maps = [
        driver.repo_config.as_ref().and_then(|config| config.config_map_name.as_ref()),
        driver.cert_config.as_ref().and_then(|config| config.name.as_ref()),
        driver.kernel_module_config.as_ref().and_then(|config| config.name.as_ref()),
        spec.vgpu_manager.as_ref().and_then(|manager| manager.kernel_module_config.as_ref()?.name.as_ref()),
        spec.device_plugin.config.as_ref().and_then(|config| config.name.as_ref()),
        spec.dcgm_exporter.config.as_ref().and_then(|config| config.name.as_ref()),
        spec.mig_manager.as_ref().and_then(|manager| manager.config.as_ref()?.name.as_ref()),
    ];
    let maps = maps.into_iter().flatten().filter(|name| !name.is_empty());
    let secrets = driver.secret_env.iter().filter(|name| !name.is_empty());
    maps.map(|name| Ref::of::<ConfigMap>(namespace, name))
        .chain(secrets.map(|name| Ref::of::<Secret>(namespace, name)))
        .collect()
}

/// What operands are allowed to do, by any policy: rules in the operator's namespace, and rules in the cluster. Who
/// grants a right must have it.
pub fn granted() -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let images = super::IMAGES.iter().map(|name| ((*name).to_owned(), "image".to_owned())).collect();
    let named = Cluster { images, openshift: Some(OpenShift::default()), ..Cluster::default() };
    // What only our own image needs: combined, and each alone.
    let own = |layout| Cluster {
        images: BTreeMap::new(),
        agent: Agent { image: "image".into(), layout, ..Agent::default() },
        ..named.clone()
    };
    let clusters = [
        (&named, "kubevirt"),
        (&named, "kata"),
        (&own(Layout::Combined), "kubevirt"),
        (&own(Layout::PerComponent), "kubevirt"),
    ];
    let on = json!({"enabled": true});
    let facts = Facts::at(jiff::Timestamp::UNIX_EPOCH);
    let (mut here, mut everywhere) = (Vec::new(), Vec::new());
    for (cluster, mode) in clusters {
        let policy = json!({"metadata": {"name": "all"}, "spec": {
            "operator": {}, "daemonsets": {}, "driver": {}, "toolkit": {}, "devicePlugin": {}, "dcgm": {}, "gfd": {},
            "dcgmExporter": {"enablePodLabels": true}, "nodeStatusExporter": on, "vgpuManager": on,
            "vgpuDeviceManager": on, "vfioManager": on, "sandboxDevicePlugin": on, "kataSandboxDevicePlugin": on,
            "ccManager": on, "sandboxWorkloads": {"enabled": true, "mode": mode},
        }});
        let policy: ClusterPolicy = serde_json::from_value(policy).expect("the policy is written here");
        let cx = Cx { policy: &policy, facts: &facts, cluster, source: SOURCE };
        let enabled = OPERANDS.iter().filter(|operand| (operand.enabled)(&cx));
        let objects = enabled.flat_map(|operand| (operand.objects)(&cx).unwrap_or_default()).collect();
        let (one, other) = rules_of(objects);
        here.extend(one);
        everywhere.extend(other);
    }
    let (one, other) = gpu_cluster::granted(&named);
    here.extend(one);
    everywhere.extend(other);
    (here, everywhere)
}

/// The rules of all roles among `objects`: in the operator's namespace, and in the cluster.
fn rules_of(objects: Vec<Object>) -> (Vec<PolicyRule>, Vec<PolicyRule>) {
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
    fn children(&self, objects: Vec<Object>) -> Vec<Object> {
        let owner = self.policy.controller_owner_ref(&());
        let idle = self.cluster.fleet.gpu_nodes == 0;
        let wanted = objects.into_iter().filter(|object| !idle || object.reference.gvk.kind != "DaemonSet");
        match owner {
            Some(owner) => wanted.map(|object| object.owned_by(&owner)).collect(),
            None => wanted.collect(),
        }
    }

    fn name(&self) -> String {
        self.policy.name_any()
    }
}

#[cfg(test)]
mod tests;
