//! Ranking of nodes.

use serde_json::json;

use super::{World, asking, node, pod, zone};
use capstan_semantics::LabelSelector;

#[test]
fn the_node_with_most_room_is_taken() {
    let mut world = World::with(["a", "b", "c"].map(|name| node(name, json!({}))));
    world.run("a", asking("x", json!({"cpu": "2", "memory": "8Gi"})));
    world.run("b", asking("y", json!({"cpu": "1", "memory": "4Gi"})));
    assert_eq!(world.schedule(&asking("p", json!({"cpu": "1", "memory": "4Gi"}))), Ok("c".to_owned()));
}

#[test]
fn preferences_outweigh_room() {
    let mut world = World::with([node("a", json!({})), node("b", json!({"metadata": {"labels": {"disk": "ssd"}}}))]);
    world.run("b", asking("x", json!({"cpu": "1"})));
    let expression = json!({"key": "disk", "operator": "In", "values": ["ssd"]});
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [expression]}}]);
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    assert_eq!(world.schedule(&pod("p", json!({"spec": {"affinity": affinity}}))), Ok("b".to_owned()));
}

#[test]
fn nodes_that_would_rather_not_are_avoided() {
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    let mut world = World::with([node("a", taint), node("b", json!({}))]);
    world.run("b", asking("x", json!({"cpu": "1"})));
    assert_eq!(world.schedule(&pod("p", json!({}))), Ok("b".to_owned()));
    let tolerant = pod("q", json!({"spec": {"tolerations": [{"operator": "Exists"}]}}));
    assert_eq!(world.schedule(&tolerant), Ok("a".to_owned()));
}

#[test]
fn siblings_are_spread_over_nodes_and_zones() {
    let mut world = World::with([zone("a1", "a"), zone("a2", "a"), zone("b1", "b"), zone("b2", "b")]);
    world.objects.siblings = Some(LabelSelector::of_labels([(&"app".to_owned(), &"web".to_owned())]));
    let labels = json!({"metadata": {"labels": {"app": "web"}}});
    let mut nodes: Vec<String> = (0..4).map(|i| world.place(pod(&format!("p{i}"), labels.clone()))).collect();
    assert_ne!(nodes[0][..1], nodes[1][..1], "the second goes to the other zone: {nodes:?}");
    nodes.sort();
    assert_eq!(nodes, ["a1", "a2", "b1", "b2"]);
}

#[test]
fn pods_that_like_each_other_come_together() {
    let mut world = World::with([zone("a1", "a"), zone("b1", "b")]);
    world.run("b1", pod("db", json!({"metadata": {"labels": {"app": "db"}}})));
    world.run("b1", asking("x", json!({"cpu": "1"})));
    let term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "topology.kubernetes.io/zone"});
    let preferred =
        json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]});
    let liking = pod("p", json!({"spec": {"affinity": {"podAffinity": preferred.clone()}}}));
    assert_eq!(world.schedule(&liking), Ok("b1".to_owned()));
    let disliking = pod("p", json!({"spec": {"affinity": {"podAntiAffinity": preferred.clone()}}}));
    assert_eq!(world.schedule(&disliking), Ok("a1".to_owned()));
    // Preferences of scheduled pods count, too.
    world.run("b1", liking);
    assert_eq!(world.schedule(&pod("db2", json!({"metadata": {"labels": {"app": "db"}}}))), Ok("b1".to_owned()));
}

#[test]
fn large_clusters_are_looked_at_in_turns() {
    let mut world = World::with((0..1000).map(|i| node(&format!("n{i}"), json!({}))));
    let mut nodes: Vec<String> =
        (0..1000).map(|i| world.place(asking(&format!("p{i}"), json!({"cpu": "3"})))).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 1000, "every node takes one");
    assert!(world.schedule(&asking("p", json!({"cpu": "3"}))).is_err());
}
