//! The root type of all custom resources.
//!
//! kube's `CustomResource` derive is not used, for two reasons of compatibility with the reference API: an object
//! without `spec` is valid for most kinds, and numbers are valid as quantities. Both must decode. See [`crate::wire`].

use std::borrow::Cow;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::wire;

/// Where the fields of the kind's main struct are in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Under `spec`, which may be absent.
    Spec,
    /// Under `spec`, which must be present.
    SpecRequired,
    /// At the top level, beside `metadata`.
    Flat,
}

/// An additional printer column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// OpenAPI type: `string`, `boolean`, `date` …
    pub type_: &'static str,
    /// JSON path of the value.
    pub path: &'static str,
    /// OpenAPI format, if any.
    pub format: Option<&'static str>,
}

impl Column {
    /// `.status.state` as column `Status`.
    pub const STATE: Self = Self::new("Status", "string", ".status.state");
    /// Age, printed as a duration.
    pub const AGE: Self = Self::new("Age", "date", ".metadata.creationTimestamp");
    /// Age, printed as the timestamp itself, as in the reference's older kinds.
    pub const AGE_AS_STRING: Self = Self::new("Age", "string", ".metadata.creationTimestamp");

    /// Age, printed as a duration, with the format that the inference kinds declare.
    pub const AGE_WITH_FORMAT: Self = Self { format: Some("date-time"), ..Self::AGE };

    /// A column.
    pub const fn new(name: &'static str, type_: &'static str, path: &'static str) -> Self {
        Self { name, type_, path, format: None }
    }
}

/// The main struct of a custom resource.
pub trait Kind: Clone + std::fmt::Debug + Default + PartialEq + Serialize + DeserializeOwned + JsonSchema {
    /// Type of `.status`; [`NoStatus`] for a kind without one.
    type Status: Clone + std::fmt::Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema + 'static;
    /// [`Namespaced`] or [`Cluster`].
    type Scope: Scope;
    /// API group.
    const GROUP: &'static str;
    /// API version.
    const VERSION: &'static str;
    /// Kind.
    const KIND: &'static str;
    /// Plural, as in URLs.
    const PLURAL: &'static str;
    /// Short names for `kubectl`.
    const SHORT_NAMES: &'static [&'static str] = &[];
    /// Columns that `kubectl get` prints after the name.
    const COLUMNS: &'static [Column] = &[];
    /// Where the fields are.
    const LAYOUT: Layout = Layout::Spec;
    /// Whether `/status` is a subresource.
    const STATUS_SUBRESOURCE: bool = true;
    /// CEL rules on the whole object, as (rule, message).
    const RULES: &'static [(&'static str, &'static str)] = &[];
    /// How the operator handles objects of the kind.
    const HANDLING: Handling = Handling::Unwatched;
}

/// How the operator handles objects of a kind. Its watches and RBAC rules are derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Not handled yet.
    Unwatched,
    /// Watched.
    Watched,
    /// Created for other objects.
    Made,
    /// A controller writes their status.
    Reported,
    /// A controller writes their status and finalizers.
    Reconciled,
    /// A controller reconciles them, and another controller creates some.
    MadeAndReconciled,
}

impl Handling {
    /// Whether the kind has a controller.
    pub const fn has_controller(self) -> bool {
        matches!(self, Self::Reported | Self::Reconciled | Self::MadeAndReconciled)
    }
}

/// Scope of a kind.
pub trait Scope: 'static {
    /// The scope type of k8s-openapi.
    type Resource: 'static;
    /// `Namespaced` or `Cluster`, as in a CRD.
    const NAME: &'static str;
    /// Whether the kind is namespaced.
    const NAMESPACED: bool;
}

/// A namespaced kind.
#[derive(Clone, Copy, Debug)]
pub struct Namespaced;
/// A cluster-scoped kind.
#[derive(Clone, Copy, Debug)]
pub struct Cluster;

impl Scope for Namespaced {
    type Resource = NamespaceResourceScope;
    const NAME: &'static str = "Namespaced";
    const NAMESPACED: bool = true;
}

impl Scope for Cluster {
    type Resource = ClusterResourceScope;
    const NAME: &'static str = "Cluster";
    const NAMESPACED: bool = false;
}

/// Status of a kind that has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoStatus {}

/// A status that the API declares and nothing fills.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EmptyStatus {}

/// A custom resource: type, metadata, spec, status.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource<K: Kind> {
    /// Name, namespace, labels …
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: K,
    /// Observed state.
    pub status: Option<K::Status>,
}

impl<K: Kind> Resource<K> {
    /// An object with a name and a spec.
    pub fn new(name: &str, spec: K) -> Self {
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        Self { metadata, spec, status: None }
    }
}

impl<K: Kind> Default for Resource<K> {
    fn default() -> Self {
        Self { metadata: ObjectMeta::default(), spec: K::default(), status: None }
    }
}

impl<K: Kind> kube::Resource for Resource<K> {
    type DynamicType = ();
    type Scope = <K::Scope as Scope>::Resource;

    fn kind((): &()) -> Cow<'_, str> {
        K::KIND.into()
    }
    fn group((): &()) -> Cow<'_, str> {
        K::GROUP.into()
    }
    fn version((): &()) -> Cow<'_, str> {
        K::VERSION.into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        K::PLURAL.into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<K: Kind> Serialize for Resource<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("apiVersion", &format!("{}/{}", K::GROUP, K::VERSION))?;
        map.serialize_entry("kind", K::KIND)?;
        map.serialize_entry("metadata", &self.metadata)?;
        if K::LAYOUT == Layout::Flat {
            let fields = serde_json::to_value(&self.spec).map_err(serde::ser::Error::custom)?;
            for (name, value) in fields.as_object().into_iter().flatten() {
                map.serialize_entry(name, value)?;
            }
        } else {
            map.serialize_entry("spec", &self.spec)?;
        }
        if let Some(status) = &self.status {
            map.serialize_entry("status", status)?;
        }
        map.end()
    }
}

impl<'de, K: Kind> Deserialize<'de> for Resource<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = serde_json::Map::<String, Value>::deserialize(deserializer)?;
        for (field, want) in [("apiVersion", format!("{}/{}", K::GROUP, K::VERSION)), ("kind", K::KIND.to_owned())] {
            // List items have neither.
            if let Some(found) = object.remove(field).filter(|found| *found != want) {
                return Err(D::Error::custom(format!("{field} is {found}, expected \"{want}\"")));
            }
        }
        let metadata = take(&mut object, "metadata")?.unwrap_or_default();
        let status = take(&mut object, "status")?;
        let spec = match K::LAYOUT {
            Layout::Spec => take(&mut object, "spec")?.unwrap_or_default(),
            Layout::SpecRequired => take(&mut object, "spec")?.ok_or_else(|| D::Error::missing_field("spec"))?,
            Layout::Flat => wire::lenient(Value::Object(object)).map_err(D::Error::custom)?,
        };
        Ok(Self { metadata, spec, status })
    }
}

fn take<T: DeserializeOwned, E: serde::de::Error>(
    object: &mut serde_json::Map<String, Value>,
    field: &str,
) -> Result<Option<T>, E> {
    match object.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => wire::lenient(value).map(Some).map_err(|fault| E::custom(fault.within(field))),
    }
}
