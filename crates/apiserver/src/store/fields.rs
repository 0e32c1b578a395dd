//! Selectable fields of each kind. Their values are extracted once, when an object is written.

use std::borrow::Cow;
use std::sync::Arc;

use capstan_semantics::field;
use serde_json::Value;

use crate::registry::{Origin, Resource};

/// Paths of the selectable fields of a kind, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPaths(Arc<[Box<str>]>);

/// Values of the selectable fields, packed into one string: every object has them, and most are short.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    paths: FieldPaths,
    text: Box<str>,
    /// End offset of each value in `text`.
    ends: Box<[u32]>,
}

impl Fields {
    /// The value of a field other than `metadata.name` and `metadata.namespace`.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.value(self.paths.position(path)?)
    }

    /// All fields with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let values = (0..self.ends.len()).filter_map(|at| self.value(at));
        self.paths.0.iter().map(|path| &**path).zip(values)
    }

    fn value(&self, at: usize) -> Option<&str> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start as usize..*self.ends.get(at)? as usize)
    }
}

impl FieldPaths {
    /// Selectable fields of a resource beyond `metadata.name` and `metadata.namespace`.
    pub fn of(resource: &Resource) -> Self {
        match &resource.origin {
            Origin::Builtin => Self::builtin(&resource.storage_group, &resource.plural),
            Origin::Custom(custom) => {
                custom.selectable_fields.iter().map(|path| path.trim_start_matches('.')).collect()
            }
        }
    }

    /// Selectable fields of a built-in resource; none for others.
    pub(super) fn builtin(group: &str, plural: &str) -> Self {
        builtin(group, plural).iter().copied().collect()
    }

    /// Whether there are none beyond `metadata.name` and `metadata.namespace`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `path` is selectable.
    pub fn contains(&self, path: &str) -> bool {
        matches!(path, "metadata.name" | "metadata.namespace") || self.position(path).is_some()
    }

    fn position(&self, path: &str) -> Option<usize> {
        self.0.iter().position(|mine| **mine == *path)
    }

    /// Extracts the values from an object.
    pub fn read(&self, object: &Value) -> Fields {
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(self.0.len()));
        for path in self.0.iter() {
            text.push_str(&read(object, path));
            ends.push(text.len() as u32);
        }
        Fields { paths: self.clone(), text: text.into(), ends: ends.into() }
    }
}

impl FieldPaths {
    /// Extracts the values of the paths that start with one of `changed` from `object`, which need hold nothing else,
    /// and takes all others from `before`.
    pub(super) fn read_some(&self, before: &Fields, object: &Value, changed: &[&str]) -> Fields {
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(self.0.len()));
        for path in self.0.iter() {
            if changed.iter().any(|prefix| path.starts_with(prefix)) {
                text.push_str(&read(object, path));
            } else {
                text.push_str(before.get(path).unwrap_or_default());
            }
            ends.push(text.len() as u32);
        }
        Fields { paths: self.clone(), text: text.into(), ends: ends.into() }
    }
}

impl<'a> FromIterator<&'a str> for FieldPaths {
    fn from_iter<T: IntoIterator<Item = &'a str>>(paths: T) -> Self {
        Self(paths.into_iter().map(Into::into).collect())
    }
}

fn builtin(group: &str, plural: &str) -> &'static [&'static str] {
    const EVENT: &[&str] = &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ];
    match (group, plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["status.replicas"],
        ("", "events") => EVENT,
        ("batch", "jobs") | ("apps", "statefulsets") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

/// Values as selectors compare them. An absent field reads as the zero value that Go prints.
fn read<'a>(object: &'a Value, path: &str) -> Cow<'a, str> {
    let value = match path {
        "source" => return event_source(object).into(),
        "status.podIPs" => return pod_ips(object).into(),
        "status.successful" => &object["status"]["succeeded"],
        path => field::get(object, path).unwrap_or(&Value::Null),
    };
    match value {
        Value::String(text) => text.as_str().into(),
        Value::Bool(flag) => flag.to_string().into(),
        Value::Number(number) => number.to_string().into(),
        _ => match path {
            "spec.hostNetwork" | "spec.unschedulable" => "false".into(),
            "status.replicas" | "status.successful" => "0".into(),
            _ => "".into(),
        },
    }
}

fn event_source(object: &Value) -> &str {
    let source = object["source"]["component"].as_str().filter(|text| !text.is_empty());
    source.or(object["reportingComponent"].as_str()).unwrap_or_default()
}

fn pod_ips(object: &Value) -> String {
    let ips = object["status"]["podIPs"].as_array().into_iter().flatten();
    ips.filter_map(|ip| ip["ip"].as_str()).collect::<Vec<_>>().join(",")
}
