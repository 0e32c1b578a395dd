//! Compiled schemas: the one description of a type that validation, defaulting, pruning, server-side apply, strategic
//! merge and field checks all read.
//!
//! Read children through [`Schema::child`], [`Schema::items`] and [`Schema::additional`]: they look up definitions that
//! are held by name.

pub mod builtin;
pub mod cel;
pub mod checks;
mod compile;
pub mod decode;
pub mod default;
pub mod embedded;
pub mod format;
pub mod object;
pub mod prune;
mod scalar;
pub mod unique;
pub mod validate;

pub use builtin::definition;
pub use compile::compile;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use capstan_schema::Absent;
use serde_json::Value;

/// JSON type of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// Nothing is said: anything goes.
    #[default]
    Any,
    /// A map or a struct.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A number or text (`x-kubernetes-int-or-string`).
    IntOrString,
}

/// How a list merges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// As one value.
    #[default]
    Atomic,
    /// As a set of scalars.
    Set,
    /// As a map from these fields of each item to the item.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a list (`patchStrategy` and `patchMergeKey` of built-in types).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchList {
    /// Field that identifies an item; `None` for a list of scalars.
    pub merge_key: Option<String>,
    /// Whether keys that the patch leaves out are removed (`retainKeys`).
    pub retain_keys: bool,
    /// Whether items merge at all; otherwise the patch replaces the list.
    pub merge: bool,
    /// Whether the patch replaces the value even where it would merge (`replace`).
    pub replace: bool,
}

/// One node of a schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Name of the definition, of a type of Kubernetes; empty elsewhere.
    pub name: Arc<str>,
    /// JSON type.
    pub type_: Type,
    /// Fields of a struct.
    pub properties: BTreeMap<String, Child>,
    /// What becomes of each field that is absent or zero, in a definition of Kubernetes.
    pub absent: BTreeMap<String, Absent>,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// Values of a map.
    pub additional: Option<Child>,
    /// Items of a list.
    pub items: Option<Child>,
    /// How a list merges.
    pub list: ListType,
    /// Whether an object merges as one value (`x-kubernetes-map-type: atomic`).
    pub atomic_map: bool,
    /// Whether unknown fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// Whether this is a whole object with its own `apiVersion`, `kind`, `metadata`.
    pub embedded_resource: bool,
    /// Whether null is a value.
    pub nullable: bool,
    /// Value when the field is absent.
    pub default: Option<Value>,
    /// How a strategic merge patch treats it.
    pub patch: PatchList,
    /// Demands on values, of custom resources; `None` when there are none.
    pub checks: Option<Arc<checks::Checks>>,
    /// The source without its children: description, bounds, pattern, enum, format and CEL rules are read from here.
    pub source: Arc<Value>,
}

/// A child node: held directly, or the name of a built-in definition, as these may be recursive.
#[derive(Clone, Debug)]
pub enum Child {
    /// The node itself.
    Inline(Arc<Schema>),
    /// A definition of Kubernetes, looked up when it is first needed.
    Named(Arc<str>, OnceLock<&'static Schema>),
}

impl Schema {
    /// The field of that name in a struct, or the values of a map.
    pub fn child(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(self.additional.as_ref()).map(Child::schema)
    }

    /// The field of that name in a struct.
    pub fn property(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).map(Child::schema)
    }

    /// Items of a list.
    pub fn items(&self) -> Option<&Schema> {
        self.items.as_ref().map(Child::schema)
    }

    /// Values of a map.
    pub fn additional(&self) -> Option<&Schema> {
        self.additional.as_ref().map(Child::schema)
    }
}

impl Child {
    /// The definition of Kubernetes of that name.
    pub fn named(name: &str) -> Self {
        Self::Named(name.into(), OnceLock::new())
    }

    /// The node, looked up and compiled when it is held by name.
    pub fn schema(&self) -> &Schema {
        match self {
            Self::Inline(schema) => schema,
            Self::Named(name, found) => found.get_or_init(|| builtin::named(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_kind_has_a_schema() {
        for resource in crate::registry::builtin::resources() {
            let schema = resource.schema();
            assert!(schema.property("kind").is_some(), "{} has no schema", resource.kind);
        }
    }

    #[test]
    fn children_are_found_through_references() {
        let pod = builtin::definition("io.k8s.api.core.v1.Pod").expect("a pod");
        let containers = pod.child("spec").and_then(|spec| spec.child("containers")).expect("containers");
        assert_eq!(containers.type_, Type::Array);
        assert_eq!(
            containers.items().and_then(|item| item.child("image")).map(|image| image.type_),
            Some(Type::String)
        );
    }
}
