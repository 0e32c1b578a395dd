//! Topology spread, pod affinity and anti-affinity.

use serde_json::{Value, json};

use super::{World, node, pod, zone};
use crate::Pod;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn labelled(name: &str, app: &str) -> Pod {
    pod(name, json!({"metadata": {"labels": {"app": app}}}))
}

fn term(app: &str, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key})
}

fn near(name: &str, app: &str, term: Value) -> Pod {
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    pod(name, json!({"metadata": {"labels": {"app": app}}, "spec": {"affinity": {"podAffinity": required}}}))
}

fn far(name: &str, app: &str, term: Value) -> Pod {
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    pod(name, json!({"metadata": {"labels": {"app": app}}, "spec": {"affinity": {"podAntiAffinity": required}}}))
}

fn spread(name: &str, key: &str, change: Value) -> Pod {
    let mut constraint = json!({
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    json_patch::merge(&mut constraint, &change);
    let spec = json!({"topologySpreadConstraints": [constraint]});
    pod(name, json!({"metadata": {"labels": {"app": "web"}}, "spec": spec}))
}

fn zones() -> World {
    World::with([zone("a1", "a"), zone("a2", "a"), zone("b1", "b")])
}

#[test]
fn a_pod_goes_where_those_are_that_it_wants_near() {
    let mut world = zones();
    let message = "0/3 nodes are available: 3 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are \
                   available: 3 Preemption is not helpful for scheduling.";
    assert_eq!(world.schedule(&near("p", "web", term("db", ZONE))), Err(message.to_owned()));
    world.run("b1", labelled("db", "db"));
    assert_eq!(world.schedule(&near("p", "web", term("db", ZONE))), Ok("b1".to_owned()));
}

#[test]
fn the_first_of_pods_that_want_to_be_together_goes_anywhere() {
    let mut world = zones();
    let first = world.place(near("p0", "web", term("web", HOST)));
    for name in ["p1", "p2"] {
        assert_eq!(world.place(near(name, "web", term("web", HOST))), first);
    }
}

#[test]
fn a_pod_stays_away_from_those_that_it_wants_far() {
    let mut world = zones();
    world.run("a1", labelled("db", "db"));
    assert_eq!(world.schedule(&far("p", "web", term("db", ZONE))), Ok("b1".to_owned()));
    world.run("b1", labelled("db2", "db"));
    let message = "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. preemption: 0/3 nodes are \
                   available: 3 No preemption victims found for incoming pod.";
    assert_eq!(world.schedule(&far("p", "web", term("db", ZONE))), Err(message.to_owned()));
}

#[test]
fn a_pod_stays_away_from_those_that_want_it_far() {
    let mut world = zones();
    world.run("a1", far("x", "db", term("web", ZONE)));
    assert_eq!(world.schedule(&labelled("p", "web")), Ok("b1".to_owned()));
    world.state.remove_pod("default/x");
    world.run("b1", labelled("q", "other"));
    assert_ne!(world.schedule(&labelled("p", "web")), Ok("b1".to_owned()));
}

#[test]
fn namespaces_are_chosen_by_name_and_label() {
    let other = |namespaces: Value| {
        let mut term = term("db", HOST);
        json_patch::merge(&mut term, &namespaces);
        term
    };
    let cases = [
        (json!({}), true),
        (json!({"namespaces": ["default"]}), true),
        (json!({"namespaces": ["elsewhere"]}), false),
        (json!({"namespaceSelector": {}}), false),
        (json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}), false),
        (json!({"namespaceSelector": {"matchLabels": {"team": "y"}}}), true),
    ];
    for (namespaces, fits) in cases {
        let mut world = World::with([node("n", json!({}))]);
        let labels = |team: &str| Some([("team".to_owned(), team.to_owned())].into());
        world.state.set_namespace("default", labels("y"));
        world.state.set_namespace("elsewhere", labels("x"));
        let mut db = labelled("db", "db");
        db.metadata.namespace = Some("elsewhere".to_owned());
        world.run("n", db);
        assert_eq!(world.schedule(&far("p", "web", other(namespaces.clone()))).is_ok(), fits, "{namespaces}");
    }
}

#[test]
fn pods_are_spread_within_the_skew() {
    let mut world = zones();
    let nodes: Vec<String> = (0..6).map(|i| world.place(spread(&format!("p{i}"), ZONE, json!({})))).collect();
    let in_b = nodes.iter().filter(|node| *node == "b1").count();
    assert_eq!(in_b, 3, "{nodes:?}");
}

#[test]
fn a_node_without_the_label_is_no_domain() {
    let mut world = World::with([node("x", json!({})), zone("a1", "a")]);
    for i in 0..3 {
        assert_eq!(world.place(spread(&format!("p{i}"), ZONE, json!({}))), "a1");
    }
    let mut world = World::with([node("x", json!({}))]);
    let message = "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required \
                   label). preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(world.schedule(&spread("p", ZONE, json!({}))), Err(message.to_owned()));
}

#[test]
fn details_of_spread_constraints() {
    let running = |world: &mut World, node: &str, count: usize| {
        for i in 0..count {
            world.run(node, labelled(&format!("{node}-{i}"), "web"));
        }
    };
    let cases = [
        // One pod in zone a, none in b: another in a would be two more than in b.
        (json!({}), [1, 0], false),
        (json!({"maxSkew": 2}), [1, 0], true),
        // There are only two domains where three are wanted, so the minimum counts as zero.
        (json!({"minDomains": 3}), [1, 1], false),
        (json!({"minDomains": 2}), [1, 1], true),
        // Pods with other labels do not count.
        (json!({"labelSelector": {"matchLabels": {"app": "db"}}}), [3, 0], true),
    ];
    for (change, counts, fits) in cases {
        let mut world = World::with([zone("a1", "a"), zone("b1", "b")]);
        running(&mut world, "a1", counts[0]);
        running(&mut world, "b1", counts[1]);
        let mut pod = spread("p", ZONE, change.clone());
        // Node affinity is ignored so that zone b counts although the pod cannot be there.
        let constraints = pod.spec_mut().topology_spread_constraints.as_mut().unwrap();
        constraints[0].node_affinity_policy = Some("Ignore".to_owned());
        pod.spec_mut().node_selector = Some([(ZONE.to_owned(), "a".to_owned())].into());
        assert_eq!(world.schedule(&pod).is_ok(), fits, "{change}");
    }
}

#[test]
fn domains_that_a_pod_cannot_be_in_do_not_count() {
    let mut world = zones();
    for i in 0..3 {
        let mut pod = spread(&format!("p{i}"), ZONE, json!({}));
        pod.spec_mut().node_selector = Some([(ZONE.to_owned(), "a".to_owned())].into());
        assert!(world.place(pod).starts_with('a'));
    }
}

#[test]
fn pods_that_end_do_not_count_for_spread() {
    let mut world = World::with([zone("a1", "a"), zone("b1", "b")]);
    let mut leaving = labelled("x", "web");
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    world.run("a1", leaving);
    let mut pod = spread("p", ZONE, json!({}));
    pod.spec_mut().node_selector = Some([(HOST.to_owned(), "a1".to_owned())].into());
    assert_eq!(world.schedule(&pod), Ok("a1".to_owned()));
}
