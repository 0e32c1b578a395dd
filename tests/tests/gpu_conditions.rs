//! What a cluster lacks is named in a condition, and everything goes on by itself once it is there.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_sim::NodeTemplate;
use capstan_sim::node::{Behaviour, Match, PullFailure};
use capstan_tests::gpu::{ALPHA, API, POLICY, driver, policy};
use capstan_tests::nim::{condition, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::{Operator, World};
use serde_json::{Value, json};

async fn started(nodes: u16) -> (World, Operator) {
    let world = World::start_bare_in_virtual_time(nodes).await;
    let operator = world.operator(Fault::None).await;
    (world, operator)
}

/// Whether a condition has that reason and says that.
fn says(type_: &'static str, reason: &'static str, text: &'static str) -> impl Fn(&Value) -> bool {
    move |object| {
        let one = condition(object, type_);
        one["reason"] == reason && one["message"].as_str().unwrap_or_default().contains(text)
    }
}

async fn until(world: &World, wanted: impl Fn(&Value) -> bool) -> Value {
    world.until(API, "ClusterPolicy", POLICY, wanted).await
}

#[tokio::test(start_paused = true)]
async fn without_feature_discovery_the_policy_waits_for_it() {
    let (world, _operator) = started(0).await;
    world.apply(policy()).await;
    until(&world, says("Ready", "NFDLabelsMissing", "No NFD labels found")).await;
    let nodes = world.nodes().clone();
    let plain = NodeTemplate::new("plain").label("feature.node.kubernetes.io/kernel-version.full", "6.8.0");
    nodes.add(plain).await.unwrap();
    until(&world, says("Ready", "NoGPUNodes", "No GPU node found")).await;
    nodes.add(capstan_gpu_sim::gpu_node("gpu", 8)).await.unwrap();
    until(&world, says("Ready", "Reconciled", "")).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_config_map_is_named_with_its_field_and_awaited() {
    let (world, _operator) = started(1).await;
    let mut one = policy();
    one["spec"]["driver"]["kernelModuleConfig"] = json!({"name": "parameters"});
    world.apply(one).await;
    until(&world, says("Driver", "Failed", "\"parameters\"")).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "parameters"}, "data": {"nvidia.conf": "x"}});
    world.apply(map).await;
    until(&world, state("ready")).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_named_with_its_field_and_awaited() {
    let (world, _operator) = started(1).await;
    let mut one = policy();
    one["spec"]["driver"]["secretEnv"] = "proxy".into();
    world.apply(one).await;
    until(&world, says("Driver", "Failed", "no Secret of that name")).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "proxy"}, "stringData": {"A": "b"}});
    world.apply(secret).await;
    until(&world, state("ready")).await;
}

#[tokio::test(start_paused = true)]
async fn a_kernel_without_a_precompiled_driver_is_named() {
    let (world, _operator) = started(1).await;
    let kernel = "feature.node.kubernetes.io/kernel-version.full";
    world.patch("v1", "Node", "gpu-0", json!({"metadata": {"labels": {kernel: null}}})).await;
    let mut one = policy();
    one["spec"]["driver"] =
        json!({"usePrecompiled": true, "repository": "example.com", "image": "driver", "version": "580"});
    world.apply(one).await;
    let failed = until(&world, says("Driver", "Failed", kernel)).await;
    assert!(condition(&failed, "Driver")["message"].as_str().unwrap().contains("gpu-0"), "{failed:#}");
    world.patch("v1", "Node", "gpu-0", json!({"metadata": {"labels": {kernel: "6.8.0-45-generic"}}})).await;
    until(&world, state("ready")).await;
}

#[tokio::test(start_paused = true)]
async fn a_kernel_whose_driver_is_in_no_registry_is_named_until_it_is() {
    let (world, _operator) = started(1).await;
    let absent = PullFailure { message: "not found".into(), times: None };
    let absent = Behaviour { pull_failure: Some(absent), ..Behaviour::default() };
    let rule = world.nodes().rule(Match::image("*driver:580-6.8.0-45-generic-*"), absent);
    let mut one = policy();
    one["spec"]["driver"] =
        json!({"usePrecompiled": true, "repository": "example.com", "image": "driver", "version": "580"});
    world.apply(one).await;
    let text = "there is no precompiled driver for kernel 6.8.0-45-generic on 1 nodes, such as gpu-0: ";
    until(&world, says("UnsupportedKernel", "NoPrecompiledDriver", text)).await;
    world.nodes().remove_rule(rule);
    let ready = until(&world, state("ready")).await;
    assert!(condition(&ready, "UnsupportedKernel").is_null(), "{ready:#}");
}

#[tokio::test(start_paused = true)]
async fn the_second_of_two_policies_says_who_is_first_and_follows_it() {
    let (world, _operator) = started(1).await;
    world.apply(policy()).await;
    until(&world, state("ready")).await;
    let mut second = policy();
    second["metadata"]["name"] = "second".into();
    world.apply(second).await;
    let ignored = world.until(API, "ClusterPolicy", "second", state("ignored")).await;
    assert!(says("Error", "Ignored", "\"cluster-policy\" is older")(&ignored), "{ignored:#}");
    world.delete(API, "ClusterPolicy", POLICY).await;
    world.until(API, "ClusterPolicy", "second", state("ready")).await;
}

