//! ClusterPolicy: the GPU operands of a cluster, and their status.
//!
//! [`OPERANDS`] is the list, in dependency order; each has a file in [`components`](super::components).

pub mod measures;
pub(crate) mod status;

use std::collections::BTreeMap;

use capstan_api::gpu::cluster_policy::ClusterPolicyStatus;
use capstan_api::gpu::cluster_policy::sandbox::{
    CcManager, SandboxMode, SandboxWorkloads, VfioManager, VgpuDeviceManager, VgpuManager,
};
use capstan_api::gpu::component::Component;
use capstan_api::gpu::dcgm::DcgmExporter;
use capstan_api::gpu::{ClusterPolicy, ClusterPolicySpec};
use capstan_plan::kit::operand::decide;
use capstan_plan::kit::rbac::{self, Rights};
use capstan_plan::{Facts, Object, Plan, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::components::{
    Operand, PolicyCx, cc_manager, dcgm, dcgm_exporter, device_plugin, driver, feature_discovery, kata_device_plugin,
    mig_manager, mps, node_status, operator_metrics, prerequisites, sandbox_device_plugin, sandbox_validation, toolkit,
    validation, vfio_manager, vgpu_device_manager, vgpu_manager,
};
use super::{Agent, Cluster, Layout, OpenShift, gpu_cluster};

pub use super::components::MANAGER;

/// Every operand, in dependency order.
pub(crate) const OPERANDS: &[Operand] = &[
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

/// Plans a policy. A user error is part of the plan, never an `Err`.
pub fn plan(policy: &ClusterPolicy, facts: &Facts, cluster: &Cluster) -> Plan<ClusterPolicyStatus> {
    let cx = PolicyCx::new(policy, facts, cluster);
    if let Some(refused) = status::refused(&cx) {
        return refused;
    }
    // Without GPU nodes no DaemonSet is needed.
    let idle = |object: &Object| cluster.fleet.gpu_nodes == 0 && object.reference.gvk.kind == "DaemonSet";
    let mut decided = decide(OPERANDS, &cx, &facts.live, |_, object| (!idle(&object)).then(|| cx.scope.child(object)));
    if decided.is_complete() && cx.drivers_apart() {
        decided.objects.extend(driver::released(&cx));
    }
    Plan { objects: Some(decided.objects), ..status::observed(&cx, &decided.parts) }
}

/// The plan while blocked from outside: no objects are written.
pub fn blocked(
    policy: &ClusterPolicy,
    facts: &Facts,
    cluster: &Cluster,
    reason: &str,
    message: &str,
) -> Plan<ClusterPolicyStatus> {
    status::failed(&PolicyCx::new(policy, facts, cluster), reason, message)
}

/// Objects that a policy references: their changes requeue it.
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

/// RBAC rules of all operands of any policy: in the operator's namespace, and in the cluster. RBAC lets only a subject
/// that has a permission grant it.
pub fn granted() -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let images = super::IMAGES.iter().map(|name| ((*name).to_owned(), "image".to_owned())).collect();
    let named = Cluster { images, openshift: Some(OpenShift::default()), ..Cluster::default() };
    // Rules of our own image: shared pod, and one per component.
    let own = |layout| Cluster {
        images: BTreeMap::new(),
        agent: Agent { image: "image".into(), layout, ..Agent::default() },
        ..named.clone()
    };
    let clusters = [
        (&named, SandboxMode::Kubevirt),
        (&named, SandboxMode::Kata),
        (&own(Layout::Combined), SandboxMode::Kubevirt),
        (&own(Layout::PerComponent), SandboxMode::Kubevirt),
    ];
    let facts = Facts::at(jiff::Timestamp::UNIX_EPOCH);
    let mut rights = Rights::default();
    for (cluster, mode) in clusters {
        let policy = ClusterPolicy::new("all", everything(mode));
        let cx = PolicyCx::new(&policy, &facts, cluster);
        let enabled = OPERANDS.iter().filter(|operand| (operand.enabled)(&cx));
        let objects: Vec<Object> = enabled.flat_map(|operand| (operand.objects)(&cx).unwrap_or_default()).collect();
        rights.add(rbac::granted(&objects));
    }
    rights.add(gpu_cluster::granted(&named));
    (rights.here, rights.everywhere)
}

/// A policy with every feature that one cluster can have.
fn everything(mode: SandboxMode) -> ClusterPolicySpec {
    let on = || Component { enabled: Some(true), ..Component::default() };
    ClusterPolicySpec {
        dcgm_exporter: DcgmExporter { enable_pod_labels: Some(true), ..DcgmExporter::default() },
        node_status_exporter: on(),
        vgpu_manager: Some(VgpuManager { component: on(), ..VgpuManager::default() }),
        vgpu_device_manager: Some(VgpuDeviceManager { component: on(), ..VgpuDeviceManager::default() }),
        vfio_manager: Some(VfioManager { component: on(), ..VfioManager::default() }),
        sandbox_device_plugin: Some(on()),
        kata_sandbox_device_plugin: Some(on()),
        cc_manager: Some(CcManager { component: on(), ..CcManager::default() }),
        sandbox_workloads: Some(SandboxWorkloads {
            enabled: Some(true),
            mode: Some(mode),
            ..SandboxWorkloads::default()
        }),
        ..ClusterPolicySpec::default()
    }
}

#[cfg(test)]
mod tests;
