//! Methods of a row: paths, selectors, and trimming of objects.

use std::fmt;

use capstan_plan::kit::hash_json;
use capstan_plan::{Gvk, Ref};
use serde_json::Value;

use super::{Keep, Kind, MANAGED_BY, MANAGERS, Scope, Select};
use crate::{pods, trim};

impl Kind {
    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk {
        Gvk { group: self.group.into(), version: self.version.into(), kind: self.kind.into() }
    }

    /// Whether this is the row of `gvk`; rows of slices match none.
    pub fn is(&self, gvk: &Gvk) -> bool {
        self.slice.is_empty() && self.kind == gvk.kind && self.group == gvk.group && self.version == gvk.version
    }

    /// Its name in logs and metrics.
    pub fn label(&self) -> &'static str {
        if self.slice.is_empty() { self.kind } else { self.slice }
    }

    /// The identity of an object of this kind.
    pub fn reference(&self, namespace: &str, name: &str) -> Ref {
        Ref { gvk: self.gvk(), namespace: namespace.into(), name: name.into() }
    }

    /// URL path of the objects in `namespace`, or of all if it is empty.
    pub fn path(&self, namespace: &str) -> String {
        self.path_in(self.version, namespace)
    }

    /// The same in another version.
    pub(crate) fn path_in(&self, version: &str, namespace: &str) -> String {
        let root =
            if self.group.is_empty() { format!("/api/{version}") } else { format!("/apis/{}/{version}", self.group) };
        match self.scope {
            Scope::Namespaced if !namespace.is_empty() => format!("{root}/namespaces/{namespace}/{}", self.plural),
            _ => format!("{root}/{}", self.plural),
        }
    }

    /// The label selector of the watch.
    pub(crate) fn label_selector(&self) -> Option<String> {
        match (self.select, MANAGERS) {
            (Select::Ours, [one]) => Some(format!("{MANAGED_BY}={one}")),
            (Select::Ours, many) => Some(format!("{MANAGED_BY} in ({})", many.join(","))),
            (Select::Labels(selector), _) => Some(selector.into()),
            _ => None,
        }
    }

    /// The field selector of the watch.
    pub(crate) fn field_selector(&self) -> Option<&'static str> {
        match self.select {
            Select::Fields(selector) => Some(selector),
            _ => None,
        }
    }

    /// Whether the watch selects `object`. Field selectors are assumed to match what we write.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        let label = || object["metadata"]["labels"][MANAGED_BY].as_str();
        self.select != Select::Ours || label().is_some_and(|value| MANAGERS.contains(&value))
    }

    /// Whether a cached object is complete enough to be compared with a desired one.
    pub(crate) fn is_comparable(&self) -> bool {
        !matches!(self.keep, Keep::Keys | Keep::Metadata | Keep::Pod)
    }

    /// Decodes an object, without the fields that are not cached.
    pub(crate) fn read(&self, text: &str) -> serde_json::Result<Value> {
        self.read_if(text, &|_| true)
    }

    /// The same, but stops after the metadata if `read_on` returns false for it.
    pub(crate) fn read_if(&self, text: &str, read_on: &dyn Fn(&Value) -> bool) -> serde_json::Result<Value> {
        let parts = match self.keep {
            Keep::Only(parts) => Some(parts),
            Keep::Pod => Some(pods::POD_FIELDS),
            Keep::Full | Keep::Keys | Keep::Metadata => None,
        };
        trim::read(text, parts, read_on)
    }

    /// Drops the fields that are not cached.
    pub(crate) fn trim(&self, object: &mut Value) {
        // Items of a list have no apiVersion and kind.
        object["apiVersion"] = self.gvk().api_version().into();
        object["kind"] = self.kind.into();
        remove(object, "/metadata/managedFields");
        remove(object, "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration");
        match self.keep {
            Keep::Full => {}
            Keep::Only(parts) => {
                if let Some(fields) = object.as_object_mut() {
                    trim::only(fields, parts);
                }
            }
            Keep::Pod => pods::trim(object),
            Keep::Keys => {
                for field in ["data", "stringData", "binaryData"] {
                    if let Some(data) = object.get_mut(field).and_then(Value::as_object_mut) {
                        data.values_mut().for_each(|value| *value = hash_json(value).into());
                    }
                }
            }
            Keep::Metadata => {
                if let Some(fields) = object.as_object_mut() {
                    fields.retain(|name, _| ["apiVersion", "kind", "metadata"].contains(&name.as_str()));
                }
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.remove(&name.replace("~1", "/"));
    }
}
