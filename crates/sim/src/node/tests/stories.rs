//! Pods on virtual nodes, from creation to deletion, with a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_apiserver::ops::{DeleteOptions, PatchKind};
use capstan_apiserver::serve::{LogOptions, Runtime};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use serde_json::json;

use crate::Cluster;
use crate::Pod;
use crate::node::{Behaviour, Command, Exit, Match, NodeTemplate, PullFailure};
use crate::testing::{Story, gone, phase, ready, wait};

#[tokio::test(start_paused = true)]
async fn a_pod_is_ready_after_one_report_and_gone_after_a_deletion() {
    let story = Story::start(Cluster::builder().nodes(2)).await;
    let changes = Arc::new(AtomicUsize::new(0));
    let count = changes.clone();
    story.cluster.context().caches.pods.subscribe(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    story.pod("p", json!({"containers": [{"name": "c", "image": "img"}]})).await;
    story.until("p", ready).await;
    let pod = story.get("p").unwrap();
    assert_eq!(changes.load(Ordering::Relaxed), 3, "created, bound, reported");
    let status = pod.status.as_ref().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert!(status.pod_ip.as_deref().unwrap().starts_with("10.128."));
    wait(1).await;
    assert_eq!(story.events("p", "Scheduled").len(), 1);
    assert_eq!(story.events("p", "Started"), ["Container started"]);
    story.admin.delete(&*pod, DeleteOptions::default()).await.unwrap();
    story.until("p", gone).await;
    wait(1).await;
    assert_eq!(story.events("p", "Killing"), ["Stopping container c"]);
}

#[tokio::test(start_paused = true)]
async fn pods_have_addresses_of_their_own() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let mut addresses = Vec::new();
    for i in 0..3 {
        let name = format!("p{i}");
        story.pod(&name, json!({"containers": [{"name": "c", "image": "img"}]})).await;
        story.until(&name, ready).await;
        addresses.push(story.get(&name).unwrap().status.clone().unwrap().pod_ip.unwrap());
    }
    story.pod("host", json!({"hostNetwork": true, "containers": [{"name": "c", "image": "img"}]})).await;
    story.until("host", ready).await;
    addresses.push(story.get("host").unwrap().status.clone().unwrap().pod_ip.unwrap());
    assert_eq!(addresses, ["10.128.0.2", "10.128.0.3", "10.128.0.4", "172.16.0.2"]);
}

#[tokio::test(start_paused = true)]
async fn rules_say_how_containers_behave() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let nodes = story.cluster.nodes();
    let slow = Behaviour { pull_time: Some(Duration::from_secs(40)), ..Behaviour::default() };
    nodes.rule(Match::image("registry/slow:*"), slow);
    let failure = PullFailure { message: String::new(), times: None };
    let rule = nodes.rule(Match::image("bad"), Behaviour { pull_failure: Some(failure), ..Behaviour::default() });
    story.pod("slow", json!({"containers": [{"name": "c", "image": "registry/slow:1"}]})).await;
    story.pod("bad", json!({"containers": [{"name": "c", "image": "bad"}]})).await;
    story.until("slow", ready).await;
    assert_eq!(story.elapsed(), 40);
    wait(3600).await;
    assert!(phase("Pending")(story.get("bad").as_deref()));
    nodes.remove_rule(rule);
    story.until("bad", ready).await;
}

#[tokio::test(start_paused = true)]
async fn containers_fail_on_demand() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    story.pod("p", json!({"containers": [{"name": "c", "image": "img"}]})).await;
    story.until("p", ready).await;
    let nodes = story.cluster.nodes();
    nodes.exit("default", "p", "c", 137, Some("OOMKilled")).unwrap();
    let restarts = |pod: Option<&Pod>| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        statuses.map_or(0, |statuses| statuses[0].restart_count)
    };
    story.until("p", |pod| restarts(pod) == 1 && ready(pod)).await;
    let last = story.get("p").unwrap().status.clone().unwrap().container_statuses.unwrap()[0].last_state.clone();
    assert_eq!(last.unwrap().terminated.unwrap().reason.as_deref(), Some("OOMKilled"));
    nodes.set_ready("default", "p", "c", Some(false)).unwrap();
    story.until("p", |pod| !ready(pod)).await;
    nodes.set_ready("default", "p", "c", None).unwrap();
    story.until("p", ready).await;
    nodes.fail("default", "p", "Evicted", "The node was low on resource: memory.").unwrap();
    story.until("p", phase("Failed")).await;
    assert_eq!(story.get("p").unwrap().status.as_ref().unwrap().reason.as_deref(), Some("Evicted"));
}

