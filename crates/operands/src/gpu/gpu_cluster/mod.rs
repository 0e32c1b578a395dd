//! GPUCluster: GPUs through dynamic resource allocation (DRA), instead of a device plugin.
//!
//! [`OPERANDS`] is the list of operands; shared ones are in [`components`](super::components). Pods that hold claims
//! are deleted before the driver that prepared them, see [`teardown`].

mod classes;
mod controller;
mod monitoring;
mod plugin;
mod resources;
mod status;
mod validation;

use capstan_api::gpu::cluster_policy::stack::Validator;
use capstan_api::gpu::component::{Component, Image};
use capstan_api::gpu::dcgm::{Dcgm, DcgmExporter};
use capstan_api::gpu::gpu_cluster::{ComputeDomains, DraDriver, GpuClusterStatus, KubeletPlugin};
use capstan_api::gpu::{GpuCluster, GpuClusterSpec};
use capstan_plan::kit::operand::decide;
use capstan_plan::kit::rbac::{self, Rights};
use capstan_plan::kit::{self, Outcome};
use capstan_plan::{Facts, Note, Object, Plan, Ref, Severity};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use kube::Resource;
use serde_json::{Value, json};

use super::components::context::{DRIVER_DIR, HostPaths, given};
use super::components::{Cx, switched_on};
use super::{Cluster, namespace};

/// Finalizer: keeps a GPUCluster until no claim of its driver is in use.
pub const FINALIZER: &str = "gpucluster.nvidia.com/dra-resourceclaim";

/// Label of all objects of a GPUCluster.
const STATE: &str = "nvidia.com/gpu-operator.state";

/// An operand of a GPUCluster.
type Operand = kit::Operand<fn(&Dra<'_>) -> bool, fn(&Dra<'_>) -> Outcome<Vec<Object>>>;

/// Every operand.
const OPERANDS: &[Operand] = &[plugin::OPERAND, monitoring::DCGM, monitoring::EXPORTER, validation::OPERAND];

/// Context of a plan.
struct Dra<'a> {
    cluster: &'a GpuCluster,
    cx: Cx<'a>,
}

impl<'a> Dra<'a> {
    fn new(cluster: &'a GpuCluster, facts: &'a Facts, around: &'a Cluster) -> Self {
        let spec = &cluster.spec;
        let kubelet = spec.host_paths.as_ref().and_then(|paths| given(paths.kubelet_root_dir.as_ref()));
        let usual = HostPaths::default();
        let pull = &spec.dra_driver.image;
        // Validators run the operator's own image, with the pull settings of the driver.
        let image = Image {
            image_pull_policy: pull.image_pull_policy.clone(),
            image_pull_secrets: pull.image_pull_secrets.clone(),
            ..Image::default()
        };
        let daemonsets = spec.daemonsets.clone().unwrap_or_default();
        let cx = Cx::new("GPUCluster CR", cluster.controller_owner_ref(&()), &daemonsets, facts, around);
        let paths = HostPaths { kubelet: kubelet.unwrap_or(usual.kubelet), ..usual };
        Self { cluster, cx: Cx { paths, validator: Validator { image, ..Validator::default() }, ..cx } }
    }

    fn spec(&self) -> &'a GpuClusterSpec {
        &self.cluster.spec
    }

    fn image(&self) -> Outcome<String> {
        self.cx.image(&self.spec().dra_driver.image, "DRA_DRIVER_IMAGE")
    }

    /// Driver root on the hosts.
    fn driver_dir(&self) -> &'a str {
        let paths = self.spec().host_paths.as_ref();
        paths.and_then(|paths| given(paths.driver_install_dir.as_ref())).unwrap_or(DRIVER_DIR)
    }

    /// Compute domain settings, if enabled.
    fn compute_domains(&self) -> Option<&'a ComputeDomains> {
        self.spec().dra_driver.compute_domains.as_ref().filter(|domains| domains.enabled != Some(false))
    }

    fn gpus(&self) -> Option<&'a KubeletPlugin> {
        self.spec().dra_driver.gpus.as_ref()?.kubelet_plugin.as_ref()
    }

    /// Whether the DCGM engine is enabled: off by default.
    fn has_engine(&self) -> bool {
        switched_on(self.spec().dcgm.as_ref().map(|dcgm| &dcgm.component))
    }

    /// Whether a feature of the driver is switched on.
    fn has(&self, feature: &str) -> bool {
        self.spec().dra_driver.feature_gates.as_ref().and_then(|gates| gates.get(feature)) == Some(&true)
    }

    /// The feature gates of the driver.
    fn features(&self) -> Option<String> {
        let gates = self.spec().dra_driver.feature_gates.as_ref().filter(|gates| !gates.is_empty())?;
        Some(gates.iter().map(|(name, on)| format!("{name}={on}")).collect::<Vec<_>>().join(","))
    }
}

