//! Objects as plans see them: an identity and a JSON body.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Version.
    pub version: Cow<'static, str>,
    /// Kind.
    pub kind: Cow<'static, str>,
}

impl Gvk {
    /// That of a type.
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self { group: K::group(&()), version: K::version(&()), kind: K::kind(&()) }
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// Identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ref {
    /// Its kind.
    pub gvk: Gvk,
    /// Its namespace; empty when it is cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Ref {
    /// The identity of a `K`.
    pub fn of<K: kube::Resource<DynamicType = ()>>(namespace: &str, name: &str) -> Self {
        Self { gvk: Gvk::of::<K>(), namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.gvk.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        write!(f, "{}", self.name)
    }
}

/// How a desired object is managed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Applied whenever our fields differ.
    #[default]
    Apply,
    /// Created if absent and then left to others: volumes, generated keys. Need not be ours.
    CreateOnce,
    /// Neither created, changed nor pruned: the live object is left as it is while it cannot be decided what should
    /// run.
    Unmanaged,
    /// Deleted with orphan propagation: dependents stay until another owner adopts them.
    DeleteOrphan,
    /// Deleted with foreground propagation: after its dependents.
    DeleteForeground,
    /// Desired by several owners, none of which controls it: ours by its `managed-by` label, applied like
    /// [`Policy::Apply`].
    Shared,
}

/// A desired object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Identity.
    pub reference: Ref,
    /// Body, as it is applied.
    pub body: Value,
    /// How it is managed.
    pub policy: Policy,
    /// Fields, as JSON pointers, that only get an initial value: the live value is preserved. For replicas that an
    /// autoscaler manages, and for immutable fields.
    pub preserved: Vec<&'static str>,
}

impl Object {
    /// A typed value as a desired object.
    pub fn new<K: kube::Resource<DynamicType = ()> + Serialize>(object: &K) -> Self {
        let mut body = serde_json::to_value(object).expect("Kubernetes types are valid JSON");
        let gvk = Gvk::of::<K>();
        body["apiVersion"] = gvk.api_version().into();
        body["kind"] = (*gvk.kind).into();
        // A desired object has no status; some typed values serialize an empty one.
        body.as_object_mut().map(|body| body.remove("status"));
        let meta = object.meta();
        let reference = Ref {
            gvk,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        };
        Self { reference, body, policy: Policy::Apply, preserved: Vec::new() }
    }

    /// Leaves the live object with this identity unmanaged.
    pub fn unmanaged(reference: Ref) -> Self {
        Self { reference, body: Value::Null, policy: Policy::Unmanaged, preserved: Vec::new() }
    }

    /// Deletes the live object with this identity and orphans its dependents.
    pub fn orphan_deleted(reference: Ref) -> Self {
        Self { reference, body: Value::Null, policy: Policy::DeleteOrphan, preserved: Vec::new() }
    }

    /// Deletes the live object with this identity after its dependents.
    pub fn foreground_deleted(reference: Ref) -> Self {
        Self { reference, body: Value::Null, policy: Policy::DeleteForeground, preserved: Vec::new() }
    }

    /// The same, created once and then left alone.
    pub fn create_once(mut self) -> Self {
        self.policy = Policy::CreateOnce;
        self
    }

    /// The same, shared by several owners.
    pub fn shared(mut self) -> Self {
        self.policy = Policy::Shared;
        self
    }

    /// The same, with a field that only gets an initial value.
    pub fn preserve(mut self, pointer: &'static str) -> Self {
        self.preserved.push(pointer);
        self
    }

    /// The same, with the live values of preserved fields.
    pub fn with_preserved(mut self, live: &Value) -> Self {
        for pointer in &self.preserved {
            let Some((parent, name)) = pointer.rsplit_once('/') else { continue };
            if let (Some(value), Some(Value::Object(fields))) = (live.pointer(pointer), self.body.pointer_mut(parent)) {
                fields.insert(name.into(), value.clone());
            }
        }
        self
    }

    /// The body without preserved fields.
    pub(crate) fn without_preserved(&self) -> Cow<'_, Value> {
        if self.preserved.is_empty() {
            return Cow::Borrowed(&self.body);
        }
        let mut body = self.body.clone();
        for pointer in &self.preserved {
            let parent = pointer.rsplit_once('/');
            if let Some((fields, name)) = parent.and_then(|(parent, name)| Some((body.pointer_mut(parent)?, name))) {
                fields.as_object_mut().map(|fields| fields.remove(name));
            }
        }
        Cow::Owned(body)
    }

    /// The same with `owner` as its controller, so that it is garbage-collected with the owner.
    pub fn owned_by(mut self, owner: &OwnerReference) -> Self {
        if !matches!(self.policy, Policy::Unmanaged | Policy::DeleteOrphan | Policy::DeleteForeground) {
            self.body["metadata"]["ownerReferences"] = json!([owner]);
        }
        self
    }

    /// The same with one more annotation.
    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["annotations"][key] = value.into();
        self
    }
}

/// A live object from the cache.
pub type Live = Arc<Value>;

/// The live objects that a plan reads.
#[derive(Clone, Debug, Default)]
pub struct LiveObjects {
    objects: BTreeMap<Ref, Live>,
    complete: BTreeSet<Gvk>,
}

impl LiveObjects {
    /// Marks a kind as complete: an object that is not here does not exist.
    pub fn mark_complete(&mut self, gvk: Gvk) {
        self.complete.insert(gvk);
    }

    /// Whether the kind is complete.
    pub fn is_complete(&self, gvk: &Gvk) -> bool {
        self.complete.contains(gvk)
    }

    /// Adds an object.
    pub fn insert(&mut self, reference: Ref, object: Live) {
        self.objects.insert(reference, object);
    }

    /// The object with this identity.
    pub fn get(&self, reference: &Ref) -> Option<&Live> {
        self.objects.get(reference)
    }

    /// The object of type `K` of that name, decoded; `None` also for one that cannot be decoded.
    pub fn typed<K>(&self, namespace: &str, name: &str) -> Option<K>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        K::deserialize(&**self.get(&Ref::of::<K>(namespace, name))?).ok()
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = (&Ref, &Live)> {
        self.objects.iter()
    }
}

/// Whether `live` and `wanted` have the same managed-by label.
pub(crate) fn same_manager(wanted: &Value, live: &Value) -> bool {
    let manager = |object: &Value| object["metadata"]["labels"]["app.kubernetes.io/managed-by"].clone();
    manager(wanted).is_string() && manager(wanted) == manager(live)
}

/// `metadata.uid` of a live object.
pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The controller of a live object, as (kind, name, uid).
pub(crate) fn controller(object: &Value) -> Option<(&str, &str, &str)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some((owner["kind"].as_str()?, owner["name"].as_str()?, owner["uid"].as_str()?))
}
