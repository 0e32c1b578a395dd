//! CustomResourceDefinitions, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
#[cfg(feature = "schemas")]
use serde_json::Value;

#[cfg(feature = "schemas")]
use crate::from_types;
use crate::resource::{Handling, Kind, Scope};

/// A row of [`crate::KINDS`]: one custom resource.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Kind.
    pub kind: &'static str,
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural.
    pub plural: &'static str,
    /// Short names for `kubectl`.
    pub short_names: &'static [&'static str],
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// How the operator handles its objects.
    pub handling: Handling,
    #[cfg(feature = "schemas")]
    from_types: FromTypes,
}

/// What only the types know.
#[cfg(feature = "schemas")]
#[derive(Clone, Copy, Debug)]
struct FromTypes {
    definition: fn() -> CustomResourceDefinition,
    described: fn() -> Value,
    decode: fn(Value) -> Result<Value, serde_json::Error>,
}

impl Entry {
    /// The entry of a kind.
    pub const fn of<K: Kind>() -> Self {
        Self {
            kind: K::KIND,
            group: K::GROUP,
            version: K::VERSION,
            plural: K::PLURAL,
            short_names: K::SHORT_NAMES,
            namespaced: K::Scope::NAMESPACED,
            handling: K::HANDLING,
            #[cfg(feature = "schemas")]
            from_types: FromTypes {
                definition: from_types::definition::<K>,
                described: || from_types::schema::<K>(capstan_schema::Types::Named),
                decode: |value| serde_json::to_value(serde_json::from_value::<crate::resource::Resource<K>>(value)?),
            },
        }
    }

    /// Whether `name` refers to this kind: kind, singular, plural, short name or `plural.group`, case-insensitive.
    pub fn is_called(&self, name: &str) -> bool {
        let full = self.crd_name();
        [self.kind, self.plural, full.as_str()]
            .iter()
            .chain(self.short_names)
            .any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Name of its CustomResourceDefinition: `nimservices.apps.nvidia.com`.
    pub fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// Its CustomResourceDefinition, as `cargo xtask gen` made it from the types.
    pub fn definition(&self) -> CustomResourceDefinition {
        let name = self.crd_name();
        let text = GENERATED.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '));
        let text = text.expect("`cargo xtask gen` writes a line for every kind");
        serde_json::from_str(text).expect("`cargo xtask gen` writes CRDs")
    }

    /// Its CustomResourceDefinition, made from the types now.
    #[cfg(feature = "schemas")]
    pub fn generate(&self) -> CustomResourceDefinition {
        (self.from_types.definition)()
    }

    /// Its schema with the names of embedded Kubernetes types kept (`x-type`), for the reference docs.
    #[cfg(feature = "schemas")]
    pub fn described(&self) -> Value {
        (self.from_types.described)()
    }

    /// Decodes an object into the typed form and encodes it again.
    #[cfg(feature = "schemas")]
    pub fn round_trip(&self, object: Value) -> Result<Value, serde_json::Error> {
        (self.from_types.decode)(object)
    }
}

/// A line for each kind: the name of its CRD, and the CRD as JSON.
const GENERATED: &str = include_str!("crds.txt");

/// What [`GENERATED`] has to be, from the types.
#[cfg(feature = "schemas")]
pub fn generated() -> String {
    let line = |entry: &Entry| {
        let crd = serde_json::to_string(&entry.generate()).expect("a CRD is JSON");
        format!("{} {crd}\n", entry.crd_name())
    };
    crate::kinds().map(line).collect()
}