#[tokio::test(start_paused = true)]
async fn a_job_like_pod_ends() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let exit = Exit::after(Duration::from_secs(90), 0);
    story.cluster.nodes().rule(Match::container("work"), Behaviour { exit: Some(exit), ..Behaviour::default() });
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "work", "image": "img"}]});
    story.pod("p", spec).await;
    story.until("p", phase("Succeeded")).await;
    assert_eq!(story.elapsed(), 90);
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_configuration() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let volume = json!({"name": "v", "configMap": {"name": "config"}});
    let container = json!({"name": "c", "image": "img"});
    story.pod("volume", json!({"volumes": [volume], "containers": [container]})).await;
    let source = json!({"configMapKeyRef": {"name": "config", "key": "a"}});
    let container = json!({"name": "c", "image": "img", "env": [{"name": "A", "valueFrom": source}]});
    story.pod("env", json!({"containers": [container]})).await;
    wait(60).await;
    assert!(phase("Pending")(story.get("volume").as_deref()) && phase("Pending")(story.get("env").as_deref()));
    let mounts = story.events("volume", "FailedMount");
    assert_eq!(mounts[0], "MountVolume.SetUp failed for volume \"v\" : configmap \"config\" not found");
    let waiting = story.get("env").unwrap().status.clone().unwrap().container_statuses.unwrap()[0].state.clone();
    let waiting = waiting.unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CreateContainerConfigError"));
    assert_eq!(waiting.message.as_deref(), Some("configmap \"config\" not found"));
    let config = json!({"metadata": {"name": "config", "namespace": "default"}, "data": {"a": "1"}});
    story.create::<ConfigMap>(config).await;
    story.until("volume", ready).await;
    story.until("env", ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_refuses_what_it_has_no_room_for() {
    let node = NodeTemplate::new("n").capacity("cpu", "1").capacity("example.com/device", "1");
    let story = Story::start(Cluster::builder().node(node)).await;
    let resources = json!({"requests": {"example.com/device": "1"}, "limits": {"example.com/device": "1"}});
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "img", "resources": resources}]});
    story.pod("a", spec.clone()).await;
    story.until("a", ready).await;
    story.pod("b", spec).await;
    story.until("b", phase("Failed")).await;
    let status = story.get("b").unwrap().status.clone().unwrap();
    assert_eq!(status.reason.as_deref(), Some("OutOfexample.com/device"));
    let message = "Pod was rejected: Node didn't have enough resource: example.com/device, requested: 1, used: 1, \
                   capacity: 1";
    assert_eq!(status.message.as_deref(), Some(message));
    let selector = json!({"nodeName": "n", "nodeSelector": {"x": "y"}, "containers": [{"name": "c", "image": "img"}]});
    story.pod("c", selector).await;
    story.until("c", phase("Failed")).await;
    assert_eq!(story.get("c").unwrap().status.as_ref().unwrap().reason.as_deref(), Some("NodeAffinity"));
    for name in ["a", "b"] {
        story.admin.delete(&*story.get(name).unwrap(), DeleteOptions::default()).await.unwrap();
        story.until(name, gone).await;
    }
}

