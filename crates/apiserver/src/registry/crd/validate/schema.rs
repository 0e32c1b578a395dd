//! Validation of one schema of a CRD, its printer columns, subresources and selectable fields.

use serde_json::{Value, json};

use super::extras::follow;
use super::node::{TYPES, any, flag, inner, list, properties, type_of};
use super::{Ratcheting, Spec, defaults, structural};
use crate::error::Cause;
use crate::field::Path;
use crate::registry::crd::{text, texts};
use crate::schema::{cel, format};

/// Context of a schema.
pub(super) struct Place<'a> {
    /// Whether the version has a status subresource.
    pub(super) status: bool,
    /// Whether the schema must be structural.
    pub(super) structural: bool,
    /// Whether it is unchanged by the update.
    pub(super) unchanged: bool,
    pub(super) ratcheting: &'a Ratcheting,
}

/// Validates a schema.
pub(super) fn check(validation: &Value, path: &Path, place: &Place<'_>, causes: &mut Vec<Cause>) {
    let Some(schema) = inner(validation, "openAPIV3Schema") else { return };
    let path = path.child("openAPIV3Schema");
    if place.status {
        causes.extend(root_faults(schema, &path));
    }
    if flag(schema, "nullable") {
        causes.push(Cause::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    let mut sound = place.structural;
    if place.structural {
        let mut faults = structural::check(schema, &path);
        if faults.is_empty() {
            faults = defaults::check(schema, &path, place.ratcheting.unpruned_defaults);
        }
        sound = faults.is_empty();
        causes.extend(faults);
    }
    let mut walk = Walk { ratcheting: place.ratcheting, faults: Vec::new() };
    walk.node(schema, &path, &Inside { root: true, ..Inside::default() });
    if sound {
        let faults = cel::check(schema, &path, place.unchanged, &walk.faults);
        walk.faults.extend(faults);
    }
    causes.extend(walk.faults);
}

/// Restricts the root of a schema that has a status subresource, as the status is validated on its own.
fn root_faults(schema: &Value, path: &Path) -> Option<Cause> {
    const ALLOWED: &[&str] = &[
        "description",
        "type",
        "format",
        "title",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "required",
        "items",
        "properties",
        "externalDocs",
        "example",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ];
    if type_of(schema) != "object" && !type_of(schema).is_empty() {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(Cause::invalid(&path.child("type"), &type_of(schema).into(), detail));
    }
    let stray = schema.as_object()?.keys().any(|key| !ALLOWED.contains(&key.as_str()));
    let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
    stray.then(|| Cause::invalid(path, schema, detail))
}

/// Context of a node.
#[derive(Clone, Default)]
struct Inside {
    root: bool,
    metadata: bool,
    /// Why defaults are forbidden.
    no_defaults: Option<String>,
}

struct Walk<'a> {
    ratcheting: &'a Ratcheting,
    faults: Vec<Cause>,
}

impl Walk<'_> {
    fn forbid(&mut self, path: &Path, detail: &str) {
        self.faults.push(Cause::forbidden(path, detail));
    }

    fn node(&mut self, schema: &Value, path: &Path, inside: &Inside) {
        self.keywords(schema, path, inside);
        let below = Inside { root: false, ..inside.clone() };
        if let Some(additional) = schema.get("additionalProperties") {
            if properties(schema).next().is_some() && *additional != Value::Bool(true) {
                let path = path.child("additionalProperties");
                self.forbid(&path, "additionalProperties and properties are mutual exclusive");
            }
            if additional.is_object() {
                let mut below = below.clone();
                if inside.metadata {
                    below.no_defaults = Some("inside additionalProperties applying to object metadata".into());
                }
                self.node(additional, &path.child("additionalProperties"), &below);
            }
        }
        let whole = inside.root || flag(schema, "x-kubernetes-embedded-resource");
        for (name, property) in properties(schema) {
            let mut below = below.clone();
            if whole && ["metadata", "kind", "apiVersion"].contains(&name.as_str()) {
                below.metadata = true;
                if inside.root {
                    below.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.node(property, &path.child("properties").key(name), &below);
        }
        if let Some(not) = inner(schema, "not") {
            self.node(not, &path.child("not"), &below);
        }
        for key in ["allOf", "oneOf", "anyOf"] {
            for (index, one) in list(schema, key).iter().enumerate() {
                self.node(one, &path.child(key).index(index), &below);
            }
        }
        if let Some(items) = inner(schema, "items") {
            self.node(items, &path.child("items"), &below);
        }
        self.lists(schema, path);
        if !self.ratcheting.loose_keys {
            self.faults.extend(key_faults(schema, path));
        }
        self.rules(schema, path);
    }

    fn keywords(&mut self, schema: &Value, path: &Path, inside: &Inside) {
        let type_ = type_of(schema);
        if !self.ratcheting.any_type && !type_.is_empty() && !TYPES.contains(&type_) {
            self.faults.push(Cause::not_supported(&path.child("type"), &type_.into(), TYPES));
        }
        if let (Some(reason), Some(_)) = (&inside.no_defaults, schema.get("default")) {
            self.forbid(&path.child("default"), &format!("must not be set {reason}"));
        }
        for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            if schema.get(key).is_some() {
                self.forbid(&path.child(key), &format!("{key} is not supported"));
            }
        }
        if type_ == "null" {
            self.forbid(&path.child("type"), "type cannot be set to null, use nullable as an alternative");
        }
        if schema["items"].is_array() {
            self.forbid(&path.child("items"), "items must be a schema object and not an array");
        }
        if inside.metadata && flag(schema, "x-kubernetes-embedded-resource") {
            self.forbid(&path.child("x-kubernetes-embedded-resource"), "must not be used inside of resource meta");
        }
        if flag(schema, "uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbid(&path.child("uniqueItems"), detail);
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == false {
            let path = path.child("x-kubernetes-preserve-unknown-fields");
            self.faults.push(Cause::invalid(&path, &false.into(), "must be true or undefined"));
        }
    }

    fn lists(&mut self, schema: &Value, path: &Path) {
        for (key, wanted, known) in [
            ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
            ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
        ] {
            let Some(value) = schema[key].as_str() else { continue };
            let (type_, detail) = (type_of(schema), format!("must be {wanted} if {key} is specified"));
            if type_.is_empty() {
                self.faults.push(Cause::required(&path.child("type"), &detail));
            } else if type_ != wanted {
                self.faults.push(Cause::invalid(&path.child("type"), &type_.into(), &detail));
            } else if let Some((key, value)) =
                loose_set(schema).filter(|_| wanted == "array" && !self.ratcheting.loose_sets)
            {
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                self.faults.push(Cause::invalid(&path.child("items").child(key), &value, detail));
            }
            if !known.contains(&value) {
                self.faults.push(Cause::not_supported(&path.child(key), &value.into(), known));
            }
        }
        self.map_keys(schema, path);
    }

    fn map_keys(&mut self, schema: &Value, path: &Path) {
        let (keys, list_type) =
            (texts(&schema["x-kubernetes-list-map-keys"]), schema["x-kubernetes-list-type"].as_str());
        let (keys_path, type_path) = (path.child("x-kubernetes-list-map-keys"), path.child("x-kubernetes-list-type"));
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None if !keys.is_empty() => self.faults.push(Cause::required(&type_path, detail)),
            Some(other) if !keys.is_empty() && other != "map" => {
                self.faults.push(Cause::invalid(&type_path, &other.into(), detail));
            }
            _ => {}
        }
        if list_type != Some("map") {
            return;
        }
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            self.faults.push(Cause::required(&keys_path, detail));
        }
        let items_path = path.child("items");
        let Some(items) = inner(schema, "items") else {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            return self.faults.push(Cause::required(&items_path, detail));
        };
        if type_of(items) != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            return self.faults.push(Cause::invalid(&items_path.child("type"), &type_of(items).into(), detail));
        }
        for (index, key) in keys.iter().enumerate() {
            match items["properties"].get(key) {
                Some(property) if ["array", "object"].contains(&type_of(property)) => {
                    let path = items_path.child("properties").key(key).child("type");
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    self.faults.push(Cause::invalid(&path, &type_of(items).into(), detail));
                }
                Some(_) => {}
                None => {
                    let detail = "entries must all be names of item properties";
                    self.faults.push(Cause::invalid(&keys_path, &json!(keys), detail));
                }
            }
            if keys[..index].contains(key) {
                self.faults.push(Cause::invalid(&keys_path, &json!(keys), "must not contain duplicate entries"));
            }
        }
    }

    /// Validates rules apart from their expressions.
    fn rules(&mut self, schema: &Value, path: &Path) {
        const REASONS: &[&str] =
            &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        let breaks = |text: &str| text.contains(['\n', '\r']);
        for (index, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
            let path = path.child("x-kubernetes-validations").index(index);
            let (expression, message) = (text(&rule["rule"]).trim(), text(&rule["message"]));
            let message_path = path.child("message");
            if expression.is_empty() {
                self.faults.push(Cause::required(&path.child("rule"), "rule is not specified"));
            } else if !message.is_empty() && message.trim().is_empty() {
                self.faults.push(Cause::invalid(&message_path, &message.into(), "must be non-empty if specified"));
            } else if breaks(message.trim()) {
                self.faults.push(Cause::invalid(&message_path, &message.into(), "must not contain line breaks"));
            } else if breaks(expression) && message.trim().is_empty() {
                let detail = "message must be specified if rule contains line breaks";
                self.faults.push(Cause::required(&message_path, detail));
            }
            let spoken = text(&rule["messageExpression"]);
            if !spoken.is_empty() && spoken.trim().is_empty() {
                let detail = "messageExpression must be non-empty if specified";
                self.faults.push(Cause::required(&path.child("messageExpression"), detail));
            }
            if let Some(reason) = rule["reason"].as_str().filter(|reason| !REASONS.contains(reason)) {
                self.faults.push(Cause::not_supported(&path.child("reason"), &reason.into(), REASONS));
            }
            let field = text(&rule["fieldPath"]);
            let field_path = path.child("fieldPath");
            if !field.is_empty() && field.trim().is_empty() {
                self.faults.push(Cause::invalid(&field_path, &field.into(), "must be non-empty if specified"));
            }
            if breaks(field) {
                self.faults.push(Cause::invalid(&field_path, &field.into(), "must not contain line breaks"));
            }
            if !field.is_empty() && follow(field, schema, true).is_err() {
                self.faults.push(Cause::invalid(&field_path, &field.into(), "must be a valid path"));
            }
        }
    }
}

