//! Scheduling with a server and virtual nodes.

use capstan_apiserver::ops::{DeleteOptions, PatchKind};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};

use crate::Pod;
use crate::informer::Kind;
use crate::node::NodeTemplate;
use crate::testing::{Story, gone, ready, wait};
use crate::{Cluster, scheduler};

impl Kind for PriorityClass {}

fn asking(requests: Value) -> Value {
    json!({"containers": [{"name": "c", "image": "img", "resources": {"requests": requests}}]})
}

fn condition(pod: &Pod) -> (String, String) {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let scheduled = conditions.into_iter().find(|c| c.type_ == "PodScheduled").unwrap();
    (scheduled.reason.unwrap_or_default(), scheduled.message.unwrap_or_default())
}

fn node_of(pod: Option<&Pod>) -> Option<String> {
    pod?.spec.as_ref()?.node_name.clone()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_says_why_and_is_tried_again_when_it_may() {
    let story = Story::start(Cluster::builder().node(NodeTemplate::new("n").capacity("cpu", "1"))).await;
    story.pod("p", asking(json!({"cpu": "2"}))).await;
    wait(5).await;
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is \
                   not helpful for scheduling.";
    assert_eq!(condition(&story.get("p").unwrap()), ("Unschedulable".to_owned(), message.to_owned()));
    assert_eq!(story.events("p", "FailedScheduling"), [message]);
    let before = story.cluster.server.store().revision();
    wait(30).await;
    let writes = story.cluster.server.store().revision() - before;
    assert!(writes <= 4, "nothing but leases is written while nothing changes: {writes}");
    story.cluster.nodes().get("n").unwrap().set_capacity("cpu", Some("4")).await.unwrap();
    story.until("p", ready).await;
    assert_eq!(story.events("p", "Scheduled"), ["Successfully assigned default/p to n"]);
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_takes_no_pods() {
    let story = Story::start(Cluster::builder().nodes(2)).await;
    let cordon = |on: bool| json!({"spec": {"unschedulable": on}});
    story.admin.patch::<Node>(None, "node-0", None, PatchKind::Merge, cordon(true)).await.unwrap();
    for i in 0..4 {
        let name = format!("p{i}");
        story.pod(&name, asking(json!({"cpu": "1"}))).await;
        story.until(&name, ready).await;
        assert_eq!(node_of(story.get(&name).as_deref()).as_deref(), Some("node-1"));
    }
    story.admin.patch::<Node>(None, "node-1", None, PatchKind::Merge, cordon(true)).await.unwrap();
    story.pod("late", asking(json!({"cpu": "1"}))).await;
    wait(10).await;
    assert_eq!(node_of(story.get("late").as_deref()), None);
    story.admin.patch::<Node>(None, "node-0", None, PatchKind::Merge, cordon(false)).await.unwrap();
    story.until("late", ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_more_important_pod_takes_the_place_of_others() {
    let story = Story::start(Cluster::builder().node(NodeTemplate::new("n").capacity("cpu", "4"))).await;
    story.create::<PriorityClass>(json!({"metadata": {"name": "high"}, "value": 1000})).await;
    for name in ["a", "b"] {
        story.pod(name, asking(json!({"cpu": "2"}))).await;
        story.until(name, ready).await;
        wait(10).await;
    }
    let mut spec = asking(json!({"cpu": "2"}));
    spec["priorityClassName"] = json!("high");
    story.pod("vip", spec).await;
    story.until("vip", ready).await;
    assert!(story.get("a").is_some(), "the younger one had to go");
    story.until("b", gone).await;
    let uid = story.get("vip").unwrap().metadata.uid.clone().unwrap();
    wait(1).await;
    assert_eq!(story.events("b", "Preempted"), [format!("Preempted by pod {uid} on node n")]);
    assert!(
        story.events("vip", "FailedScheduling")[0]
            .ends_with("preemption: found a potential placement for pod on node n, preempting 1 victims")
    );
}

#[tokio::test(start_paused = true)]
async fn pods_with_gates_or_another_scheduler_are_left_alone() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let mut gated = asking(json!({}));
    gated["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    story.pod("gated", gated).await;
    let mut foreign = asking(json!({}));
    foreign["schedulerName"] = json!("other");
    story.pod("foreign", foreign).await;
    wait(60).await;
    assert_eq!(node_of(story.get("gated").as_deref()), None);
    assert_eq!(node_of(story.get("foreign").as_deref()), None);
    let body = json!({"spec": {"schedulingGates": null}});
    story.admin.patch::<Pod>(Some("default"), "gated", None, PatchKind::Merge, body).await.unwrap();
    story.until("gated", ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_makes_room() {
    let story = Story::start(Cluster::builder().node(NodeTemplate::new("n").capacity("cpu", "1"))).await;
    story.pod("a", asking(json!({"cpu": "1"}))).await;
    story.until("a", ready).await;
    story.pod("b", asking(json!({"cpu": "1"}))).await;
    wait(20).await;
    assert!(!ready(story.get("b").as_deref()));
    story.admin.delete(&*story.get("a").unwrap(), DeleteOptions::default()).await.unwrap();
    story.until("b", ready).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_are_never_given_more_than_they_have() {
    let nodes = (0..4).map(|i| NodeTemplate::new(format!("n{i}")).capacity("cpu", "4"));
    let builder = nodes.fold(Cluster::builder(), |builder, node| builder.node(node));
    let story = Story::start(builder).await;
    for i in 0..20 {
        story.pod(&format!("p{i}"), asking(json!({"cpu": "1"}))).await;
    }
    wait(120).await;
    let pods = story.cluster.context().caches.pods.list();
    let placed: Vec<String> = pods.iter().filter_map(|pod| node_of(Some(pod))).collect();
    assert_eq!(placed.len(), 16);
    for i in 0..4 {
        assert_eq!(placed.iter().filter(|node| **node == format!("n{i}")).count(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn devices_are_claimed() {
    let story = Story::start(Cluster::builder().nodes(2)).await;
    let device = |name: &str| json!({"name": name, "attributes": {"model": {"string": "X"}}});
    story
        .create::<ResourceSlice>(json!({
            "metadata": {"name": "slice"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "node-1",
                "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                "devices": [device("gpu-0"), device("gpu-1")],
            },
        }))
        .await;
    let selector = json!({"cel": {"expression": "device.driver == 'gpu.example.com'"}});
    story.create::<DeviceClass>(json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})).await;
    for i in 0..3 {
        let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
        story
            .create::<ResourceClaim>(json!({
                "metadata": {"name": format!("claim-{i}"), "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
            }))
            .await;
        let mut spec = asking(json!({}));
        spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": format!("claim-{i}")}]);
        story.pod(&format!("p{i}"), spec).await;
    }
    wait(30).await;
    for i in 0..2 {
        assert_eq!(node_of(story.get(&format!("p{i}")).as_deref()).as_deref(), Some("node-1"));
        let claim = story.cluster.context().caches.resource_claims.find("default", &format!("claim-{i}")).unwrap();
        let status = claim.status.as_ref().unwrap();
        let devices = status.allocation.as_ref().unwrap().devices.as_ref().unwrap().results.as_ref().unwrap();
        assert_eq!(devices[0].device, format!("gpu-{i}"));
        assert_eq!(status.reserved_for.as_ref().unwrap()[0].name, format!("p{i}"));
    }
    let (reason, message) = condition(&story.get("p2").unwrap());
    assert_eq!(reason, "Unschedulable");
    assert!(message.starts_with("0/2 nodes are available: 2 cannot allocate all claims."), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_scheduler_can_be_left_out() {
    let settings = scheduler::Settings { enabled: false, ..scheduler::Settings::default() };
    let story = Story::start(Cluster::builder().nodes(1).scheduler_settings(settings)).await;
    story.pod("p", asking(json!({}))).await;
    wait(60).await;
    assert_eq!(node_of(story.get("p").as_deref()), None);
}