/// Plans a GPUCluster. A user error is part of the plan, never an `Err`.
pub fn plan(cluster: &GpuCluster, facts: &Facts, around: &Cluster) -> Plan<GpuClusterStatus> {
    let dra = Dra::new(cluster, facts, around);
    if let Some(refused) = status::refused(&dra) {
        return refused;
    }
    let decided = decide(OPERANDS, &dra, &facts.live, |operand, object| Some(child(&dra, operand, object)));
    Plan { objects: Some(decided.objects), ..status::observed(&dra, &decided.parts) }
}

/// `object` of an operand, owned by the GPUCluster.
fn child(dra: &Dra<'_>, operand: &Operand, mut object: Object) -> Object {
    object.body["metadata"]["labels"][STATE] = operand.name.into();
    dra.cx.scope.child(object)
}

/// The plan while blocked from outside.
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

/// The plan for a terminating GPUCluster.
pub struct Teardown {
    /// Deletes workloads that hold claims; leaves the rest.
    pub objects: Vec<Object>,
    /// DaemonSets that still hold claims.
    pub draining: Vec<String>,
    /// An event.
    pub event: Option<Note>,
}

/// Deletes the holders of claims first, since only the driver can unprepare claims.
pub fn teardown(facts: &Facts) -> Teardown {
    let claims = |live: &Value| {
        let claims = live.pointer("/spec/template/spec/resourceClaims").and_then(Value::as_array);
        claims.is_some_and(|claims| !claims.is_empty())
    };
    let (mut objects, mut draining) = (Vec::new(), Vec::new());
    for (reference, live) in facts.live.iter() {
        if reference.gvk.kind == "DaemonSet" && claims(live) {
            draining.push(reference.name.clone());
            objects.push(Object::foreground_deleted(reference.clone()));
        } else {
            objects.push(Object::unmanaged(reference.clone()));
        }
    }
    draining.sort_unstable();
    let message = format!("waits for the pods of {} to give their claims back", draining.join(", "));
    let note = Note { severity: Severity::Normal, reason: "DrainingClaimConsumers", message };
    Teardown { event: (!draining.is_empty()).then_some(note), objects, draining }
}

/// RBAC rules of the operands of any GPUCluster.
pub(super) fn granted(images: &Cluster) -> Rights {
    let on = Component { enabled: Some(true), ..Component::default() };
    let spec = GpuClusterSpec {
        dra_driver: DraDriver {
            compute_domains: Some(ComputeDomains::default()),
            feature_gates: Some([("MPSSupport".to_owned(), true)].into()),
            ..DraDriver::default()
        },
        dcgm: Some(Dcgm { component: on, ..Dcgm::default() }),
        dcgm_exporter: Some(DcgmExporter::default()),
        ..GpuClusterSpec::default()
    };
    let cluster = GpuCluster::new("gpu-cluster", spec);
    let facts = Facts::at(jiff::Timestamp::UNIX_EPOCH);
    let dra = Dra::new(&cluster, &facts, images);
    let decided = decide(OPERANDS, &dra, &facts.live, |_, object| Some(object));
    rbac::granted(&decided.objects)
}

/// Whether the server serves the DRA APIs.
fn is_served(facts: &Facts) -> bool {
    facts.serves::<DeviceClass>() && facts.serves::<ResourceClaimTemplate>()
}

/// Whether the namespace has the admin-access label.
fn is_admitted(dra: &Dra<'_>) -> bool {
    let there = dra.cx.facts.live.get(&Ref::of::<Namespace>("", dra.cx.namespace()));
    there.is_some_and(|live| live["metadata"]["labels"][namespace::ADMIN_ACCESS] == "true")
}

/// A ResourceClaimTemplate with admin access; `more` extends the request.
fn claim_template(cx: &Cx<'_>, name: &str, request: &str, more: Value) -> Object {
    let mut exactly = json!({"deviceClassName": classes::GPU, "adminAccess": true});
    for (key, value) in more.as_object().into_iter().flatten() {
        exactly[key] = value.clone();
    }
    let spec = json!({"spec": {"devices": {"requests": [{"name": request, "exactly": exactly}]}}});
    let spec = serde_json::from_value(spec).expect("the claim is written here");
    Object::new(&ResourceClaimTemplate { metadata: cx.scope.meta(name), spec: Some(spec) })
}

#[cfg(test)]
mod tests;
