//! Parses the table `kubernetes.txt`: list types, map keys, merge strategies, enums and defaults of Kubernetes types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

const TABLE: &str = include_str!("kubernetes.txt");

/// Table entries of one type.
#[derive(Default)]
struct Row {
    words: Vec<&'static str>,
    fields: Vec<(&'static str, &'static str)>,
}

static ROWS: LazyLock<BTreeMap<String, Row>> = LazyLock::new(|| {
    let mut rows = BTreeMap::new();
    let mut current: Option<&mut Row> = None;
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (first, rest) = line.trim_start().split_once(' ').unwrap_or((line.trim_start(), ""));
        if line.starts_with(' ') {
            current.as_mut().expect("a field follows its type").fields.push((first, rest));
        } else {
            let row: &mut Row = rows.entry(full_name(first)).or_default();
            row.words.extend(rest.split_whitespace());
            current = Some(row);
        }
    }
    rows
});

/// How Kubernetes serializes a field that is absent or has its zero value.
///
/// Kubernetes decodes objects into Go structs and encodes those: this is the effect of a field's `json` tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Omitted when absent, kept whatever its value.
    Kept,
    /// Always present, with its zero value when absent.
    Zero,
    /// `null` when absent.
    Null,
    /// Omitted when absent or zero.
    Dropped,
}

impl Absent {
    /// The usual case: required fields are always present, references are pointers.
    fn usual(name: &str, field: &Value, required: bool) -> Self {
        match field.get("$ref") {
            Some(_) if required || ["metadata", "spec", "status"].contains(&name) => Self::Zero,
            Some(_) => Self::Kept,
            None if required => Self::Zero,
            None => Self::Dropped,
        }
    }
}

/// How the field `field` of the definition `name` is serialized when it is absent or zero.
pub fn absent(name: &str, field: &str) -> Absent {
    let words = ROWS.get(name).and_then(|row| row.fields.iter().find(|(known, _)| *known == field));
    let words = words.map_or("", |(_, words)| words.split("enum=").next().unwrap_or_default());
    let exception = words.split_whitespace().find_map(|word| match word {
        "ptr" => Some(Absent::Kept),
        "zero" => Some(Absent::Zero),
        "null" => Some(Absent::Null),
        "drop" => Some(Absent::Dropped),
        _ => None,
    });
    let Some(definition) = crate::definition(name) else { return Absent::Dropped };
    let required = definition["required"].as_array().is_some_and(|required| required.iter().any(|name| name == field));
    exception.unwrap_or_else(|| Absent::usual(field, &definition["properties"][field], required))
}

/// Where a definition is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the server's OpenAPI document.
    OpenApi,
    /// Embedded in a CRD, which has no strategic merge patch; enums and defaults of embedded types come from separate
    /// markers: see [`crate::builtin`].
    Crd,
}

/// Adds the table's entries for the definition `name`.
pub(crate) fn complete(name: &str, schema: &mut Value, place: Place) {
    let Some(row) = ROWS.get(name) else { return };
    for word in &row.words {
        schema["x-kubernetes-map-type"] = (*word).into();
    }
    for (field, words) in &row.fields {
        let (words, values) = words.split_once("enum=").map_or((*words, None), |(words, values)| (words, Some(values)));
        let required = schema.get_mut("required").and_then(Value::as_array_mut);
        if let (true, Some(required)) = (words.split_whitespace().any(|word| word == "optional"), required) {
            required.retain(|name| name != field);
        }
        let Some(field) = schema["properties"].get_mut(field) else { continue };
        let wanted = |word: &&str| {
            place == Place::OpenApi || !["patch=", "key=", "default="].iter().any(|not| word.starts_with(not))
        };
        words.split_whitespace().filter(wanted).for_each(|word| state(word, field));
        if let Some(values) = values.filter(|_| place == Place::OpenApi) {
            let values: Vec<&str> = values.split(',').collect();
            *enumerated(field) = json!(values);
        }
    }
}

fn state(word: &str, field: &mut Value) {
    match word.split_once('=').unwrap_or((word, "")) {
        ("map", keys) => {
            field["x-kubernetes-list-type"] = "map".into();
            field["x-kubernetes-list-map-keys"] = keys.split(',').collect();
        }
        ("patch", how) => field["x-kubernetes-patch-strategy"] = how.into(),
        ("key", key) => field["x-kubernetes-patch-merge-key"] = key.into(),
        ("default", value) => field["default"] = serde_json::from_str(value).expect("defaults in the table are JSON"),
        ("atomic" | "set", _) if field["type"] == "array" => field["x-kubernetes-list-type"] = word.into(),
        ("atomic" | "granular", _) => field["x-kubernetes-map-type"] = word.into(),
        // Words about absent fields: see `absent`.
        _ => assert!(["optional", "ptr", "zero", "null", "drop"].contains(&word), "the table has no word {word}"),
    }
}

/// The schema that gets the `enum`: of the items, of the map values, or of the field itself.
fn enumerated(field: &mut Value) -> &mut Value {
    let key = ["items", "additionalProperties"].into_iter().find(|key| field.get(key).is_some());
    match key {
        Some(key) => &mut field[key]["enum"],
        None => &mut field["enum"],
    }
}

pub(crate) fn full_name(short: &str) -> String {
    match short.split('.').next() {
        Some("meta") => format!("io.k8s.apimachinery.pkg.apis.{short}"),
        Some("apiextensions") => format!("io.k8s.apiextensions-apiserver.pkg.apis.{short}"),
        Some("apiregistration") => format!("io.k8s.kube-aggregator.pkg.apis.{short}"),
        _ => format!("io.k8s.api.{short}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_about_a_field_that_exists() {
        for (name, row) in ROWS.iter() {
            let definition = crate::definition(name).unwrap_or_else(|| panic!("no type {name}"));
            for (field, _) in &row.fields {
                assert!(definition["properties"].get(field).is_some(), "{name} has no field {field}");
            }
        }
    }

    #[test]
    fn lists_merge_as_the_table_says() {
        let spec = &crate::definitions()["io.k8s.api.core.v1.ServiceSpec"]["properties"];
        assert_eq!(spec["ports"]["x-kubernetes-list-map-keys"], json!(["port", "protocol"]));
        assert_eq!(spec["ports"]["x-kubernetes-patch-merge-key"], "port");
        assert_eq!(spec["selector"]["x-kubernetes-map-type"], "atomic");
        assert_eq!(spec["ipFamilies"]["items"]["enum"], json!(["", "IPv4", "IPv6"]));
    }

    #[test]
    fn absent_fields_become_what_their_tags_say() {
        let core = |kind: &str, field: &str| absent(&format!("io.k8s.api.core.v1.{kind}"), field);
        assert_eq!(core("PodSpec", "hostNetwork"), Absent::Dropped);
        assert_eq!(core("PodSpec", "terminationGracePeriodSeconds"), Absent::Kept);
        assert_eq!(core("PodSpec", "containers"), Absent::Zero);
        assert_eq!(core("Container", "resources"), Absent::Zero);
        assert_eq!(core("Container", "livenessProbe"), Absent::Kept);
        assert_eq!(core("Pod", "status"), Absent::Zero);
        assert_eq!(absent("io.k8s.api.apps.v1.DeploymentSpec", "selector"), Absent::Null);
    }

    #[test]
    fn a_reference_may_merge_by_field_where_its_type_does_not() {
        let spec = &crate::definitions()["io.k8s.api.core.v1.PersistentVolumeSpec"]["properties"];
        assert_eq!(spec["claimRef"]["x-kubernetes-map-type"], "granular");
    }
}
