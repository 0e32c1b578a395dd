//! Requestor mode: the maintenance operator cordons and drains nodes for a NodeMaintenance, and enforces the budget.

use capstan_api::common::upgrade::WaitForCompletion;
use capstan_api::foreign::NodeMaintenance;
use capstan_api::foreign::maintenance::{DrainSpec, NodeMaintenanceSpec, PodEvictionFilter};

use super::settings::Settings;

const DEFAULT_PREFIX: &str = "nvidia-operator";

/// Our identity as requestor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requestor {
    /// Namespace of the requests.
    pub namespace: String,
    /// The requestor id.
    pub id: String,
    /// Name prefix of the requests.
    pub prefix: String,
}

impl Requestor {
    /// From the operator's environment; `None` unless enabled.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let set = |name: &str, default: &str| {
            let value = variable(&format!("MAINTENANCE_OPERATOR_{name}")).filter(|value| !value.is_empty());
            value.unwrap_or_else(|| default.into())
        };
        (set("ENABLED", "false") == "true").then(|| Self {
            namespace: set("REQUESTOR_NAMESPACE", "default"),
            id: set("REQUESTOR_ID", "nvidia.gpu.operator"),
            prefix: set("NODE_MAINTENANCE_PREFIX", DEFAULT_PREFIX),
        })
    }

    /// Name of the NodeMaintenance of a node.
    pub fn name(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    /// Whether requests of this name are shared with other requestors.
    fn shared(&self) -> bool {
        self.prefix == DEFAULT_PREFIX
    }
}

/// The live NodeMaintenance of a node.
#[derive(Clone, Debug, Default)]
pub struct Maintenance<'a> {
    /// resourceVersion, as precondition for changes of a shared request.
    pub resource_version: &'a str,
    /// The first requestor.
    pub requestor: &'a str,
    /// Additional requestors.
    pub additional: Vec<&'a str>,
    /// Whether the node is ready for maintenance.
    pub ready: bool,
    /// Why maintenance failed.
    pub failed: Option<&'a str>,
}

impl<'a> Maintenance<'a> {
    /// From a live object.
    pub fn of(object: &'a NodeMaintenance) -> Self {
        let conditions = object.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        let is = |kind: &'static str| conditions.clone().find(|one| one.type_ == kind && one.status == "True");
        Self {
            resource_version: object.metadata.resource_version.as_deref().unwrap_or_default(),
            requestor: object.spec.requestor_id.as_deref().unwrap_or_default(),
            additional: object.spec.additional_requestors.iter().flatten().map(String::as_str).collect(),
            ready: is("Ready").is_some_and(|one| one.reason.as_deref() == Some("Ready")),
            failed: is("Failed").map(|one| one.message.as_deref().unwrap_or("no reason given")),
        }
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.requestor == id || self.additional.contains(&id)
    }
}

/// An action on the NodeMaintenance of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum MaintenanceAction {
    /// Create it.
    Create(Box<NodeMaintenance>),
    /// Add `id` to, or remove it from, `spec.additionalRequestors` of the existing one.
    Share {
        /// Namespace of the request.
        namespace: String,
        /// Its name.
        name: String,
        /// The new list; several requestors write it, so it needs a resourceVersion precondition.
        additional: Vec<String>,
        /// resourceVersion that was decided on.
        resource_version: String,
    },
    /// Delete it.
    Delete {
        /// Namespace of the request.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The action that requests maintenance of the node; `None` if it is requested already.
pub(super) fn ask(
    settings: &Settings,
    us: &Requestor,
    node: &str,
    live: Option<&Maintenance<'_>>,
) -> Option<MaintenanceAction> {
    let Some(live) = live else { return Some(MaintenanceAction::Create(Box::new(request(settings, us, node)))) };
    if live.has(&us.id) || !us.shared() {
        return None;
    }
    let additional = live.additional.iter().copied().chain([us.id.as_str()]).map(str::to_owned).collect();
    Some(share(us, node, additional, live))
}

/// The action that withdraws our request; `None` if there is none. Also for nodes whose upgrade was abandoned.
pub fn release(us: &Requestor, node: &str, live: Option<&Maintenance<'_>>) -> Option<MaintenanceAction> {
    let live = live.filter(|live| live.has(&us.id))?;
    if live.requestor == us.id {
        return Some(MaintenanceAction::Delete { namespace: us.namespace.clone(), name: us.name(node) });
    }
    let others = live.additional.iter().filter(|id| **id != us.id).map(|id| (*id).to_owned()).collect();
    Some(share(us, node, others, live))
}

fn share(us: &Requestor, node: &str, additional: Vec<String>, live: &Maintenance<'_>) -> MaintenanceAction {
    MaintenanceAction::Share {
        namespace: us.namespace.clone(),
        name: us.name(node),
        additional,
        resource_version: live.resource_version.into(),
    }
}

fn request(settings: &Settings, us: &Requestor, node: &str) -> NodeMaintenance {
    let seconds = |timeout: Option<i64>| timeout.unwrap_or(0);
    let wait = settings.wait.as_ref().map(|wait| WaitForCompletion {
        pod_selector: Some(wait.text.clone()),
        timeout_seconds: Some(seconds(wait.timeout)),
    });
    let filters = ["nvidia.com/gpu-*", "nvidia.com/rdma*"];
    let filters = filters.map(|filter| PodEvictionFilter { by_resource_name_regex: Some(filter.into()) });
    let drain = settings.drain.as_ref().map(|drain| DrainSpec {
        force: Some(drain.eviction.force),
        pod_selector: Some(drain.text.clone()),
        timeout_seconds: Some(seconds(drain.eviction.timeout).try_into().unwrap_or(i32::MAX)),
        delete_empty_dir: Some(drain.eviction.delete_empty_dir),
        pod_eviction_filters: Some(filters.into()),
    });
    let spec = NodeMaintenanceSpec {
        requestor_id: Some(us.id.clone()),
        additional_requestors: None,
        node_name: Some(node.into()),
        cordon: Some(true),
        wait_for_pod_completion: wait,
        drain_spec: drain,
    };
    let mut object = NodeMaintenance::new(&us.name(node), spec);
    object.metadata.namespace = Some(us.namespace.clone());
    object
}
