//! Paths and operations: enough to find the kind of a path and its query parameters.

use capstan_schema::REFERENCE;
use serde_json::{Map, Value, json};

use crate::registry::builtin::definition_name;
use crate::registry::{Resource, Subresource, api_version};

/// Adds the paths of a resource whose kind has this schema.
pub(super) fn add(paths: &mut Map<String, Value>, resource: &Resource, schema: &str) {
    let root = if resource.group.is_empty() { "/api" } else { "/apis" };
    let root = format!("{root}/{}", api_version(&resource.group, &resource.version));
    let (plural, list) = (&*resource.plural, format!("{schema}List"));
    let place = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    let mut all = Map::new();
    for (verb, method, result) in
        [("list", "get", list.as_str()), ("create", "post", schema), ("deletecollection", "delete", "")]
    {
        if resource.serves(verb) {
            all.insert(method.into(), operation(resource, None, verb, result));
        }
    }
    let mut one = Map::new();
    for (verb, method, result) in
        [("get", "get", schema), ("update", "put", schema), ("patch", "patch", schema), ("delete", "delete", "")]
    {
        if resource.serves(verb) {
            one.insert(method.into(), operation(resource, None, verb, result));
        }
    }
    if resource.namespaced && resource.serves("list") {
        let everywhere = json!({"get": operation(resource, None, "list", &list)});
        paths.insert(format!("{root}/{plural}"), item(everywhere, false, false));
    }
    if !all.is_empty() {
        paths.insert(place.clone(), item(all.into(), resource.namespaced, false));
    }
    if !one.is_empty() {
        paths.insert(format!("{place}/{{name}}"), item(one.into(), resource.namespaced, true));
    }
    for sub in &resource.subresources {
        let spoken = match (sub.kind, sub.group_version) {
            (Some(kind), Some((group, version))) => definition_name(group, version, kind),
            _ => schema.to_owned(),
        };
        let mut methods = Map::new();
        for (verb, method) in
            [("get", "get"), ("create", "post"), ("update", "put"), ("patch", "patch"), ("delete", "delete")]
        {
            if sub.verbs.contains(&verb) {
                methods.insert(method.into(), operation(resource, Some(sub), verb, &spoken));
            }
        }
        paths.insert(format!("{place}/{{name}}/{}", sub.name), item(methods.into(), resource.namespaced, true));
    }
}

/// A path item with its path parameters.
fn item(mut methods: Value, namespaced: bool, named: bool) -> Value {
    let parameter = |name: &str, text: &str| {
        let schema = json!({"type": "string", "uniqueItems": true});
        json!({"name": name, "in": "path", "required": true, "description": text, "schema": schema})
    };
    let mut parameters = Vec::new();
    if named {
        parameters.push(parameter("name", "name of the object"));
    }
    if namespaced {
        parameters.push(parameter("namespace", "object name and auth scope, such as for teams and projects"));
    }
    if !parameters.is_empty() {
        methods["parameters"] = parameters.into();
    }
    methods
}

fn operation(resource: &Resource, sub: Option<&Subresource>, verb: &str, result: &str) -> Value {
    let (group, version) = sub.and_then(|sub| sub.group_version).unwrap_or((&resource.group, &resource.version));
    let kind = sub.and_then(|sub| sub.kind).unwrap_or(&resource.kind);
    let action = match verb {
        "create" => "post",
        "update" => "put",
        "deletecollection" => "deletecollection",
        verb => verb,
    };
    let result = if result.is_empty() { "io.k8s.apimachinery.pkg.apis.meta.v1.Status" } else { result };
    let content = json!({"application/json": {"schema": {"$ref": format!("{REFERENCE}{result}")}}});
    let mut responses = Map::new();
    let codes: &[(&str, &str)] = match verb {
        "create" => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
        "update" | "patch" => &[("200", "OK"), ("201", "Created")],
        _ => &[("200", "OK")],
    };
    for (code, text) in codes {
        responses.insert((*code).to_owned(), json!({"description": text, "content": content}));
    }
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    let mut operation = json!({
        "operationId": operation_id(resource, sub, verb),
        "parameters": parameters(verb),
        "responses": responses,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
    });
    if matches!(verb, "create" | "update") {
        let body = json!({"*/*": {"schema": {"$ref": format!("{REFERENCE}{result}")}}});
        operation["requestBody"] = json!({"content": body, "required": true});
    }
    if verb == "patch" {
        let schema = json!({"schema": {"type": "object"}});
        let mut forms = json!({
            "application/apply-patch+yaml": schema,
            "application/json-patch+json": schema,
            "application/merge-patch+json": schema,
        });
        if resource.custom().is_none() {
            forms["application/strategic-merge-patch+json"] = schema;
        }
        operation["requestBody"] = json!({"content": forms, "required": true});
    }
    operation
}

fn operation_id(resource: &Resource, sub: Option<&Subresource>, verb: &str) -> String {
    let title = |text: &str| -> String {
        let mut chars = text.chars();
        chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
    };
    let group = match &*resource.group {
        "" => "Core".to_owned(),
        group => group.trim_end_matches(".k8s.io").split('.').map(title).collect(),
    };
    let verb = match verb {
        "get" => "read",
        "update" => "replace",
        "deletecollection" => "deleteCollection",
        verb => verb,
    };
    let scope = if resource.namespaced { "Namespaced" } else { "" };
    let sub = sub.map(|sub| title(sub.name)).unwrap_or_default();
    format!("{verb}{group}{}{scope}{}{sub}", title(&resource.version), resource.kind)
}

/// Query parameters of a verb. Clients check these for support of `dryRun` and `fieldValidation`.
fn parameters(verb: &str) -> Value {
    let of =
        |name: &str, kind: &str| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}});
    let text = |name: &str| of(name, "string");
    let write = || vec![text("dryRun"), text("fieldManager"), text("fieldValidation")];
    let select = || {
        vec![
            of("allowWatchBookmarks", "boolean"),
            text("continue"),
            text("fieldSelector"),
            text("labelSelector"),
            of("limit", "integer"),
            text("resourceVersion"),
            text("resourceVersionMatch"),
            of("sendInitialEvents", "boolean"),
            of("timeoutSeconds", "integer"),
        ]
    };
    let delete = || {
        vec![
            text("dryRun"),
            of("gracePeriodSeconds", "integer"),
            of("orphanDependents", "boolean"),
            text("propagationPolicy"),
        ]
    };
    let mut parameters = match verb {
        "create" | "update" => write(),
        "patch" => [write(), vec![of("force", "boolean")]].concat(),
        "delete" => delete(),
        "deletecollection" => [delete(), select()].concat(),
        "list" => [select(), vec![of("watch", "boolean")]].concat(),
        _ => Vec::new(),
    };
    parameters.push(text("pretty"));
    parameters.into()
}
