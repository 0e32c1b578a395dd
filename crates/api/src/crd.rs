//! CustomResourceDefinitions, generated from the types.

use std::any::TypeId;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::resource::{Handling, Kind, Layout, NoStatus, Scope};

/// A row of [`crate::KINDS`]: one custom resource.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Kind.
    pub kind: &'static str,
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural.
    pub plural: &'static str,
    /// Short names for `kubectl`.
    pub short_names: &'static [&'static str],
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// How the operator handles its objects.
    pub handling: Handling,
    definition: fn() -> CustomResourceDefinition,
    described: fn() -> Value,
    decode: fn(Value) -> Result<Value, serde_json::Error>,
}

impl Entry {
    /// The entry of a kind.
    pub const fn of<K: Kind>() -> Self {
        Self {
            kind: K::KIND,
            group: K::GROUP,
            version: K::VERSION,
            plural: K::PLURAL,
            short_names: K::SHORT_NAMES,
            namespaced: K::Scope::NAMESPACED,
            handling: K::HANDLING,
            definition: definition::<K>,
            described: || schema::<K>(capstan_schema::Types::Named),
            decode: |value| serde_json::to_value(serde_json::from_value::<crate::resource::Resource<K>>(value)?),
        }
    }

    /// Whether `name` refers to this kind: kind, singular, plural, short name or `plural.group`, case-insensitive.
    pub fn is_called(&self, name: &str) -> bool {
        let full = self.crd_name();
        [self.kind, self.plural, full.as_str()]
            .iter()
            .chain(self.short_names)
            .any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Name of its CustomResourceDefinition: `nimservices.apps.nvidia.com`.
    pub fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// Its CustomResourceDefinition.
    pub fn definition(&self) -> CustomResourceDefinition {
        (self.definition)()
    }

    /// Its schema with the names of embedded Kubernetes types kept (`x-type`), for the reference docs.
    pub fn described(&self) -> Value {
        (self.described)()
    }

    /// Decodes an object into the typed form and encodes it again.
    pub fn round_trip(&self, object: Value) -> Result<Value, serde_json::Error> {
        (self.decode)(object)
    }
}

fn definition<K: Kind>() -> CustomResourceDefinition {
    let singular = K::KIND.to_lowercase();
    let columns = K::COLUMNS.iter().map(|column| CustomResourceColumnDefinition {
        name: column.name.into(),
        type_: column.type_.into(),
        json_path: column.path.into(),
        format: column.format.map(Into::into),
        ..CustomResourceColumnDefinition::default()
    });
    let schema = schema::<K>(capstan_schema::Types::Anonymous);
    let version = CustomResourceDefinitionVersion {
        name: K::VERSION.into(),
        served: true,
        storage: true,
        additional_printer_columns: Some(columns.collect()).filter(|columns: &Vec<_>| !columns.is_empty()),
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(serde_json::from_value(schema).expect("our schemas are valid JSON schemas")),
        }),
        subresources: K::STATUS_SUBRESOURCE.then(|| CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(json!({}))),
            scale: None,
        }),
        ..CustomResourceDefinitionVersion::default()
    };
    CustomResourceDefinition {
        metadata: ObjectMeta { name: Some(format!("{}.{}", K::PLURAL, K::GROUP)), ..ObjectMeta::default() },
        spec: CustomResourceDefinitionSpec {
            group: K::GROUP.into(),
            names: CustomResourceDefinitionNames {
                kind: K::KIND.into(),
                list_kind: Some(format!("{}List", K::KIND)),
                plural: K::PLURAL.into(),
                singular: Some(singular),
                short_names: Some(K::SHORT_NAMES.iter().map(|name| (*name).into()).collect())
                    .filter(|names: &Vec<String>| !names.is_empty()),
                categories: None,
            },
            scope: K::Scope::NAME.into(),
            versions: vec![version],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

fn schema<K: Kind>(types: capstan_schema::Types) -> Value {
    let fields = capstan_schema::of::<K>(types);
    let mut root = json!({
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema that this object is written in."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
        },
    });
    if let Some(description) = fields.get("description") {
        root["description"] = description.clone();
    }
    match K::LAYOUT {
        Layout::Flat => {
            for (name, field) in fields["properties"].as_object().into_iter().flatten() {
                root["properties"][name] = field.clone();
            }
            if let Some(required) = fields.get("required") {
                root["required"] = required.clone();
            }
        }
        Layout::Spec => root["properties"]["spec"] = fields,
        Layout::SpecRequired => {
            root["properties"]["spec"] = fields;
            root["required"] = json!(["spec"]);
        }
    }
    if TypeId::of::<K::Status>() != TypeId::of::<NoStatus>() {
        root["properties"]["status"] = capstan_schema::of::<K::Status>(types);
    }
    if !K::RULES.is_empty() {
        let rules = K::RULES.iter().map(|(rule, message)| json!({"rule": rule, "message": message}));
        root["x-kubernetes-validations"] = rules.collect();
    }
    root
}
