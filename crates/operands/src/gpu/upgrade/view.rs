//! One node as the upgrade sees it: borrowed from caches.

use std::borrow::Cow;

use capstan_plan::Tree;
use k8s_openapi::api::core::v1::PodStatus;
use serde::Deserialize;

use super::journal::Journal;
use super::pods::PodView;
use super::requestor::Maintenance;
use crate::gpu::nodes::Node;
use crate::nim::pods;

pub(super) const REVISION: &str = "controller-revision-hash";
const DIGEST: &str = "DRIVER_CONFIG_DIGEST";

/// A node that should have a driver.
#[derive(Clone, Debug, Default)]
pub struct NodeView<'a> {
    /// Its metadata.
    pub node: Node<'a>,
    /// Version of the object, for writes that must not follow an older decision.
    pub resource_version: &'a str,
    /// Whether its kubelet reports.
    pub ready: bool,
    /// What its driver pod should be; `None` if no DaemonSet wants one there.
    pub wanted: Option<Target<'a>>,
    /// Its driver pod.
    pub driver: Option<DriverPod<'a>>,
    /// Pods that check the driver there.
    pub validators: Vec<Validator<'a>>,
    /// The pods on it, if [`State::needs_pods`](super::State::needs_pods); `None` if they are not known.
    pub pods: Option<Vec<PodView<'a>>>,
    /// The request to take it out of use, if there is one.
    pub maintenance: Option<Maintenance<'a>>,
}

impl<'a> NodeView<'a> {
    /// Of a cached node; what is not metadata is to be filled in.
    pub fn of<T: Tree>(node: &'a T) -> Self {
        let mut conditions = node.at("status").at("conditions").items().iter();
        Self {
            node: Node::of(node),
            resource_version: node.at("metadata").at("resourceVersion").text().unwrap_or_default(),
            ready: conditions.any(|one| one.at("type").says("Ready") && one.at("status").says("True")),
            ..Self::default()
        }
    }

    /// Whether the driver pod is the one that its DaemonSet would make today.
    pub fn in_sync(&self) -> bool {
        let same = |driver: &DriverPod<'_>, wanted: &Target<'_>| {
            driver.owner == Some(wanted.daemon_set) && driver.revision == wanted.revision
        };
        self.driver.as_ref().zip(self.wanted.as_ref()).is_some_and(|(driver, wanted)| same(driver, wanted))
    }

    /// Whether the wanted driver works there, and nobody asks for anything: such a node need only be counted.
    pub fn rests(&self) -> bool {
        let works = self.driver.as_ref().is_some_and(|driver| driver.health.ready);
        self.ready && works && self.in_sync() && Journal::read(&self.node).is_closed()
    }

    /// Whether the pod is to be replaced, yet with the same driver: it need not be unloaded, and nobody has to leave.
    pub(super) fn same_driver(&self) -> bool {
        let same = |driver: &DriverPod<'_>, wanted: &Target<'_>| {
            driver.owner.is_some() && !wanted.digest.is_empty() && driver.digest == wanted.digest
        };
        self.driver.as_ref().zip(self.wanted.as_ref()).is_some_and(|(driver, wanted)| same(driver, wanted))
    }
}

/// What a driver pod should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// UID of the DaemonSet.
    pub daemon_set: &'a str,
    /// Hash of its newest revision.
    pub revision: &'a str,
    /// `DRIVER_CONFIG_DIGEST` of its template; empty if there is none.
    pub digest: &'a str,
}

/// A driver pod.
#[derive(Clone, Debug, Default)]
pub struct DriverPod<'a> {
    /// Which pod.
    pub pod: PodName<'a>,
    /// UID of its DaemonSet; `None` for a pod that was left behind.
    pub owner: Option<&'a str>,
    /// Revision that it was made from.
    pub revision: &'a str,
    /// `DRIVER_CONFIG_DIGEST` of its containers.
    pub digest: &'a str,
    /// Whether it is going.
    pub terminating: bool,
    /// How it is doing.
    pub health: Health<'a>,
}

impl<'a> DriverPod<'a> {
    /// A cached pod.
    pub fn of<T: Tree>(pod: &'a T) -> Self {
        let metadata = pod.at("metadata");
        Self {
            pod: PodName::of(pod),
            owner: metadata.at("ownerReferences").items().first().and_then(|owner| owner.at("uid").text()),
            revision: metadata.at("labels").at(REVISION).text().unwrap_or_default(),
            digest: digest(pod.at("spec")),
            terminating: metadata.at("deletionTimestamp").text().is_some(),
            health: Health::of(pod.at("status")),
        }
    }
}

/// `DRIVER_CONFIG_DIGEST` of a pod spec: the first that is not empty, init containers first.
pub fn digest<T: Tree>(spec: &T) -> &str {
    let containers = ["initContainers", "containers"].into_iter().flat_map(|kind| spec.at(kind).items());
    let variables = containers.flat_map(|container| container.at("env").items());
    let mut values = variables
        .filter(|variable| variable.at("name").says(DIGEST))
        .filter_map(|variable| variable.at("value").text());
    values.find(|value| !value.is_empty()).unwrap_or_default()
}

/// Which pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodName<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID, so that a namesake that came later is left alone.
    pub uid: &'a str,
}

impl<'a> PodName<'a> {
    /// That of a cached pod.
    pub fn of<T: Tree>(pod: &'a T) -> Self {
        let text = |field: &str| pod.at("metadata").at(field).text().unwrap_or_default();
        Self { namespace: text("namespace"), name: text("name"), uid: text("uid") }
    }
}

/// How a pod is doing.
#[derive(Clone, Debug, Default)]
pub struct Health<'a> {
    /// Whether it runs and all of its containers, at least one, are ready.
    pub ready: bool,
    /// The most restarts among its containers that are not ready, init containers included.
    pub restarts: u32,
    /// What holds it up.
    pub why: Cow<'a, str>,
}

impl<'a> Health<'a> {
    /// Of a cached pod's status.
    pub fn of<T: Tree>(status: &'a T) -> Self {
        let (init, main) = (status.at("initContainerStatuses").items(), status.at("containerStatuses").items());
        let unready = |container: &&T| !container.at("ready").is_true();
        let ready = status.at("phase").says("Running") && !main.is_empty() && !main.iter().any(|one| unready(&one));
        if ready {
            return Self { ready, ..Self::default() };
        }
        let restarts = init.iter().chain(main).filter(unready).filter_map(|one| one.at("restartCount").count()).max();
        let trouble = PodStatus::deserialize(&*status.value()).ok().and_then(|status| pods::reason(&status));
        let phase = status.at("phase").text().unwrap_or("Pending");
        let why = trouble.map_or_else(|| Cow::Owned(format!("is {phase}, not ready")), Cow::Owned);
        Self { ready, restarts: restarts.and_then(|count| count.try_into().ok()).unwrap_or(0), why }
    }
}

/// A pod that checks the driver.
#[derive(Clone, Debug, Default)]
pub struct Validator<'a> {
    /// Its name.
    pub name: &'a str,
    /// How it is doing.
    pub health: Health<'a>,
}
