//! The task that owns the scheduler's state.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Settings;
use super::backlog::Backlog;
use super::bind::{Binder, Binding};
use super::cycle::{Rule, Rules};
use super::devices::Ledger;
use super::pod::{PodInfo, is_finished};
use super::schedule::{Decision, Unschedulable, schedule};
use super::state::State;
use crate::Pod;
use crate::context::Context;
use crate::informer::{Change, key_of};

/// An event that affects scheduling.
pub(super) enum ClusterEvent {
    Pod {
        old: Option<Arc<Pod>>,
        new: Option<Arc<Pod>>,
    },
    Node {
        old: Option<Arc<Node>>,
        new: Option<Arc<Node>>,
    },
    Namespace {
        name: String,
        new: Option<Arc<Namespace>>,
    },
    Slice {
        name: String,
        new: Option<Arc<ResourceSlice>>,
    },
    Claim {
        uid: String,
        new: Option<Arc<ResourceClaim>>,
    },
    /// Another change, that these rules depend on.
    Other(Rules),
    /// Binding a pod failed.
    BindFailed(Box<Binding>),
}

/// Pods scheduled before the task yields: there is one scheduler, and many clients create pods.
const PODS_PER_YIELD: u64 = 8;

/// Unprocessed events. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct Inbox {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    event: Mutex<Vec<ClusterEvent>>,
    arrived: Notify,
}

impl Inbox {
    pub(super) fn add(&self, event: ClusterEvent) {
        self.shared.event.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.shared.arrived.notify_one();
    }