#[tokio::test(start_paused = true)]
async fn capacity_can_change() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let resources = json!({"requests": {"example.com/device": "1"}, "limits": {"example.com/device": "1"}});
    story.pod("p", json!({"containers": [{"name": "c", "image": "img", "resources": resources}]})).await;
    wait(30).await;
    assert!(!ready(story.get("p").as_deref()));
    story.cluster.nodes().get("node-0").unwrap().set_capacity("example.com/device", Some("4")).await.unwrap();
    story.until("p", ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_shows_signs_of_life_until_it_is_down() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let renewed = async || {
        let lease = story.admin.read::<Lease>(Some("kube-node-lease"), "node-0").await.unwrap();
        lease.spec.unwrap().renew_time.unwrap().0
    };
    wait(60).await;
    let first = renewed().await;
    wait(11).await;
    assert!(renewed().await > first);
    let node = story.cluster.nodes().get("node-0").unwrap();
    story.pod("p", json!({"containers": [{"name": "c", "image": "img"}]})).await;
    story.until("p", ready).await;
    node.down();
    wait(20).await;
    let last = renewed().await;
    wait(300).await;
    assert_eq!(renewed().await, last);
    let unknown = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"});
    let body = json!({"status": {"conditions": [unknown]}});
    let kind = PatchKind::Strategic;
    story.admin.patch::<Node>(None, "node-0", Some("status"), kind, body).await.unwrap();
    let boot = |node: &Node| node.status.as_ref().unwrap().node_info.as_ref().unwrap().boot_id.clone();
    let before = boot(&node.object().unwrap());
    node.up().await.unwrap();
    wait(1).await;
    let object = node.object().unwrap();
    assert_ne!(boot(&object), before);
    let conditions = object.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let ready_now = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!((ready_now.status.as_str(), ready_now.reason.as_deref()), ("True", Some("KubeletReady")));
    let status = story.get("p").unwrap().status.clone().unwrap();
    assert_eq!(status.container_statuses.unwrap()[0].restart_count, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reported_while_a_kubelet_is_stopped() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    story.pod("p", json!({"containers": [{"name": "c", "image": "img"}]})).await;
    story.until("p", ready).await;
    let node = story.cluster.nodes().get("node-0").unwrap();
    node.stop_kubelet();
    let pod = story.get("p").unwrap();
    story.admin.delete(&*pod, DeleteOptions::default()).await.unwrap();
    wait(600).await;
    assert!(story.get("p").is_some());
    node.up().await.unwrap();
    story.until("p", gone).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_come_and_go() {
    let story = Story::start(Cluster::builder()).await;
    story.pod("p", json!({"containers": [{"name": "c", "image": "img"}]})).await;
    wait(10).await;
    assert!(story.events("p", "FailedScheduling")[0].contains("no nodes available"));
    let node = story.cluster.nodes().add(NodeTemplate::new("late")).await.unwrap();
    story.until("p", ready).await;
    node.remove().await.unwrap();
    assert!(story.cluster.context().caches.nodes.get("late").is_none());
}

#[tokio::test(start_paused = true)]
async fn logs_and_commands_are_scripted() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let answer = Command { pattern: "nvidia-smi*".into(), stdout: "GPU 0\n".into(), stderr: String::new(), code: 0 };
    let behaviour = Behaviour {
        log: Some(vec!["starting".into(), "listening".into()]),
        commands: vec![answer],
        ..Behaviour::default()
    };
    let nodes = story.cluster.nodes();
    nodes.rule(Match::image("img"), behaviour);
    story.pod("p", json!({"containers": [{"name": "c", "image": "img"}]})).await;
    story.until("p", ready).await;
    let table = capstan_apiserver::store::TableKey::new("", "pods");
    let object = story.cluster.server.store().get(&table, "default", "p").unwrap();
    let options = LogOptions { container: "c".into(), ..LogOptions::default() };
    let log: Vec<bytes::Bytes> = nodes.logs(&object, options).await.unwrap().collect().await;
    assert_eq!(log.concat(), b"starting\nlistening\n");
    let run = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        nodes.execute("default", "p", "c", &words).unwrap()
    };
    assert_eq!(run("nvidia-smi -L").stdout, "GPU 0\n");
    assert_eq!(run("ls").code, 127);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_finalizers_ends_before_it_goes() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let pod = json!({
        "metadata": {"name": "p", "namespace": "default", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "c", "image": "img"}]},
    });
    story.create::<Pod>(pod).await;
    story.until("p", ready).await;
    story.admin.delete(&*story.get("p").unwrap(), DeleteOptions::default()).await.unwrap();
    story.until("p", phase("Succeeded")).await;
    wait(60).await;
    let body = json!({"metadata": {"finalizers": null}});
    story.admin.patch::<Pod>(Some("default"), "p", None, PatchKind::Merge, body).await.unwrap();
    story.until("p", gone).await;
}
