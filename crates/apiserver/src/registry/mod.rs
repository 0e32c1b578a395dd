//! The served resources: the table of built-in kinds, and those of CustomResourceDefinitions.
//!
//! Readers take an immutable [`Snapshot`]; a CRD swaps in a new one.

pub mod builtin;
pub mod crd;

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::schema::{Child, Schema, cel};

/// Verbs of a stored resource.
pub const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A resource: a plural in a group and version, with all that the generic verbs need to serve it.
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Version under which this entry is served.
    pub version: Arc<str>,
    /// Group in which objects are stored: the same, except for events, which two groups serve.
    pub storage_group: Arc<str>,
    /// Version in which objects are stored. All versions of one group and plural share the stored objects.
    pub storage_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Kind of a list.
    pub list_kind: Arc<str>,
    /// Plural, as in paths.
    pub plural: Arc<str>,
    /// Singular.
    pub singular: Arc<str>,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// Verbs that are served; `create` alone for reviews, which are never stored.
    pub verbs: &'static [&'static str],
    /// Subresources that are served: `status`, `scale`, `eviction`, `binding`, `log` …
    pub subresources: Vec<Subresource>,
    /// Schema of the objects in this version: see [`Resource::schema`].
    pub shape: Child,
    /// Origin of the resource.
    pub origin: Origin,
}

/// A subresource and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Last path segment: `status`.
    pub name: &'static str,
    /// Kind, if it differs from the resource's: `Scale`.
    pub kind: Option<&'static str>,
    /// Group and version of that kind, if they differ from the resource's.
    pub group_version: Option<(&'static str, &'static str)>,
    /// Verbs that are served.
    pub verbs: &'static [&'static str],
}

/// Origin of a resource.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Compiled in: lenient about unknown values, no pruning, defaults in code.
    Builtin,
    /// A version of a CustomResourceDefinition.
    Custom(Arc<CustomVersion>),
}

/// One version of a CRD, beyond the schema.
#[derive(Clone, Debug, Default)]
pub struct CustomVersion {
    /// UID of the CRD.
    pub uid: String,
    /// The schema as declared: objects are validated, defaulted and pruned by it. [`Resource::schema`] also has all
    /// fields of metadata.
    pub declared: Arc<Schema>,
    /// `additionalPrinterColumns` as written.
    pub columns: Vec<serde_json::Value>,
    /// `subresources.scale` as written.
    pub scale: Option<serde_json::Value>,
    /// `selectableFields[].jsonPath`.
    pub selectable_fields: Vec<String>,
    /// Warning to send with every response when the version is deprecated.
    pub deprecation: Option<String>,
    /// Whether the CRD is terminating: objects can no longer be created.
    pub terminating: bool,
    /// The validation rules of the schema.
    pub rules: cel::Lazy,
}

impl Resource {
    /// `pods`, or `deployments.apps`: the name in errors.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `v1`, or `apps/v1`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `apiVersion` in which objects are stored.
    pub fn storage_api_version(&self) -> String {
        api_version(&self.storage_group, &self.storage_version)
    }

    /// Whether `subresource` is served.
    pub fn has(&self, subresource: &str) -> bool {
        self.subresource(subresource).is_some()
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Whether `verb` is served on the resource itself.
    pub fn serves(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The schema of the objects in this version. Built-in schemas are compiled on first use.
    pub fn schema(&self) -> &Schema {
        self.shape.schema()
    }

    /// The schema by which objects are validated, defaulted and pruned: the CRD's, for a custom resource.
    pub fn declared(&self) -> &Schema {
        self.custom().map_or_else(|| self.schema(), |custom| &custom.declared)
    }

    /// The CRD version, for a custom resource.
    pub fn custom(&self) -> Option<&Arc<CustomVersion>> {
        match &self.origin {
            Origin::Builtin => None,
            Origin::Custom(custom) => Some(custom),
        }
    }
}

/// `v1`, or `apps/v1`.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Group and version of an `apiVersion`.
pub fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Compares versions by priority: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then others by name.
pub fn version_order(one: &str, other: &str) -> std::cmp::Ordering {
    let (a, b) = (version_rank(one), version_rank(other));
    b.cmp(&a).then_with(|| one.cmp(other))
}

/// Stability, major and minor; `None` for a version not of Kubernetes' form.
fn version_rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let major = major.parse().ok()?;
    for (name, stability) in [("alpha", 0), ("beta", 1)] {
        if let Some(minor) = rest.strip_prefix(name) {
            return Some((stability, major, minor.parse().ok()?));
        }
    }
    rest.is_empty().then_some((2, major, 0))
}

/// Group, version and plural.
type Key = (Arc<str>, Arc<str>, Arc<str>);

/// An immutable snapshot of all served resources.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    resources: BTreeMap<Key, Arc<Resource>>,
    /// Incremented by each change: caches derived from the registry compare it.
    pub generation: u64,
}

