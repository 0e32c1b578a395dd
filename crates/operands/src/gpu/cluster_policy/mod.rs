//! ClusterPolicy: the operands that make the GPUs of a cluster usable, and how far they are.
//!
//! [`OPERANDS`] is the list, in the order in which nodes need them; each has a file of its own in
//! [`components`](super::components) that says what it consists of.

pub mod measures;
pub(crate) mod status;

use std::collections::BTreeMap;

use capstan_api::gpu::ClusterPolicy;
use capstan_api::gpu::cluster_policy::ClusterPolicyStatus;
use capstan_plan::{Facts, Object, Plan, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::json;

use super::components::{
    Cx, Operand, SOURCE, cc_manager, dcgm, dcgm_exporter, device_plugin, driver, feature_discovery, kata_device_plugin,
    mig_manager, mps, node_status, operator_metrics, prerequisites, rules_of, sandbox_device_plugin,
    sandbox_validation, toolkit, validation, vfio_manager, vgpu_device_manager, vgpu_manager,
};
use super::{Agent, Cluster, Layout, OpenShift, gpu_cluster};

pub use super::components::MANAGER;

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

#[cfg(test)]
mod tests;
