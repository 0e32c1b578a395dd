//! Templates of nodes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

use super::status::{digest, seconds};

/// Reported kubelet version.
const VERSION: &str = "v1.37.1";
/// Namespace of node leases.
pub(super) const LEASES: &str = "kube-node-lease";

/// Template of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeTemplate {
    /// Name.
    pub name: String,
    /// Labels, besides the standard ones.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Capacity, besides the default `cpu` (32), `memory` (256Gi), `pods` (110) and `ephemeral-storage` (1Ti). All of
    /// it is allocatable.
    pub capacity: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Kernel version.
    pub kernel: Option<String>,
    /// `osImage`.
    pub os_image: Option<String>,
    /// `amd64` or `arm64`.
    pub architecture: Option<String>,
    /// Container runtime with its version.
    pub container_runtime: Option<String>,
}

impl NodeTemplate {
    /// A plain node.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds a label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds a capacity.
    pub fn capacity(mut self, resource: impl Into<String>, amount: impl Into<String>) -> Self {
        self.capacity.insert(resource.into(), amount.into());
        self
    }

    /// Adds a taint.
    pub fn taint(mut self, key: impl Into<String>, value: impl Into<String>, effect: impl Into<String>) -> Self {
        let taint = Taint { key: key.into(), value: Some(value.into()), effect: effect.into(), time_added: None };
        self.taints.push(taint);
        self
    }

    fn resources(&self) -> BTreeMap<String, Quantity> {
        let usual = [("cpu", "32"), ("memory", "256Gi"), ("pods", "110"), ("ephemeral-storage", "1Ti")];
        let usual = usual.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
        let own = self.capacity.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone())));
        usual.into_iter().chain(own).collect()
    }

    /// The Node object. `index` determines its addresses.
    pub(super) fn node(&self, index: u32, now: Timestamp) -> Node {
        let architecture = self.architecture.as_deref().unwrap_or("amd64");
        let mut labels: BTreeMap<String, String> = [
            ("beta.kubernetes.io/arch", architecture),
            ("beta.kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture),
            ("kubernetes.io/hostname", &self.name),
            ("kubernetes.io/os", "linux"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        labels.extend(self.labels.clone());
        let mut annotations = self.annotations.clone();
        annotations.insert("node.alpha.kubernetes.io/ttl".to_owned(), "0".to_owned());
        annotations.insert("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned());
        let cidr = format!("{}.0/24", pod_prefix(index));
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                pod_cidr: Some(cidr.clone()),
                pod_cidrs: Some(vec![cidr]),
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                ..NodeSpec::default()
            }),
            status: Some(self.status(index, now)),
        }
    }

    fn status(&self, index: u32, now: Timestamp) -> NodeStatus {
        let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
        NodeStatus {
            addresses: Some(vec![address("InternalIP", host_ip(index)), address("Hostname", self.name.clone())]),
            capacity: Some(self.resources()),
            allocatable: Some(self.resources()),
            conditions: Some(conditions(now)),
            daemon_endpoints: Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: 10250 }) }),
            node_info: Some(NodeSystemInfo {
                architecture: self.architecture.clone().unwrap_or_else(|| "amd64".to_owned()),
                boot_id: uuid(&[&self.name, "boot", "0"]),
                container_runtime_version: self
                    .container_runtime
                    .clone()
                    .unwrap_or_else(|| "containerd://2.1.4".to_owned()),
                kernel_version: self.kernel.clone().unwrap_or_else(|| "6.8.0-85-generic".to_owned()),
                kubelet_version: VERSION.to_owned(),
                machine_id: digest(&[&self.name, "machine"])[..32].to_owned(),
                operating_system: "linux".to_owned(),
                os_image: self.os_image.clone().unwrap_or_else(|| "Ubuntu 24.04.3 LTS".to_owned()),
                system_uuid: uuid(&[&self.name, "system"]),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }
    }
}

/// Conditions of a healthy node.
pub(super) fn conditions(now: Timestamp) -> Vec<NodeCondition> {
    let condition = |type_: &str, status: &str, reason: &str, message: &str| NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(seconds(now)),
        last_transition_time: Some(seconds(now)),
    };
    vec![
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
}

/// The lease that a node renews as heartbeat.
pub(super) fn lease(node: &Node, seconds: i32, now: Timestamp) -> Lease {
    let name = node.metadata.name.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(LEASES.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: Some(seconds),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

/// The IP of a node, in 172.16.0.0/12.
pub(super) fn host_ip(index: u32) -> String {
    let [_, a, b, c] = (index + 2).to_be_bytes();
    format!("172.{}.{b}.{c}", 16 + a % 16)
}

/// The first three octets of a node's pod IPs, in 10.128.0.0/9.
pub(super) fn pod_prefix(index: u32) -> String {
    let [_, _, b, c] = index.to_be_bytes();
    format!("10.{}.{c}", 128 + b % 128)
}

/// A UUID derived from some texts.
pub(super) fn uuid(texts: &[&str]) -> String {
    let hex = digest(texts);
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_from_node_to_node() {
        assert_eq!((host_ip(0), pod_prefix(0)), ("172.16.0.2".to_owned(), "10.128.0".to_owned()));
        assert_eq!((host_ip(4999), pod_prefix(4999)), ("172.16.19.137".to_owned(), "10.147.135".to_owned()));
        assert_eq!(host_ip(70_000), "172.17.17.114");
    }

    #[test]
    fn templates_add_to_what_every_node_has() {
        let template =
            NodeTemplate::new("n").label("zone", "a").capacity("example.com/device", "8").capacity("cpu", "4");
        let node = template.node(0, Timestamp::UNIX_EPOCH);
        let labels = node.metadata.labels.unwrap();
        assert_eq!((labels["zone"].as_str(), labels["kubernetes.io/hostname"].as_str()), ("a", "n"));
        let allocatable = node.status.unwrap().allocatable.unwrap();
        let amounts = ["cpu", "memory", "example.com/device"].map(|name| allocatable[name].0.as_str());
        assert_eq!(amounts, ["4", "256Gi", "8"]);
    }
}
