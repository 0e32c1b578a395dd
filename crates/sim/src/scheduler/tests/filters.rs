//! Filters: why nodes are rejected, and the messages.

use serde_json::json;

use super::{World, asking, node, pod};

const UNHELPFUL: &str = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
const NO_VICTIMS: &str = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";

#[test]
fn rules_about_the_node_itself() {
    let taint = json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
    let soft = json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "PreferNoSchedule"}]}});
    let cordoned = json!({"spec": {"unschedulable": true}});
    let cases = [
        (json!({}), json!({}), None),
        (cordoned.clone(), json!({}), Some("1 node(s) were unschedulable")),
        (
            cordoned,
            json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}}),
            None,
        ),
        (taint.clone(), json!({}), Some("1 node(s) had untolerated taint(s)")),
        (taint, json!({"spec": {"tolerations": [{"operator": "Exists"}]}}), None),
        (soft, json!({}), None),
        (
            json!({}),
            json!({"spec": {"nodeSelector": {"zone": "a"}}}),
            Some("1 node(s) didn't match Pod's node affinity/selector"),
        ),
        (json!({"metadata": {"labels": {"zone": "a"}}}), json!({"spec": {"nodeSelector": {"zone": "a"}}}), None),
    ];
    for (of_node, of_pod, reason) in cases {
        let mut world = World::with([node("n", of_node.clone())]);
        let expected = match reason {
            None => Ok("n".to_owned()),
            Some(reason) => Err(format!("0/1 nodes are available: {reason}. {UNHELPFUL}")),
        };
        assert_eq!(world.schedule(&pod("p", of_pod.clone())), expected, "{of_node} {of_pod}");
    }
}

#[test]
fn room_for_resources() {
    let cases = [
        (json!({"cpu": "4"}), None),
        (json!({"cpu": "3", "memory": "20Gi"}), Some("1 Insufficient memory")),
        (json!({"cpu": "5"}), Some("1 Insufficient cpu")),
        (json!({"cpu": "5", "memory": "20Gi"}), Some("1 Insufficient cpu, 1 Insufficient memory")),
        (json!({"example.com/device": "2"}), None),
        (json!({"example.com/device": "3"}), Some("1 Insufficient example.com/device")),
        (json!({"example.com/unknown": "1"}), Some("1 Insufficient example.com/unknown")),
        (json!({"ephemeral-storage": "1Gi"}), Some("1 Insufficient ephemeral-storage")),
    ];
    for (requests, reason) in cases {
        let mut world = World::with([node("n", json!({}))]);
        let expected = match reason {
            None => Ok("n".to_owned()),
            Some(reason) => Err(format!("0/1 nodes are available: {reason}. {UNHELPFUL}")),
        };
        assert_eq!(world.schedule(&asking("p", requests.clone())), expected, "{requests}");
    }
}

#[test]
fn what_others_use_is_not_there() {
    let mut world = World::with([node("n", json!({}))]);
    world.run("n", asking("a", json!({"cpu": "3", "example.com/device": "1"})));
    let expected = format!("0/1 nodes are available: 1 Insufficient cpu. {NO_VICTIMS}");
    assert_eq!(world.schedule(&asking("p", json!({"cpu": "2"}))), Err(expected));
    world.state.remove_pod("default/a");
    assert_eq!(world.schedule(&asking("p", json!({"cpu": "2"}))), Ok("n".to_owned()));
}

#[test]
fn a_pod_that_is_over_uses_nothing() {
    let mut world = World::with([node("n", json!({}))]);
    let mut done = asking("a", json!({"cpu": "3"}));
    world.run("n", done.clone());
    done.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    world.run("n", done);
    assert_eq!(world.schedule(&asking("p", json!({"cpu": "4"}))), Ok("n".to_owned()));
}

#[test]
fn a_node_takes_so_many_pods() {
    let mut world = World::with([node("n", json!({"status": {"allocatable": {"pods": "2"}}}))]);
    world.run("n", pod("a", json!({})));
    world.run("n", pod("b", json!({})));
    let expected = format!("0/1 nodes are available: 1 Too many pods. {NO_VICTIMS}");
    assert_eq!(world.schedule(&pod("p", json!({}))), Err(expected));
}

#[test]
fn a_port_of_a_host_is_used_once() {
    let port = |ip: &str, protocol: &str| {
        let port = json!({"containerPort": 80, "hostPort": 80, "hostIP": ip, "protocol": protocol});
        json!({"spec": {"containers": [{"name": "c", "ports": [port]}]}})
    };
    let cases = [
        (port("", "TCP"), port("", "TCP"), false),
        (port("", "TCP"), port("", "UDP"), true),
        (port("10.0.0.1", "TCP"), port("10.0.0.2", "TCP"), true),
        (port("10.0.0.1", "TCP"), port("10.0.0.1", "TCP"), false),
        (port("10.0.0.1", "TCP"), port("0.0.0.0", "TCP"), false),
    ];
    for (mine, theirs, fits) in cases {
        let mut world = World::with([node("n", json!({}))]);
        world.run("n", pod("a", mine.clone()));
        let expected = format!(
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. {NO_VICTIMS}"
        );
        let expected = if fits { Ok("n".to_owned()) } else { Err(expected) };
        assert_eq!(world.schedule(&pod("p", theirs.clone())), expected, "{mine} {theirs}");
    }
}

#[test]
fn reasons_of_many_nodes_are_counted() {
    let tainted = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    let small = |name: &str| node(name, json!({"status": {"allocatable": {"cpu": "1"}}}));
    let mut world = World::with([node("a", tainted), small("b"), small("c")]);
    let message = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: 0/3 \
                   nodes are available: 3 Preemption is not helpful for scheduling.";
    assert_eq!(world.schedule(&asking("p", json!({"cpu": "2"}))), Err(message.to_owned()));
}

#[test]
fn without_nodes_there_is_nothing_to_say() {
    let mut world = World::default();
    assert_eq!(world.schedule(&pod("p", json!({}))), Err("no nodes available to schedule pods".to_owned()));
}

#[test]
fn a_pod_that_names_its_node_looks_at_no_other() {
    let named = |name: &str| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
        let required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        json!({"spec": {"affinity": affinity, "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}})
    };
    let mut world = World::with(["a", "b", "c"].map(|name| node(name, json!({}))));
    assert_eq!(world.schedule(&pod("p", named("b"))), Ok("b".to_owned()));
    world.run("b", pod("p", named("b")));
    let message = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. \
                   preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption \
                   is not helpful for scheduling.";
    assert_eq!(world.schedule(&pod("q", named("b"))), Err(message.to_owned()));
}

#[test]
fn pods_on_a_node_that_is_gone_do_not_count_elsewhere() {
    let mut world = World::with([node("a", json!({})), node("b", json!({}))]);
    world.run("a", asking("x", json!({"cpu": "4"})));
    world.state.remove_node("a");
    assert_eq!(world.schedule(&asking("p", json!({"cpu": "4"}))), Ok("b".to_owned()));
    world.state.set_node(std::sync::Arc::new(node("a", json!({}))));
    world.run("b", asking("p", json!({"cpu": "4"})));
    assert!(world.schedule(&asking("q", json!({"cpu": "1"}))).is_err(), "the pod is still bound to the node");
    world.state.remove_pod("default/x");
    assert_eq!(world.schedule(&asking("q", json!({"cpu": "1"}))), Ok("a".to_owned()));
}
