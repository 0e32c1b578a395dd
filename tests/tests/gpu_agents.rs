//! What our own image runs on GPU nodes: one pod for all of it, a DaemonSet each, and from one to the other.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use capstan_tests::crash::{self, InjectedFailure};
use capstan_tests::gpu::{API, POLICY, footprint, policy};
use capstan_tests::nim::{condition, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::{OWN_IMAGE, World};
use serde_json::{Value, json};

const AGENT: &str = "capstan-node-agent";
const PLUGIN: &str = "nvidia-device-plugin-daemonset";
const DISCOVERY: &str = "gpu-feature-discovery";
const EXPORTER: &str = "nvidia-dcgm-exporter";
const LAYOUT: &str = "capstan.dev/node-layout";

async fn ready(world: &World) -> Value {
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await
}

/// Names of the DaemonSets among those that our own image may run.
async fn sets(world: &World) -> Vec<String> {
    let all = world.list("apps/v1", "DaemonSet").await;
    let names = all.iter().map(|set| set["metadata"]["name"].as_str().unwrap().to_owned());
    let mut names: Vec<String> =
        names.filter(|name| [AGENT, PLUGIN, DISCOVERY, EXPORTER, "nvidia-dcgm"].contains(&name.as_str())).collect();
    names.sort();
    names
}

fn layout(name: &str) -> Value {
    json!({"metadata": {"annotations": {LAYOUT: name}}})
}

fn offers(count: &'static str) -> impl Fn(&Value) -> bool {
    move |node| node["status"]["allocatable"]["nvidia.com/gpu"] == count
}

async fn all_offer(world: &World) {
    for node in world.list("v1", "Node").await {
        assert!(offers("8")(&node), "{node:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_pod_per_node_does_it_all_and_every_component_says_how_far_it_is() {
    let world = World::start_with_roles(2).await;
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    let policy = ready(&world).await;
    assert_eq!(sets(&world).await, [AGENT]);
    for type_ in ["DevicePlugin", "FeatureDiscovery", "DcgmExporter"] {
        assert_eq!(condition(&policy, type_)["message"], "2 of 2 nodes", "{policy:#}");
    }
    assert_eq!(condition(&policy, "Dcgm")["message"], "disabled: the exporter reads NVML itself");
    all_offer(&world).await;
    let pods = world.list("v1", "Pod").await;
    let ours = |pod: &&Value| pod["metadata"]["labels"]["app.kubernetes.io/name"] == AGENT;
    let pods: Vec<&Value> = pods.iter().filter(ours).collect();
    assert_eq!(pods.len(), 2);
    assert_eq!(pods[0]["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(pods[0]["spec"]["containers"][0]["image"], OWN_IMAGE);
    let service = world.until("v1", "Service", EXPORTER, |_| true).await;
    assert_eq!(service["spec"]["selector"], json!({"app.kubernetes.io/name": AGENT}));
    let writes = world.settled(&operator).await;
    world.rest().await;
    assert_eq!(operator.wire.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn an_annotation_gives_each_component_a_daemon_set() {
    let world = World::start_with_roles(1).await;
    let _operator = world.operator(Fault::None).await;
    let mut policy = policy();
    policy["metadata"]["annotations"] = json!({LAYOUT: "per-component"});
    world.apply(policy).await;
    ready(&world).await;
    assert_eq!(sets(&world).await, [DISCOVERY, EXPORTER, PLUGIN]);
    all_offer(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_switch_of_layouts_leaves_nothing_of_the_other() {
    let world = World::start_with_roles(2).await;
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    ready(&world).await;
    world.settled(&operator).await;
    let combined = footprint_without_pods(&world).await;
    world.patch(API, "ClusterPolicy", POLICY, layout("per-component")).await;
    world.until_gone("apps/v1", "DaemonSet", AGENT).await;
    world.settled(&operator).await;
    ready(&world).await;
    all_offer(&world).await;
    let apart = footprint_without_pods(&world).await;
    assert!(!apart.iter().any(|(name, _)| name.contains(AGENT)), "{apart:#?}");
    world.patch(API, "ClusterPolicy", POLICY, layout("combined")).await;
    world.until_gone("apps/v1", "DaemonSet", PLUGIN).await;
    world.settled(&operator).await;
    ready(&world).await;
    all_offer(&world).await;
    assert_eq!(footprint_without_pods(&world).await, combined);
}

#[tokio::test(start_paused = true)]
async fn a_component_whose_image_is_named_has_a_daemon_set_of_its_own() {
    let world = World::start_with_roles(1).await;
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    ready(&world).await;
    let named = json!({"repository": "example.com", "image": "plugin", "version": "1"});
    world.patch(API, "ClusterPolicy", POLICY, json!({"spec": {"devicePlugin": named}})).await;
    world.until("apps/v1", "DaemonSet", PLUGIN, |set| set["status"]["numberAvailable"] == 1).await;
    world.settled(&operator).await;
    ready(&world).await;
    assert_eq!(sets(&world).await, [AGENT, PLUGIN]);
    let agent = world.until("apps/v1", "DaemonSet", AGENT, |_| true).await;
    let args = agent["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(args.contains("feature-discovery,exporter") && !args.contains("device-plugin"), "{args}");
    all_offer(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_label_pauses_one_role_and_the_pod_stays_for_the_others() {
    let world = World::start_with_roles(2).await;
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    ready(&world).await;
    let label = |value: &str| json!({"metadata": {"labels": {"nvidia.com/gpu.deploy.device-plugin": value}}});
    world.patch("v1", "Node", "gpu-0", label("false")).await;
    world.until("v1", "Node", "gpu-0", offers("0")).await;
    world.settled(&operator).await;
    let policy = ready(&world).await;
    assert_eq!(condition(&policy, "DevicePlugin")["message"], "1 of 1 nodes");
    assert_eq!(condition(&policy, "DcgmExporter")["message"], "2 of 2 nodes");
    let agent = world.until("apps/v1", "DaemonSet", AGENT, |_| true).await;
    assert_eq!(agent["status"]["numberAvailable"], 2);
    world.patch("v1", "Node", "gpu-0", label("true")).await;
    world.until("v1", "Node", "gpu-0", offers("8")).await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_all_roles_takes_the_pod_away() {
    let world = World::start_with_roles(1).await;
    let _operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    ready(&world).await;
    let all = |value: &str| {
        let keys = ["device-plugin", "gpu-feature-discovery", "dcgm-exporter"];
        let labels: serde_json::Map<String, Value> =
            keys.iter().map(|key| (format!("nvidia.com/gpu.deploy.{key}"), value.into())).collect();
        json!({"metadata": {"labels": labels}})
    };
    world.patch("v1", "Node", "gpu-0", all("paused-for-mig-change")).await;
    world.until("v1", "Node", "gpu-0", offers("0")).await;
    world.until("apps/v1", "DaemonSet", AGENT, |set| set["status"]["currentNumberScheduled"] == 0).await;
    world.patch("v1", "Node", "gpu-0", all("true")).await;
    world.until("v1", "Node", "gpu-0", offers("8")).await;
    ready(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_layout_that_nobody_knows_is_said_and_what_runs_goes_on() {
    let world = World::start_with_roles(1).await;
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    ready(&world).await;
    world.patch(API, "ClusterPolicy", POLICY, layout("both")).await;
    let told = |policy: &Value| condition(policy, "DevicePlugin")["reason"] == "Failed";
    let policy = world.until(API, "ClusterPolicy", POLICY, told).await;
    let message = condition(&policy, "DevicePlugin")["message"].as_str().unwrap().to_owned();
    let expected = "annotation capstan.dev/node-layout: \"both\" is no layout: write combined or per-component";
    assert_eq!(message, expected);
    world.settled(&operator).await;
    assert_eq!(sets(&world).await, [AGENT]);
    all_offer(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_switch_of_layouts_may_crash_anywhere() {
    crash::matrix(80, 6, run).await;
}

/// Combined, then apart, then one image named. Returns the end and how many writes the first operator made.
async fn run(trouble: InjectedFailure) -> (Value, usize) {
    let world = Arc::new(World::start_bare_in_virtual_time(1).await.with_own_image());
    let story = async {
        world.apply(policy()).await;
        ready(&world).await;
        world.patch(API, "ClusterPolicy", POLICY, layout("per-component")).await;
        world.until_gone("apps/v1", "DaemonSet", AGENT).await;
        world.until("v1", "Node", "gpu-0", offers("8")).await;
        let named = json!({"repository": "example.com", "image": "discovery", "version": "1"});
        let mut change = layout("combined");
        change["spec"] = json!({"gfd": named});
        world.patch(API, "ClusterPolicy", POLICY, change).await;
        world.until_gone("apps/v1", "DaemonSet", PLUGIN).await;
        world.until("v1", "Node", "gpu-0", offers("8")).await;
        ready(&world).await;
        world.rest().await;
    };
    let writes = crash::run(&world, trouble, story).await;
    let mut end = world.end_state().await;
    end["footprint"] = serde_json::to_value(footprint_without_pods(&world).await).unwrap();
    (end, writes)
}

/// What is there, without pods, whose names differ, and without when a node was labelled.
async fn footprint_without_pods(world: &World) -> Vec<(String, Value)> {
    let mut all = footprint(world).await;
    for (_, about) in all.iter_mut().filter(|(name, _)| name.starts_with("Node ")) {
        about[0].as_object_mut().unwrap().remove("nvidia.com/gfd.timestamp");
    }
    all.into_iter().filter(|(name, _)| !name.starts_with("Pod ")).collect()
}
