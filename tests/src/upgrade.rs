//! Shared parts of driver upgrade stories.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_sim::node::{Behaviour, Body, ExitCode, Match, RuleId};
use capstan_sim::{Cluster, Pod};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::nim::state;
use crate::wire::Fault;
use crate::world::World;

/// API version of ClusterPolicies.
pub const API: &str = "nvidia.com/v1";
/// Name of the policy.
pub const POLICY: &str = "cluster-policy";
/// Label with the upgrade state of a node.
pub const STATE: &str = "nvidia.com/gpu-driver-upgrade-state";

/// A policy with that driver version and upgrade policy; `annotations` without their prefix.
pub fn policy(version: &str, upgrade: &Value, annotations: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<String, &str> =
        annotations.iter().map(|(key, value)| (format!("capstan.dev/upgrade-{key}"), *value)).collect();
    let off = json!({"enabled": false});
    json!({
        "apiVersion": API, "kind": "ClusterPolicy", "metadata": {"name": POLICY, "annotations": annotations},
        "spec": {
            "operator": {}, "daemonsets": {}, "toolkit": {}, "devicePlugin": {}, "gfd": {}, "nodeStatusExporter": {},
            // Fewer pods, the same story.
            "dcgm": off, "dcgmExporter": off, "migManager": off,
            "driver": {"repository": "example.com", "image": "driver", "version": version, "upgradePolicy": upgrade},
        },
    })
}

/// Installs the policy on all nodes.
pub async fn install(world: &World, policy: Value) {
    world.apply(policy).await;
    let ready = state("ready");
    let ready = move |policy: &Value| {
        assert!(reports_truthfully(policy), "{:?}", upgrade_condition(policy));
        ready(policy)
    };
    world.until(API, "ClusterPolicy", POLICY, ready).await;
}

/// Whether the policy reports a complete upgrade only if its driver is ready on all nodes.
fn reports_truthfully(policy: &Value) -> bool {
    let (reason, message) = upgrade_condition(policy);
    let numbers: Vec<&str> = message.split(' ').filter(|word| word.parse::<u32>().is_ok()).collect();
    reason != "Complete" || matches!(numbers[..], [works, all] if works == all)
}

/// Changes the driver version of the policy.
pub async fn change_driver(world: &World, version: &str) {
    world.patch(API, "ClusterPolicy", POLICY, json!({"spec": {"driver": {"version": version}}})).await;
}

/// Reason and message of the upgrade condition.
pub fn upgrade_condition(policy: &Value) -> (&str, &str) {
    let conditions = policy["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|one| one["type"] == "DriverUpgrade");
    let text = |field: &str| found.and_then(|found| found[field].as_str()).unwrap_or_default();
    (text("reason"), text("message"))
}

/// Driver pods by node: their UIDs and images.
pub async fn drivers(world: &World) -> BTreeMap<String, (String, String)> {
    let pods = world.list("v1", "Pod").await;
    let drivers = pods.iter().filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "nvidia-driver");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |pod: &Value| {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let driver = containers.into_iter().find(|one| one["name"] == "nvidia-driver-ctr");
        let image = driver.map(|driver| text(&driver["image"])).unwrap_or_default();
        (text(&pod["spec"]["nodeName"]), (text(&pod["metadata"]["uid"]), image))
    };
    drivers.map(one).collect()
}

/// Upgrade state of each node, and whether it is schedulable.
pub async fn nodes(world: &World) -> BTreeMap<String, (String, bool)> {
    let nodes = world.list("v1", "Node").await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |node: &Value| {
        let state = text(&node["metadata"]["labels"][STATE]);
        (text(&node["metadata"]["name"]), (state, node["spec"]["unschedulable"] != true))
    };
    nodes.iter().map(one).collect()
}

/// Whether the policy reports that its driver runs on every node.
pub fn is_over(policy: &Value) -> bool {
    upgrade_condition(policy).0 == "Complete" && policy["status"]["state"] == "ready"
}

/// Waits until every node runs that version and is schedulable, and inspects the nodes at intervals meanwhile.
pub async fn until_upgraded(world: &World, version: &str, mut inspect: impl FnMut(&BTreeMap<String, (String, bool)>)) {
    let wait = async {
        loop {
            let (nodes, drivers) = (nodes(world).await, drivers(world).await);
            inspect(&nodes);
            let done = nodes.values().all(|(state, free)| state == "upgrade-done" && *free);
            let new = drivers.values().all(|(_, image)| image.contains(&format!(":{version}-")));
            if done && new && drivers.len() == nodes.len() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(3600), wait).await.is_err() {
        let policies = world.list(API, "ClusterPolicy").await;
        panic!("not upgraded: {:#?} {:#?} {:#?}", nodes(world).await, drivers(world).await, policies[0]["status"]);
    }
}

/// Makes the driver with that version crash on matching nodes.
pub fn breaks(world: &World, version: &str, nodes: &str) -> RuleId {
    let which = Match { image: Some(format!("*driver:{version}-*")), ..Match::container("nvidia-driver-ctr") };
    let body = Body::new(|cx| async move {
        cx.log.line("the kernel module does not load");
        ExitCode(1)
    });
    world.nodes().rule(which.on_node(nodes), Behaviour { body: Some(body), ..Behaviour::default() })
}

/// A pod with a GPU on a node, with labels.
pub fn gpu_pod(name: &str, node: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "restartPolicy": "Never", "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "work", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    })
}

/// Cost of a fleet upgrade.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Number of nodes.
    pub nodes: u16,
    /// Requests by method and resource.
    pub requests: BTreeMap<String, usize>,
    /// Maximum of unavailable nodes.
    pub most: usize,
    /// `maxUnavailable` as a number of nodes.
    pub budget: usize,
    /// Virtual duration.
    pub took: Duration,
}

