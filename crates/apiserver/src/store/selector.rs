//! Object selection: namespace, label selector and field selector.

use std::sync::Arc;

use super::Object;
pub use super::field_selector::FieldSelector;
pub use capstan_semantics::LabelSelector;

/// Selects objects of a table; the default selects all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only in this namespace.
    pub namespace: Option<Arc<str>>,
    /// Only objects that this selects.
    pub labels: LabelSelector,
    /// Only objects that this selects.
    pub fields: FieldSelector,
}

impl Selection {
    /// All objects in a namespace.
    pub fn namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// One object by name; `namespace` is `None` if cluster-scoped.
    pub fn one(namespace: Option<&str>, name: &str) -> Self {
        let fields = FieldSelector::equal("metadata.name", name);
        Self { namespace: namespace.map(Into::into), fields, ..Self::default() }
    }

    /// Whether it selects an object.
    pub fn matches(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace())
            && self.labels.matches(|key| object.label(key))
            && self.fields.matches(object)
    }

    /// The namespace of all selected objects, if there is only one.
    pub(super) fn only_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().or_else(|| self.fields.required("metadata.namespace"))
    }

    /// The key of the only object that can be selected, if there is only one.
    pub(super) fn only_key(&self, namespaced: impl FnOnce() -> bool) -> Option<String> {
        let name = self.fields.required("metadata.name")?;
        match self.only_namespace() {
            Some(namespace) => Some(format!("{namespace}/{name}")),
            None => (!namespaced()).then(|| name.to_owned()),
        }
    }

    /// Whether it has a label or field selector.
    pub(super) fn is_filtered(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}