    fn take(&self) -> Vec<ClusterEvent> {
        std::mem::take(&mut *self.shared.event.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

const VOLUMES: Rules = Rules::of(&[Rule::VolumeBinding, Rule::VolumeZone, Rule::VolumeRestrictions]);
const DEVICES: Rules = Rules::of(&[Rule::DynamicResources]);
const POD_ADDED: Rules = Rules::of(&[Rule::PodTopologySpread, Rule::InterPodAffinity]);
const POD_REMOVED: Rules = Rules::of(&[
    Rule::NodeResourcesFit,
    Rule::NodePorts,
    Rule::PodTopologySpread,
    Rule::InterPodAffinity,
    Rule::VolumeRestrictions,
    Rule::DynamicResources,
]);

pub(super) fn start(context: &Context, settings: Settings) {
    let inbox = Inbox::default();
    subscribe(context, &inbox);
    let binder = Binder::start(context, &settings, inbox.clone());
    let actor = Actor {
        context: context.clone(),
        settings,
        inbox,
        binder,
        state: State::default(),
        ledger: Ledger::default(),
        backlog: Backlog::default(),
        held: Arc::default(),
    };
    let held = actor.held.clone();
    context.gauges.add("scheduler: pods, nodes, namespaces, claims", move || held.load(Ordering::Relaxed));
    context.spawn(actor.run());
}

fn subscribe(context: &Context, inbox: &Inbox) {
    let caches = &context.caches;
    let sink = inbox.clone();
    caches.pods.subscribe(move |change: &Change<'_, Pod>| {
        sink.add(ClusterEvent::Pod { old: change.old.cloned(), new: change.new.cloned() });
    });
    let sink = inbox.clone();
    caches.nodes.subscribe(move |change| {
        sink.add(ClusterEvent::Node { old: change.old.cloned(), new: change.new.cloned() });
    });
    let sink = inbox.clone();
    caches.namespaces.subscribe(move |change| {
        sink.add(ClusterEvent::Namespace { name: change.key.to_string(), new: change.new.cloned() });
    });
    let sink = inbox.clone();
    caches.resource_slices.subscribe(move |change| {
        sink.add(ClusterEvent::Slice { name: change.key.to_string(), new: change.new.cloned() });
    });
    let sink = inbox.clone();
    caches.resource_claims.subscribe(move |change| {
        let uid = change.last().metadata.uid.clone().unwrap_or_default();
        sink.add(ClusterEvent::Claim { uid, new: change.new.cloned() });
    });
    let sink = inbox.clone();
    caches.device_classes.subscribe(move |_| sink.add(ClusterEvent::Other(DEVICES)));
    let sink = inbox.clone();
    caches.volume_claims.subscribe(move |_| sink.add(ClusterEvent::Other(VOLUMES)));
    let sink = inbox.clone();
    caches.volumes.subscribe(move |_| sink.add(ClusterEvent::Other(VOLUMES)));
    let sink = inbox.clone();
    caches.storage_classes.subscribe(move |_| sink.add(ClusterEvent::Other(VOLUMES)));
}

struct Actor {
    context: Context,
    settings: Settings,
    inbox: Inbox,
    binder: Binder,
    state: State,
    ledger: Ledger,
    backlog: Backlog,
    /// Number of held items, for leak tests.
    held: Arc<AtomicUsize>,
}

impl Actor {
    async fn run(mut self) {
        // Before the caches have synced, rules would be evaluated on missing objects.
        self.context.caches.synced().await;
        for round in 1_u64.. {
            self.process_events();
            match self.backlog.take(Instant::now()) {
                Some(pod) => {
                    self.schedule(pod).await;
                    if round % PODS_PER_YIELD == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                None => self.wait_for_work().await,
            }
        }
    }

    async fn wait_for_work(&self) {
        self.held.store(self.state.len() + self.ledger.len() + self.backlog.len(), Ordering::Relaxed);
        let arrived = self.inbox.shared.arrived.notified();
        match self.backlog.due() {
            None => arrived.await,
            Some(due) => tokio::select! {
                () = arrived => {}
                () = tokio::time::sleep_until(due) => {}
            },
        }
    }

    fn process_events(&mut self) {
        for event in self.inbox.take() {
            let now = Instant::now();
            match event {
                ClusterEvent::Pod { old, new } => self.pod(old.as_ref(), new.as_ref(), now),
                ClusterEvent::Node { old, new } => self.node(old.as_deref(), new, now),
                ClusterEvent::Namespace { name, new } => {
                    let labels = new.map(|namespace| namespace.metadata.labels.clone().unwrap_or_default());
                    self.state.set_namespace(&name, labels);
                    self.backlog.changed(Rules::of(&[Rule::InterPodAffinity]), now);
                }
                ClusterEvent::Slice { name, new } => {
                    self.ledger.set_slice(&name, new.as_ref());
                    self.backlog.changed(DEVICES, now);
                }
                ClusterEvent::Claim { uid, new } => {
                    self.ledger.set_claim(&uid, new.as_deref());
                    self.backlog.changed(DEVICES, now);
                }
                ClusterEvent::Other(rules) => self.backlog.changed(rules, now),
                ClusterEvent::BindFailed(binding) => self.handle_bind_failure(*binding, now),
            }
        }
    }

    fn pod(&mut self, old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>, now: Instant) {
        let Some(new) = new else {
            let Some(old) = old else { return };
            let key = key_of(&old.metadata);
            self.backlog.remove(&key);
            let was_placed = self.state.node_of(&key).is_some();
            self.state.remove_pod(&key);
            if was_placed {
                self.backlog.changed(POD_REMOVED, now);
            }
            return;
        };
        let key = key_of(&new.metadata);
        let bound = node_of(new).is_some();
        if bound {
            self.backlog.remove(&key);
            let came = old.is_none_or(|old| node_of(old).is_none());
            let went = is_finished(new) && !old.is_some_and(|old| is_finished(old));
            let changed = old.is_some_and(|old| old.metadata.labels != new.metadata.labels);
            self.state.set_pod(new);
            if went {
                self.backlog.changed(POD_REMOVED, now);
            } else if came || changed {
                self.backlog.changed(POD_ADDED, now);
            }
        } else if self.is_ours(new) {
            // An assumed pod is not scheduled again before its binding has finished.
            let placed = self.state.node_of(&key).is_some_and(|node| {
                node.pods.iter().any(|pod| *pod.key == *key && pod.pod.metadata.uid == new.metadata.uid)
            });
            if !placed {
                let again = old.is_none_or(|old| may_become_schedulable(old, new));
                self.backlog.put(Arc::new(PodInfo::new(new.clone())), again, now);
                if let Some(node) = new.status.as_ref().and_then(|status| status.nominated_node_name.as_deref()) {
                    let info = self.backlog.get(&key).cloned();
                    if let Some(info) = info.filter(|_| !node.is_empty()) {
                        self.state.nominate(info, Some(node));
                    }
                }
            }
        } else {
            self.backlog.remove(&key);
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref();
        let name = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or("default-scheduler");
        let gated = spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
        name == self.settings.name && !gated && !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
    }

    fn node(&mut self, old: Option<&Node>, new: Option<Arc<Node>>, now: Instant) {
        match (old, new) {
            (_, None) => {
                let name = old.and_then(|old| old.metadata.name.as_deref()).unwrap_or_default();
                self.state.remove_node(name);
                self.backlog.changed(Rules::of(&[Rule::PodTopologySpread]), now);
            }
            (None, Some(new)) => {
                self.state.set_node(new);
                self.backlog.changed(Rules::ALL, now);
            }
            (Some(old), Some(new)) => {
                let rules = rules_affected_by(old, &new);
                self.state.set_node(new);
                if !rules.is_empty() {
                    self.backlog.changed(rules, now);
                }
            }
        }
    }

    async fn schedule(&mut self, pod: Arc<PodInfo>) {
        match schedule(&mut self.state, &self.ledger, &*self.context.caches, &pod) {
            Decision::Place(id, extras) => {
                let node = self.state.node(id).name.clone();
                self.backlog.remove(&pod.key);
                self.state.place(pod.clone(), &node);
                for allocation in &extras.devices {
                    self.ledger.assume(allocation);
                }
                self.binder.bind(Binding { pod, node, extras }).await;
            }
            Decision::Unschedulable(unschedulable) => self.handle_unschedulable(pod, unschedulable).await,
        }
    }

    async fn handle_unschedulable(&mut self, pod: Arc<PodInfo>, unschedulable: Unschedulable) {
        self.backlog.park(&pod.key, unschedulable.rules, Instant::now());
        let node = match &unschedulable.preemption {
            Some(preemption) => Some(self.state.node(preemption.node).name.clone()),
            None if unschedulable.keep_nomination => pod.nominated_node().map(Into::into),
            None => None,
        };
        self.state.nominate(pod.clone(), node.as_deref());
        self.binder.report_unschedulable(&pod, &unschedulable.message, node.as_deref()).await;
        if let (Some(preemption), Some(node)) = (unschedulable.preemption, node) {
            let others = self.state.nominated(&node).iter();
            let less: Vec<Arc<PodInfo>> = others.filter(|other| other.priority < pod.priority).cloned().collect();
            for other in less {
                self.state.nominate(other.clone(), None);
                self.binder.clear_nomination(&other).await;
            }
            self.binder.preempt(&pod, &node, &preemption.victims).await;
        }
    }

    fn handle_bind_failure(&mut self, binding: Binding, now: Instant) {
        for allocation in &binding.extras.devices {
            self.ledger.forget(allocation);
        }
        let current = self.context.caches.pods.get(&binding.pod.key);
        let current = current.filter(|pod| pod.metadata.uid == binding.pod.pod.metadata.uid);
        if current.as_ref().is_some_and(|pod| node_of(pod).is_some()) {
            return;
        }
        self.state.remove_pod(&binding.pod.key);
        if let Some(pod) = current.filter(|pod| self.is_ours(pod)) {
            self.backlog.put(Arc::new(PodInfo::new(pod)), true, now);
            self.backlog.delay(&binding.pod.key, now);
        }
        self.backlog.changed(POD_REMOVED, now);
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether a change to a pod may make it schedulable.
fn may_become_schedulable(old: &Pod, new: &Pod) -> bool {
    let claims = |pod: &Pod| pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone());
    old.metadata.labels != new.metadata.labels || !old.is_alike(new) || claims(old) != claims(new)
}

/// The rules that a change to a node may satisfy.
fn rules_affected_by(old: &Node, new: &Node) -> Rules {
    let mut rules = Rules::default();
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    if allocatable(old) != allocatable(new) {
        rules.insert(Rule::NodeResourcesFit);
    }
    if old.metadata.labels != new.metadata.labels {
        for rule in [
            Rule::NodeAffinity,
            Rule::PodTopologySpread,
            Rule::InterPodAffinity,
            Rule::VolumeBinding,
            Rule::VolumeZone,
            Rule::DynamicResources,
        ] {
            rules.insert(rule);
        }
    }
    if old.spec != new.spec {
        for rule in [Rule::NodeUnschedulable, Rule::TaintToleration, Rule::PodTopologySpread] {
            rules.insert(rule);
        }
    }
    rules
}
