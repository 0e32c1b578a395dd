//! Whether the GPUs of a node work, told on the node: the condition `GPUReady`, the startup taint and the timeline.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use capstan_operator::gpu::{Readiness, StartupTaint};
use capstan_tests::crash::{self, InjectedFailure};
use capstan_tests::gpu::{API, POLICY, fleet_with_readiness, footprint, policy};
use capstan_tests::nim::state;
use capstan_tests::upgrade::breaks;
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

const TAINT: &str = "capstan.dev/starting";

fn all() -> Readiness {
    Readiness { condition: true, taint: Some(StartupTaint::parse(TAINT).unwrap()) }
}

/// A cluster whose nodes are told everything.
async fn telling(nodes: u16) -> World {
    World::start_bare_in_virtual_time(nodes).await.with_readiness(all())
}

fn gpu_ready(node: &Value) -> Option<&Value> {
    node["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == "GPUReady")
}

fn says(status: &'static str) -> impl Fn(&Value) -> bool {
    move |node| gpu_ready(node).is_some_and(|one| one["status"] == status)
}

fn taints(node: &Value) -> Vec<&str> {
    node["spec"]["taints"].as_array().into_iter().flatten().filter_map(|taint| taint["key"].as_str()).collect()
}

/// Whether the node works, says so and takes pods.
fn is_free(node: &Value) -> bool {
    says("True")(node) && !taints(node).contains(&TAINT)
}

/// A policy with a driver that [`breaks`] can break.
fn with_driver() -> Value {
    let mut one = policy();
    one["spec"]["driver"] = json!({"repository": "example.com", "image": "driver", "version": "1"});
    one
}

async fn install(world: &World) {
    world.apply(policy()).await;
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
}

async fn timelines(world: &World, node: &str) -> Vec<String> {
    let events = kube::Api::<Event>::all(world.admin.clone()).list(&Default::default()).await.unwrap();
    let about = |event: &Event| {
        event.reason.as_deref() == Some("GPUReady") && event.involved_object.name.as_deref() == Some(node)
    };
    events.items.into_iter().filter(about).filter_map(|event| event.message).collect()
}

async fn validated(world: &World, node: &str) -> bool {
    let pods = world.list("v1", "Pod").await;
    let mut validators = pods.iter().filter(|pod| {
        pod["spec"]["nodeName"] == node && pod["metadata"]["labels"]["app"] == "nvidia-operator-validator"
    });
    validators.any(|pod| pod["status"]["containerStatuses"][0]["ready"] == true)
}

#[tokio::test(start_paused = true)]
async fn a_node_joins_tainted_and_is_freed_when_it_works() {
    let world = telling(1).await;
    let operator = world.operator(Fault::None).await;
    install(&world).await;
    let template = capstan_gpu_sim::gpu_node("late", 8).taint(TAINT, "", "NoSchedule");
    world.nodes().add(template).await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "work"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "late"}, "containers": [{"name": "work", "image": "work:1"}],
        },
    });
    world.apply(pod).await;
    world.until("v1", "Node", "late", says("False")).await;
    world.until("v1", "Pod", "work", |pod| pod["spec"]["nodeName"] == "late").await;
    assert!(validated(&world, "late").await, "nobody is let in before the GPUs were used once");
    world.until("v1", "Node", "late", is_free).await;
    world.settled(&operator).await;
    let told = timelines(&world, "late").await;
    assert_eq!(told.len(), 1, "{told:?}");
    for phase in
        ["GPUs can be used after ", "labels ", "driver ", "container toolkit ", "device plugin ", "validation "]
    {
        assert!(told[0].contains(phase), "{phase} is not in {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_the_taint_gets_it_with_its_labels() {
    let world = telling(1).await;
    breaks(&world, "1", "gpu-0");
    let _operator = world.operator(Fault::None).await;
    world.apply(with_driver()).await;
    let labelled = |node: &Value| node["metadata"]["labels"]["nvidia.com/gpu.present"] == "true";
    let node = world.until("v1", "Node", "gpu-0", labelled).await;
    assert_eq!(taints(&node), [TAINT], "there is no moment without it");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_driver_crashes_stays_tainted_and_says_why() {
    let world = telling(2).await;
    let operator = world.operator(Fault::None).await;
    let broken = breaks(&world, "1", "gpu-1");
    world.apply(with_driver()).await;
    world.until("v1", "Node", "gpu-0", is_free).await;
    let crashes = |node: &Value| {
        gpu_ready(node).is_some_and(|one| one["message"].as_str().unwrap_or_default().contains("the kernel module"))
            || gpu_ready(node)
                .is_some_and(|one| one["message"].as_str().unwrap_or_default().contains("CrashLoopBackOff"))
    };
    let node = world.until("v1", "Node", "gpu-1", crashes).await;
    let condition = gpu_ready(&node).unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&"False".into(), &"DriverNotReady".into()));
    assert!(condition["message"].as_str().unwrap().starts_with("waits for driver: pod nvidia-driver-daemonset-"));
    world.settled(&operator).await;
    let node = world.until("v1", "Node", "gpu-1", |_| true).await;
    assert_eq!(taints(&node), [TAINT], "a node that does not work is not let go");
    world.nodes().remove_rule(broken);
    world.until("v1", "Node", "gpu-1", is_free).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_policy_cannot_decide_is_told_in_its_words() {
    let world = telling(1).await;
    let _operator = world.operator(Fault::None).await;
    let mut one = policy();
    one["spec"]["driver"]["kernelModuleConfig"] = json!({"name": "parameters"});
    world.apply(one).await;
    let failed = |policy: &Value| capstan_tests::nim::condition(policy, "Driver")["reason"] == "Failed";
    let policy = world.until(API, "ClusterPolicy", POLICY, failed).await;
    let why = capstan_tests::nim::condition(&policy, "Driver")["message"].as_str().unwrap().to_owned();
    let told = |node: &Value| gpu_ready(node).is_some_and(|one| one["message"] == format!("waits for driver: {why}"));
    world.until("v1", "Node", "gpu-0", told).await;
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_was_removed_by_hand_comes_back() {
    let world = telling(1).await;
    let operator = world.operator(Fault::None).await;
    install(&world).await;
    let node = world.until("v1", "Node", "gpu-0", is_free).await;
    world.settled(&operator).await;
    let others: Vec<_> =
        node["status"]["conditions"].as_array().unwrap().iter().filter(|one| one["type"] != "GPUReady").collect();
    world.write_status("v1", "Node", "gpu-0", json!({"conditions": others})).await;
    let node = world.until("v1", "Node", "gpu-0", says("True")).await;
    let types = node["status"]["conditions"].as_array().unwrap().len();
    assert_eq!(types, others.len() + 1, "conditions of others stay");
}

#[tokio::test(start_paused = true)]
async fn taints_of_others_survive() {
    let world = telling(1).await;
    breaks(&world, "1", "gpu-0");
    let operator = world.operator(Fault::None).await;
    world.apply(with_driver()).await;
    let node = world.until("v1", "Node", "gpu-0", |node| taints(node).contains(&TAINT)).await;
    let mut list = node["spec"]["taints"].as_array().unwrap().clone();
    list.push(json!({"key": "example.com/theirs", "effect": "PreferNoSchedule"}));
    world.patch("v1", "Node", "gpu-0", json!({"spec": {"taints": list}})).await;
    world.patch(API, "ClusterPolicy", POLICY, json!({"spec": {"driver": {"version": "2"}}})).await;
    // The pod of a driver that never worked is replaced by hand where nobody upgrades.
    let driver = |pod: &Value| pod["metadata"]["labels"]["app"] == "nvidia-driver-daemonset";
    let pods = world.list("v1", "Pod").await;
    for pod in pods.iter().filter(|pod| driver(pod)) {
        world.delete("v1", "Pod", pod["metadata"]["name"].as_str().unwrap()).await;
    }
    let node = world.until("v1", "Node", "gpu-0", is_free).await;
    assert_eq!(taints(&node), ["example.com/theirs"]);
    world.settled(&operator).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_working_says_so_and_keeps_its_pods() {
    let world = telling(1).await;
    let operator = world.operator(Fault::None).await;
    install(&world).await;
    world.until("v1", "Node", "gpu-0", is_free).await;
    world.settled(&operator).await;
    world
        .patch(
            "v1",
            "Node",
            "gpu-0",
            json!({"metadata": {"labels": {"nvidia.com/gpu.deploy.operator-validator": "paused"}}}),
        )
        .await;
    let node = world.until("v1", "Node", "gpu-0", says("False")).await;
    assert_eq!(gpu_ready(&node).unwrap()["reason"], "ValidationNotReady");
    assert!(taints(&node).is_empty(), "only a new node is kept empty");
    world
        .patch(
            "v1",
            "Node",
            "gpu-0",
            json!({"metadata": {"labels": {"nvidia.com/gpu.deploy.operator-validator": "true"}}}),
        )
        .await;
    world.until("v1", "Node", "gpu-0", is_free).await;
    world.settled(&operator).await;
    let told = timelines(&world, "gpu-0").await;
    assert!(told.iter().any(|one| one.starts_with("GPUs can be used again after ")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn without_the_option_everything_goes() {
    let world = telling(2).await;
    let first = world.operator(Fault::None).await;
    breaks(&world, "1", "gpu-1");
    world.apply(with_driver()).await;
    world.until("v1", "Node", "gpu-0", is_free).await;
    world.until("v1", "Node", "gpu-1", says("False")).await;
    first.kill();
    let world = world.with_readiness(Readiness::default());
    let second = world.operator(Fault::None).await;
    for name in ["gpu-0", "gpu-1"] {
        let clean = |node: &Value| {
            gpu_ready(node).is_none()
                && taints(node).is_empty()
                && node["metadata"]["annotations"]["capstan.dev/startup-taint"].is_null()
        };
        world.until("v1", "Node", name, clean).await;
    }
    world.settled(&second).await;
    let sets = world.list("apps/v1", "DaemonSet").await;
    assert!(!sets.iter().any(|set| set.to_string().contains(TAINT)), "nobody tolerates it any more");
}

#[tokio::test(start_paused = true)]
async fn an_uninstall_leaves_nothing() {
    let world = telling(2).await;
    let before = footprint(&world).await;
    let operator = world.operator(Fault::None).await;
    breaks(&world, "1", "gpu-1");
    world.apply(with_driver()).await;
    world.until("v1", "Node", "gpu-0", is_free).await;
    world.until("v1", "Node", "gpu-1", says("False")).await;
    world.delete(API, "ClusterPolicy", POLICY).await;
    world.until("v1", "Node", "gpu-1", |node| gpu_ready(node).is_none()).await;
    world.settled(&operator).await;
    world.rest().await;
    assert_eq!(footprint(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn what_it_costs_is_known() {
    const NODES: usize = 50;
    let cost = fleet_with_readiness(NODES as u16, all()).await;
    println!("{cost:?}");
    let count = |kind: &str| cost.install.get(kind).copied().unwrap_or_default();
    assert_eq!(count("PATCH nodes"), 2 * NODES, "labels with the taint, and without it");
    assert!(count("PATCH nodes/status") <= 3 * NODES, "{:?}", cost.install);
    assert!(count("POST events") <= NODES + 10, "{:?}", cost.install);
    assert_eq!(cost.idle.values().sum::<usize>(), 0, "while nothing changes");
}

#[tokio::test(start_paused = true)]
async fn a_node_is_freed_whatever_write_was_the_last_before_a_crash() {
    crash::matrix(60, 9, run).await;
}

/// A node that works, one that does not, and then an end. What is left of them, and how many writes there were.
async fn run(trouble: InjectedFailure) -> (Value, usize) {
    let world = Arc::new(telling(2).await);
    let story = async {
        breaks(&world, "1", "gpu-1");
        world.apply(with_driver()).await;
        world.until("v1", "Node", "gpu-0", is_free).await;
        world.until("v1", "Node", "gpu-1", says("False")).await;
        world.rest().await;
    };
    let writes = crash::run(&world, trouble, story).await;
    let mut end = Vec::new();
    for name in ["gpu-0", "gpu-1"] {
        let node = world.until("v1", "Node", name, |_| true).await;
        let condition = gpu_ready(&node).unwrap();
        let annotation = &node["metadata"]["annotations"]["capstan.dev/startup-taint"];
        end.push(json!([name, taints(&node), annotation, condition["status"], condition["reason"]]));
    }
    (end.into(), writes)
}
