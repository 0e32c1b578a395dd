//! Compiled schemas: the single description of a type for validation, defaulting, pruning, server-side apply, strategic
//! merge and field validation.
//!
//! Access children through [`Schema::child`], [`Schema::items`] and [`Schema::additional`], which resolve definitions
//! by name.

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
    /// Not specified: any value.
    #[default]
    Any,
    /// A map or struct.
    Object,
    /// A list.
    Array,
    /// String.
    String,
    /// Integer.
    Integer,
    /// A number.
    Number,
    /// Boolean.
    Boolean,
    /// Integer or string (`x-kubernetes-int-or-string`).
    IntOrString,
}

/// List type (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// One value.
    #[default]
    Atomic,
    /// Unique scalars.
    Set,
    /// Items identified by these keys.
    Map(Vec<String>),
}

/// Strategic merge patch behaviour (`patchStrategy` and `patchMergeKey` of built-in types).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchList {
    /// Merge key of the items; `None` for a list of scalars.
    pub merge_key: Option<String>,
    /// Whether keys that the patch omits are removed (`retainKeys`).
    pub retain_keys: bool,
    /// Whether items are merged; otherwise the patch replaces the list.
    pub merge: bool,
    /// Whether the patch replaces the value even where it would be merged (`replace`).
    pub replace: bool,
}

/// A schema node.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Name of the Kubernetes definition; empty elsewhere.
    pub name: Arc<str>,
    /// JSON type.
    pub type_: Type,
    /// Fields of a struct.
    pub properties: BTreeMap<String, Child>,
    /// How each absent or zero field is encoded, in a Kubernetes definition.
    pub absent: BTreeMap<String, Absent>,
    /// Required fields.
    pub required: Vec<String>,
    /// Values of a map.
    pub additional: Option<Child>,
    /// Items of a list.
    pub items: Option<Child>,
    /// List type.
    pub list: ListType,
    /// Whether a map is atomic (`x-kubernetes-map-type: atomic`).
    pub atomic_map: bool,
    /// Whether unknown fields are preserved (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// Whether this is an embedded resource with `apiVersion`, `kind`, `metadata`.
    pub embedded_resource: bool,
    /// Whether null is allowed.
    pub nullable: bool,
    /// Default value.
    pub default: Option<Value>,
    /// Strategic merge patch behaviour.
    pub patch: PatchList,
    /// Value validations of custom resources; `None` if there are none.
    pub checks: Option<Arc<checks::Checks>>,
    /// The source without its children: description, bounds, pattern, enum, format and CEL rules are read from it.
    pub source: Arc<Value>,
}

/// A child node: inline, or the name of a built-in definition, as these may be recursive.
#[derive(Clone, Debug)]
pub enum Child {
    /// The node itself.
    Inline(Arc<Schema>),
    /// A Kubernetes definition, resolved on first use.
    Named(Arc<str>, OnceLock<&'static Schema>),
}

impl Schema {
    /// The schema of a struct field, or of a map's values.
    pub fn child(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(self.additional.as_ref()).map(Child::schema)
    }

    /// The schema of a struct field.
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
    /// The Kubernetes definition `name`.
    pub fn named(name: &str) -> Self {
        Self::Named(name.into(), OnceLock::new())
    }

    /// The node, resolved and compiled if it is held by name.
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