#[tokio::test(start_paused = true)]
async fn two_drivers_that_select_one_node_are_refused_with_both_names() {
    let (world, _operator) = started(1).await;
    let mut one = policy();
    one["spec"]["driver"]["useNvidiaDriverCRD"] = true.into();
    world.apply(one).await;
    for name in ["b", "a"] {
        world.apply(driver(name, json!({"nodeSelector": {"kubernetes.io/hostname": "gpu-0"}}))).await;
    }
    let text = "multiple NVIDIADrivers match the same node gpu-0: [a b]";
    for name in ["a", "b"] {
        world.until(ALPHA, "NVIDIADriver", name, says("Error", "ConflictingNodeSelector", text)).await;
    }
    world.delete(ALPHA, "NVIDIADriver", "b").await;
    world.until(ALPHA, "NVIDIADriver", "a", state("ready")).await;
    until(&world, state("ready")).await;
}

/// Faults of nodes that pods of drivers and validators tell of, where they tell it, and in which words.
const CAUSES: &[(&str, &str, &str)] = &[
    (
        "driver-headers-missing",
        "Driver",
        "the headers of kernel 6.8.0-45-generic cannot be had, so the driver cannot be built",
    ),
    ("driver-nouveau-loaded", "Driver", "the kernel module nouveau holds the GPUs, so the driver cannot"),
    ("driver-secure-boot", "Driver", "Secure Boot rejects the driver's kernel module: its key is not enrolled"),
    ("driver-kernel-unsupported", "Driver", "the driver does not support kernel 6.8.0-45-generic"),
    ("driver-in-use", "Driver", "another driver is loaded and somebody uses it, so it cannot be unloaded"),
    ("driver-not-loaded", "Validation", "the driver is installed and not loaded"),
    ("fabric-manager", "Validation", "fabric manager does not run, so GPUs refuse to work"),
    ("runtime-handler", "Validation", "the container runtime has no handler \"nvidia\""),
    ("init-barrier", "Validation", "stuck at driver-validation, which waits for the driver"),
    ("plugin-not-running", "Validation", "the device plugin does not run, so no GPUs are offered"),
];

fn breaks(world: &World, fault: &str, node: usize) -> Vec<capstan_sim::node::RuleId> {
    let fault = capstan_gpu_sim::faults::Fault::parse(&format!("{fault}@gpu-{node}")).unwrap();
    fault.rules().into_iter().map(|(which, behaviour)| world.nodes().rule(which, behaviour)).collect()
}

/// What events say about the policy that needs attention.
async fn warnings(world: &World) -> Vec<String> {
    let api: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::all(world.admin.clone());
    let all = api.list(&kube::api::ListParams::default()).await.unwrap().items;
    let about = |event: &k8s_openapi::api::core::v1::Event| {
        event.involved_object.kind.as_deref() == Some("ClusterPolicy") && event.type_.as_deref() == Some("Warning")
    };
    all.into_iter().filter(about).filter_map(|event| event.message).collect()
}

#[tokio::test(start_paused = true)]
async fn what_pods_say_is_told_in_a_condition_and_in_one_event_in_the_words_of_the_doctor() {
    let (world, operator) = started(u16::try_from(CAUSES.len()).unwrap() + 1).await;
    for (node, (fault, ..)) in CAUSES.iter().enumerate() {
        breaks(&world, fault, node);
    }
    world.apply(policy()).await;
    let titles = CAUSES.iter().enumerate().map(|(node, (_, type_, what))| (*type_, format!("node gpu-{node}: {what}")));
    let titles: Vec<(&str, String)> = titles.collect();
    for (type_, title) in &titles {
        let told = |policy: &Value| condition(policy, type_)["message"].as_str().unwrap_or_default().contains(title);
        until(&world, told).await;
    }
    world.settled(&operator).await;
    let said = warnings(&world).await;
    for (_, title) in &titles {
        assert_eq!(said.iter().filter(|one| *one == title).count(), 1, "{title} in {said:#?}");
    }
    assert_eq!(said.len(), titles.len(), "{said:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_cause_is_told_as_long_as_it_is_there() {
    let (world, _operator) = started(2).await;
    let rules = breaks(&world, "driver-headers-missing", 1);
    world.apply(policy()).await;
    until(&world, says("Driver", "NotReady", "1 of 2 nodes; node gpu-1: the headers of kernel")).await;
    rules.into_iter().for_each(|rule| world.nodes().remove_rule(rule));
    let ready = until(&world, state("ready")).await;
    assert!(says("Driver", "Ready", "2 of 2 nodes")(&ready), "{ready:#}");
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_its_own_tells_what_is_wrong_with_its_pods() {
    let (world, _operator) = started(1).await;
    breaks(&world, "driver-secure-boot", 0);
    let mut one = policy();
    one["spec"]["driver"]["useNvidiaDriverCRD"] = true.into();
    world.apply(one).await;
    world.apply(driver("all", json!({}))).await;
    let text = "; node gpu-0: Secure Boot rejects the driver's kernel module: its key is not enrolled";
    world.until(ALPHA, "NVIDIADriver", "all", says("Error", "DriverNotReady", text)).await;
}
