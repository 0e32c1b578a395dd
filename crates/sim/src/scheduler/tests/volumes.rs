//! Volume constraints on scheduling.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::schedule::Decision;
use super::super::volumes::Choice;
use super::{World, pod, zone};

const UNHELPFUL: &str = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";

fn world() -> World {
    let mut world = World::with([zone("a1", "a"), zone("b1", "b")]);
    let class = |name: &str, change: Value| {
        let mut value = json!({
            "metadata": {"name": name},
            "provisioner": "example.com/disk",
            "volumeBindingMode": "WaitForFirstConsumer",
        });
        json_patch::merge(&mut value, &change);
        (name.to_owned(), Arc::new(serde_json::from_value(value).unwrap()))
    };
    let zone_b = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["b"]}]}]);
    world.objects.classes = [
        class("late", json!({})),
        class("in-b", json!({"allowedTopologies": zone_b})),
        class("local", json!({"provisioner": "kubernetes.io/no-provisioner"})),
        class("now", json!({"volumeBindingMode": "Immediate"})),
    ]
    .into();
    world
}

fn claim(world: &mut World, name: &str, change: Value) {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}},
    });
    json_patch::merge(&mut value, &change);
    world.objects.claims.insert(format!("default/{name}"), Arc::new(serde_json::from_value(value).unwrap()));
}

fn volume(world: &mut World, name: &str, zone: &str, size: &str, class: &str) {
    let expression = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
    let value = json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
        "status": {"phase": "Available"},
    });
    world.objects.volumes.push(Arc::new(serde_json::from_value(value).unwrap()));
}

fn user(claims: &[&str]) -> crate::Pod {
    let volumes: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
    pod("p", json!({"spec": {"volumes": volumes}}))
}

fn bound(volume: &str) -> Value {
    json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": volume}})
}

#[test]
fn a_pod_goes_where_its_volume_is() {
    let mut world = world();
    volume(&mut world, "v", "b", "10Gi", "");
    claim(&mut world, "data", bound("v"));
    assert_eq!(world.schedule(&user(&["data"])), Ok("b1".to_owned()));
    volume(&mut world, "w", "c", "10Gi", "");
    claim(&mut world, "data", bound("w"));
    let reason = "2 node(s) didn't match PersistentVolume's node affinity";
    assert_eq!(world.schedule(&user(&["data"])), Err(format!("0/2 nodes are available: {reason}. {UNHELPFUL}")));
}

#[test]
fn claims_that_are_not_ready_keep_pods_waiting() {
    let mut world = world();
    claim(&mut world, "now", json!({"spec": {"storageClassName": "now"}}));
    claim(&mut world, "lost", json!({"spec": {"volumeName": "v"}, "status": {"phase": "Lost"}}));
    claim(&mut world, "going", json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}}));
    let cases = [
        ("absent", r#"persistentvolumeclaim "absent" not found"#),
        ("now", "pod has unbound immediate PersistentVolumeClaims"),
        ("lost", r#"persistentvolumeclaim "lost" bound to non-existent persistentvolume "v""#),
        ("going", r#"persistentvolumeclaim "going" is being deleted"#),
    ];
    for (claim, reason) in cases {
        let message = format!("0/2 nodes are available: {reason}. {UNHELPFUL}");
        assert_eq!(world.schedule(&user(&[claim])), Err(message));
    }
}

#[test]
fn claims_that_wait_for_a_pod_get_volumes_where_it_goes() {
    let choices = |world: &mut World, claims: &[&str]| match world.decide(&user(claims)) {
        Decision::Place(id, extras) => {
            let choices: Vec<Choice> = extras.volumes.into_iter().map(|(_, choice)| choice).collect();
            (world.state.node(id).name.to_string(), choices)
        }
        Decision::Unschedulable(unschedulable) => (unschedulable.message, Vec::new()),
    };
    let mut world = world();
    for (name, class) in [("x", "in-b"), ("y", "local"), ("z", "local")] {
        claim(&mut world, name, json!({"spec": {"storageClassName": class}}));
    }
    assert_eq!(choices(&mut world, &["x"]), ("b1".to_owned(), vec![Choice::Provision]));
    let reason = "2 node(s) didn't find available persistent volumes to bind";
    let message = format!("0/2 nodes are available: {reason}. {UNHELPFUL}");
    assert_eq!(choices(&mut world, &["y"]), (message.clone(), vec![]));
    volume(&mut world, "small", "a", "1Gi", "local");
    volume(&mut world, "large", "b", "50Gi", "local");
    volume(&mut world, "right", "b", "5Gi", "local");
    assert_eq!(choices(&mut world, &["y"]), ("b1".to_owned(), vec![Choice::Volume("right".into())]));
    let both = vec![Choice::Volume("right".into()), Choice::Volume("large".into())];
    assert_eq!(choices(&mut world, &["y", "z"]), ("b1".to_owned(), both));
    world.objects.volumes.pop();
    assert_eq!(
        choices(&mut world, &["y", "z"]),
        (
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. ".to_owned()
                + UNHELPFUL,
            vec![]
        )
    );
}

#[test]
fn a_claim_for_one_pod_is_used_by_one_pod() {
    let mut world = world();
    volume(&mut world, "v", "a", "10Gi", "");
    let mut change = bound("v");
    change["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    claim(&mut world, "data", change);
    let mut first = user(&["data"]);
    first.metadata.name = Some("first".to_owned());
    world.run("a1", first);
    let failed = world.schedule(&user(&["data"])).unwrap_err();
    assert!(failed.contains("ReadWriteOncePod access mode already in-use by another pod"), "{failed}");
    world.state.remove_pod("default/first");
    assert_eq!(world.schedule(&user(&["data"])), Ok("a1".to_owned()));
}