impl Snapshot {
    /// The resource under `/apis/GROUP/VERSION/PLURAL`.
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.into(), version.into(), plural.into()))
    }

    /// The resource of a kind.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.iter().find(|r| &*r.group == group && &*r.version == version && &*r.kind == kind)
    }

    /// All versions of a group and plural.
    pub fn versions(&self, group: &str, plural: &str) -> impl Iterator<Item = &Arc<Resource>> {
        self.iter().filter(move |r| &*r.group == group && &*r.plural == plural)
    }

    /// All resources, ordered by group, version and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }
}

/// The served resources. Clones share one state.
#[derive(Clone, Debug)]
pub struct Registry {
    current: Arc<RwLock<Arc<Snapshot>>>,
}

impl Registry {
    /// The built-in resources.
    pub fn builtin() -> Self {
        let resources = builtin::resources();
        let resources = resources.into_iter().map(|r| (key(&r), Arc::new(r))).collect();
        Self { current: Arc::new(RwLock::new(Arc::new(Snapshot { resources, generation: 1 }))) }
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The resource under `/apis/GROUP/VERSION/PLURAL`.
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.snapshot().lookup(group, version, plural).cloned()
    }

    /// The resource of a kind.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.snapshot().by_kind(group, version, kind).cloned()
    }

    /// Replaces the served resources of a group and plural.
    pub fn replace(&self, group: &str, plural: &str, resources: Vec<Resource>) {
        let mut current = self.current.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut next = Snapshot::clone(&current);
        next.resources.retain(|(g, _, p), _| !(&**g == group && &**p == plural));
        next.resources.extend(resources.into_iter().map(|r| (key(&r), Arc::new(r))));
        next.generation += 1;
        *current = Arc::new(next);
    }
}

fn key(resource: &Resource) -> Key {
    (resource.group.clone(), resource.version.clone(), resource.plural.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_kinds_are_found() {
        let registry = Registry::builtin();
        for (group, version, plural, kind) in [
            ("", "v1", "pods", "Pod"),
            ("apps", "v1", "deployments", "Deployment"),
            ("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
            ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
        ] {
            let resource = registry.lookup(group, version, plural).expect(plural);
            assert_eq!(&*resource.kind, kind);
            assert_eq!(&*registry.by_kind(group, version, kind).expect(kind).plural, plural);
        }
        assert!(registry.lookup("apps", "v1", "pods").is_none());
    }

    #[test]
    fn versions_are_ordered_by_preference() {
        let mut versions = ["v1alpha1", "foo", "v1", "v2beta1", "v10", "v1beta2", "bar"];
        versions.sort_by(|a, b| version_order(a, b));
        assert_eq!(versions, ["v10", "v1", "v2beta1", "v1beta2", "v1alpha1", "bar", "foo"]);
    }

    #[test]
    fn a_replaced_resource_is_gone_for_new_readers_only() {
        let registry = Registry::builtin();
        let before = registry.snapshot();
        registry.replace("apps", "deployments", Vec::new());
        assert!(registry.lookup("apps", "v1", "deployments").is_none());
        assert!(before.lookup("apps", "v1", "deployments").is_some());
        assert!(registry.snapshot().generation > before.generation);
    }
}
