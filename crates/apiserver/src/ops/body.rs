//! Decoding of request bodies: from JSON to an object of the expected kind, or to the error that kube-apiserver would
//! return.

use serde_json::{Value, json};

use super::server::Profile;
use super::{FieldValidation, Payload, WriteOptions};
use crate::apply::{gofmt, patch};
use crate::error::{Cause, Result, Status};
use crate::field::Path;
use crate::registry::{builtin::definition_name, group_version};
use crate::schema::{Schema, decode, default, definition, embedded, prune};
use crate::syntax;

/// The expected kind and version of a body.
pub(super) struct Form<'a> {
    group: &'a str,
    api_version: &'a str,
    kind: &'a str,
    schema: &'a Schema,
    custom: bool,
}

impl<'a> Form<'a> {
    /// An object of a resource.
    pub(super) fn of(profile: &'a Profile) -> Self {
        Self {
            group: &profile.resource.group,
            api_version: &profile.served.api_version,
            kind: &profile.served.kind,
            schema: profile.resource.declared(),
            custom: profile.resource.custom().is_some(),
        }
    }

    /// An object of a kind that is built in and never stored: a Scale, a Binding, an Eviction.
    pub(super) fn builtin(group: &'a str, api_version: &'a str, kind: &'a str) -> Self {
        let (_, version) = group_version(api_version);
        let schema = definition(&definition_name(group, version, kind)).expect("the kind is built in");
        Self { group, api_version, kind, schema, custom: false }
    }

    /// The schema of the expected objects.
    pub(super) fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// Decodes an object. Unknown and duplicate fields are warned about or rejected, per field validation.
    pub(super) fn decode(&self, body: Payload, options: &WriteOptions, warnings: &mut Vec<String>) -> Result<Value> {
        let (mut object, mut strict_errors) = self.read(body)?;
        strict_errors.extend(self.fit_written(&mut object)?);
        report(strict_errors, options.field_validation, warnings).map_err(|why| self.wrong_kind(&object, &why))?;
        Ok(object)
    }

    /// Decodes the applied configuration of a server-side apply, unchanged. The apply itself checks that the kind is
    /// right.
    pub(super) fn decode_config(
        &self,
        body: Payload,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        let fault = |why: &dyn std::fmt::Display| Status::bad_request(format!("error decoding patch: {why}"));
        match body {
            Payload::Object(mut object) => {
                self.fill_type(&mut object);
                Ok(object)
            }
            Payload::Json(text) => {
                let config = decode::parse(&text).map_err(|error| fault(&error))?.value;
                if !config.is_object() {
                    let kind = patch::json_type(&config);
                    let why = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
                    return Err(fault(&format!("error unmarshaling JSON: while decoding JSON: {why}")));
                }
                let twice = syntax::keys_set_twice(&text);
                let twice = twice.iter().map(|(line, key)| format!("line {line}: key {key:?} already set in map"));
                report(twice.collect(), options.field_validation, warnings).map_err(|_| {
                    let lines: Vec<String> = syntax::keys_set_twice(&text)
                        .iter()
                        .map(|(line, key)| format!("\n  line {line}: key {key:?} already set in map"))
                        .collect();
                    let why = format!("error converting YAML to JSON: yaml: unmarshal errors:{}", lines.concat());
                    Status::bad_request(format!("error strict decoding patch: {why}"))
                })?;
                Ok(config)
            }
        }
    }

    /// Parses a body, checks its type, and reports duplicate fields.
    fn read(&self, body: Payload) -> Result<(Value, Vec<String>)> {
        match body {
            Payload::Object(mut object) => {
                self.fill_type(&mut object);
                self.identify(&mut object, &[])?;
                Ok((object, Vec::new()))
            }
            Payload::Json(text) => {
                let parsed = decode::parse(&text).map_err(|error| {
                    let fault = syntax::fault(&text).unwrap_or_else(|| error.to_string());
                    let why = format!("couldn't get version/kind; json parse error: {fault}");
                    self.unrecognized(&why, &text)
                })?;
                let mut object = parsed.value;
                self.check_type_names(&object, &text)?;
                if !self.custom {
                    // To Go's typed decoder, `null` is an empty object.
                    if object.is_null() {
                        object = json!({});
                    }
                    self.fill_type(&mut object);
                }
                self.identify(&mut object, &text)?;
                Ok((object, parsed.duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect()))
            }
        }
    }

