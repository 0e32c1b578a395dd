//! Kubernetes' OpenAPI definitions as JSON, with `$ref` kept: for the OpenAPI documents and the embedded API server.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use k8s_openapi::{Resource, api};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::kubernetes;

/// Prefix of a `$ref` to a definition.
pub const REFERENCE: &str = "#/components/schemas/";

/// All definitions by name (`io.k8s.api.core.v1.Pod`), built on first use, in OpenAPI 3 form.
pub fn definitions() -> &'static BTreeMap<String, Value> {
    static DEFINITIONS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(generate);
    &DEFINITIONS
}

/// The definition `name`.
pub fn definition(name: &str) -> Option<&'static Value> {
    definitions().get(name)
}

/// A kind that clients send or receive, by the name of its definition.
struct Kind {
    definition: String,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    /// Whether it has a list kind.
    listed: bool,
}

fn generate() -> BTreeMap<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.definitions_path = "/components/schemas".into();
    });
    let mut generator = SchemaGenerator::new(settings);
    let mut kinds = Vec::new();
    add_all(&mut generator, &mut kinds);
    let raw = generator.take_definitions(true);
    let mut all: BTreeMap<String, Value> = raw.into_iter().map(|(name, raw)| finish(name, raw)).collect();
    for kind in kinds {
        if let Some(schema) = all.get_mut(&kind.definition) {
            schema["x-kubernetes-group-version-kind"] = kind.group_version_kind("");
        }
        if kind.listed {
            all.insert(format!("{}List", kind.definition), kind.list());
        }
    }
    all
}

fn finish(name: String, mut schema: Value) -> (String, Value) {
    if let Some((key, form)) = special(&name) {
        let description = schema["description"].take();
        schema = json!({"description": description});
        schema[key] = form;
    }
    // k8s-openapi models metadata without Option, so its schema marks it required; Kubernetes does not.
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|field| field != "metadata");
    }
    kubernetes::complete(&name, &mut schema, kubernetes::Place::OpenApi);
    if schema["required"].as_array().is_none_or(Vec::is_empty) {
        schema.as_object_mut().expect("a definition is an object").remove("required");
    }
    (name, schema)
}

/// Types that accept more than one JSON type: the schema keyword for that, and its value.
fn special(name: &str) -> Option<(&'static str, Value)> {
    let either = |one: &str, other: &str| ("oneOf", json!([{"type": one}, {"type": other}]));
    match name.rsplit('.').next()? {
        "Quantity" => Some(either("string", "number")),
        "IntOrString" => Some(either("integer", "string")),
        "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
            Some(("x-kubernetes-preserve-unknown-fields", true.into()))
        }
        "RawExtension" | "FieldsV1" => Some(("type", "object".into())),
        _ => None,
    }
}

impl Kind {
    fn of<T: JsonSchema + Resource>(listed: bool) -> Self {
        let definition = T::schema_name().into_owned();
        Self { definition, group: T::GROUP, version: T::VERSION, kind: T::KIND, listed }
    }

    fn group_version_kind(&self, suffix: &str) -> Value {
        json!([{"group": self.group, "kind": format!("{}{suffix}", self.kind), "version": self.version}])
    }

    fn list(&self) -> Value {
        let reference = |name: &str| json!({"$ref": format!("{REFERENCE}{name}")});
        json!({
            "description": format!("{0}List is a list of {0}.", self.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": API_VERSION},
                "kind": {"type": "string", "description": KIND},
                "metadata": reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"),
                "items": {"type": "array", "description": "The items.", "items": reference(&self.definition)},
            },
            "x-kubernetes-group-version-kind": self.group_version_kind("List"),
        })
    }
}

const API_VERSION: &str = "Group and version of this representation of an object.";
const KIND: &str = "Name of the type that this object represents.";

macro_rules! kinds {
    (
        listed { $($module:path { $($kind:ident)* })* }
        single { $($single:path { $($one:ident)* })* }
        plain { $($plain:path { $($type:ident)* })* }
    ) => {
        /// Adds these types and everything that they reference.
        fn add_all(generator: &mut SchemaGenerator, kinds: &mut Vec<Kind>) {
            $({
                use $module as module;
                $(generator.subschema_for::<module::$kind>(); kinds.push(Kind::of::<module::$kind>(true));)*
            })*
            $({
                use $single as module;
                $(generator.subschema_for::<module::$one>(); kinds.push(Kind::of::<module::$one>(false));)*
            })*
            $({
                use $plain as module;
                $(generator.subschema_for::<module::$type>();)*
            })*
        }
    };
}

kinds! {
    listed {
        api::admissionregistration::v1 {
            MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration
            ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
        }
        apiextensions::v1 { CustomResourceDefinition }
        apiregistration::v1 { APIService }
        api::apps::v1 { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
        api::autoscaling::v1 { HorizontalPodAutoscaler }
        api::autoscaling::v2 { HorizontalPodAutoscaler }
        api::batch::v1 { CronJob Job }
        api::certificates::v1 { CertificateSigningRequest ClusterTrustBundle PodCertificateRequest }
        api::coordination::v1 { Lease }
        api::core::v1 {
            ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
            PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount
        }
        api::discovery::v1 { EndpointSlice }
        api::events::v1 { Event }
        api::flowcontrol::v1 { FlowSchema PriorityLevelConfiguration }
        api::networking::v1 { IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR }
        api::node::v1 { RuntimeClass }
        api::policy::v1 { PodDisruptionBudget }
        api::rbac::v1 { ClusterRole ClusterRoleBinding Role RoleBinding }
        api::resource::v1 { DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice }
        api::scheduling::v1 { PriorityClass }
        api::storage::v1 {
            CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass
        }
        api::storagemigration::v1 { StorageVersionMigration }
    }
    single {
        api::authentication::v1 { SelfSubjectReview TokenRequest TokenReview }
        api::authorization::v1 {
            LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
        }
        api::autoscaling::v1 { Scale }
        api::core::v1 { Binding }
        api::policy::v1 { Eviction }
        meta::v1 { APIGroup APIGroupList APIResourceList APIVersions Status }
    }
    plain {
        meta::v1 { Condition DeleteOptions ListMeta }
    }
}
