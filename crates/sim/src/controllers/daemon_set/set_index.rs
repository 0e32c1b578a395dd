//! Index of a DaemonSet's nodes and pods, updated incrementally between reconciles.
//!
//! A set has a pod on each of thousands of nodes, and few of them change between two reconciles. The index derives from
//! the caches alone: changed keys are read again before each decision, and an index that is missing or belongs to
//! another template is rebuilt.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::common::{annotation, created_at, uid_of};
use super::super::pods;
use super::super::revision::REVISION_HASH;
use super::TEMPLATE_GENERATION;
use super::eligibility::{Eligibility, EligibilityRules, target_node};
use crate::Pod;
use crate::caches::Caches;
use crate::context::Context;
use crate::informer::{Change, controller_of, key_of};
use capstan_semantics::label_selector::selects;

/// The fields of a pod that every reconcile reads: parsing thousands of pods is what takes time. The pod itself stays
/// in the cache, so an outdated version is not retained.
pub(super) struct IndexedPod {
    pub(super) key: Arc<str>,
    /// Creation time in seconds.
    pub(super) created: i64,
    /// Whether it has the current template.
    pub(super) is_updated: bool,
    pub(super) is_deleting: bool,
    /// Whether its phase is `Succeeded` or `Failed`.
    pub(super) is_terminal: bool,
    pub(super) is_ready: bool,
    /// When it became ready, in seconds.
    since: Option<i64>,
}

impl IndexedPod {
    fn new(inputs: &IndexInputs, key: Arc<str>, pod: &Pod) -> Self {
        let ready = pods::ready_since(pod);
        Self {
            key,
            created: created_at(pod),
            is_updated: inputs.is_current(pod),
            is_deleting: pods::is_deleting(pod),
            is_terminal: pods::is_terminal(pod),
            is_ready: ready.is_some(),
            since: ready.and_then(|ready| ready.last_transition_time.as_ref()).map(|since| since.0.as_second()),
        }
    }

    /// Time until a ready pod counts as available.
    pub(super) fn until_available(&self, min_ready: Option<i32>, now: &Time) -> Option<Duration> {
        if self.is_ready { pods::left(self.since, min_ready, now) } else { None }
    }
}

/// A node and the pods on it.
#[derive(Default)]
pub(super) struct NodeEntry {
    /// Eligibility of the node; `None` if the node does not exist.
    pub(super) eligibility: Option<Eligibility>,
    /// The pods that are bound or pinned to it.
    pub(super) pods: Vec<IndexedPod>,
}

/// Inputs of an index beside nodes and pods.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IndexInputs {
    generation: Option<i64>,
    /// Hash of the current ControllerRevision.
    hash: String,
    template_generation: Option<String>,
}

impl IndexInputs {
    fn of(set: &DaemonSet, hash: &str) -> Self {
        let template_generation = annotation(&set.metadata, TEMPLATE_GENERATION).map(str::to_owned);
        Self { generation: set.metadata.generation, hash: hash.to_owned(), template_generation }
    }

    /// Whether a pod has the current template.
    fn is_current(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        let generation = self.template_generation.as_deref();
        label(REVISION_HASH) == Some(self.hash.as_str())
            || (generation.is_some() && label("pod-template-generation") == generation)
    }
}

/// Nodes and pods of a set.
pub(super) struct SetIndex {
    inputs: IndexInputs,
    /// By node name: all nodes, and deleted ones that pods are still pinned to.
    pub(super) entries: BTreeMap<Arc<str>, NodeEntry>,
    /// Node of each pod, by pod key.
    targets: HashMap<Arc<str>, Arc<str>>,
    /// Keys of pods that the set controls but no longer selects.
    unselected: HashSet<Arc<str>>,
}

impl SetIndex {
    fn new(set: &DaemonSet, inputs: IndexInputs, caches: &Caches) -> Self {
        let (entries, targets, unselected) = (BTreeMap::new(), HashMap::new(), HashSet::new());
        let mut set_index = Self { inputs, entries, targets, unselected };
        let rules = EligibilityRules::of(set);
        for node in caches.nodes.list() {
            set_index.update_node(&rules, &key_of(&node.metadata), Some(&node));
        }
        for pod in caches.pods.controlled_by(uid_of(set)) {
            set_index.count(set, key_of(&pod.metadata), &pod);
        }
        set_index
    }

    fn refresh(&mut self, set: &DaemonSet, changed: ChangedKeys, caches: &Caches) {
        if !changed.nodes.is_empty() {
            let rules = EligibilityRules::of(set);
            for name in changed.nodes {
                self.update_node(&rules, &name, caches.nodes.get(&name).as_deref());
            }
        }
        for key in changed.pods {
            self.forget(&key);
            if let Some(pod) = caches.pods.get(&key) {
                self.count(set, key, &pod);
            }
        }
    }

