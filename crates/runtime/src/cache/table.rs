//! The objects of one kind: from the watch, and from our own writes ahead of it.
//!
//! An object never goes back in time. A watch event older than the stored version is dropped; only a new list replaces
//! everything, except objects that we wrote after the list began.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use capstan_plan::kit::INSTANCE;
use capstan_plan::{Gvk, Live, Packed, Packer};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::index::Index;
use crate::kinds::{Form, Keep, Kind};

/// Namespace and name of an object of a known kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its namespace; empty when it is cluster-scoped.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Key {
    /// The key with this namespace and name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object.
    pub fn of(object: &Value) -> Self {
        let meta = &object["metadata"];
        Self::new(meta["namespace"].as_str().unwrap_or_default(), meta["name"].as_str().unwrap_or_default())
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Where a version of an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A list: authoritative at its resourceVersion.
    List,
    /// A watch event: newer than earlier ones.
    Watch,
    /// The response to our own write: ahead of the watch.
    Write,
}

/// An object before and after.
pub(crate) struct Replaced {
    pub(crate) key: Key,
    pub(crate) old: Option<Live>,
    pub(crate) new: Option<Live>,
}

pub(crate) struct Table {
    pub(crate) kind: &'static Kind,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Key, Entry>,
    by_owner: Index,
    /// Pods by node, for kinds with [`Keep::Pod`].
    by_node: Index,
    /// Other pods by their instance label.
    by_instance: Index,
    /// Values that packed objects share.
    packer: Packer,
    /// Tombstones: uids of objects that we deleted and that the watch may still deliver.
    tombstones: HashMap<Key, String>,
    /// Number of the current or last list.
    list: u64,
    /// The resourceVersion up to which all watch events were processed.
    observed_version: Option<u64>,
    /// Whether an initial list is complete.
    synced: bool,
}

struct Entry {
    object: StoredObject,
    uid: Box<str>,
    version: Option<u64>,
    /// The number of the list during or after which we wrote it; 0 if it came from the server.
    written: u64,
}

/// A stored object. As a `Value` it would take ten times the memory.
enum StoredObject {
    Packed(Packed),
    Text(Box<str>),
}

impl StoredObject {
    fn new(form: Form, object: &Value, packer: &mut Packer) -> Self {
        match form {
            Form::Packed => Self::Packed(packer.pack(object)),
            Form::Text => Self::Text(serde_json::to_string(object).unwrap_or_default().into()),
        }
    }

    fn packed(&self) -> Option<&Packed> {
        match self {
            Self::Packed(packed) => Some(packed),
            Self::Text(_) => None,
        }
    }

    fn live(&self) -> Live {
        match self {
            Self::Packed(packed) => Arc::new(packed.to_value()),
            Self::Text(text) => Arc::new(serde_json::from_str(text).unwrap_or_default()),
        }
    }

    /// The object, if it may contain `text` as a string value.
    fn with(&self, text: &SearchText) -> Option<Live> {
        match self {
            Self::Text(kept) if !kept.contains(&*text.quoted) => None,
            _ => Some(self.live()),
        }
    }
}

/// A string to search for, JSON-encoded.
struct SearchText {
    quoted: String,
}

impl SearchText {
    fn new(text: &str) -> Self {
        Self { quoted: Value::from(text).to_string() }
    }
}

