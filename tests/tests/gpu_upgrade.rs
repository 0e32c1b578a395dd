//! Stories of driver upgrades, on virtual nodes whose driver pods have to be deleted before they are replaced.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use capstan_operator::gpu::Requestor;
use capstan_sim::node::{Behaviour, Exit, Match};
use capstan_tests::gpu::{ALPHA, driver};
use capstan_tests::nim::state;
use capstan_tests::upgrade::{
    API, POLICY, STATE, breaks, change_driver, drivers, fleet, gpu_pod, install, is_over, nodes, policy,
    until_upgraded, upgrade_condition,
};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::{Value, json};

fn annotation<'a>(node: &'a Value, key: &str) -> &'a str {
    node["metadata"]["annotations"][format!("capstan.dev/upgrade-{key}")].as_str().unwrap_or_default()
}

fn in_state(state: &'static str) -> impl Fn(&Value) -> bool {
    move |node| node["metadata"]["labels"][STATE] == state
}

#[tokio::test(start_paused = true)]
async fn twenty_nodes_get_another_driver_within_their_budget_and_jobs_finish_first() {
    let world = World::start_bare_in_virtual_time(20).await;
    let operator = world.operator(Fault::None).await;
    let upgrade = json!({
        "autoUpgrade": true, "maxParallelUpgrades": 4, "maxUnavailable": "25%",
        "waitForCompletion": {"podSelector": "job=training"},
    });
    install(&world, policy("1", &upgrade, &[])).await;
    let training = Behaviour { exit: Some(Exit::after(Duration::from_secs(40), 0)), ..Behaviour::default() };
    world.nodes().rule(Match::label("job", "training"), training);
    let before = drivers(&world).await;
    for node in ["gpu-0", "gpu-7"] {
        world.apply(gpu_pod(&format!("train-{node}"), node, &json!({"job": "training"}))).await;
    }
    change_driver(&world, "2").await;
    let mut most = 0;
    until_upgraded(&world, "2", |nodes| {
        most = most.max(nodes.values().filter(|(_, free)| !free).count());
    })
    .await;
    assert!((1..=4).contains(&most), "{most} nodes were out of use at once");
    let after = drivers(&world).await;
    assert!(before.iter().all(|(node, (uid, _))| after[node].0 != *uid), "every pod is another one");
    let policy = world.until(API, "ClusterPolicy", POLICY, is_over).await;
    assert_eq!(upgrade_condition(&policy).1, "the wanted driver works on 20 of 20 nodes");
    for node in world.list("v1", "Node").await {
        let annotations = node["metadata"]["annotations"].as_object().into_iter().flatten();
        let ours: Vec<_> = annotations.filter(|(key, _)| key.starts_with("capstan.dev/")).collect();
        assert!(ours.is_empty(), "{ours:?}");
    }
    let jobs = kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(world.admin.clone(), "default");
    for job in jobs.list(&kube::api::ListParams::default().labels("job=training")).await.unwrap() {
        assert_eq!(job.status.unwrap().phase.as_deref(), Some("Succeeded"));
    }
    world.settled(&operator).await;
    let (writes, requests) = (operator.wire.writes(), operator.wire.requests());
    world.rest().await;
    assert_eq!(operator.wire.writes(), writes, "nothing is written when nothing changes");
    assert_eq!(requests.get("DELETE pods"), Some(&20), "each driver pod is deleted once: {requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_driver_crashes_says_so_and_is_tried_again() {
    let world = World::start_bare_in_virtual_time(3).await;
    let _operator = world.operator(Fault::None).await;
    let upgrade = json!({"autoUpgrade": true, "maxParallelUpgrades": 0, "maxUnavailable": "100%"});
    install(&world, policy("1", &upgrade, &[("restart-threshold", "2"), ("retry-backoff", "5m")])).await;
    let broken = breaks(&world, "2", "gpu-1");
    change_driver(&world, "2").await;
    let failed = world.until("v1", "Node", "gpu-1", in_state("upgrade-failed")).await;
    let reason = annotation(&failed, "reason");
    assert!(reason.starts_with("DriverCrashes: driver pod nvidia-driver-daemonset-"), "{reason}");
    assert_eq!(failed["spec"]["unschedulable"], true, "a node without a driver takes no pods");
    for node in ["gpu-0", "gpu-2"] {
        world.until("v1", "Node", node, in_state("upgrade-done")).await;
    }
    let policy = world.until(API, "ClusterPolicy", POLICY, |policy| upgrade_condition(policy).0 == "NodesFailed").await;
    assert!(upgrade_condition(&policy).1.contains("gpu-1 since "), "{}", upgrade_condition(&policy).1);
    assert!(upgrade_condition(&policy).1.contains("DriverCrashes: driver pod"), "{}", upgrade_condition(&policy).1);
    world.nodes().remove_rule(broken);
    until_upgraded(&world, "2", |_| {}).await;
    world.until(API, "ClusterPolicy", POLICY, is_over).await;
    let all = kube::Api::<k8s_openapi::api::core::v1::Event>::all(world.admin.clone());
    let events = all.list(&kube::api::ListParams::default()).await.unwrap().items;
    let on_node = |text: &str| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("GPUDriverUpgrade")
                && event.involved_object.name.as_deref() == Some("gpu-1")
                && event.message.as_deref().is_some_and(|message| message.contains(text))
        })
    };
    assert!(on_node("driver upgrade failed, DriverCrashes") && on_node("driver upgrade is done"));
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_fails_on_the_canary_stops_there_and_the_one_before_comes_back() {
    let world = World::start_bare_in_virtual_time(5).await;
    let operator = world.operator(Fault::None).await;
    let upgrade = json!({"autoUpgrade": true, "maxParallelUpgrades": 0, "maxUnavailable": "100%"});
    let annotations = [
        ("canary-size", "1"),
        ("canary-soak", "60s"),
        ("max-failures", "0"),
        ("rollback", "true"),
        ("retries", "0"),
        ("restart-threshold", "1"),
    ];
    install(&world, policy("1", &upgrade, &annotations)).await;
    let before = drivers(&world).await;
    breaks(&world, "2", "*");
    change_driver(&world, "2").await;
    world.until("v1", "Node", "gpu-0", in_state("upgrade-failed")).await;
    let rolled_back =
        |policy: &Value| upgrade_condition(policy).0 == "RolledBack" && policy["status"]["state"] == "ready";
    let policy = world.until(API, "ClusterPolicy", POLICY, rolled_back).await;
    assert!(
        upgrade_condition(&policy).1.starts_with("went back to the driver before"),
        "{}",
        upgrade_condition(&policy).1
    );
    until_upgraded(&world, "1", |_| {}).await;
    let after = drivers(&world).await;
    for node in ["gpu-1", "gpu-2", "gpu-3", "gpu-4"] {
        assert_eq!(before[node], after[node], "{node} was never touched");
    }
    let writes = world.settled(&operator).await;
    world.rest().await;
    assert_eq!(operator.wire.writes(), writes);

    // The next driver works, and goes everywhere: the canary first.
    change_driver(&world, "3").await;
    let mut early = Vec::new();
    until_upgraded(&world, "3", |nodes| {
        let busy = nodes.values().filter(|(_, free)| !free).count();
        early.push(busy);
    })
    .await;
    assert_eq!(early.iter().find(|busy| **busy > 0), Some(&1), "one node goes first");
    world.until(API, "ClusterPolicy", POLICY, is_over).await;
    let set = world.until("apps/v1", "DaemonSet", "nvidia-driver-daemonset", |_| true).await;
    assert_eq!(annotation(&set, "rejected"), "", "what failed is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_disruption_budget_that_blocks_is_named_and_the_node_is_given_back() {
    let world = World::start_bare_in_virtual_time(2).await;
    let _operator = world.operator(Fault::None).await;
    let upgrade = json!({
        "autoUpgrade": true, "maxParallelUpgrades": 1, "maxUnavailable": "100%", "podDeletion": {"timeoutSeconds": 120},
    });
    install(&world, policy("1", &upgrade, &[("retry-backoff", "2m"), ("max-failures", "1")])).await;
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": gpu_pod("web", "gpu-0", &labels)["spec"]});
    let mut web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    });
    web["spec"]["template"]["spec"]["restartPolicy"] = "Always".into();
    world.apply(web).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep-web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    });
    world.apply(budget).await;
    let deployments = kube::Api::<k8s_openapi::api::apps::v1::Deployment>::namespaced(world.admin.clone(), "default");
    while deployments.get("web").await.unwrap().status.and_then(|status| status.ready_replicas) != Some(1) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let before = drivers(&world).await;
    change_driver(&world, "2").await;
    let blocked =
        |policy: &Value| upgrade_condition(policy).1.contains("The disruption budget keep-web needs 1 healthy pods");
    let policy = world.until(API, "ClusterPolicy", POLICY, blocked).await;
    assert!(upgrade_condition(&policy).1.contains("evicts pod default/web-"), "{}", upgrade_condition(&policy).1);
    let failed = world.until("v1", "Node", "gpu-0", in_state("upgrade-failed")).await;
    let reason = annotation(&failed, "reason");
    assert!(reason.starts_with("EvictionFailed: ") && reason.contains("keep-web"), "{reason}");
    assert!(reason.ends_with("for more than 120 s"), "{reason}");
    assert!(failed["spec"]["unschedulable"] != true, "its old driver works: others may use it");
    assert_eq!(drivers(&world).await["gpu-0"], before["gpu-0"]);
    world.until("v1", "Node", "gpu-1", in_state("upgrade-done")).await;

    let budgets =
        kube::Api::<k8s_openapi::api::policy::v1::PodDisruptionBudget>::namespaced(world.admin.clone(), "default");
    budgets.delete("keep-web", &kube::api::DeleteParams::default()).await.unwrap();
    until_upgraded(&world, "2", |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn what_users_cordoned_or_keep_out_stays_as_it_is() {
    let world = World::start_bare_in_virtual_time(3).await;
    let _operator = world.operator(Fault::None).await;
    let upgrade = json!({"autoUpgrade": true, "maxParallelUpgrades": 0, "maxUnavailable": "100%"});
    install(&world, policy("1", &upgrade, &[])).await;
    let before = drivers(&world).await;
    world.patch("v1", "Node", "gpu-0", json!({"spec": {"unschedulable": true}})).await;
    let skip = json!({"metadata": {"labels": {"nvidia.com/gpu-driver-upgrade.skip": "true"}}});
    world.patch("v1", "Node", "gpu-1", skip).await;
    change_driver(&world, "2").await;
    let required = |node: &Value| in_state("upgrade-required")(node);
    world.until("v1", "Node", "gpu-1", required).await;
    for node in ["gpu-0", "gpu-2"] {
        world.until("v1", "Node", node, in_state("upgrade-done")).await;
    }
    let skipped = |policy: &Value| {
        upgrade_condition(policy).1.contains("gpu-1 since ") && upgrade_condition(policy).1.contains("is skipped")
    };
    world.until(API, "ClusterPolicy", POLICY, skipped).await;
    let (after, nodes) = (drivers(&world).await, nodes(&world).await);
    assert!(after["gpu-0"].1.contains(":2-") && after["gpu-2"].1.contains(":2-"), "{after:?}");
    assert_eq!(before["gpu-1"], after["gpu-1"]);
    assert_eq!(nodes["gpu-0"], ("upgrade-done".into(), false), "it was cordoned before");
    assert_eq!(nodes["gpu-1"], ("upgrade-required".into(), true));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_the_wanted_driver_already_is_never_touched() {
    let world = World::start_bare_in_virtual_time(2).await;
    let _operator = world.operator(Fault::None).await;
    install(&world, policy("1", &json!({"autoUpgrade": false}), &[])).await;
    change_driver(&world, "2").await;
    let pods = world.list("v1", "Pod").await;
    let by_hand = pods.iter().find(|pod| {
        pod["spec"]["nodeName"] == "gpu-0" && pod["metadata"]["labels"]["app"] == "nvidia-driver-daemonset"
    });
    let wanted = |set: &Value| set["status"]["observedGeneration"] == 2;
    world.until("apps/v1", "DaemonSet", "nvidia-driver-daemonset", wanted).await;
    world.delete("v1", "Pod", by_hand.unwrap()["metadata"]["name"].as_str().unwrap()).await;
    let upgraded = |set: &Value| set["status"]["updatedNumberScheduled"] == 1 && set["status"]["numberAvailable"] == 2;
    world.until("apps/v1", "DaemonSet", "nvidia-driver-daemonset", upgraded).await;
    let before = drivers(&world).await;
    world
        .patch(API, "ClusterPolicy", POLICY, json!({"spec": {"driver": {"upgradePolicy": {"autoUpgrade": true}}}}))
        .await;
    let mut touched = false;
    until_upgraded(&world, "2", |nodes| touched |= !nodes["gpu-0"].1).await;
    assert!(!touched && drivers(&world).await["gpu-0"] == before["gpu-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_rests_is_looked_at_again_when_something_happens_there() {
    let world = World::start_bare_in_virtual_time(3).await;
    let operator = world.operator(Fault::None).await;
    install(&world, policy("1", &json!({"autoUpgrade": true}), &[])).await;
    world.until(API, "ClusterPolicy", POLICY, is_over).await;
    world.settled(&operator).await;
    let requested = "nvidia.com/gpu-driver-upgrade-requested";
    world.patch("v1", "Node", "gpu-0", json!({"metadata": {"annotations": {requested: "true"}}})).await;
    world.until("v1", "Node", "gpu-0", |node| node["metadata"]["annotations"][requested].is_null()).await;
    let broken = breaks(&world, "1", "gpu-1");
    let pods = world.list("v1", "Pod").await;
    let driver = pods.iter().find(|pod| {
        pod["spec"]["nodeName"] == "gpu-1" && pod["metadata"]["labels"]["app"] == "nvidia-driver-daemonset"
    });
    world.delete("v1", "Pod", driver.unwrap()["metadata"]["name"].as_str().unwrap()).await;
    world.until(API, "ClusterPolicy", POLICY, |policy| upgrade_condition(policy).0 == "NothingToUpgrade").await;
    world.nodes().remove_rule(broken);
    world.until(API, "ClusterPolicy", POLICY, is_over).await;
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_is_switched_off_gives_every_node_back() {
    let world = World::start_bare_in_virtual_time(2).await;
    let operator = world.operator(Fault::None).await;
    let upgrade = json!({"autoUpgrade": true, "maxParallelUpgrades": 0, "maxUnavailable": "100%",
        "waitForCompletion": {"podSelector": "job=training"}});
    install(&world, policy("1", &upgrade, &[])).await;
    for node in ["gpu-0", "gpu-1"] {
        world.apply(gpu_pod(&format!("train-{node}"), node, &json!({"job": "training"}))).await;
    }
    change_driver(&world, "2").await;
    let waits = |policy: &Value| upgrade_condition(policy).1.contains("waits for pod default/train-gpu-");
    world.until(API, "ClusterPolicy", POLICY, waits).await;
    assert!(nodes(&world).await.values().all(|(state, free)| state == "wait-for-jobs-required" && !free));
    world
        .patch(API, "ClusterPolicy", POLICY, json!({"spec": {"driver": {"upgradePolicy": {"autoUpgrade": false}}}}))
        .await;
    world.until("v1", "Node", "gpu-1", |node| node["metadata"]["labels"][STATE].is_null()).await;
    world.settled(&operator).await;
    assert!(nodes(&world).await.values().all(|(state, free)| state.is_empty() && *free));
    let policy = world.until(API, "ClusterPolicy", POLICY, |_| true).await;
    assert_eq!(upgrade_condition(&policy), ("", ""));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_is_upgraded_five_percent_at_a_time_with_a_few_requests_per_node() {
    let cost = fleet(40).await;
    println!("{cost:?}");
    assert_eq!(cost.most, 2, "all of the budget, and no more");
    let count = |kind: &str| cost.requests.get(kind).copied().unwrap_or(0);
    assert_eq!((count("DELETE pods"), count("POST pods/eviction")), (40, 0));
    assert!(count("PATCH nodes") <= 6 * 40, "{:?}", cost.requests);
    let turns = cost.took.as_secs() as usize / 5 + 5;
    let status_writes = count("PATCH clusterpolicies/status");
    assert!(status_writes <= turns, "the status was written {status_writes} times in {:?}", cost.took);
}

#[tokio::test(start_paused = true)]
async fn drivers_move_over_to_an_nvidia_driver_one_node_after_the_other() {
    let world = World::start_bare_in_virtual_time(3).await;
    let _operator = world.operator(Fault::None).await;
    install(&world, policy("1", &json!({"autoUpgrade": true}), &[])).await;
    let driver = json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": "default"},
        "spec": {"default": true, "driverType": "gpu", "repository": "example.com", "image": "driver", "version": "1"},
    });
    world.apply(driver).await;
    let apart = json!({"spec": {"driver": {"useNvidiaDriverCRD": true}}});
    world.patch(API, "ClusterPolicy", POLICY, apart).await;
    let message = |policy: &Value| capstan_tests::nim::condition(policy, "Error")["message"].to_string();
    let unfinished =
        |policy: &Value| message(policy).contains("driver upgrade is not completed; nodes owned by NVIDIADrivers: ");
    world.until(API, "ClusterPolicy", POLICY, unfinished).await;
    let owned = |nodes: &Vec<Value>| {
        nodes.iter().all(|node| node["metadata"]["labels"]["nvidia.com/gpu-operator.driver.owner"] == "default")
    };
    let mut most = 0;
    let moved = async {
        loop {
            let (all, pods) = (world.list("v1", "Node").await, world.list("v1", "Pod").await);
            most = most.max(all.iter().filter(|node| node["spec"]["unschedulable"] == true).count());
            let drivers = pods.iter().filter(|pod| {
                let app = pod["metadata"]["labels"]["app"].as_str().unwrap_or_default();
                app.starts_with("nvidia-gpu-driver-ubuntu24.04-") && pod["status"]["phase"] == "Running"
            });
            if drivers.count() == 3
                && owned(&all)
                && nodes(&world).await.values().all(|(state, free)| state == "upgrade-done" && *free)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1800), moved).await.expect("every node has a driver of its new owner");
    assert_eq!(most, 1, "one at a time");
    let ready = |driver: &Value| driver["status"]["state"] == "ready" && upgrade_condition(driver).0 == "Complete";
    world.until("nvidia.com/v1alpha1", "NVIDIADriver", "default", ready).await;
    world.until(API, "ClusterPolicy", POLICY, |policy| policy["status"]["state"] == "ready").await;
}

#[tokio::test(start_paused = true)]
async fn another_operator_takes_nodes_out_of_use_where_it_is_asked_to() {
    let requestor = Requestor { namespace: "default".into(), id: "us".into(), prefix: "nvidia-operator".into() };
    let world = World::start_bare_in_virtual_time(2).await.requesting(requestor);
    let (group, version) = ("maintenance.nvidia.com", "v1alpha1");
    world.install(group, version, "NodeMaintenance", "nodemaintenances").await;
    let operator = world.operator(Fault::None).await;
    install(&world, policy("1", &json!({"autoUpgrade": true}), &[])).await;
    let api = format!("{group}/{version}");
    let other = json!({
        "apiVersion": api, "kind": "NodeMaintenance",
        "metadata": {"name": "nvidia-operator-gpu-1", "namespace": "default"},
        "spec": {"requestorID": "them", "nodeName": "gpu-1"},
    });
    world.apply(other).await;
    change_driver(&world, "2").await;
    let requests = || async {
        let resource =
            kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, "NodeMaintenance"));
        let api = kube::Api::<kube::core::DynamicObject>::namespaced_with(world.admin.clone(), "default", &resource);
        let list = api.list(&kube::api::ListParams::default()).await.unwrap();
        (api, list.items.into_iter().map(|one| (one.metadata.name.unwrap(), one.data)).collect::<Vec<_>>())
    };
    // The other operator: it says that a node is ready as soon as it is asked for.
    let maintenance = async {
        loop {
            let (api, list) = requests().await;
            for (name, data) in list.iter().filter(|(_, data)| data["status"].is_null()) {
                let mine = data["spec"]["requestorID"] == "us";
                if mine || data["spec"]["additionalRequestors"] == json!(["us"]) {
                    let ready = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]});
                    let patch = kube::api::Patch::Merge(json!({"status": ready}));
                    api.patch_status(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let mut cordoned = false;
    tokio::select! {
        () = maintenance => {}
        () = until_upgraded(&world, "2", |nodes| cordoned |= nodes.values().any(|(_, free)| !free)) => {}
    }
    assert!(!cordoned, "that is up to the other operator");
    world.settled(&operator).await;
    let (_, left) = requests().await;
    let [(name, data)] = &left[..] else { panic!("{left:?}") };
    assert_eq!((name.as_str(), &data["spec"]["requestorID"]), ("nvidia-operator-gpu-1", &json!("them")));
    assert!(data["spec"]["additionalRequestors"].as_array().is_none_or(Vec::is_empty), "{data}");
}

/// Drivers by name, beside a policy that leaves drivers to them.
async fn with_drivers(world: &World, names: &[(&str, Value)]) {
    let mut policy = policy("1", &json!({}), &[]);
    policy["spec"]["driver"] = json!({"useNvidiaDriverCRD": true});
    world.apply(policy).await;
    for (name, more) in names {
        world.apply(driver(name, more.clone())).await;
    }
    for (name, _) in names {
        world.until(ALPHA, "NVIDIADriver", name, state("ready")).await;
    }
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
}

fn owned_by(name: &'static str) -> impl Fn(&Value) -> bool {
    move |node| node["metadata"]["labels"]["nvidia.com/gpu-operator.driver.owner"] == name
}

#[tokio::test(start_paused = true)]
async fn nodes_of_a_deleted_driver_move_one_after_the_other_before_it_goes() {
    let world = World::start_bare_in_virtual_time(3).await;
    let operator = world.operator(Fault::None).await;
    let special = json!({
        "version": "2", "nodeSelector": {"feature.node.kubernetes.io/pci-10de.present": "true"},
        "upgradePolicy": {
            "autoUpgrade": true, "maxParallelUpgrades": 1, "maxUnavailable": "100%", "podDeletion": {"force": true},
        },
    });
    let rest = json!({"default": true, "upgradePolicy": special["upgradePolicy"]});
    with_drivers(&world, &[("rest", rest), ("special", special)]).await;
    world.until("v1", "Node", "gpu-0", owned_by("special")).await;
    world.settled(&operator).await;
    world.apply(gpu_pod("work", "gpu-1", &json!({}))).await;
    world.delete(ALPHA, "NVIDIADriver", "special").await;
    let mut most = 0;
    let moved = async {
        loop {
            let nodes = nodes(&world).await;
            most = most.max(nodes.values().filter(|(_, free)| !free).count());
            let all = world.list("v1", "Node").await;
            if all.iter().all(|node| owned_by("rest")(node) && in_state("upgrade-done")(node)) {
                return;
            }
            let there = world.list(ALPHA, "NVIDIADriver").await.len();
            assert!(there == 2 || all.iter().all(owned_by("rest")), "it stays until its last node has moved");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(3600), moved).await.unwrap();
    assert_eq!(most, 1, "one node after the other is out of use");
    world.until_gone(ALPHA, "NVIDIADriver", "special").await;
    world.settled(&operator).await;
    assert!(drivers(&world).await.values().all(|(_, image)| image.contains(":1-")));
    let rest = world.until(ALPHA, "NVIDIADriver", "rest", state("ready")).await;
    assert!(rest["metadata"]["finalizers"].is_null(), "the only one has nobody to wait for");
}

#[tokio::test(start_paused = true)]
async fn the_only_driver_goes_at_once_and_so_does_one_that_upgrades_nothing() {
    let world = World::start_bare_in_virtual_time(2).await;
    let _operator = world.operator(Fault::None).await;
    let by_hand = json!({
        "nodeSelector": {"kubernetes.io/hostname": "gpu-1"}, "upgradePolicy": {"autoUpgrade": false},
    });
    with_drivers(&world, &[("rest", json!({"default": true})), ("special", by_hand)]).await;
    world.delete(ALPHA, "NVIDIADriver", "special").await;
    world.until_gone(ALPHA, "NVIDIADriver", "special").await;
    world.until("v1", "Node", "gpu-1", owned_by("rest")).await;
    let alone = |driver: &Value| driver["metadata"]["finalizers"].is_null() && driver["status"]["state"] == "ready";
    world.until(ALPHA, "NVIDIADriver", "rest", alone).await;
    world.delete(ALPHA, "NVIDIADriver", "rest").await;
    world.until_gone(ALPHA, "NVIDIADriver", "rest").await;
    world.until("v1", "Node", "gpu-0", |node| !owned_by("rest")(node)).await;
}

#[tokio::test(start_paused = true)]
async fn another_list_of_repositories_replaces_driver_pods_and_nobody_leaves() {
    let world = World::start_bare_in_virtual_time(2).await;
    let _operator = world.operator(Fault::None).await;
    let repositories = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "repos"}, "data": {"a.list": text}});
    world.apply(repositories("deb one")).await;
    let mut policy = policy("1", &json!({"autoUpgrade": true}), &[]);
    policy["spec"]["driver"]["repoConfig"] = json!({"configMapName": "repos"});
    install(&world, policy).await;
    world.apply(gpu_pod("work", "gpu-0", &json!({}))).await;
    let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(world.admin.clone(), "default");
    let uid = pods.get("work").await.unwrap().metadata.uid;
    let before = drivers(&world).await;
    world.apply(repositories("deb two")).await;
    let others = async {
        loop {
            let now = drivers(&world).await;
            let other = |(node, (uid, _)): (&String, &(String, String))| now.get(node).is_some_and(|one| one.0 != *uid);
            if before.iter().all(other) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(3600), others).await.expect("driver pods are replaced");
    world.until(API, "ClusterPolicy", POLICY, is_over).await;
    assert_eq!(pods.get("work").await.unwrap().metadata.uid, uid, "the driver itself is the same");
}