    /// The existing nodes with their eligibility and pods.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, Eligibility, &[IndexedPod])> {
        self.entries
            .iter()
            .filter_map(|(name, node_entry)| Some((name, node_entry.eligibility?, node_entry.pods.as_slice())))
    }

    /// All pods.
    pub(super) fn pods(&self) -> impl Iterator<Item = &IndexedPod> {
        self.entries.values().flat_map(|node_entry| &node_entry.pods)
    }

    /// Whether a pod has the current template.
    pub(super) fn is_updated(&self, pod: &Pod) -> bool {
        self.inputs.is_current(pod)
    }

    /// Keys of pods that the set controls but no longer selects.
    pub(super) fn unselected(&self) -> Vec<Arc<str>> {
        self.unselected.iter().cloned().collect()
    }

    fn update_node(&mut self, rules: &EligibilityRules<'_>, name: &Arc<str>, node: Option<&Node>) {
        self.entries.entry(name.clone()).or_default().eligibility = node.map(|node| rules.evaluate(node));
        self.drop_if_empty(name);
    }

    /// Adds a pod to the index, if the set controls it.
    fn count(&mut self, set: &DaemonSet, key: Arc<str>, pod: &Pod) {
        if controller_of(&pod.metadata).is_none_or(|owner| owner.uid != uid_of(set)) {
            return;
        }
        if !selects(&set.spec.selector, pod.metadata.labels.as_ref()) {
            self.unselected.insert(key);
            return;
        }
        let Some(node) = target_node(pod) else { return };
        let known = self.entries.get_key_value(node).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| node.into());
        self.targets.insert(key.clone(), name.clone());
        self.entries.entry(name).or_default().pods.push(IndexedPod::new(&self.inputs, key, pod));
    }

    /// Removes a pod from the index.
    fn forget(&mut self, key: &Arc<str>) {
        self.unselected.remove(key);
        let Some(name) = self.targets.remove(key) else { return };
        if let Some(node_entry) = self.entries.get_mut(&name) {
            node_entry.pods.retain(|indexed| indexed.key != *key);
        }
        self.drop_if_empty(&name);
    }

    fn drop_if_empty(&mut self, name: &Arc<str>) {
        if self
            .entries
            .get(name)
            .is_some_and(|node_entry| node_entry.eligibility.is_none() && node_entry.pods.is_empty())
        {
            self.entries.remove(name);
        }
    }
}

/// Keys that changed in the caches since the index was built.
#[derive(Default)]
struct ChangedKeys {
    nodes: HashSet<Arc<str>>,
    pods: HashSet<Arc<str>>,
}

#[derive(Default)]
struct IndexSlot {
    /// `None` while a reconcile uses it.
    set_index: Option<SetIndex>,
    changed: ChangedKeys,
}

impl IndexSlot {
    /// Number of indexed pods.
    fn len(&self) -> usize {
        self.changed.pods.len()
            + self.set_index.as_ref().map_or(0, |set_index| set_index.targets.len() + set_index.unselected.len())
    }
}

/// The indexes of all sets, by UID.
#[derive(Default)]
pub(super) struct SetIndexes(Mutex<HashMap<String, IndexSlot>>);

impl SetIndexes {
    /// Retains indexes while their sets exist.
    pub(super) fn start(context: &Context) -> Arc<Self> {
        let (caches, set_indexes) = (&context.caches, Arc::new(Self::default()));
        let counted = Arc::downgrade(&set_indexes);
        let count =
            move || counted.upgrade().map_or(0, |set_indexes| set_indexes.lock().values().map(IndexSlot::len).sum());
        context.gauges.add("daemon sets: pods of set_indexes", count);
        let weak = Arc::downgrade(&set_indexes);
        caches.daemon_sets.subscribe(move |change| {
            let Some(set_indexes) = weak.upgrade() else { return };
            let [old, new] = [change.old, change.new].map(|set| set.map(|set| uid_of(&**set)));
            if let Some(gone) = old.filter(|_| old != new) {
                set_indexes.lock().remove(gone);
            }
            if let Some(new) = new.filter(|_| old != new) {
                set_indexes.lock().entry(new.to_owned()).or_default();
            }
        });
        let weak = Arc::downgrade(&set_indexes);
        caches.pods.subscribe(move |change| {
            if let Some(set_indexes) = weak.upgrade() {
                set_indexes.note_pod(change);
            }
        });
        set_indexes
    }

    /// A node was created, deleted, or became eligible for other pods.
    pub(super) fn note_node(&self, name: &Arc<str>) {
        for slot in self.lock().values_mut() {
            slot.changed.nodes.insert(name.clone());
        }
    }

    fn note_pod(&self, change: &Change<'_, Pod>) {
        let owner = |pod: &&Arc<Pod>| controller_of(&pod.metadata).is_some();
        let [old, new] = [change.old.filter(owner), change.new.filter(owner)];
        if old.is_none() && new.is_none() {
            return;
        }
        let mut slot = self.lock();
        for uid in [old, new].into_iter().flatten().filter_map(|pod| controller_of(&pod.metadata)).map(|one| &one.uid) {
            if let Some(slot) = slot.get_mut(uid) {
                slot.changed.pods.insert(change.key.clone());
            }
        }
    }

    /// The index of a set, updated from the caches. Return it with [`Self::put`].
    pub(super) fn take(&self, set: &DaemonSet, hash: &str, caches: &Caches) -> SetIndex {
        let inputs = IndexInputs::of(set, hash);
        let (last, changed) = {
            let mut slot = self.lock();
            let slot = slot.get_mut(uid_of(set));
            slot.map(|slot| (slot.set_index.take(), std::mem::take(&mut slot.changed))).unwrap_or_default()
        };
        match last.filter(|last| last.inputs == inputs) {
            Some(mut last) => {
                last.refresh(set, changed, caches);
                last
            }
            None => SetIndex::new(set, inputs, caches),
        }
    }

    /// Updates an index from the caches.
    pub(super) fn refresh(&self, set_index: &mut SetIndex, set: &DaemonSet, caches: &Caches) {
        let changed = self.lock().get_mut(uid_of(set)).map(|slot| std::mem::take(&mut slot.changed));
        match changed {
            Some(changed) => set_index.refresh(set, changed, caches),
            // The set is deleted, so its pod changes are no longer recorded: rebuild.
            None => *set_index = SetIndex::new(set, set_index.inputs.clone(), caches),
        }
    }

    /// Returns an index.
    pub(super) fn put(&self, set: &DaemonSet, set_index: SetIndex) {
        if let Some(slot) = self.lock().get_mut(uid_of(set)) {
            slot.set_index = Some(set_index);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, IndexSlot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
