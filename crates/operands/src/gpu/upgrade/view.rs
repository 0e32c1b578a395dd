//! View of a node for the upgrade: borrowed from caches.

use std::borrow::Cow;

use capstan_plan::Tree;
use k8s_openapi::api::core::v1::PodStatus;
use serde::Deserialize;

use super::journal::Journal;
use super::pods::PodView;
use super::requestor::Maintenance;
use crate::gpu::nodes::Node;
use crate::pods;

pub(super) const REVISION: &str = "controller-revision-hash";
const DIGEST: &str = "DRIVER_CONFIG_DIGEST";

/// A node that should have a driver.
#[derive(Clone, Debug, Default)]
pub struct NodeView<'a> {
    /// Its metadata.
    pub node: Node<'a>,
    /// resourceVersion, as precondition for writes.
    pub resource_version: &'a str,
    /// Whether the node is Ready.
    pub ready: bool,
    /// The target of its driver pod; `None` if no DaemonSet selects the node.
    pub wanted: Option<Target<'a>>,
    /// Its driver pod.
    pub driver: Option<DriverPod<'a>>,
    /// Validator pods on it.
    pub validators: Vec<Validator<'a>>,
    /// The pods on it, if [`State::needs_pods`](super::State::needs_pods); `None` if they are not known.
    pub pods: Option<Vec<PodView<'a>>>,
    /// Its NodeMaintenance, if there is one.
    pub maintenance: Option<Maintenance<'a>>,
}

impl<'a> NodeView<'a> {
    /// From a cached node; other fields are filled in later.
    pub fn of<T: Tree>(node: &'a T) -> Self {
        let mut conditions = node.at("status").at("conditions").items().iter();
        Self {
            node: Node::of(node),
            resource_version: node.at("metadata").at("resourceVersion").text().unwrap_or_default(),
            ready: conditions.any(|one| one.at("type").says("Ready") && one.at("status").says("True")),
            ..Self::default()
        }
    }

    /// Whether the driver pod has the current revision of its DaemonSet.
    pub fn in_sync(&self) -> bool {
        let same = |driver: &DriverPod<'_>, wanted: &Target<'_>| {
            driver.owner == Some(wanted.daemon_set) && driver.revision == wanted.revision
        };
        self.driver.as_ref().zip(self.wanted.as_ref()).is_some_and(|(driver, wanted)| same(driver, wanted))
    }

    /// Whether the node is idle: its driver is up to date and healthy, and no upgrade is requested. It is only counted.
    pub fn is_idle(&self) -> bool {
        let works = self.driver.as_ref().is_some_and(|driver| driver.health.ready);
        self.ready && works && self.in_sync() && Journal::read(&self.node).is_closed()
    }

    /// Whether the pod is outdated but has the same driver: it need not be unloaded, and no pod has to be evicted.
    pub(super) fn same_driver(&self) -> bool {
        let same = |driver: &DriverPod<'_>, wanted: &Target<'_>| {
            driver.owner.is_some() && !wanted.digest.is_empty() && driver.digest == wanted.digest
        };
        self.driver.as_ref().zip(self.wanted.as_ref()).is_some_and(|(driver, wanted)| same(driver, wanted))
    }
}

/// The target of a driver pod.
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
    /// Its identity.
    pub pod: PodName<'a>,
    /// UID of its DaemonSet; `None` for an orphaned pod.
    pub owner: Option<&'a str>,
    /// Its revision hash.
    pub revision: &'a str,
    /// `DRIVER_CONFIG_DIGEST` of its containers.
    pub digest: &'a str,
    /// Whether it is terminating.
    pub terminating: bool,
    /// Its health.
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

/// Identity of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodName<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID, as precondition: a recreated pod of the same name is not affected.
    pub uid: &'a str,
}

impl<'a> PodName<'a> {
    /// From a cached pod.
    pub fn of<T: Tree>(pod: &'a T) -> Self {
        let text = |field: &str| pod.at("metadata").at(field).text().unwrap_or_default();
        Self { namespace: text("namespace"), name: text("name"), uid: text("uid") }
    }
}

/// Health of a pod.
#[derive(Clone, Debug, Default)]
pub struct Health<'a> {
    /// Whether it runs and all of its containers, at least one, are ready.
    pub ready: bool,
    /// The most restarts among its containers that are not ready, init containers included.
    pub restarts: u32,
    /// What it waits for.
    pub why: Cow<'a, str>,
}

impl<'a> Health<'a> {
    /// From a cached pod status.
    pub fn of<T: Tree>(status: &'a T) -> Self {
        let (init, main) = (status.at("initContainerStatuses").items(), status.at("containerStatuses").items());
        let unready = |container: &&T| !container.at("ready").is_true();
        let ready = status.at("phase").says("Running") && !main.is_empty() && !main.iter().any(|one| unready(&one));
        if ready {
            return Self { ready, ..Self::default() };
        }
        let restarts = init.iter().chain(main).filter(unready).filter_map(|one| one.at("restartCount").count()).max();
        let reason = PodStatus::deserialize(&*status.value()).ok().and_then(|status| pods::reason(&status));
        let phase = status.at("phase").text().unwrap_or("Pending");
        let why = reason.map_or_else(|| Cow::Owned(format!("is {phase}, not ready")), Cow::Owned);
        Self { ready, restarts: restarts.and_then(|count| count.try_into().ok()).unwrap_or(0), why }
    }
}

/// A validator pod.
#[derive(Clone, Debug, Default)]
pub struct Validator<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its health.
    pub health: Health<'a>,
}
