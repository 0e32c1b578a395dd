//! Nodes as of the last pass: the next one re-reads changed nodes, and processes those that are not idle. All of it can
//! be rebuilt from the cache.

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

/// Names of nodes that changed since the last pass.
#[derive(Default)]
pub(super) struct ChangedNodes(Mutex<HashSet<Arc<str>>>);

impl ChangedNodes {
    /// Records a change.
    pub(super) fn record(&self, change: &Change<'_>) {
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

/// The known nodes.
pub(super) struct KnownNodes {
    pub(super) governing_policies: GoverningPolicies,
    sets: Vec<Live>,
    revisions: Vec<Live>,
    /// Nodes that a pass has to process.
    pub(super) active: BTreeMap<Arc<str>, UpgradeNode>,
    /// Idle nodes, which are only counted, by governing policy.
    idle: BTreeMap<String, BTreeSet<Arc<str>>>,
}

impl Default for KnownNodes {
    fn default() -> Self {
        let (active, idle) = (BTreeMap::new(), BTreeMap::new());
        Self { governing_policies: GoverningPolicies::Disabled, sets: Vec::new(), revisions: Vec::new(), active, idle }
    }
}

impl KnownNodes {
    /// Applies changes since the last pass; everything if driver revisions or governing policies changed.
    pub(super) fn update(
        &mut self,
        cache: &Cache,
        namespace: &str,
        governing_policies: GoverningPolicies,
        changes: &ChangedNodes,
    ) {
        let sets = cache.in_namespace(&Gvk::of::<DaemonSet>(), namespace);
        let revisions = cache.in_namespace(&Gvk::of::<ControllerRevision>(), namespace);
        let mut changed = changes.take();
        if governing_policies != self.governing_policies
            || driver_revisions(&sets, &revisions) != self.driver_revisions()
        {
            self.active.clear();
            self.idle.clear();
            changed = cache.keys(&Gvk::of::<Node>()).into_iter().map(|key| key.name).collect();
        }
        (self.governing_policies, self.sets, self.revisions) = (governing_policies, sets, revisions);
        for node in changed {
            self.active.remove(&node);
            for nodes in self.idle.values_mut() {
                nodes.remove(&node);
            }
            if let Some(upgrade_node) = UpgradeNode::read(cache, namespace, &node) {
                self.classify(node, upgrade_node);
            }
        }
    }

    fn classify(&mut self, node: Arc<str>, upgrade_node: UpgradeNode) {
        let view = upgrade_node.view(&self.driver_revisions());
        let governing_policy = self.governing_policies.of_node(&view.node);
        if let Some(governing_policy) = governing_policy.filter(|_| view.is_idle()) {
            let governing_policy = governing_policy.to_owned();
            self.idle.entry(governing_policy).or_default().insert(node);
        } else if governing_policy.is_some() && has_driver(&view) || is_maintenance_requested(&view) {
            self.active.insert(node, upgrade_node);
        }
    }

    /// The driver DaemonSets and their revisions.
    pub(super) fn driver_revisions(&self) -> DriverRevisions<'_> {
        driver_revisions(&self.sets, &self.revisions)
    }

    /// Number of idle nodes by governing policy.
    pub(super) fn idle(&self) -> impl Iterator<Item = (&str, usize)> {
        self.idle
            .iter()
            .filter(|(_, nodes)| !nodes.is_empty())
            .map(|(governing_policy, nodes)| (governing_policy.as_str(), nodes.len()))
    }
}

fn driver_revisions<'a>(sets: &'a [Live], revisions: &'a [Live]) -> DriverRevisions<'a> {
    DriverRevisions::of(sets.iter().map(|one| &**one), revisions.iter().map(|one| &**one))
}

/// Whether a node has a driver, should have one, or is being upgraded.
pub(super) fn has_driver(view: &NodeView<'_>) -> bool {
    let no_upgrade = || matches!(State::of(view.node.labels), State::Unset | State::Done);
    view.wanted.is_some() || view.driver.is_some() || !no_upgrade()
}

/// Whether maintenance of the node was requested from the maintenance operator.
pub(super) fn is_maintenance_requested(view: &NodeView<'_>) -> bool {
    view.node.annotations.is(keys::REQUESTOR, "true")
}

/// One node with its driver and validator pods.
pub(super) struct UpgradeNode {
    node: Packed,
    driver: Option<Packed>,
    validators: Vec<Packed>,
}

impl UpgradeNode {
    fn read(cache: &Cache, namespace: &str, name: &Arc<str>) -> Option<Self> {
        let key = Key { namespace: "".into(), name: name.clone() };
        let node = cache.packed_one(&Gvk::of::<Node>(), &key).filter(not_terminating)?;
        let pods = |slice: &str| {
            let mut pods = cache.packed_on_node(slice, name);
            pods.retain(|pod| pod.at("metadata").at("namespace").says(namespace));
            pods
        };
        // Prefer a pod that is not terminating.
        let drivers = pods(DRIVERS);
        let driver = drivers.iter().find(|pod| not_terminating(pod)).or(drivers.first()).cloned();
        Some(Self { node, driver, validators: pods(VALIDATORS) })
    }

    /// The view for the upgrade; fields that only nodes in progress need are filled in later.
    pub(super) fn view<'a>(&'a self, driver_revisions: &DriverRevisions<'a>) -> NodeView<'a> {
        let mut view = NodeView::of(&self.node);
        view.wanted = driver_revisions.wanted(&view.node);
        view.driver = self.driver.as_ref().map(DriverPod::of);
        view
    }

    /// Its validator pods.
    pub(super) fn validators(&self) -> Vec<Validator<'_>> {
        let validators = self.validators.iter();
        validators.map(|pod| Validator { name: PodName::of(pod).name, health: Health::of(pod.at("status")) }).collect()
    }
}

/// Whether it is not terminating.
fn not_terminating(object: &Packed) -> bool {
    object.at("metadata").at("deletionTimestamp").text().is_none()
}
