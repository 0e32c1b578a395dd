//! Every definition of Kubernetes as JSON, with references kept: what OpenAPI documents and the embedded server read.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// How a reference to a definition starts.
pub const REFERENCE: &str = "#/components/schemas/";

/// All definitions by name (`io.k8s.api.core.v1.Pod`), made on first use.
pub fn definitions() -> &'static BTreeMap<String, Value> {
    static DEFINITIONS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(generate);
    &DEFINITIONS
}

/// The definition of that name.
pub fn definition(name: &str) -> Option<&'static Value> {
    definitions().get(name)
}

fn generate() -> BTreeMap<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.definitions_path = "/components/schemas".into();
    });
    let mut generator = SchemaGenerator::new(settings);
    add_all(&mut generator);
    generator.take_definitions(true).into_iter().map(|(name, raw)| (name, finish(raw))).collect()
}

fn finish(mut schema: Value) -> Value {
    // k8s-openapi holds metadata without Option and so calls it required; Kubernetes does not.
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|field| field != "metadata");
        if required.is_empty() {
            schema.as_object_mut().map(|schema| schema.remove("required"));
        }
    }
    schema
}

macro_rules! roots {
    ($($module:path { $($kind:ident)* })*) => {
        /// Adds these kinds, and all that they refer to.
        fn add_all(generator: &mut SchemaGenerator) {
            $({
                use $module as module;
                $(generator.subschema_for::<module::$kind>();)*
            })*
        }
    };
}

roots! {
    api::admissionregistration::v1 {
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration
        ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
    }
    apiextensions::v1 { CustomResourceDefinition }
    apiregistration::v1 { APIService }
    api::apps::v1 { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
    api::authentication::v1 { SelfSubjectReview TokenRequest TokenReview }
    api::authorization::v1 {
        LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
    }
    api::autoscaling::v1 { HorizontalPodAutoscaler Scale }
    api::autoscaling::v2 { HorizontalPodAutoscaler }
    api::batch::v1 { CronJob Job }
    api::certificates::v1 { CertificateSigningRequest ClusterTrustBundle PodCertificateRequest }
    api::coordination::v1 { Lease }
    api::core::v1 {
        Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
        PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount
    }
    api::discovery::v1 { EndpointSlice }
    api::events::v1 { Event }
    api::flowcontrol::v1 { FlowSchema PriorityLevelConfiguration }
    meta::v1 {
        APIGroup APIGroupList APIResourceList APIVersions Condition DeleteOptions ListMeta Status
    }
    api::networking::v1 { IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR }
    api::node::v1 { RuntimeClass }
    api::policy::v1 { Eviction PodDisruptionBudget }
    api::rbac::v1 { ClusterRole ClusterRoleBinding Role RoleBinding }
    api::resource::v1 { DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice }
    api::scheduling::v1 { PriorityClass }
    api::storage::v1 {
        CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass
    }
    api::storagemigration::v1 { StorageVersionMigration }
}
