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
    /// What it is.
    pub gvk: Gvk,
    /// Where it is; empty when it is cluster-wide.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Ref {
    /// The object of type `K` of that name.
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

/// How an object is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Our fields are repaired whenever they differ.
    #[default]
    Keep,
    /// Made when absent and then left to others: volumes, generated keys. Need not be ours.
    CreateOnce,
    /// Neither made, changed nor pruned: what runs stays as it is while it cannot be decided what should run.
    Leave,
    /// Deleted, while what it owns stays and is nobody's until somebody takes it over.
    Release,
    /// Deleted after what it owns is gone.
    Drain,
    /// Wanted by several owners, none of which controls it: ours by its `managed-by` label, repaired like the others.
    Shared,
}

/// One wanted object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Identity.
    pub reference: Ref,
    /// Body, as it is applied.
    pub body: Value,
    /// How it is kept.
    pub policy: Policy,
    /// Fields, as JSON pointers, that we only give a first value: what the live object has there stays. For replicas
    /// that an autoscaler sets, and for fields that the server lets nobody change.
    pub follows: Vec<&'static str>,
}

impl Object {
    /// A typed value as a wanted object.
    pub fn new<K: kube::Resource<DynamicType = ()> + Serialize>(object: &K) -> Self {
        let mut body = serde_json::to_value(object).expect("Kubernetes types are valid JSON");
        let gvk = Gvk::of::<K>();
        body["apiVersion"] = gvk.api_version().into();
        body["kind"] = (*gvk.kind).into();
        // A workload that is only wanted has no status; some typed values write an empty one.
        body.as_object_mut().map(|body| body.remove("status"));
        let meta = object.meta();
        let reference = Ref {
            gvk,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        };
        Self { reference, body, policy: Policy::Keep, follows: Vec::new() }
    }

    /// Whatever is live under this identity, left as it is.
    pub fn left(reference: Ref) -> Self {
        Self { reference, body: Value::Null, policy: Policy::Leave, follows: Vec::new() }
    }

    /// Whatever is live under this identity goes, and what it owns stays.
    pub fn released(reference: Ref) -> Self {
        Self { reference, body: Value::Null, policy: Policy::Release, follows: Vec::new() }
    }

    /// Whatever is live under this identity goes, after what it owns.
    pub fn drained(reference: Ref) -> Self {
        Self { reference, body: Value::Null, policy: Policy::Drain, follows: Vec::new() }
    }

    /// The same, made once and then left alone.
    pub fn create_once(mut self) -> Self {
        self.policy = Policy::CreateOnce;
        self
    }

    /// The same, wanted by several owners.
    pub fn shared(mut self) -> Self {
        self.policy = Policy::Shared;
        self
    }

    /// The same, with a field that only gets a first value.
    pub fn follow(mut self, pointer: &'static str) -> Self {
        self.follows.push(pointer);
        self
    }

    /// The same, with the fields that follow the live object as they are there.
    pub fn following(mut self, live: &Value) -> Self {
        for pointer in &self.follows {
            let Some((parent, name)) = pointer.rsplit_once('/') else { continue };
            if let (Some(value), Some(Value::Object(fields))) = (live.pointer(pointer), self.body.pointer_mut(parent)) {
                fields.insert(name.into(), value.clone());
            }
        }
        self
    }

    /// The body without the fields that follow the live object.
    pub(crate) fn own(&self) -> Cow<'_, Value> {
        if self.follows.is_empty() {
            return Cow::Borrowed(&self.body);
        }
        let mut body = self.body.clone();
        for pointer in &self.follows {
            let parent = pointer.rsplit_once('/');
            if let Some((fields, name)) = parent.and_then(|(parent, name)| Some((body.pointer_mut(parent)?, name))) {
                fields.as_object_mut().map(|fields| fields.remove(name));
            }
        }
        Cow::Owned(body)
    }

    /// The same with `owner` as its controller, so that it goes when the owner goes.
    pub fn owned_by(mut self, owner: &OwnerReference) -> Self {
        if !matches!(self.policy, Policy::Leave | Policy::Release | Policy::Drain) {
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

/// A live object: what the cache holds.
pub type Live = Arc<Value>;

/// Live objects that one decision may look at.
#[derive(Clone, Debug, Default)]
pub struct LiveObjects {
    objects: BTreeMap<Ref, Live>,
    known: BTreeSet<Gvk>,
}

impl LiveObjects {
    /// Says that objects of this kind are known completely: one that is not here does not exist.
    pub fn know(&mut self, gvk: Gvk) {
        self.known.insert(gvk);
    }

    /// Whether objects of this kind are known completely.
    pub fn knows(&self, gvk: &Gvk) -> bool {
        self.known.contains(gvk)
    }

    /// Adds one.
    pub fn insert(&mut self, reference: Ref, object: Live) {
        self.objects.insert(reference, object);
    }

    /// The object of that identity.
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

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Ref, &Live)> {
        self.objects.iter()
    }
}

/// Whether `live` says that it is managed by whom `wanted` says.
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