/// Items of a set that are not atomic: the keyword that would make them so, and its value.
pub(super) fn loose_set(schema: &Value) -> Option<(&'static str, Value)> {
    let items = inner(schema, "items").filter(|_| schema["x-kubernetes-list-type"] == "set")?;
    let list_type = items["x-kubernetes-list-type"].clone();
    match type_of(items) {
        "array" if !list_type.is_null() && list_type != "atomic" => Some(("x-kubernetes-list-type", list_type)),
        "object" if items["x-kubernetes-map-type"] != "atomic" => Some(("x-kubernetes-map-type", list_type)),
        _ => None,
    }
}

/// Keys of list maps must be required or have a default.
pub(super) fn key_faults(schema: &Value, path: &Path) -> Vec<Cause> {
    let list_type = text(&schema["x-kubernetes-list-type"]);
    let Some(items) = inner(schema, "items").filter(|_| list_type == "set" || list_type == "map") else {
        return Vec::new();
    };
    let mut causes = Vec::new();
    let path = path.child("items");
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(Cause::forbidden(&path.child("nullable"), &detail));
    }
    if list_type == "map" {
        let required = texts(&items["required"]);
        for key in texts(&schema["x-kubernetes-list-map-keys"]) {
            let Some(property) = items["properties"].get(&key) else { continue };
            let path = path.child("properties").key(&key);
            if !required.contains(&key) && property.get("default").is_none() {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                causes.push(Cause::required(&path.child("default"), detail));
            }
            if flag(property, "nullable") {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                causes.push(Cause::forbidden(&path.child("nullable"), detail));
            }
        }
    }
    causes
}

/// Warnings about unknown formats, and about sets with unsuitable items.
pub(super) fn warnings(spec: &Spec) -> Vec<String> {
    let found = std::cell::RefCell::new(Vec::new());
    let note = |warning: String| {
        if !found.borrow().contains(&warning) {
            found.borrow_mut().push(warning);
        }
    };
    for schema in spec.schemas() {
        any(schema, &|node| {
            let known = |name: &str| match type_of(node) {
                "" | "string" => format::known(name),
                "integer" => ["int32", "int64"].contains(&name),
                "number" => ["float", "double"].contains(&name),
                _ => false,
            };
            if let Some(name) = node["format"].as_str().filter(|name| !name.is_empty() && !known(name)) {
                note(format!("unrecognized format \"{name}\""));
            }
            let items = type_of(&node["items"]);
            if node["x-kubernetes-list-type"] == "set" && ["object", "array"].contains(&items) {
                note(format!(
                    "x-kubernetes-list-type: set for items of type \"{items}\" is not supported by server-side apply or CEL validation rules"
                ));
            }
            false
        });
    }
    found.into_inner()
}