    /// Normalizes an object that a client wrote to its schema. An empty `managedFields` list is not content, but is a
    /// request to reset the managed fields of a built-in object: its explicit form is kept.
    fn fit_written(&self, object: &mut Value) -> Result<Vec<String>> {
        let entries = &object["metadata"]["managedFields"];
        let forgets = !self.custom && entries.as_array().is_some_and(Vec::is_empty);
        let strict_errors = self.fit(object)?;
        if forgets {
            object["metadata"]["managedFields"] = json!([{}]);
        }
        Ok(strict_errors)
    }

    /// Normalizes an object to its schema; returns the unknown fields.
    pub(super) fn fit(&self, object: &mut Value) -> Result<Vec<String>> {
        let schema = self.schema;
        let unknown = if self.custom {
            let mut unknown = embedded::coerce_metadata(&mut object["metadata"])
                .map_err(|why| self.wrong_kind(object, &why))?
                .into_iter()
                .map(|path| format!("metadata.{path}"))
                .collect::<Vec<_>>();
            unknown.extend(prune::custom(schema, object));
            default::drop_nulls(schema, object);
            unknown.extend(embedded::coerce(schema, object).map_err(|cause| self.wrong_kind(object, &cause.message))?);
            unknown
        } else {
            decode::typed(schema, object).map_err(|why| self.wrong_kind(object, &why))?
        };
        Ok(unknown.iter().map(|path| format!("unknown field {path:?}")).collect())
    }

    /// Normalizes the result of a patch to its schema. Unknown and duplicate fields are warned about or rejected.
    pub(super) fn fit_patched(
        &self,
        object: &mut Value,
        patch: &patch::Patch,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let strategic = patch.kind == patch::Kind::Strategic;
        let shown = if strategic { gofmt::plain(&patch.value) } else { object.to_string() };
        let refuse = |why: &str| {
            let cause = Cause::invalid(&Path::new("patch"), &json!(shown), why);
            Status::invalid("", "", "", vec![cause])
        };
        let reword = |status: Status| {
            let why = status.message.split_once(&format!("as a {}: ", self.kind)).map(|(_, why)| why.to_owned());
            why.map_or(status, |why| refuse(&if strategic { reword_for_converter(&why) } else { why }))
        };
        self.identify(object, &[]).map_err(reword)?;
        let mut strict_errors = patch.strict_errors.clone();
        strict_errors.extend(self.fit_written(object).map_err(reword)?);
        report(strict_errors, options.field_validation, warnings).map_err(|why| refuse(&why))
    }

