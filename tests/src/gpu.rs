//! Shared parts of GPU stories: minimal custom resources, and the cost of a fleet.

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_operator::gpu::Readiness;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::nim::state;
use crate::wire::Fault;
use crate::world::World;

/// API version of ClusterPolicies.
pub const API: &str = "nvidia.com/v1";
/// API version of NVIDIADrivers and GPUClusters.
pub const ALPHA: &str = "nvidia.com/v1alpha1";
/// Name of the policy.
pub const POLICY: &str = "cluster-policy";

/// A policy with all defaults.
pub fn policy() -> Value {
    json!({
        "apiVersion": API, "kind": "ClusterPolicy", "metadata": {"name": POLICY},
        "spec": {
            "operator": {}, "daemonsets": {}, "driver": {}, "toolkit": {}, "devicePlugin": {}, "dcgm": {},
            "dcgmExporter": {}, "gfd": {}, "nodeStatusExporter": {},
        },
    })
}

/// An NVIDIADriver, with `more` merged into its spec.
pub fn driver(name: &str, more: Value) -> Value {
    let mut spec = json!({"driverType": "gpu", "repository": "example.com", "image": "driver", "version": "1"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": ALPHA, "kind": "NVIDIADriver", "metadata": {"name": name}, "spec": spec})
}

/// A GPUCluster with all defaults.
pub fn gpu_cluster() -> Value {
    json!({
        "apiVersion": ALPHA, "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}, "spec": {"draDriver": {}},
    })
}

/// The objects of an example of `examples/gpu`, by file name.
pub fn example(name: &str) -> Vec<Value> {
    let path = format!("{}/../examples/gpu/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let documents = text.split("\n---\n");
    documents.map(|text| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"))).collect()
}

/// Kinds that an install creates.
const KINDS: [(&str, &str); 16] = [
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "Pod"),
    ("node.k8s.io/v1", "RuntimeClass"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
];

/// State that an uninstall must restore: names of objects, and metadata and taints of nodes and namespaces.
pub async fn footprint(world: &World) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (api, kind) in KINDS {
        for object in world.list(api, kind).await {
            all.insert(format!("{kind} {}", object["metadata"]["name"]), Value::Null);
        }
    }
    for kind in ["Node", "Namespace"] {
        for object in world.list("v1", kind).await {
            let (meta, conditions) = (&object["metadata"], object["status"]["conditions"].as_array());
            let conditions: Vec<_> = conditions.into_iter().flatten().map(|one| one["type"].clone()).collect();
            let about = json!([meta["labels"], meta["annotations"], object["spec"]["taints"], conditions]);
            all.insert(format!("{kind} {}", meta["name"]), about);
        }
    }
    all
}

/// Requests between two counts, by method and resource. Periodic CRD reads, which do not depend on the cluster size,
/// are excluded.
pub fn since(before: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let change = |(kind, count): (&String, &usize)| (kind.clone(), count - before.get(kind).unwrap_or(&0));
    let matters = |(kind, count): &(String, usize)| *count > 0 && !kind.ends_with("customresourcedefinitions");
    now.iter().map(change).filter(matters).collect()
}

/// Cost of a fleet.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Number of nodes.
    pub nodes: u16,
    /// Requests of the install.
    pub install: BTreeMap<String, usize>,
    /// Requests of a joining node.
    pub join: BTreeMap<String, usize>,
    /// Virtual time until it was labelled.
    pub labelled: Duration,
    /// Requests in ten minutes without a change.
    pub idle: BTreeMap<String, usize>,
}

impl Cost {
    /// Request budget of the install.
    pub fn budget(&self) -> usize {
        usize::from(self.nodes) * 6 / 5 + 150
    }
}

/// Installs on this many nodes, then adds one.
pub async fn fleet(nodes: u16) -> Cost {
    fleet_with_readiness(nodes, Readiness::default()).await
}

/// The same with a readiness condition or taint on nodes.
pub async fn fleet_with_readiness(nodes: u16, readiness: Readiness) -> Cost {
    let world = World::start_fleet(nodes).await.with_readiness(readiness);
    let operator = world.operator(Fault::None).await;
    let begin = operator.wire.requests();
    world.apply(policy()).await;
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
    world.settled(&operator).await;
    let installed = operator.wire.requests();
    let labelled = join(&world).await;
    world.settled(&operator).await;
    let joined = operator.wire.requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    Cost {
        nodes,
        install: since(&begin, &installed),
        join: since(&installed, &joined),
        labelled,
        idle: since(&joined, &operator.wire.requests()),
    }
}

/// Adds a node and returns the time until it was labelled.
async fn join(world: &World) -> Duration {
    let nodes = world.nodes().clone();
    let began = Instant::now();
    let node = nodes.add(capstan_gpu_sim::gpu_node("late", 8)).await.expect("the node is added");
    let labelled = || {
        let object = node.object();
        object.is_some_and(|node| {
            node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("nvidia.com/gpu.present"))
        })
    };
    while !labelled() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(began.elapsed() < Duration::from_secs(60), "the node is not labelled");
    }
    began.elapsed()
}
