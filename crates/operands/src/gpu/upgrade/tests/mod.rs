//! A node that can be changed, and what most tests share.

mod driver_revisions;
mod fleet;
mod gates;
mod governing_policies;
mod laws;
mod pods;
mod requestor;
mod scale;
mod settings;
mod slots;
mod taking_over;
mod transitions;

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::*;
use crate::gpu::nodes::{Entries, Node, NodePatch};

pub(super) const NOW: i64 = 1_000_000;

/// A node with its pods.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) unschedulable: bool,
    pub(super) ready: bool,
    pub(super) version: String,
    /// DaemonSet, revision, digest.
    pub(super) wanted: Option<(String, String, String)>,
    pub(super) driver: Option<DriverOf>,
    /// Name, ready.
    pub(super) validators: Vec<(String, bool)>,
    pub(super) pods: Option<Vec<PodOf>>,
    pub(super) maintenance: Option<Maintenance<'static>>,
}

#[derive(Clone, Debug)]
pub(super) struct DriverOf {
    pub(super) uid: String,
    pub(super) owner: Option<String>,
    pub(super) revision: String,
    pub(super) digest: String,
    pub(super) terminating: bool,
    pub(super) ready: bool,
    pub(super) restarts: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PodOf {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) terminating: bool,
    pub(super) controller: PodController,
    pub(super) empty_dir: bool,
    pub(super) gpu: bool,
    pub(super) refused: Option<&'static str>,
}

impl PodOf {
    /// A pod of a Deployment that uses a GPU.
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), controller: PodController::Controller, gpu: true, ..Self::default() }
    }
}

impl Machine {
    /// A node whose driver is the wanted one, validated.
    pub(super) fn new(name: &str) -> Self {
        let driver = DriverOf {
            uid: format!("{name}-1"),
            owner: Some("ds".into()),
            revision: "new".into(),
            digest: "2".into(),
            terminating: false,
            ready: true,
            restarts: 0,
        };
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            unschedulable: false,
            ready: true,
            version: "1".into(),
            wanted: Some(("ds".into(), "new".into(), "2".into())),
            driver: Some(driver),
            validators: vec![("validator".into(), true)],
            pods: Some(Vec::new()),
            maintenance: None,
        }
    }

    /// The same with an older driver.
    pub(super) fn old(name: &str) -> Self {
        let mut machine = Self::new(name);
        if let Some(driver) = &mut machine.driver {
            (driver.revision, driver.digest) = ("old".into(), "1".into());
        }
        machine
    }

    pub(super) fn state(mut self, state: State) -> Self {
        self.labels.insert(keys::STATE.into(), state.label().into());
        self
    }

    pub(super) fn annotated(mut self, key: &str, value: impl ToString) -> Self {
        self.annotations.insert(key.into(), value.to_string());
        self
    }

    pub(super) fn cordoned(mut self) -> Self {
        self.unschedulable = true;
        self
    }

    pub(super) fn with(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }

    pub(super) fn driver(self, edit: impl FnOnce(&mut DriverOf)) -> Self {
        self.with(|machine| edit(machine.driver.as_mut().unwrap()))
    }

    pub(super) fn current(&self) -> State {
        State::of(Entries::Map(&self.labels))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.annotations.contains_key(key)
    }

    pub(super) fn view(&self) -> NodeView<'_> {
        NodeView {
            node: Node {
                name: &self.name,
                labels: Entries::Map(&self.labels),
                annotations: Entries::Map(&self.annotations),
                unschedulable: self.unschedulable,
                runtime: None,
            },
            resource_version: &self.version,
            ready: self.ready,
            wanted: self.wanted.as_ref().map(|(daemon_set, revision, digest)| Target { daemon_set, revision, digest }),
            driver: self.driver.as_ref().map(|driver| DriverPod {
                pod: PodName { namespace: "gpu", name: &driver.uid, uid: &driver.uid },
                owner: driver.owner.as_deref(),
                revision: &driver.revision,
                digest: &driver.digest,
                terminating: driver.terminating,
                health: Health { ready: driver.ready, restarts: driver.restarts, why: "is not well".into() },
            }),
            validators: self
                .validators
                .iter()
                .map(|(name, ready)| Validator {
                    name,
                    health: Health { ready: *ready, restarts: 0, why: "waits".into() },
                })
                .collect(),
            pods: self.pods.as_ref().map(|pods| {
                pods.iter()
                    .map(|pod| PodView {
                        pod: PodName { namespace: "work", name: &pod.name, uid: &pod.name },
                        labels: Entries::Map(&pod.labels),
                        active: true,
                        terminating: pod.terminating,
                        controller: pod.controller,
                        empty_dir: pod.empty_dir,
                        gpu: pod.gpu,
                        refused: pod.refused,
                    })
                    .collect()
            }),
            maintenance: self.maintenance.clone(),
        }
    }

    /// Does what a patch says.
    pub(super) fn apply(&mut self, patch: &NodePatch) {
        if patch.is_empty() {
            return;
        }
        self.version = (self.version.parse::<u64>().unwrap() + 1).to_string();
        for (map, changes) in [(&mut self.labels, &patch.labels), (&mut self.annotations, &patch.annotations)] {
            for (key, value) in changes {
                match value {
                    Some(value) => map.insert(key.clone(), value.clone()),
                    None => map.remove(key),
                };
            }
        }
        self.unschedulable = patch.unschedulable.unwrap_or(self.unschedulable);
    }
}

/// Settings that let any number of nodes go.
pub(super) fn generous() -> Settings {
    Settings { max_parallel: 0, max_unavailable: None, ..Settings::of(None, None) }
}

pub(super) fn at(now: i64) -> Timestamp {
    Timestamp::from_second(now).unwrap()
}

/// One pass over some nodes. Those that rest may be looked at or counted: it comes to the same.
pub(super) fn pass(settings: &Settings, machines: &[Machine], now: i64) -> Pass {
    let mut views: Vec<_> = machines.iter().map(Machine::view).collect();
    let pass = step(settings, &views, 0, at(now));
    views.retain(|view| !view.is_idle());
    assert_eq!(step(settings, &views, machines.len() - views.len(), at(now)), pass);
    pass
}

/// One pass over one node: the node afterwards, and what else was to be done.
pub(super) fn after(settings: &Settings, machine: &Machine, now: i64) -> (Machine, Option<Step>) {
    let step = pass(settings, std::slice::from_ref(machine), now).steps.pop();
    let mut machine = machine.clone();
    step.iter().for_each(|step| machine.apply(&step.patch));
    (machine, step)
}
