//! Printers of API configuration: CRDs, APIServices, webhooks, admission policies, RuntimeClasses.

use jiff::Timestamp;
use serde_json::Value;

use super::format::{NONE, UNSET, count, has_condition, list, text};
use super::{AGE, CREATED, Cells, Column, NAME, Printer, age, created, name};

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let admission = "admissionregistration.k8s.io";
    let (columns, cells): (&'static [Column], Cells) = match (group, kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => (DEFINITION, definition),
        ("apiregistration.k8s.io", "APIService") => (API_SERVICE, api_service),
        ("storagemigration.k8s.io", "StorageVersionMigration") => (MIGRATION, migration),
        ("node.k8s.io", "RuntimeClass") => {
            (RUNTIME_CLASS, |object, now| vec![name(object), text(object, "/handler").into(), age(object, now)])
        }
        (group, "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") if group == admission => {
            (WEBHOOKS, |object, now| vec![name(object), count(object, "/webhooks").into(), age(object, now)])
        }
        (group, "ValidatingAdmissionPolicy") if group == admission => (VALIDATING, |object, now| {
            vec![name(object), count(object, "/spec/validations").into(), parameters(object), age(object, now)]
        }),
        (group, "MutatingAdmissionPolicy") if group == admission => (MUTATING, |object, now| {
            vec![name(object), count(object, "/spec/mutations").into(), parameters(object), age(object, now)]
        }),
        (group, "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding") if group == admission => {
            (BINDING, binding)
        }
        _ => return None,
    };
    Some(Printer { columns, cells })
}

const DEFINITION: &[Column] = &[
    NAME,
    Column::own("Scope", "string", "Cluster/Namespaced"),
    Column::own("Versions", "string", "Served versions"),
    CREATED,
    Column::own("Group", "string", "API group").wide(),
    Column::own("Kind", "string", "CustomResource kind").wide(),
    Column::own("ShortNames", "string", "Short names").wide(),
    Column::own("Established", "boolean", "Established status").wide(),
];

fn definition(object: &Value, _now: Timestamp) -> Vec<Value> {
    let mut versions: Vec<String> = list(object, "/spec/versions")
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let stored = if version["storage"] == true { "(storage)" } else { "" };
            format!("{}{stored}", text(version, "/name"))
        })
        .collect();
    versions.sort();
    let short: Vec<&str> = list(object, "/spec/names/shortNames").iter().filter_map(Value::as_str).collect();
    vec![
        name(object),
        text(object, "/spec/scope").into(),
        versions.join(",").into(),
        created(object),
        text(object, "/spec/group").into(),
        text(object, "/spec/names/kind").into(),
        short.join(",").into(),
        has_condition(object, "Established").into(),
    ]
}

const API_SERVICE: &[Column] = &[
    NAME,
    Column::own("Service", "string", "The reference to the service that hosts this API endpoint."),
    Column::own("Available", "string", "Whether this service is available."),
    AGE,
];

fn api_service(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = &object["spec"]["service"];
    let service = if service.is_object() {
        format!("{}/{}", text(service, "/namespace"), text(service, "/name"))
    } else {
        "Local".to_owned()
    };
    let condition = list(object, "/status/conditions").iter().find(|condition| condition["type"] == "Available");
    let available = condition.map_or("Unknown".to_owned(), |condition| match text(condition, "/status") {
        "True" => "True".to_owned(),
        status => format!("{status} ({})", text(condition, "/reason")),
    });
    vec![name(object), service.into(), available.into(), age(object, now)]
}

const RUNTIME_CLASS: &[Column] = &[NAME, Column::own("Handler", "string", ""), AGE];

const MIGRATION: &[Column] = &[
    Column { format: "", ..NAME },
    Column::own("Resource", "string", "GroupResource to migrate"),
    Column::own("Status", "string", "Status of the migration"),
];

fn migration(object: &Value, _now: Timestamp) -> Vec<Value> {
    let (group, resource) = (text(object, "/spec/resource/group"), text(object, "/spec/resource/resource"));
    let shown = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let states = ["Running", "Failed", "Succeeded"];
    let status = states.into_iter().rfind(|state| has_condition(object, state)).unwrap_or("Unknown");
    vec![name(object), shown.into(), status.into()]
}

const WEBHOOKS: &[Column] = &[
    NAME,
    Column::own("Webhooks", "integer", "Webhooks indicates the number of webhooks registered in this configuration"),
    AGE,
];

const VALIDATING: &[Column] = &[
    NAME,
    Column::own(
        "Validations",
        "integer",
        "Validations indicates the number of validation rules defined in this configuration",
    ),
    Column::own("ParamKind", "string", "ParamKind specifies the kind of resources used to parameterize this policy"),
    AGE,
];

const MUTATING: &[Column] = &[
    NAME,
    Column::own(
        "Mutations",
        "integer",
        "Mutation indicates the number of mutations rules defined in this configuration",
    ),
    Column::own("ParamKind", "string", "ParamKind specifies the kind of resources used to parameterize this policy"),
    AGE,
];

fn parameters(object: &Value) -> Value {
    let kind = &object["spec"]["paramKind"];
    if kind.is_object() {
        return format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")).into();
    }
    UNSET.into()
}

const BINDING: &[Column] = &[
    NAME,
    Column::own(
        "PolicyName",
        "string",
        "PolicyName indicates the policy definition which the policy binding binded to",
    ),
    Column::own("ParamRef", "string", "ParamRef indicates the param resource which sets the configuration param"),
    AGE,
];

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let reference = &object["spec"]["paramRef"];
    let shown = if !reference.is_object() {
        UNSET.to_owned()
    } else if reference["selector"].is_object() {
        "*".to_owned()
    } else {
        let (namespace, name) = (text(reference, "/namespace"), text(reference, "/name"));
        match (namespace, name) {
            ("", "") => NONE.to_owned(),
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        }
    };
    vec![name(object), text(object, "/spec/policyName").into(), shown.into(), age(object, now)]
}
