//! Dynamic resource allocation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::schedule::Decision;
use super::{World, node, pod};

const DRIVER: &str = "gpu.example.com";

/// Two nodes with two devices each; those of `b` have more memory.
fn world() -> World {
    let mut world = World::with([node("a", json!({})), node("b", json!({}))]);
    for (node, memory) in [("a", "40Gi"), ("b", "80Gi")] {
        let device = |i: i32| {
            json!({
                "name": format!("gpu-{i}"),
                "attributes": {
                    "model": {"string": "X100"},
                    "index": {"int": i},
                    "driverVersion": {"version": "1.2.3"},
                    "numa": {"int": i / 2},
                },
                "capacity": {"memory": {"value": memory}},
            })
        };
        slice(&mut world, node, json!([device(0), device(1)]), json!({}));
    }
    class(&mut world, "gpu", json!([{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]));
    world
}

fn slice(world: &mut World, node: &str, devices: Value, change: Value) {
    let mut value = json!({
        "metadata": {"name": format!("{node}-slice"), "resourceVersion": "1"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    });
    json_patch::merge(&mut value, &change);
    let slice = Arc::new(serde_json::from_value(value).unwrap());
    world.ledger.set_slice(&format!("{node}-slice"), Some(&slice));
}

fn class(world: &mut World, name: &str, selectors: Value) {
    let value = json!({"metadata": {"name": name}, "spec": {"selectors": selectors}});
    world.objects.device_classes.insert(name.to_owned(), Arc::new(serde_json::from_value(value).unwrap()));
}

fn claim(world: &mut World, name: &str, devices: Value) {
    let metadata = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}")});
    let value = json!({"metadata": metadata, "spec": {"devices": devices}});
    world.objects.resource_claims.insert(format!("default/{name}"), Arc::new(serde_json::from_value(value).unwrap()));
}

fn exactly(change: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    json_patch::merge(&mut exactly, &change);
    json!({"requests": [{"name": "r", "exactly": exactly}]})
}

fn user(claim: &str) -> crate::Pod {
    pod("p", json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}}))
}

/// Node and devices, or the message.
fn allocate(world: &mut World, devices: Value) -> Result<(String, Vec<String>), String> {
    claim(world, "c", devices);
    match world.decide(&user("c")) {
        Decision::Place(id, extras) => {
            let result = extras.devices[0].result.clone();
            world.ledger.assume(&extras.devices[0]);
            let results = result.devices.unwrap().results.unwrap();
            let devices = results.into_iter().map(|result| result.device).collect();
            Ok((world.state.node(id).name.to_string(), devices))
        }
        Decision::Unschedulable(unschedulable) => Err(unschedulable.message),
    }
}

fn cel(expression: &str) -> Value {
    exactly(json!({"selectors": [{"cel": {"expression": expression}}]}))
}

#[test]
fn selectors_choose_devices() {
    let none = Err("cannot allocate all claims".to_owned());
    let cases = [
        ("device.attributes['gpu.example.com'].model == 'X100'", Ok(("a", "gpu-0"))),
        ("device.attributes['gpu.example.com'].model == 'Y100'", none.clone()),
        ("device.attributes['gpu.example.com'].index == 1", Ok(("a", "gpu-1"))),
        ("device.capacity['gpu.example.com'].memory.compareTo(quantity('60Gi')) >= 0", Ok(("b", "gpu-0"))),
        ("device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('1.0.0'))", Ok(("a", "gpu-0"))),
        ("'model' in device.attributes['gpu.example.com']", Ok(("a", "gpu-0"))),
        ("'model' in device.attributes['other.example.com']", none),
    ];
    for (expression, expected) in cases {
        let got = allocate(&mut world(), cel(expression));
        match expected {
            Ok((node, device)) => assert_eq!(got, Ok((node.to_owned(), vec![device.to_owned()])), "{expression}"),
            Err(reason) => assert!(got.as_ref().is_err_and(|error| error.contains(&reason)), "{expression}: {got:?}"),
        }
    }
}

#[test]
fn a_device_is_given_once() {
    let mut world = world();
    let mut given = Vec::new();
    for _ in 0..4 {
        let (node, devices) = allocate(&mut world, exactly(json!({}))).unwrap();
        given.push(format!("{node}/{}", devices[0]));
        // Each claim is a new one.
        let pending = std::mem::take(&mut world.objects.resource_claims);
        let (_, claim) = pending.into_iter().next().unwrap();
        let mut claim = k8s_openapi::api::resource::v1::ResourceClaim::clone(&claim);
        let uid = format!("uid-{}", given.len());
        let device = json!({"request": "r", "driver": DRIVER, "pool": node, "device": devices[0]});
        claim.status = serde_json::from_value(json!({"allocation": {"devices": {"results": [device]}}})).unwrap();
        world.ledger.set_claim("uid-c", Some(&claim));
        world.ledger.set_claim("uid-c", None);
        world.ledger.set_claim(&uid, Some(&claim));
    }
    given.sort();
    assert_eq!(given, ["a/gpu-0", "a/gpu-1", "b/gpu-0", "b/gpu-1"]);
    let failed = allocate(&mut world, exactly(json!({}))).unwrap_err();
    assert!(failed.starts_with("0/2 nodes are available: 2 cannot allocate all claims."), "{failed}");
    world.ledger.set_claim("uid-1", None);
    assert!(allocate(&mut world, exactly(json!({}))).is_ok());
}

