//! All nodes as the last pass saw them: the next one reads anew what has changed since, and looks at those that do not
//! rest. All of it is in the cache, too: whoever takes over begins with everything.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use capstan_operands::gpu::upgrade::{
    DriverPod, DriverRevisions, GoverningPolicies, Health, NodeView, PodName, State, Validator, keys,
};
use capstan_plan::{Gvk, Live, Packed, Tree};
use capstan_runtime::kinds::{DRIVERS, VALIDATORS};
use capstan_runtime::{Cache, Change, Key};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Node;

/// What changed, by the names of nodes.
#[derive(Default)]
pub(super) struct ChangedNodes(Mutex<HashSet<Arc<str>>>);

impl ChangedNodes {
    /// Takes in a change.
    pub(super) fn note(&self, change: &Change<'_>) {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if [DRIVERS, VALIDATORS].contains(&change.kind.slice) {
            let pods = [change.old, change.new].into_iter().flatten();
            nodes.extend(pods.filter_map(|pod| pod["spec"]["nodeName"].as_str()).map(Arc::from));
        } else if change.is::<Node>() {
            nodes.insert(change.key.name.clone());
        }
    }

    fn take(&self) -> HashSet<Arc<str>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is known of the nodes.
pub(super) struct KnownNodes {
    pub(super) governing_policies: GoverningPolicies,
    sets: Vec<Live>,
    revisions: Vec<Live>,
    /// Nodes that have to be looked at.
    pub(super) awake: BTreeMap<Arc<str>, UpgradeNode>,
    /// Nodes that need only be counted, by who rules them.
    resting: BTreeMap<String, BTreeSet<Arc<str>>>,
}

impl Default for KnownNodes {
    fn default() -> Self {
        let (awake, resting) = (BTreeMap::new(), BTreeMap::new());
        Self { governing_policies: GoverningPolicies::Nobody, sets: Vec::new(), revisions: Vec::new(), awake, resting }
    }
}

impl KnownNodes {
    /// Takes in what changed. If other drivers are wanted, or others rule, that is everything.
    pub(super) fn update(
        &mut self,
        cache: &Cache,
        namespace: &str,
        governing_policies: GoverningPolicies,
        news: &ChangedNodes,
    ) {
        let sets = cache.in_namespace(&Gvk::of::<DaemonSet>(), namespace);
        let revisions = cache.in_namespace(&Gvk::of::<ControllerRevision>(), namespace);
        let mut changed = news.take();
        if governing_policies != self.governing_policies
            || driver_revisions(&sets, &revisions) != self.driver_revisions()
        {
            self.awake.clear();
            self.resting.clear();
            changed = cache.keys(&Gvk::of::<Node>()).into_iter().map(|key| key.name).collect();
        }
        (self.governing_policies, self.sets, self.revisions) = (governing_policies, sets, revisions);
        for node in changed {
            self.awake.remove(&node);
            for nodes in self.resting.values_mut() {
                nodes.remove(&node);
            }
            if let Some(seen) = UpgradeNode::read(cache, namespace, &node) {
                self.sort_in(node, seen);
            }
        }
    }

    fn sort_in(&mut self, node: Arc<str>, seen: UpgradeNode) {
        let view = seen.view(&self.driver_revisions());
        let governing_policy = self.governing_policies.of_node(&view.node);
        if let Some(governing_policy) = governing_policy.filter(|_| view.rests()) {
            let governing_policy = governing_policy.to_owned();
            self.resting.entry(governing_policy).or_default().insert(node);
        } else if governing_policy.is_some() && has_driver(&view) || asks(&view) {
            self.awake.insert(node, seen);
        }
    }

    /// The DaemonSets of drivers.
    pub(super) fn driver_revisions(&self) -> DriverRevisions<'_> {
        driver_revisions(&self.sets, &self.revisions)
    }

    /// How many nodes rest, by who rules them.
    pub(super) fn resting(&self) -> impl Iterator<Item = (&str, usize)> {
        self.resting
            .iter()
            .filter(|(_, nodes)| !nodes.is_empty())
            .map(|(governing_policy, nodes)| (governing_policy.as_str(), nodes.len()))
    }
}

fn driver_revisions<'a>(sets: &'a [Live], revisions: &'a [Live]) -> DriverRevisions<'a> {
    DriverRevisions::of(sets.iter().map(|one| &**one), revisions.iter().map(|one| &**one))
}

/// Whether a node has a driver, should have one, or is on its way to another.
pub(super) fn has_driver(view: &NodeView<'_>) -> bool {
    let idle = || matches!(State::of(view.node.labels), State::Unset | State::Done);
    view.wanted.is_some() || view.driver.is_some() || !idle()
}

/// Whether a node is, or was, to be taken out of use by somebody else.
pub(super) fn asks(view: &NodeView<'_>) -> bool {
    view.node.annotations.is(keys::REQUESTOR, "true")
}

/// One node, and what of its pods is about its driver.
pub(super) struct UpgradeNode {
    node: Packed,
    driver: Option<Packed>,
    validators: Vec<Packed>,
}

impl UpgradeNode {
    fn read(cache: &Cache, namespace: &str, name: &Arc<str>) -> Option<Self> {
        let key = Key { namespace: "".into(), name: name.clone() };
        let node = cache.packed_one(&Gvk::of::<Node>(), &key).filter(stays)?;
        let pods = |slice: &str| {
            let mut pods = cache.packed_on_node(slice, name);
            pods.retain(|pod| pod.at("metadata").at("namespace").says(namespace));
            pods
        };
        // One that comes or goes matters less than one that stays.
        let drivers = pods(DRIVERS);
        let driver = drivers.iter().find(|pod| stays(pod)).or(drivers.first()).cloned();
        Some(Self { node, driver, validators: pods(VALIDATORS) })
    }

    /// As the upgrade sees it; what is known only of nodes under way is to be filled in.
    pub(super) fn view<'a>(&'a self, driver_revisions: &DriverRevisions<'a>) -> NodeView<'a> {
        let mut view = NodeView::of(&self.node);
        view.wanted = driver_revisions.wanted(&view.node);
        view.driver = self.driver.as_ref().map(DriverPod::of);
        view
    }

    /// The pods that check its driver.
    pub(super) fn validators(&self) -> Vec<Validator<'_>> {
        let validators = self.validators.iter();
        validators.map(|pod| Validator { name: PodName::of(pod).name, health: Health::of(pod.at("status")) }).collect()
    }
}

/// Whether it is not being deleted.
fn stays(object: &Packed) -> bool {
    object.at("metadata").at("deletionTimestamp").text().is_none()
}