impl Cost {
    /// Writes per node.
    pub fn writes(&self) -> f64 {
        let all: usize =
            self.requests.iter().filter(|(kind, _)| !kind.starts_with("GET")).map(|(_, count)| count).sum();
        all as f64 / f64::from(self.nodes)
    }
}

/// Counts of a fleet, updated on every change: listing it repeatedly would cost more than the upgrade.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Unschedulable nodes.
    out: usize,
    /// Maximum of those.
    most: usize,
    /// Schedulable nodes that are done.
    done: usize,
    /// Driver pods.
    drivers: usize,
    /// Driver pods of the desired version.
    new: usize,
}

impl Tally {
    /// Watches the nodes and driver pods of a cluster.
    fn follow(cluster: &Cluster, version: &str) -> Arc<Mutex<Self>> {
        let tally = Arc::new(Mutex::new(Self::default()));
        let caches = &cluster.context().caches;
        let counted = tally.clone();
        caches.nodes.subscribe(move |change| {
            let mut tally = lock(&counted);
            let count = |node: Option<&Arc<Node>>| node.map_or((0, 0), |node| of_node(node));
            let ((out_before, done_before), (out, done)) = (count(change.old), count(change.new));
            tally.out = tally.out + out - out_before;
            tally.done = tally.done + done - done_before;
            tally.most = tally.most.max(tally.out);
        });
        let (counted, image) = (tally.clone(), format!(":{version}-"));
        caches.pods.subscribe(move |change| {
            let mut tally = lock(&counted);
            let count = |pod: Option<&Arc<Pod>>| pod.map_or((0, 0), |pod| of_pod(pod, &image));
            let ((drivers_before, new_before), (drivers, new)) = (count(change.old), count(change.new));
            tally.drivers = tally.drivers + drivers - drivers_before;
            tally.new = tally.new + new - new_before;
        });
        tally
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a node is unschedulable, and whether it is done.
fn of_node(node: &Node) -> (usize, usize) {
    let out = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let state = node.metadata.labels.as_ref().and_then(|labels| labels.get(STATE));
    (usize::from(out), usize::from(!out && state.is_some_and(|state| state == "upgrade-done")))
}

/// Whether a pod is a driver, and whether its image has that name.
fn of_pod(pod: &Pod, image: &str) -> (usize, usize) {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let driver = containers.filter(|one| one.name == "nvidia-driver-ctr").find_map(|one| one.image.as_deref());
    (usize::from(driver.is_some()), usize::from(driver.is_some_and(|name| name.contains(image))))
}

/// Upgrades the drivers of this many nodes, 5 % at a time.
pub async fn fleet(nodes: u16) -> Cost {
    let world = World::start_fleet(nodes).await;
    let tally = Tally::follow(world.embedded_cluster().expect("a fleet is embedded"), "2");
    let operator = world.operator(Fault::None).await;
    let upgrade = json!({"autoUpgrade": true, "maxParallelUpgrades": 0, "maxUnavailable": "5%"});
    let mut policy = policy("1", &upgrade, &[]);
    for operand in ["devicePlugin", "gfd"] {
        policy["spec"][operand] = json!({"enabled": false});
    }
    install(&world, policy).await;
    world.settled(&operator).await;
    let (before, began) = (operator.wire.requests(), tokio::time::Instant::now());
    change_driver(&world, "2").await;
    let all = usize::from(nodes);
    let is_over = |tally: Tally| (tally.done, tally.drivers, tally.new) == (all, all, all);
    while !is_over(*lock(&tally)) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_secs(24 * 3600), "not upgraded: {:?}", *lock(&tally));
    }
    let took = began.elapsed();
    world.settled(&operator).await;
    let change = |(kind, count): (String, usize)| {
        let change = count - before.get(&kind).copied().unwrap_or(0);
        (change > 0).then_some((kind, change))
    };
    let requests = operator.wire.requests().into_iter().filter_map(change).collect();
    Cost { nodes, requests, most: lock(&tally).most, budget: all.div_ceil(20), took }
}
