//! CustomResourceDefinitions from the types.

use std::any::TypeId;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::resource::{Kind, Layout, NoStatus, Scope};

pub(crate) fn definition<K: Kind>() -> CustomResourceDefinition {
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

pub(crate) fn schema<K: Kind>(types: capstan_schema::Types) -> Value {
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
