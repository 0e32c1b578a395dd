//! What describes one of the five kinds: data, and functions that make data of a spec.

use capstan_api::common::PersistentVolumeClaim;
use capstan_api::nemo::NemoServer;
use capstan_api::nemo::shared::DatabaseConfig;
use capstan_plan::kit::probe::Timing;
use capstan_plan::{LiveObjects, Ref};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, PersistentVolumeClaim as Volumes, PodSecurityContext, Secret, Volume, VolumeMount,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

/// A spec that describes a service.
pub trait Service {
    /// What does not depend on the spec.
    fn about(&self) -> &'static About;
    /// The server itself.
    fn server(&self) -> &NemoServer;
    /// The database that it needs.
    fn database(&self) -> Option<&DatabaseConfig>;
    /// What the kind adds.
    fn parts(&self, at: &Place<'_>) -> Parts;
    /// The configuration file of the server, if it has one, from ConfigMaps of the user.
    fn config(&self, _at: &Place<'_>, _live: &LiveObjects) -> Option<Result<Value, Stop>> {
        None
    }
    /// The whole spec.
    fn json(&self) -> Value;
}

/// What does not depend on the spec.
pub struct About {
    /// Kind.
    pub kind: &'static str,
    /// Value of `app.kubernetes.io/part-of`.
    pub part_of: &'static str,
    /// Labels by which the Service selects pods.
    pub selector: &'static [&'static str],
    /// Ports of the container, the API first. Those after it are ports of the Service as well.
    pub ports: &'static [(&'static str, i32)],
    /// Startup probe.
    pub startup: Health,
    /// Liveness probe.
    pub liveness: Health,
    /// Readiness probe.
    pub readiness: Health,
}

/// A path that is probed, and how often.
pub struct Health(pub &'static str, pub Timing);

impl Health {
    /// Seconds until the first probe, to answer and between two, and failures until it counts.
    pub const fn new(path: &'static str, delay: i32, timeout: i32, period: i32, failures: i32) -> Self {
        Self(path, Timing { delay, period, timeout, failures })
    }
}

/// Settings of the operator for NeMo services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of the init container that waits for a database: it needs `sh` and `nc`.
    pub wait_image: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { wait_image: "busybox:1.37".into() }
    }
}

/// In which form pods are described.
///
/// Fixes of what the NIM Operator wrote change pods. A Deployment that was taken over keeps its form until its pods are
/// replaced for another reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With all fixes.
    Own,
    /// As the NIM Operator writes it.
    Reference,
}

/// Where a service is described.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Name of the custom resource.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The form.
    pub form: Form,
    /// The settings.
    pub settings: &'a Settings,
}

/// What a kind adds to the model.
#[derive(Default)]
pub struct Parts {
    /// Environment of the server.
    pub env: Vec<EnvVar>,
    /// Containers that run before it.
    pub init: Vec<Container>,
    /// Volumes of the pod.
    pub volumes: Vec<Volume>,
    /// Mounts of the server.
    pub mounts: Vec<VolumeMount>,
    /// Security context of the pod.
    pub security: PodSecurityContext,
    /// What its account may do.
    pub rules: Vec<PolicyRule>,
    /// What it refers to by name.
    pub references: Vec<Reference>,
    /// The claim that it uses.
    pub claim: Option<Claim>,
    /// Key of the Secret with the connection string, where pods read it from one.
    pub connection: Option<&'static str>,
    /// Other services that it calls.
    pub endpoints: Vec<Endpoint>,
    /// Kinds of others that it works with at run time.
    pub apis: Vec<Api>,
    /// What is wrong with the spec.
    pub faults: Vec<Fault>,
}

/// An object of the same namespace that a spec names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The field.
    pub field: &'static str,
    /// The object.
    pub what: Ref,
    /// Keys that it must have.
    pub keys: Vec<String>,
    /// What waits for it.
    pub waits: Waits,
    /// Whether pods read it at their start, so that they are replaced when it changes.
    pub read_at_start: bool,
}

/// What waits for an object that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing.
    Nothing,
    /// Pods, which the kubelet does not start.
    Pods,
    /// The Deployment, which cannot be decided on.
    Deployment,
    /// Jobs that the service starts later.
    Jobs,
}

impl Reference {
    /// A Secret with a key that pods read.
    pub fn secret(field: &'static str, at: &Place<'_>, name: &str, keys: &[&str]) -> Self {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let what = Ref::of::<Secret>(at.namespace, name);
        Self { field, what, keys, waits: Waits::Pods, read_at_start: true }
    }

    /// A ConfigMap that pods read.
    pub fn config_map(field: &'static str, at: &Place<'_>, name: &str) -> Self {
        let what = Ref::of::<ConfigMap>(at.namespace, name);
        Self { field, what, keys: Vec::new(), waits: Waits::Pods, read_at_start: true }
    }

    /// A claim, which must be there before the Deployment.
    pub fn claim(field: &'static str, at: &Place<'_>, name: &str) -> Self {
        let what = Ref::of::<Volumes>(at.namespace, name);
        Self { field, what, keys: Vec::new(), waits: Waits::Deployment, read_at_start: false }
    }

    /// The same, and the Deployment waits for it.
    pub fn decides(self) -> Self {
        Self { waits: Waits::Deployment, ..self }
    }

    /// The same, read by the operator or by jobs, not by pods of the service.
    pub fn not_at_start(self) -> Self {
        Self { read_at_start: false, ..self }
    }

    /// The same, for jobs that the service starts later.
    pub fn for_jobs(self) -> Self {
        Self { waits: Waits::Jobs, read_at_start: false, ..self }
    }

    /// The same, but it may be absent.
    pub fn optional(self) -> Self {
        Self { waits: Waits::Nothing, ..self }
    }
}

/// A claim of a spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The field.
    pub field: &'static str,
    /// What the user wrote there.
    pub spec: PersistentVolumeClaim,
    /// Whether all pods of the service mount it.
    pub mounted: bool,
}

/// Another service that this one calls.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The field.
    pub field: &'static str,
    /// The URL.
    pub url: String,
    /// The custom resource that may run it, made of the name and namespace in the URL.
    pub candidate: fn(&str, &str) -> Ref,
}

/// A kind of others that a service works with at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// What needs it.
    pub needed_by: &'static str,
    /// Name of its CRD.
    pub crd: &'static str,
    /// What to do.
    pub fix: &'static str,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it means for the plan.
    pub weight: Weight,
    /// Field, value and fix.
    pub message: String,
}

/// What a mistake means for a service that is stored with it, perhaps since before we came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The spec cannot be acted on; what runs is left alone.
    Fatal,
    /// The field is passed over, and a condition says so.
    PassedOver,
    /// It is only refused at admission.
    Refused,
}

/// Why a workload cannot be decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Whether somebody has to act on the spec; otherwise something is not there yet.
    pub failed: bool,
    /// Stable reason of the condition.
    pub reason: &'static str,
    /// What it waits for, and the fix.
    pub message: String,
}

impl Stop {
    /// Something is wrong.
    pub fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self { failed: true, reason, message: message.into() }
    }

    /// Something is not there yet.
    pub fn wait(reason: &'static str, message: impl Into<String>) -> Self {
        Self { failed: false, reason, message: message.into() }
    }
}