#[test]
fn counts_and_all() {
    let two = vec!["gpu-0".to_owned(), "gpu-1".to_owned()];
    assert_eq!(allocate(&mut world(), exactly(json!({"count": 2}))), Ok(("a".to_owned(), two.clone())));
    assert!(allocate(&mut world(), exactly(json!({"count": 3}))).is_err());
    assert_eq!(allocate(&mut world(), exactly(json!({"allocationMode": "All"}))), Ok(("a".to_owned(), two)));
}

#[test]
fn the_first_option_that_works_is_taken() {
    let option = |name: &str, count: i32| json!({"name": name, "deviceClassName": "gpu", "count": count});
    let devices = json!({"requests": [{"name": "r", "firstAvailable": [option("four", 4), option("one", 1)]}]});
    let mut world = world();
    claim(&mut world, "c", devices);
    let Decision::Place(_, extras) = world.decide(&user("c")) else { panic!("there is one") };
    let results = extras.devices[0].result.devices.as_ref().unwrap().results.as_ref().unwrap();
    assert_eq!(results[0].request, "r/one");
}

#[test]
fn attributes_must_match() {
    let mut world = World::with([node("a", json!({}))]);
    let device = |i: i32, numa: i32| json!({"name": format!("gpu-{i}"), "attributes": {"numa": {"int": numa}}});
    slice(&mut world, "a", json!([device(0, 0), device(1, 1), device(2, 1)]), json!({}));
    class(&mut world, "gpu", json!([]));
    let mut devices = exactly(json!({"count": 2}));
    devices["constraints"] = json!([{"matchAttribute": "gpu.example.com/numa"}]);
    let (_, given) = allocate(&mut world, devices).unwrap();
    assert_eq!(given, ["gpu-1", "gpu-2"]);
    let mut devices = exactly(json!({"count": 3}));
    devices["constraints"] = json!([{"matchAttribute": "gpu.example.com/numa"}]);
    world.ledger.set_claim("uid-c", None);
    assert!(allocate(&mut world, devices).is_err());
}

#[test]
fn partitions_share_counters() {
    let mut world = World::with([node("a", json!({}))]);
    let part = |name: &str, slices: i32| {
        let counters = json!({"slices": {"value": slices.to_string()}});
        json!({"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": counters}]})
    };
    let shared = json!([{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}]);
    let parts = json!([part("whole", 7), part("half-0", 4), part("half-1", 3), part("half-2", 4)]);
    slice(&mut world, "a", parts, json!({"spec": {"sharedCounters": shared}}));
    class(&mut world, "gpu", json!([]));
    let (_, given) = allocate(&mut world, exactly(json!({"count": 2}))).unwrap();
    assert_eq!(given, ["half-0", "half-1"]);
    claim(&mut world, "d", exactly(json!({})));
    let mut other = user("d");
    other.metadata.name = Some("q".to_owned());
    assert!(world.schedule(&other).unwrap_err().contains("cannot allocate all claims"));
}

#[test]
fn taints_keep_devices_from_claims() {
    let mut world = World::with([node("a", json!({}))]);
    let taints = json!([{"key": "broken", "effect": "NoSchedule"}]);
    slice(&mut world, "a", json!([{"name": "gpu-0", "taints": taints}]), json!({}));
    class(&mut world, "gpu", json!([]));
    assert!(allocate(&mut world, exactly(json!({}))).is_err());
    let tolerant = json!({"tolerations": [{"key": "broken", "operator": "Exists"}]});
    assert!(allocate(&mut world, exactly(tolerant)).is_ok());
}

#[test]
fn an_allocated_claim_binds_the_pod_to_its_node() {
    let mut world = world();
    claim(&mut world, "c", exactly(json!({})));
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["b"]});
    let mut claim = k8s_openapi::api::resource::v1::ResourceClaim::clone(&world.objects.resource_claims["default/c"]);
    claim.status = serde_json::from_value(json!({
        "allocation": {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}},
    }))
    .unwrap();
    world.objects.resource_claims.insert("default/c".to_owned(), Arc::new(claim));
    assert_eq!(world.schedule(&user("c")), Ok("b".to_owned()));
}

#[test]
fn claims_that_are_not_there_keep_pods_waiting() {
    let mut world = world();
    let template = pod("p", json!({"spec": {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]}}));
    claim(&mut world, "strange", exactly(json!({"deviceClassName": "unknown"})));
    let cases = [
        (user("absent"), r#"resourceclaim.resource.k8s.io "absent" not found"#),
        (template, r#"pod "default/p": ResourceClaim not created yet"#),
        (user("strange"), "request r: device class unknown does not exist"),
    ];
    for (pod, reason) in cases {
        let message = world.schedule(&pod).unwrap_err();
        assert!(message.starts_with(&format!("0/2 nodes are available: {reason}.")), "{message}");
    }
}
