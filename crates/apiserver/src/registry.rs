//! Which resources are served.

use std::sync::Arc;

use crate::schema::Schema;

/// One resource: a plural under a group, with everything that the generic machinery needs to serve it.
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Version under which this entry is served.
    pub version: Arc<str>,
    /// Version in which objects are stored. All versions of one group and plural share the stored objects.
    pub storage_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Plural, as in paths.
    pub plural: Arc<str>,
    /// Singular.
    pub singular: Arc<str>,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Subresources that are served: `status`, `scale`, `eviction`, `binding`, `log` …
    pub subresources: Vec<&'static str>,
    /// What the objects look like in this version.
    pub schema: Arc<Schema>,
    /// Where the resource comes from.
    pub origin: Origin,
}

/// Where a resource comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Compiled in: lenient about unknown values, no pruning, defaults in [`crate::admit`]-code.
    Builtin,
    /// A CustomResourceDefinition: everything that a CRD version says.
    Custom(Arc<CustomVersion>),
}

/// What a CRD says about one version, beyond the schema.
#[derive(Clone, Debug, Default)]
pub struct CustomVersion {
    /// UID of the CRD.
    pub uid: String,
    /// `additionalPrinterColumns` as written.
    pub columns: Vec<serde_json::Value>,
    /// `subresources.scale` as written.
    pub scale: Option<serde_json::Value>,
    /// `selectableFields[].jsonPath`.
    pub selectable_fields: Vec<String>,
    /// Warning to send with every answer when the version is deprecated.
    pub deprecation: Option<String>,
}

impl Resource {
    /// `pods`, or `deployments.apps`: how errors name a resource.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `v1`, or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether `subresource` is served.
    pub fn has(&self, subresource: &str) -> bool {
        self.subresources.contains(&subresource)
    }
}