impl Table {
    pub(crate) fn new(kind: &'static Kind) -> Self {
        Self { kind, state: RwLock::default() }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Live> {
        self.read().objects.get(key).map(|entry| entry.object.live())
    }

    /// The object as a `K`.
    pub(crate) fn typed<K: DeserializeOwned>(&self, key: &Key) -> Option<serde_json::Result<K>> {
        let state = self.read();
        let object = &state.objects.get(key)?.object;
        Some(match object {
            // Errors of `from_value` have no column, which changes with every version of the object.
            StoredObject::Text(text) => serde_json::from_str(text).or_else(|_| K::deserialize(&*object.live())),
            StoredObject::Packed(packed) => K::deserialize(packed.to_value()),
        })
    }

    pub(crate) fn all(&self) -> Vec<Live> {
        self.read().objects.values().map(|entry| entry.object.live()).collect()
    }

    /// All objects as stored, if they are packed.
    pub(crate) fn packed(&self) -> Vec<Packed> {
        self.read().objects.values().filter_map(|entry| entry.object.packed().cloned()).collect()
    }

    /// The object as stored, if it is packed.
    pub(crate) fn packed_one(&self, key: &Key) -> Option<Packed> {
        self.read().objects.get(key)?.object.packed().cloned()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.read().objects.keys().cloned().collect()
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Live> {
        self.select(namespace, |kept| Some(kept.live()))
    }

    /// The objects in a namespace that may contain `text` as a string value.
    pub(crate) fn mentioning(&self, namespace: &str, text: &str) -> Vec<Live> {
        let search = SearchText::new(text);
        self.select(namespace, |kept| kept.with(&search))
    }

    fn select(&self, namespace: &str, select: impl Fn(&StoredObject) -> Option<Live>) -> Vec<Live> {
        let first = Key::new(namespace, "");
        let state = self.read();
        let range = state.objects.range((Bound::Included(&first), Bound::Unbounded));
        let here = range.take_while(|(key, _)| key.namespace == first.namespace);
        here.filter_map(|(_, entry)| select(&entry.object)).collect()
    }

    pub(crate) fn owned_by(&self, uid: &Arc<str>) -> Vec<Live> {
        let state = self.read();
        state.lookup(&state.by_owner, uid).map(StoredObject::live).collect()
    }

    pub(crate) fn on_node(&self, node: &str) -> Vec<Live> {
        let state = self.read();
        state.lookup(&state.by_node, &node.into()).map(StoredObject::live).collect()
    }

    pub(crate) fn packed_on_node(&self, node: &str) -> Vec<Packed> {
        let state = self.read();
        state.lookup(&state.by_node, &node.into()).filter_map(StoredObject::packed).cloned().collect()
    }

    /// The pods in a namespace with the label [`INSTANCE`].
    pub(crate) fn of_instance(&self, namespace: &str, name: &str) -> Vec<Live> {
        let state = self.read();
        let text = name.into();
        let keys = state.by_instance.keys(&text).filter(|key| *key.namespace == *namespace);
        keys.filter_map(|key| state.objects.get(key)).map(|entry| entry.object.live()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.read().objects.len()
    }

    pub(crate) fn synced(&self) -> bool {
        self.read().synced
    }

    /// Whether the object with this metadata is stored, in the same version.
    pub(crate) fn has(&self, metadata: &Value) -> bool {
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let version = text("resourceVersion").parse().ok();
        let key = Key::new(text("namespace"), text("name"));
        let same = |entry: &Entry| version.is_some() && entry.version == version && *entry.uid == *text("uid");
        self.read().objects.get(&key).is_some_and(same)
    }

    /// Starts a list.
    pub(crate) fn begin(&self) {
        self.write().list += 1;
    }

    /// Completes a list: objects that it lacks are removed, except those that we wrote afterwards.
    pub(crate) fn finish(&self, seen: &BTreeSet<Key>, version: Option<&str>) -> Vec<Replaced> {
        let mut state = self.write();
        let (list, observed_version) = (state.list, version.and_then(|version| version.parse().ok()));
        state.synced = true;
        state.observed_version = observed_version;
        state.tombstones.retain(|key, _| seen.contains(key));
        let ahead = |entry: &Entry| {
            let newer =
                matches!((entry.version, observed_version), (Some(version), Some(observed)) if version > observed);
            entry.written == list && (newer || entry.version.is_none() || observed_version.is_none())
        };
        let missing = state.objects.iter().filter(|(key, entry)| !seen.contains(*key) && !ahead(entry));
        let missing: Vec<Key> = missing.map(|(key, _)| key.clone()).collect();
        missing.into_iter().map(|key| state.replace(key, None, self.kind)).collect()
    }

    /// Records that all events up to a resourceVersion were processed.
    pub(crate) fn advance(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.write().observed_version = Some(version);
        }
    }

    /// Removes all objects, because the kind is no longer served.
    pub(crate) fn clear(&self) -> Vec<Replaced> {
        let mut state = self.write();
        state.synced = false;
        state.observed_version = None;
        state.tombstones.clear();
        let keys: Vec<Key> = state.objects.keys().cloned().collect();
        keys.into_iter().map(|key| state.replace(key, None, self.kind)).collect()
    }

    /// Stores a version of an object, unless a newer one is stored.
    pub(crate) fn put(&self, source: Source, mut object: Value) -> Option<Replaced> {
        let key = Key::of(&object);
        if source == Source::Write && !self.kind.selects(&object) {
            return None;
        }
        let (version, uid) = (version(&object), uid(&object).to_owned());
        let mut state = self.write();
        if state.tombstones.get(&key).is_some_and(|deleted| *deleted == uid) {
            return None;
        }
        let list = state.list;
        if let Some(entry) = state.objects.get(&key) {
            let trusted = source == Source::List && entry.written < list;
            let newer = match (version, entry.version) {
                (Some(new), Some(old)) => new > old,
                _ => entry.object.live()["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"],
            };
            let same = version == entry.version && *entry.uid == *uid;
            if same || !(trusted || newer) {
                return None;
            }
        } else if source == Source::Write
            && matches!((version, state.observed_version), (Some(new), Some(observed)) if new <= observed)
        {
            // The watch already delivered this version and the deletion, before our write returned.
            return None;
        }
        self.kind.trim(&mut object);
        let written = if source == Source::Write { list } else { 0 };
        let live = Arc::new(object);
        let object = StoredObject::new(self.kind.form, &live, &mut state.packer);
        let entry = Entry { object, uid: uid.into(), version, written };
        Some(state.replace(key, Some((entry, live)), self.kind))
    }

    /// Removes a deleted object, unless a newer version is stored.
    pub(crate) fn remove(&self, source: Source, object: &Value) -> Option<Replaced> {
        let (key, version) = (Key::of(object), version(object));
        let mut state = self.write();
        let entry = state.objects.get(&key);
        let newer = entry
            .is_some_and(|entry| matches!((version, entry.version), (Some(deleted), Some(kept)) if kept > deleted));
        if source == Source::Write {
            // The resourceVersion is that of the object before the deletion: only the uid decides.
            if entry.is_none_or(|entry| *entry.uid != *uid(object)) {
                return None;
            }
            state.tombstones.insert(key.clone(), uid(object).to_owned());
        } else {
            if state.tombstones.get(&key).is_some_and(|deleted| deleted == uid(object)) {
                state.tombstones.remove(&key);
            }
            if newer || !state.objects.contains_key(&key) {
                return None;
            }
        }
        Some(state.replace(key, None, self.kind))
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lookup<'a>(&'a self, index: &'a Index, text: &Arc<str>) -> impl Iterator<Item = &'a StoredObject> {
        index.keys(text).filter_map(|key| self.objects.get(key)).map(|entry| &entry.object)
    }

    fn replace(&mut self, key: Key, new: Option<(Entry, Live)>, kind: &Kind) -> Replaced {
        let (old, now) = match new {
            Some((entry, now)) => (self.objects.insert(key.clone(), entry), Some(now)),
            None => (self.objects.remove(&key), None),
        };
        let old = old.map(|entry| entry.object.live());
        let (before, after) = (old.as_deref(), now.as_deref());
        self.by_owner.update(&key, before.and_then(owner), after.and_then(owner));
        if kind.keep == Keep::Pod {
            self.by_node.update(&key, before.and_then(node), after.and_then(node));
        } else if kind.is(&Gvk::of::<Pod>()) {
            self.by_instance.update(&key, before.and_then(instance), after.and_then(instance));
        }
        Replaced { key, old, new: now }
    }
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Uid of the controlling owner of an object.
fn owner(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

/// The node that a pod is bound to.
fn node(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())
}

/// The instance label of a pod.
fn instance(pod: &Value) -> Option<&str> {
    pod["metadata"]["labels"][INSTANCE].as_str()
}

/// Resource versions are numbers that grow:
/// <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>. Others are taken in the order in
/// which the server sends them.
fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::KINDS;

    fn table(kind: &str) -> Table {
        Table::new(KINDS.iter().find(|row| row.kind == kind).unwrap())
    }

    fn object(name: &str, uid: &str, version: u64) -> Value {
        json!({"metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": version.to_string()}})
    }

    fn kept(table: &Table, name: &str) -> Option<String> {
        table.get(&Key::new("ns", name)).map(|object| object["metadata"]["resourceVersion"].as_str().unwrap().into())
    }

    #[test]
    fn pods_are_found_by_what_they_are_a_part_of() {
        let table = table("Pod");
        let pod = |namespace: &str, version: u64, instance: &str| {
            let labels = json!({"app.kubernetes.io/instance": instance});
            let version = version.to_string();
            json!({"metadata": {"namespace": namespace, "name": "a", "uid": namespace, "resourceVersion": version, "labels": labels}})
        };
        table.put(Source::Watch, pod("ns", 1, "llama"));
        table.put(Source::Watch, pod("other", 2, "llama"));
        assert_eq!((table.of_instance("ns", "llama").len(), table.of_instance("ns", "b").len()), (1, 0));
        table.put(Source::Watch, pod("ns", 3, "b"));
        assert_eq!((table.of_instance("ns", "llama").len(), table.of_instance("ns", "b").len()), (0, 1));
        table.remove(Source::Watch, &pod("ns", 4, "b"));
        assert!(table.of_instance("ns", "b").is_empty());
    }

    #[test]
    fn only_the_same_version_of_the_same_object_is_known() {
        let table = table("ConfigMap");
        let has = |name: &str, uid: &str, version: u64| table.has(&object(name, uid, version)["metadata"]);
        assert!(!has("a", "u", 5));
        table.put(Source::Write, object("a", "u", 5));
        assert!(has("a", "u", 5));
        assert!(!has("a", "u", 6) && !has("a", "other", 5) && !has("b", "u", 5));
    }

    #[test]
    fn an_object_never_goes_back_in_time() {
        let table = table("ConfigMap");
        table.put(Source::Watch, object("a", "u", 5));
        assert!(table.put(Source::Write, object("a", "u", 9)).is_some());
        assert!(table.put(Source::Watch, object("a", "u", 7)).is_none());
        assert!(table.put(Source::Watch, object("a", "u", 9)).is_none());
        assert!(table.remove(Source::Watch, &object("a", "u", 8)).is_none());
        assert_eq!(kept(&table, "a").as_deref(), Some("9"));
    }

    #[test]
    fn a_list_is_the_truth_even_after_a_restored_backup() {
        let table = table("ConfigMap");
        table.put(Source::Watch, object("a", "u", 500));
        table.put(Source::Watch, object("lost", "u2", 501));
        table.begin();
        table.put(Source::List, object("a", "u", 100));
        let lost = table.finish(&BTreeSet::from([Key::new("ns", "a")]), Some("101"));
        assert_eq!(kept(&table, "a").as_deref(), Some("100"));
        assert_eq!(lost.len(), 1);
        assert_eq!(&*lost[0].key.name, "lost");
    }

    #[test]
    fn what_we_wrote_while_a_list_was_read_stays() {
        let table = table("ConfigMap");
        table.put(Source::Watch, object("a", "u", 5));
        table.begin();
        table.put(Source::Write, object("a", "u", 12));
        table.put(Source::Write, object("new", "u2", 13));
        table.put(Source::List, object("a", "u", 5));
        assert!(table.finish(&BTreeSet::from([Key::new("ns", "a")]), Some("11")).is_empty());
        assert_eq!((kept(&table, "a").as_deref(), kept(&table, "new").as_deref()), (Some("12"), Some("13")));
    }

    #[test]
    fn what_we_wrote_before_the_server_took_the_list_is_not_kept_against_it() {
        let table = table("ConfigMap");
        table.begin();
        table.put(Source::Write, object("a", "u", 12));
        assert_eq!(table.finish(&BTreeSet::new(), Some("20")).len(), 1);
    }

    #[test]
    fn an_answer_that_comes_after_the_end_of_its_object_is_no_object() {
        let table = table("ConfigMap");
        table.begin();
        table.finish(&BTreeSet::new(), Some("4"));
        table.put(Source::Watch, object("a", "u", 5));
        table.remove(Source::Watch, &object("a", "u", 9));
        table.advance("9");
        assert!(table.put(Source::Write, object("a", "u", 7)).is_none());
        assert!(table.put(Source::Write, object("a", "u2", 10)).is_some());
    }

    #[test]
    fn what_we_deleted_does_not_come_back_but_its_successor_does() {
        let table = table("ConfigMap");
        table.put(Source::Watch, object("a", "u", 5));
        assert!(table.remove(Source::Write, &object("a", "u", 5)).is_some());
        assert!(table.put(Source::Watch, object("a", "u", 6)).is_none());
        table.remove(Source::Watch, &object("a", "u", 7));
        assert!(table.put(Source::Watch, object("a", "u2", 8)).is_some());
    }

    #[test]
    fn owners_find_their_objects() {
        let table = table("ConfigMap");
        let mut owned = object("a", "u", 1);
        owned["metadata"]["ownerReferences"] = json!([{"uid": "x"}, {"uid": "me", "controller": true}]);
        table.put(Source::Watch, owned);
        assert_eq!((table.owned_by(&"me".into()).len(), table.owned_by(&"x".into()).len()), (1, 0));
        table.put(Source::Watch, object("a", "u", 2));
        assert!(table.owned_by(&"me".into()).is_empty());
        assert!(table.read().by_owner.is_empty());
    }

    #[test]
    fn what_is_kept_as_text_reads_the_same_and_is_found_by_what_it_says() {
        let table = table("ConfigMap");
        assert_eq!(table.kind.form, Form::Text);
        for (name, text) in [("a", "one \"quoted\" line\n"), ("b", "another")] {
            let mut object = object(name, name, 1);
            object["data"] = json!({"text": text, "number": 1.5, "none": null, "list": [1, {"x": true}]});
            table.put(Source::Watch, object.clone());
            table.kind.trim(&mut object);
            assert_eq!(*table.get(&Key::new("ns", name)).unwrap(), object);
        }
        let found = |text: &str| table.mentioning("ns", text).iter().map(|one| Key::of(one).name).collect::<Vec<_>>();
        assert_eq!(found("one \"quoted\" line\n"), ["a".into()]);
        assert_eq!(found("one"), Vec::<Arc<str>>::new());
        assert_eq!(found("b"), ["b".into()]);
    }

    #[test]
    fn packed_pods_are_found_by_their_node() {
        let table = Table::new(KINDS.iter().find(|row| row.slice == crate::kinds::DRIVERS).unwrap());
        let pod = |node: &str, version: u64| {
            let mut pod = object("a", "u", version);
            pod["spec"] = json!({"nodeName": node, "dnsPolicy": "Default"});
            pod
        };
        table.put(Source::Watch, pod("", 1));
        assert!(table.read().by_node.is_empty());
        table.put(Source::Watch, pod("n", 2));
        let found = table.on_node("n");
        assert_eq!(found[0]["spec"], json!({"nodeName": "n"}));
        assert!(table.put(Source::Watch, pod("n", 2)).is_none());
        table.remove(Source::Watch, &pod("n", 3));
        assert!(table.on_node("n").is_empty() && table.read().by_node.is_empty());
    }

    #[test]
    fn a_write_that_the_watch_would_not_show_is_not_kept() {
        let table = table("Deployment");
        assert!(table.put(Source::Write, object("a", "u", 1)).is_none());
    }
}
