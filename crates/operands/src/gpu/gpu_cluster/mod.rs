//! GPUCluster: GPUs through dynamic resource allocation (DRA), instead of a device plugin.
//!
//! [`PARTS`] is the list of operands. What they share with those of a ClusterPolicy comes from there: [`section`] makes a
//! policy of the custom resource. What claims GPUs goes before the driver that prepared the claims, see [`teardown`].

mod classes;
mod controller;
mod monitoring;
mod plugin;
mod resources;
mod section;
mod status;
mod validation;

use capstan_api::gpu::gpu_cluster::{GpuClusterStatus, KubeletPlugin};
use capstan_api::gpu::{ClusterPolicy, GpuCluster, GpuClusterSpec};
use capstan_plan::{Facts, Note, Object, Plan, Ref, Severity};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PodResourceClaim, ResourceClaim, ResourceRequirements};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use kube::Resource;
use serde_json::{Value, json};

pub(crate) use self::plugin::on_nodes;
use super::components::access::meta;
use super::components::daemon::{self, Daemon};
use super::components::{Cx, Outcome, rules_of};
use crate::gpu::{Cluster, namespace};

/// Keeps a GPUCluster until nothing holds a claim of its driver any more.
pub const FINALIZER: &str = "gpucluster.nvidia.com/dra-resourceclaim";

/// Label of everything that a GPUCluster makes.
const STATE: &str = "nvidia.com/gpu-operator.state";

/// A part of the stack that is deployed and judged as one.
struct Part {
    /// Its name in messages, and the value of [`STATE`].
    name: &'static str,
    /// Its condition.
    condition: &'static str,
    /// The deploy label of the nodes that should run it.
    deploy: &'static str,
    /// Whether it is wanted.
    enabled: fn(&Dra<'_>) -> bool,
    /// What it consists of.
    objects: fn(&Dra<'_>) -> Outcome<Vec<Object>>,
}

/// Every operand.
const PARTS: &[Part] = &[plugin::PART, monitoring::DCGM, monitoring::EXPORTER, validation::PART];

/// Everything that a plan needs.
struct Dra<'a> {
    cluster: &'a GpuCluster,
    facts: &'a Facts,
    around: &'a Cluster,
    /// What it shares with a policy.
    policy: ClusterPolicy,
}

impl<'a> Dra<'a> {
    fn new(cluster: &'a GpuCluster, facts: &'a Facts, around: &'a Cluster) -> Self {
        Self { cluster, facts, around, policy: section::policy(&cluster.spec) }
    }

    fn cx(&'a self) -> Cx<'a> {
        Cx { policy: &self.policy, facts: self.facts, cluster: self.around, source: "GPUCluster CR" }
    }

    fn spec(&self) -> &'a GpuClusterSpec {
        &self.cluster.spec
    }

    fn image(&self) -> Outcome<String> {
        self.cx().image(&self.spec().dra_driver.image, "DRA_DRIVER_IMAGE")
    }

    /// Where the driver's root shows on the hosts.
    fn driver_dir(&self) -> &'a str {
        let dir = self.spec().host_paths.as_ref().and_then(|paths| paths.driver_install_dir.as_deref());
        dir.filter(|dir| !dir.is_empty()).unwrap_or(daemon::DRIVER_DIR)
    }

    /// Settings of compute domains, if they are offered.
    fn compute_domains(&self) -> Option<&'a capstan_api::gpu::gpu_cluster::ComputeDomains> {
        self.spec().dra_driver.compute_domains.as_ref().filter(|domains| domains.enabled != Some(false))
    }

    fn gpus(&self) -> Option<&'a KubeletPlugin> {
        self.spec().dra_driver.gpus.as_ref()?.kubelet_plugin.as_ref()
    }

    /// Whether a feature of the driver is switched on.
    fn has(&self, feature: &str) -> bool {
        self.spec().dra_driver.feature_gates.as_ref().and_then(|gates| gates.get(feature)) == Some(&true)
    }

    /// All features as the driver reads them.
    fn features(&self) -> Option<String> {
        let gates = self.spec().dra_driver.feature_gates.as_ref().filter(|gates| !gates.is_empty())?;
        Some(gates.iter().map(|(name, on)| format!("{name}={on}")).collect::<Vec<_>>().join(","))
    }
}

/// What the DRA stack should look like. A mistake of the user is part of the answer, never an error.
pub fn plan(cluster: &GpuCluster, facts: &Facts, around: &Cluster) -> Plan<GpuClusterStatus> {
    let dra = Dra::new(cluster, facts, around);
    if let Some(refused) = status::refused(&dra) {
        return refused;
    }
    let parts = parts(&dra);
    let mut objects: Vec<Object> = parts.iter().filter_map(|(_, part)| part.as_ref().ok()).flatten().cloned().collect();
    if parts.iter().any(|(_, part)| part.is_err()) {
        // While something cannot be decided, nothing goes: what runs may be what could not be decided.
        let wanted: Vec<Ref> = objects.iter().map(|object| object.reference.clone()).collect();
        let rest = facts.live.iter().map(|(reference, _)| reference).filter(|one| !wanted.contains(one));
        objects.extend(rest.cloned().map(Object::left));
    }
    Plan { objects: Some(objects), ..status::observed(&dra, &parts) }
}

