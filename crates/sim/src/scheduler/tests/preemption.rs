//! Selection of preemption victims.

use serde_json::{Value, json};

use super::super::schedule::Decision;
use super::{World, node, pod};
use crate::Pod;

fn important(name: &str, priority: i32, cpu: &str) -> Pod {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    pod(
        name,
        json!({
            "metadata": {"labels": {"app": name}},
            "spec": {"priority": priority, "containers": [container]},
            "status": {"startTime": "2025-01-01T00:00:00Z"},
        }),
    )
}

fn victims(world: &mut World, pod: &Pod) -> Option<(String, Vec<String>)> {
    match world.decide(pod) {
        Decision::Place(..) => panic!("there is room"),
        Decision::Unschedulable(unschedulable) => unschedulable.preemption.map(|preemption| {
            let node = world.state.node(preemption.node).name.to_string();
            (node, preemption.victims.iter().map(|pod| pod.name().to_owned()).collect())
        }),
    }
}

fn expect(node: &str, names: &[&str]) -> Option<(String, Vec<String>)> {
    Some((node.to_owned(), names.iter().map(|name| name.to_string()).collect()))
}

#[test]
fn only_those_leave_who_must() {
    let mut world = World::with([node("n", json!({}))]);
    world.run("n", important("low", 1, "1"));
    world.run("n", important("lower", 0, "1"));
    world.run("n", important("middle", 5, "2"));
    assert_eq!(victims(&mut world, &important("p", 10, "1")), expect("n", &["lower"]));
    assert_eq!(victims(&mut world, &important("p", 10, "2")), expect("n", &["low", "lower"]));
    assert_eq!(victims(&mut world, &important("p", 10, "4")), expect("n", &["middle", "low", "lower"]));
    assert_eq!(victims(&mut world, &important("p", 5, "3")), None);
    assert_eq!(victims(&mut world, &important("p", 0, "1")), None);
}

#[test]
fn the_message_says_what_is_tried() {
    let mut world = World::with([node("n", json!({}))]);
    world.run("n", important("low", 1, "4"));
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on \
                   node n, preempting 1 victims";
    assert_eq!(world.schedule(&important("p", 10, "4")), Err(message.to_owned()));
    let mut polite = important("p", 10, "4");
    polite.spec_mut().preemption_policy = Some("Never".to_owned());
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to \
                   preemptionPolicy=Never.";
    assert_eq!(world.schedule(&polite), Err(message.to_owned()));
}

#[test]
fn the_least_important_victims_are_chosen() {
    let mut world = World::with(["a", "b", "c"].map(|name| node(name, json!({}))));
    world.run("a", important("a1", 5, "4"));
    world.run("b", important("b1", 3, "4"));
    world.run("c", important("c1", 3, "2"));
    world.run("c", important("c2", 3, "2"));
    assert_eq!(victims(&mut world, &important("p", 10, "4")), expect("b", &["b1"]));
}

#[test]
fn the_youngest_victim_is_chosen_when_all_else_is_equal() {
    let mut world = World::with(["a", "b"].map(|name| node(name, json!({}))));
    let mut young = important("young", 3, "4");
    young.status.as_mut().unwrap().start_time =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time("2025-06-01T00:00:00Z".parse().unwrap()));
    world.run("a", important("old", 3, "4"));
    world.run("b", young);
    assert_eq!(victims(&mut world, &important("p", 10, "4")), expect("b", &["young"]));
}

#[test]
fn disruption_budgets_are_kept_if_possible() {
    let budget = |app: &str, allowed: i32| -> std::sync::Arc<_> {
        let value: Value = json!({
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        });
        std::sync::Arc::new(serde_json::from_value(value).unwrap())
    };
    let mut world = World::with(["a", "b"].map(|name| node(name, json!({}))));
    world.run("a", important("guarded", 1, "4"));
    world.run("b", important("free", 3, "4"));
    assert_eq!(victims(&mut world, &important("p", 10, "4")), expect("a", &["guarded"]));
    world.objects.budgets = vec![budget("guarded", 0)];
    assert_eq!(victims(&mut world, &important("p", 10, "4")), expect("b", &["free"]));
    world.objects.budgets = vec![budget("guarded", 1)];
    assert_eq!(victims(&mut world, &important("p", 10, "4")), expect("a", &["guarded"]));
    // A budget does not protect when there is no alternative.
    world.state.remove_node("b");
    world.objects.budgets = vec![budget("guarded", 0)];
    assert_eq!(victims(&mut world, &important("p", 10, "4")), expect("a", &["guarded"]));
}

#[test]
fn those_who_keep_a_pod_away_leave_for_it() {
    let mut world = World::with([node("n", json!({}))]);
    let term = json!({"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": "kubernetes.io/hostname"});
    let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let mut lonely = important("lonely", 0, "1");
    lonely.spec_mut().affinity = serde_json::from_value(anti).unwrap();
    world.run("n", lonely);
    world.run("n", important("other", 0, "1"));
    assert_eq!(victims(&mut world, &important("p", 10, "1")), expect("n", &["lonely"]));
}

#[test]
fn a_pod_waits_for_those_who_leave_for_it() {
    let mut world = World::with([node("n", json!({}))]);
    let mut leaving = important("low", 1, "4");
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    world.run("n", leaving);
    let mut waiting = important("p", 10, "4");
    waiting.status.as_mut().unwrap().nominated_node_name = Some("n".to_owned());
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on \
                   the nominated node.";
    assert_eq!(world.schedule(&waiting), Err(message.to_owned()));
}

#[test]
fn room_that_was_made_is_kept() {
    let mut world = World::with([node("n", json!({}))]);
    let waiting = std::sync::Arc::new(important("p", 10, "4"));
    let info = std::sync::Arc::new(super::PodInfo::new(waiting.clone()));
    world.state.nominate(info, Some("n"));
    assert!(world.schedule(&important("q", 5, "1")).is_err(), "a less important pod does not take it");
    assert!(world.schedule(&important("q", 20, "1")).is_ok(), "a more important one does");
    assert!(world.schedule(&waiting).is_ok());
}