    /// 400 for a body of another kind.
    fn wrong_kind(&self, object: &Value, why: &str) -> Status {
        let kind = object["kind"].as_str().unwrap_or_default();
        let (_, version) = group_version(object["apiVersion"].as_str().unwrap_or_default());
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}: {why}", self.kind))
    }

    /// 400 for a body without `apiVersion` or `kind`.
    fn unrecognized(&self, why: &str, text: &[u8]) -> Status {
        let short = &text[..text.len().min(30)];
        let more = if text.len() > 30 { " ..." } else { "" };
        let summary = match short {
            [] => "<empty>".to_owned(),
            [b'{', ..] => format!("{}{more}", String::from_utf8_lossy(short)),
            _ => format!("{}{more}", short.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        };
        let kind = self.kind;
        Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({summary})"))
    }

    /// `apiVersion` and `kind` must be strings: checked before anything else.
    fn check_type_names(&self, object: &Value, text: &[u8]) -> Result<()> {
        for field in ["apiVersion", "kind"] {
            let value = object.get(field).unwrap_or(&Value::Null);
            if !value.is_string() && !value.is_null() {
                let found = patch::json_type(value);
                let why = format!("json: cannot unmarshal {found} into Go struct field .{field} of type string");
                return Err(self.unrecognized(&format!("couldn't get version/kind; json parse error: {why}"), text));
            }
        }
        Ok(())
    }

    /// Sets `apiVersion` and `kind` if absent.
    fn fill_type(&self, object: &mut Value) {
        let Some(members) = object.as_object_mut() else { return };
        for (key, value) in [("apiVersion", self.api_version), ("kind", self.kind)] {
            if members.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
                members.insert(key.into(), value.into());
            }
        }
    }

    /// Checks that an object has the expected kind and version.
    fn identify(&self, object: &mut Value, text: &[u8]) -> Result<()> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        if kind.is_empty() || !object.is_object() {
            let why = if object.is_object() || object.is_null() {
                format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(text))
            } else {
                format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                    patch::json_type(object)
                )
            };
            return Err(self.unrecognized(&why, text));
        }
        if version != self.api_version || kind != self.kind {
            self.check_type(object, &kind, &version)?;
        }
        need_metadata(object);
        Ok(())
    }

    /// The error for an object of another kind or version. Custom resources are checked later.
    fn check_type(&self, object: &Value, kind: &str, version: &str) -> Result<()> {
        let (group, short) = group_version(version);
        if !self.custom {
            if definition(&definition_name(group, short, kind)).is_none() && !self.is_old_eviction(version, kind) {
                let why = format!(
                    "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
                );
                return Err(self.wrong_kind(object, &why));
            }
            if kind != self.kind {
                let package =
                    if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or_default() };
                let why = format!("converting ({short}.{kind}) to ({package}.{}): unknown conversion", self.kind);
                return Err(self.wrong_kind(object, &why));
            }
        }
        if version != self.api_version && !self.is_old_eviction(version, kind) {
            let expected = self.api_version;
            let message =
                format!("the API version in the data ({version}) does not match the expected API version ({expected})");
            return Err(Status::bad_request(message));
        }
        Ok(())
    }

    /// Evictions are also accepted in a version that is no longer served.
    fn is_old_eviction(&self, version: &str, kind: &str) -> bool {
        self.kind == "Eviction" && (version, kind) == ("policy/v1beta1", "Eviction")
    }
}

/// Warns about or rejects unknown and duplicate fields.
fn report(strict_errors: Vec<String>, validation: FieldValidation, warnings: &mut Vec<String>) -> Result<(), String> {
    match validation {
        FieldValidation::Strict if !strict_errors.is_empty() => {
            Err(format!("strict decoding error: {}", strict_errors.join(", ")))
        }
        FieldValidation::Warn => {
            warnings.extend(strict_errors);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Rewords a JSON decoder error as Go's map converter words it, which decodes the result of a strategic merge patch.
fn reword_for_converter(why: &str) -> String {
    let parts = why.strip_prefix("json: cannot unmarshal ").and_then(|rest| {
        let (found, rest) = rest.split_once(" into ")?;
        Some((found, rest.rsplit_once(" of type ")?.1))
    });
    let Some((found, wanted)) = parts else { return why.to_owned() };
    let (kind, name) = match found {
        "number" => ("int64", "int64"),
        "array" => ("slice", "[]interface {}"),
        "object" => ("map", "map[string]interface {}"),
        other => (other, other),
    };
    if wanted.starts_with("map[") {
        format!("cannot restore map from {kind}")
    } else if wanted.starts_with("[]") {
        format!("cannot restore slice from {kind}")
    } else if wanted.contains('.') {
        format!("cannot restore struct from: {kind}")
    } else {
        format!("cannot convert {name} to {wanted}")
    }
}

fn need_metadata(object: &mut Value) {
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
}