/// The parts that are wanted, as children of the GPUCluster.
fn parts<'a>(dra: &Dra<'_>) -> Vec<(&'a Part, Outcome<Vec<Object>>)> {
    let owner = dra.cluster.controller_owner_ref(&());
    let child = |mut object: Object, state: &str| {
        object.body["metadata"]["labels"][STATE] = state.into();
        match &owner {
            Some(owner) => object.owned_by(owner),
            None => object,
        }
    };
    let wanted = PARTS.iter().filter(|part| (part.enabled)(dra));
    wanted
        .map(|part| {
            let objects = (part.objects)(dra);
            (part, objects.map(|objects| objects.into_iter().map(|object| child(object, part.name)).collect()))
        })
        .collect()
}

/// The answer when something outside the spec is in the way.
pub fn blocked(
    cluster: &GpuCluster,
    facts: &Facts,
    around: &Cluster,
    reason: &str,
    message: &str,
) -> Plan<GpuClusterStatus> {
    status::failed(&Dra::new(cluster, facts, around), reason, message)
}

/// Objects that a GPUCluster depends on and does not own.
pub fn references(cluster: &GpuCluster, namespace: &str) -> Vec<Ref> {
    let config = cluster.spec.dcgm_exporter.as_ref().and_then(|exporter| exporter.config.as_ref()?.name.as_deref());
    let metrics = config.filter(|name| !name.is_empty()).map(|name| Ref::of::<ConfigMap>(namespace, name));
    metrics.into_iter().chain([Ref::of::<Namespace>("", namespace)]).collect()
}

/// What to do about a GPUCluster that is being deleted.
pub struct Teardown {
    /// What holds claims goes, with its pods; the rest stays.
    pub objects: Vec<Object>,
    /// DaemonSets that still hold claims.
    pub draining: Vec<String>,
    /// What to tell the user.
    pub event: Option<Note>,
}

/// First those go that hold claims, since only the driver can give claims back.
pub fn teardown(facts: &Facts) -> Teardown {
    let claims = |live: &Value| {
        let claims = live.pointer("/spec/template/spec/resourceClaims").and_then(Value::as_array);
        claims.is_some_and(|claims| !claims.is_empty())
    };
    let (mut objects, mut draining) = (Vec::new(), Vec::new());
    for (reference, live) in facts.live.iter() {
        if reference.gvk.kind == "DaemonSet" && claims(live) {
            draining.push(reference.name.clone());
            objects.push(Object::drained(reference.clone()));
        } else {
            objects.push(Object::left(reference.clone()));
        }
    }
    draining.sort_unstable();
    let message = format!("waits for the pods of {} to give their claims back", draining.join(", "));
    let note = Note { severity: Severity::Normal, reason: "DrainingClaimConsumers", message };
    Teardown { event: (!draining.is_empty()).then_some(note), objects, draining }
}

/// What operands of any GPUCluster are allowed to do: rules in the operator's namespace, and rules in the cluster.
pub(super) fn granted(images: &Cluster) -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let everything = json!({"metadata": {"name": "gpu-cluster"}, "spec": {
        "draDriver": {"computeDomains": {}, "featureGates": {"MPSSupport": true}},
        "dcgm": {"enabled": true}, "dcgmExporter": {},
    }});
    let cluster: GpuCluster = serde_json::from_value(everything).expect("the GPUCluster is written here");
    let facts = Facts::at(jiff::Timestamp::UNIX_EPOCH);
    let dra = Dra::new(&cluster, &facts, images);
    let objects = parts(&dra).into_iter().flat_map(|(_, part)| part.unwrap_or_default()).collect();
    rules_of(objects)
}

/// Whether the server has what DRA takes.
fn is_served(facts: &Facts) -> bool {
    facts.serves::<DeviceClass>() && facts.serves::<ResourceClaimTemplate>()
}

/// Whether claims with access to all GPUs are allowed in the namespace yet.
fn is_admitted(dra: &Dra<'_>) -> bool {
    let there = dra.facts.live.get(&Ref::of::<Namespace>("", &dra.around.namespace));
    there.is_some_and(|live| live["metadata"]["labels"][namespace::ADMIN_ACCESS] == "true")
}

/// A template of claims for GPUs that others use as well; `more` says for which.
fn claim_template(cx: &Cx<'_>, name: &str, request: &str, more: Value) -> Object {
    let mut exactly = json!({"deviceClassName": classes::GPU, "adminAccess": true});
    for (key, value) in more.as_object().into_iter().flatten() {
        exactly[key] = value.clone();
    }
    let spec = json!({"spec": {"devices": {"requests": [{"name": request, "exactly": exactly}]}}});
    let spec = serde_json::from_value(spec).expect("the claim is written here");
    Object::new(&ResourceClaimTemplate { metadata: meta(cx, name, true), spec: Some(spec) })
}

impl Daemon {
    /// What DaemonSets of a GPUCluster have in common: nothing is tolerated that the user does not name.
    fn without_defaults(mut self) -> Self {
        self.pod.tolerations = None;
        self
    }

    /// The container gets GPUs through a claim from that template.
    fn claims(&mut self, container: &str, claim: &str, template: &str) {
        self.pod.runtime_class_name = None;
        self.pod.resource_claims = Some(vec![PodResourceClaim {
            name: claim.into(),
            resource_claim_template_name: Some(template.into()),
            ..PodResourceClaim::default()
        }]);
        if let Some(container) = self.container(container) {
            let resources: &mut ResourceRequirements = container.resources.get_or_insert_default();
            resources.claims = Some(vec![ResourceClaim { name: claim.into(), request: None }]);
        }
    }
}

#[cfg(test)]
mod tests;
