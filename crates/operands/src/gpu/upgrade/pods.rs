//! Pods on a node: which use GPUs, which can be evicted and, if not, why.

use serde_json::Value;

use super::settings::Eviction;
use super::view::PodName;
use crate::gpu::nodes::Entries;

const DRA_DRIVER: &str = "gpu.nvidia.com";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod on a node.
#[derive(Clone, Debug, Default)]
pub struct PodView<'a> {
    /// Its identity.
    pub pod: PodName<'a>,
    /// Its labels.
    pub labels: Entries<'a>,
    /// Whether it is running or pending.
    pub active: bool,
    /// Whether it is terminating.
    pub terminating: bool,
    /// Its controller, which recreates it.
    pub controller: PodController,
    /// Whether it has emptyDir volumes, whose data is lost.
    pub empty_dir: bool,
    /// Whether it uses GPUs.
    pub gpu: bool,
    /// The last rejection of its eviction.
    pub refused: Option<&'a str>,
}

/// The controller of a pod, which recreates it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodController {
    /// None: a bare pod.
    #[default]
    None,
    /// A controller, which recreates it on another node.
    Controller,
    /// A DaemonSet, which recreates it on the same node.
    DaemonSet,
    /// The kubelet: a static pod.
    Kubelet,
}

impl<'a> PodView<'a> {
    /// From a cached pod. `claim` looks up a ResourceClaim of its namespace; `None` if it cannot be read.
    pub fn of(pod: &'a Value, claim: impl Fn(&str) -> Option<&'a Value>) -> Self {
        let metadata = &pod["metadata"];
        let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.find(|owner| owner["controller"] == true);
        let controller = match controller.map(|owner| owner["kind"] == "DaemonSet") {
            _ if Entries::of(&metadata["annotations"]).get(MIRROR).is_some() => PodController::Kubelet,
            Some(true) => PodController::DaemonSet,
            Some(false) => PodController::Controller,
            None => PodController::None,
        };
        let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        Self {
            pod: PodName::of(pod),
            labels: Entries::of(&metadata["labels"]),
            active: active(pod),
            terminating: metadata["deletionTimestamp"].is_string(),
            controller,
            empty_dir: volumes.any(|volume| volume["emptyDir"].is_object()),
            gpu: uses_gpu(pod, claim),
            refused: None,
        }
    }

    /// Why it must not be evicted, if so.
    pub(super) fn obstacle(&self, eviction: &Eviction, field: &str) -> Option<String> {
        let name = format!("pod {}/{}", self.pod.namespace, self.pod.name);
        match self.controller {
            PodController::DaemonSet => {
                Some(format!("{name} uses GPUs and would be brought back by its DaemonSet: remove it from this node"))
            }
            PodController::Kubelet => {
                Some(format!("{name} uses GPUs and is a static pod: remove its manifest from the node"))
            }
            PodController::None if !eviction.force => Some(format!(
                "{name} belongs to no controller and would be lost: delete it, or set upgradePolicy.{field}.force"
            )),
            _ if self.empty_dir && !eviction.delete_empty_dir => Some(format!(
                "{name} has an emptyDir volume that would be lost: delete it, or set upgradePolicy.{field}.deleteEmptyDir"
            )),
            _ => None,
        }
    }
}

fn active(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Running" | "Pending"))
}

/// Whether a pod uses GPUs: a container or init container requests some, or a claim allocates some without admin
/// access.
pub fn uses_gpu<'a>(pod: &Value, claim: impl Fn(&str) -> Option<&'a Value>) -> bool {
    if !active(pod) {
        return false;
    }
    let is_gpu = |name: &String| name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/mig-");
    let resources = |container: &Value| {
        ["requests", "limits"]
            .iter()
            .any(|kind| container["resources"][kind].as_object().is_some_and(|map| map.keys().any(is_gpu)))
    };
    let kinds = ["containers", "initContainers"];
    let mut containers = kinds.iter().flat_map(|kind| pod["spec"][kind].as_array().into_iter().flatten());
    containers.any(resources) || claims(pod).any(|name| holds_gpu(claim(name), Admin::Excluded))
}

/// Whether pods of a node hold claims that only the DRA driver can unprepare. `claim` looks one up by namespace and
/// name; unreadable ones count.
pub fn claims_in_use<'a>(
    pods: impl IntoIterator<Item = &'a Value>,
    claim: impl Fn(&str, &str) -> Option<&'a Value>,
) -> bool {
    let over = |pod: &&Value| {
        matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            && !pod["metadata"]["deletionTimestamp"].is_string()
    };
    let mut pods = pods.into_iter().filter(|pod| !over(pod));
    pods.any(|pod| {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        claims(pod).any(|name| holds_gpu(claim(namespace, name), Admin::Included))
    })
}

/// Names of a pod's claims. One that is not created from its template yet holds nothing.
fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    let made = pod["status"]["resourceClaimStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let wanted = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
    wanted.filter_map(|wanted| {
        let generated = || made.iter().find(|one| one["name"] == wanted["name"])?["resourceClaimName"].as_str();
        wanted["resourceClaimName"].as_str().or_else(generated)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Admin {
    Included,
    Excluded,
}

/// Whether a claim allocates a GPU. All served versions have the same shape here.
fn holds_gpu(claim: Option<&Value>, admin: Admin) -> bool {
    let Some(claim) = claim else { return true };
    let mut results = claim["status"]["allocation"]["devices"]["results"].as_array().into_iter().flatten();
    results.any(|result| result["driver"] == DRA_DRIVER && (admin == Admin::Included || result["adminAccess"] != true))
}
