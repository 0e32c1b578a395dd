//! Requestor mode: another operator takes nodes out of use when a NodeMaintenance asks for it, and counts the budget.

use capstan_api::common::upgrade::WaitForCompletion;
use capstan_api::foreign::NodeMaintenance;
use capstan_api::foreign::maintenance::{DrainSpec, NodeMaintenanceSpec, PodEvictionFilter};

use super::settings::Settings;

const DEFAULT_PREFIX: &str = "nvidia-operator";

/// As whom we ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requestor {
    /// Namespace of the requests.
    pub namespace: String,
    /// Who asks.
    pub id: String,
    /// Start of the requests' names.
    pub prefix: String,
}

impl Requestor {
    /// From the operator's environment; `None` unless it is switched on.
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

    /// Name of the request for a node.
    pub fn name(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    /// Whether requests of this name are shared with other requestors.
    fn shared(&self) -> bool {
        self.prefix == DEFAULT_PREFIX
    }
}

/// The live request for a node.
#[derive(Clone, Debug, Default)]
pub struct Maintenance<'a> {
    /// Version of the object, for changes of what several requestors share.
    pub resource_version: &'a str,
    /// Who asked first.
    pub requestor: &'a str,
    /// Who else asks.
    pub additional: Vec<&'a str>,
    /// Whether the node is out of use.
    pub ready: bool,
    /// Why it cannot be taken out of use.
    pub failed: Option<&'a str>,
}

impl<'a> Maintenance<'a> {
    /// A live object.
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

/// What to do with the request for a node.
#[derive(Clone, Debug, PartialEq)]
pub enum MaintenanceAction {
    /// Make it.
    Create(Box<NodeMaintenance>),
    /// Add `id` to, or remove it from, `spec.additionalRequestors` of the one that is there.
    Share {
        /// Namespace of the request.
        namespace: String,
        /// Its name.
        name: String,
        /// What the list has to be; several requestors write it, so the version has to match.
        additional: Vec<String>,
        /// Version of the object that this was decided on.
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

/// What makes sure that the node is asked for; `None` if it is.
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

/// What makes sure that we no longer ask for the node; `None` if we do not. Also for nodes whose upgrade is abandoned.
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
