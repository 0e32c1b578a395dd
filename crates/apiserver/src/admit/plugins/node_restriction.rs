//! NodeRestriction: a kubelet may write only its own Node, its Lease, and the status of its pods.

use serde_json::Value;

use super::{Plugin, forbidden};
use crate::admit::json::Read;
use crate::error::Result;
use crate::ops::{Operation, Request};

const USER: &str = "system:node:";
const GROUP: &str = "system:nodes";
const MIRROR: &str = "kubernetes.io/config.mirror";
const KUBELET_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Labels in Kubernetes' own domains that a kubelet may set.
const KUBELET_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Restricts a kubelet to its own objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeRestriction;

impl Plugin for NodeRestriction {
    fn handles(&self, request: &Request) -> bool {
        node_of(request).is_some()
    }

    fn validate(&self, request: &Request, object: Option<&Value>) -> Result<()> {
        let Some(node) = node_of(request) else { return Ok(()) };
        let target = &request.target;
        let subresource = target.subresource.as_deref().unwrap_or_default();
        let object = object.unwrap_or(&Value::Null);
        let why = match (&*target.resource.group, &*target.resource.plural, subresource) {
            ("", "pods", "") => pod(request, node, object),
            ("", "pods", "status") => pod_status(request, node, object),
            ("", "pods", "eviction") => {
                let own = request.old.as_ref().is_none_or(|pod| pod["spec"].text("nodeName") == node);
                (!own).then(|| format!("node {node} can only evict pods with spec.nodeName set to itself"))
            }
            ("", "nodes", _) => self::node(request, node, object),
            ("coordination.k8s.io", "leases", _) => own_name(request, object, node)
                .then(|| "can only access node lease with the same name as the requesting node".into()),
            ("storage.k8s.io", "csinodes", _) => own_name(request, object, node)
                .then(|| "can only access CSINode with the same name as the requesting node".into()),
            ("resource.k8s.io", "resourceslices", _) => {
                let slice = if object.is_null() { request.old.as_deref().unwrap_or(object) } else { object };
                let own = slice["spec"].text("nodeName") == node;
                (!own).then(|| {
                    "can only create, update or delete ResourceSlice with the same NodeName as the requesting node"
                        .into()
                })
            }
            _ => None,
        };
        why.map_or(Ok(()), |why| Err(forbidden(request, object, &why)))
    }
}

/// The node of a kubelet's user.
fn node_of(request: &Request) -> Option<&str> {
    let user = &request.caller.user;
    user.name.strip_prefix(USER).filter(|node| !node.is_empty() && user.is_in(GROUP))
}

/// Whether the object's name is not that of the node.
fn own_name(request: &Request, object: &Value, node: &str) -> bool {
    request.target.name.as_deref().unwrap_or_else(|| object["metadata"].text("name")) != node
}

fn pod(request: &Request, node: &str, pod: &Value) -> Option<String> {
    match request.operation {
        Operation::Create => {
            if !pod["metadata"]["annotations"].has(MIRROR) {
                let why = format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods");
                return Some(why);
            }
            let own = pod["spec"].text("nodeName") == node;
            (!own).then(|| format!("node {node:?} can only create pods with spec.nodeName set to itself"))
        }
        Operation::Delete => {
            let own = request.old.as_ref().is_none_or(|pod| pod["spec"].text("nodeName") == node);
            (!own).then(|| format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
        }
        _ => Some(format!("unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods")),
    }
}

fn pod_status(request: &Request, node: &str, pod: &Value) -> Option<String> {
    let old = request.old.as_deref()?;
    if old["spec"].text("nodeName") != node {
        return Some(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    let same = old["metadata"]["labels"] == pod["metadata"]["labels"];
    (!same).then(|| format!("node {node:?} cannot update labels through pod status"))
}

fn node(request: &Request, node: &str, object: &Value) -> Option<String> {
    let name = request.target.name.as_deref().unwrap_or_else(|| object["metadata"].text("name"));
    if name != node {
        return Some(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    match (request.operation, request.old.as_deref()) {
        (Operation::Create, _) => {
            let refused = labels_beyond(object, &Value::Null);
            (!refused.is_empty())
                .then(|| format!("node {node:?} is not allowed to set the following labels: {}", refused.join(", ")))
        }
        (Operation::Update, Some(old)) => {
            if old["spec"]["taints"] != object["spec"]["taints"] {
                return Some(format!("node {node:?} is not allowed to modify taints"));
            }
            if old["metadata"]["ownerReferences"] != object["metadata"]["ownerReferences"] {
                return Some(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            let refused = labels_beyond(object, old);
            (!refused.is_empty()).then(|| format!("is not allowed to modify labels: {}", refused.join(", ")))
        }
        _ => None,
    }
}

/// Changed labels that a kubelet may not change.
fn labels_beyond(new: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (&new["metadata"]["labels"], &old["metadata"]["labels"]);
    let keys = new.as_object().into_iter().chain(old.as_object()).flatten().map(|(key, _)| key);
    let mut refused: Vec<String> =
        keys.filter(|key| new.get(key.as_str()) != old.get(key.as_str()) && !may_set(key)).cloned().collect();
    refused.sort();
    refused.dedup();
    refused
}

fn may_set(label: &str) -> bool {
    let prefix = label.split_once('/').map_or("", |(prefix, _)| prefix);
    let within = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
    if prefix == "node-restriction.kubernetes.io" || prefix.ends_with(".node-restriction.kubernetes.io") {
        return false;
    }
    if !within("kubernetes.io") && !within("k8s.io") {
        return true;
    }
    KUBELET_LABELS.contains(&label) || KUBELET_PREFIXES.into_iter().any(within)
}
