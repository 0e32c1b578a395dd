//! Which NVIDIADriver owns a node.

use super::*;

fn wanted(drivers: &[NvidiaDriver]) -> Wanted {
    Wanted::of(None, Some(&gpu_cluster()), drivers)
}

fn pool(name: &str, pool: &str) -> NvidiaDriver {
    driver(name, json!({"nodeSelector": {"pool": pool}}))
}

fn default(name: &str) -> NvidiaDriver {
    driver(name, json!({"default": true}))
}

fn in_pool(name: &str) -> Host {
    Host::gpu().label("pool", name)
}

#[test]
fn the_one_that_selects_the_node_beats_the_default() {
    let wanted = wanted(&[pool("a", "a"), default("whatever")]);
    assert_eq!(in_pool("a").settle(&wanted, &QUIET).get(keys::OWNER), Some("a"));
    assert_eq!(in_pool("b").settle(&wanted, &QUIET).get(keys::OWNER), Some("whatever"));
}

#[test]
fn without_a_default_a_node_that_nobody_selects_has_no_owner() {
    let host = in_pool("b").label(keys::OWNER, "a").settle(&wanted(&[pool("a", "a")]), &QUIET);
    assert_eq!(host.get(keys::OWNER), None);
    assert_eq!(host.annotations.get(keys::AUTO_UPGRADE), None);
}

#[test]
fn no_selector_selects_every_gpu_node() {
    for spec in [json!({}), json!({"nodeSelector": {}}), json!({"nodeSelector": {keys::PRESENT: "true"}})] {
        let wanted = wanted(&[driver("all", spec)]);
        assert_eq!(Host::gpu().settle(&wanted, &QUIET).get(keys::OWNER), Some("all"));
        assert_eq!(decide(&wanted, &Host::default().node(), &QUIET), Decision::default(), "not a GPU node");
    }
}

#[test]
fn one_that_is_being_deleted_owns_nothing() {
    let mut going = default("going");
    going.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    let wanted = wanted(&[going, default("stays")]);
    assert_eq!(wanted.refusal, None);
    assert_eq!(Host::gpu().settle(&wanted, &QUIET).get(keys::OWNER), Some("stays"));
}

#[test]
fn nodes_of_one_that_is_being_deleted_leave_it_as_an_upgrade() {
    let mut going = default("going");
    going.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    let busy = NodeFacts { owned_driver: true, ..QUIET };
    for (drivers, next) in [(vec![going.clone(), default("stays")], "stays"), (vec![going], "")] {
        let host = Host::gpu().label(keys::OWNER, "going").settle(&wanted(&drivers), &busy);
        assert_eq!(host.get(keys::OWNER), Some("going"), "its driver is in use");
        assert_eq!(host.annotations.get(upgrade_keys::NEXT_OWNER).map(String::as_str), Some(next));
        assert_eq!(host.get(upgrade_keys::STATE), Some("upgrade-required"));
    }
}

#[test]
fn mistakes_change_no_owner() {
    let cases = [
        (vec![default("b"), default("a")], "multiple default NVIDIADrivers found: [a b]"),
        (
            vec![driver("a", json!({"nodeSelector": {keys::OWNER: "x"}}))],
            "NVIDIADriver \"a\" nodeSelector cannot use reserved label \"nvidia.com/gpu-operator.driver.owner\"",
        ),
        (
            vec![driver("a", json!({"nodeSelector": {"feature.node.kubernetes.io/cpu-cpuid.AVX2": "true"}}))],
            "NVIDIADriver \"a\" nodeSelector uses label \"feature.node.kubernetes.io/cpu-cpuid.AVX2\": features of processors cannot select drivers; label the nodes with a key of your own",
        ),
        (
            vec![driver("a", json!({"default": true, "nodeSelector": {"x": "y"}}))],
            "NVIDIADriver \"a\" is the default and has a nodeSelector: the default serves the nodes that no other selects; remove nodeSelector or default",
        ),
    ];
    for (drivers, message) in cases {
        let wanted = wanted(&drivers);
        assert_eq!(wanted.refusal.as_ref().unwrap().message, message);
        let host =
            Host::gpu().label(keys::OWNER, "before").annotation(keys::AUTO_UPGRADE, "true").settle(&wanted, &QUIET);
        assert_eq!((host.get(keys::OWNER), host.annotations.len()), (Some("before"), 1));
        assert!(host.operands().contains(&"dra-driver"), "the other labels do not wait for it");
    }
}

#[test]
fn a_node_that_two_select_stops_all_changes_of_owners() {
    let mut wanted = wanted(&[pool("b", "x"), driver("a", json!({"nodeSelector": {"zone": "1"}})), default("d")]);
    let (both, other) = (in_pool("x").label("zone", "1"), in_pool("y"));
    assert_eq!(both.settle(&wanted, &QUIET).get(keys::OWNER), None, "also before all nodes were looked at");
    wanted.check([other.node(), Host::default().label("pool", "x").label("zone", "1").node()]);
    assert_eq!(wanted.refusal, None, "a node without GPUs is no conflict");
    wanted.check([other.node(), both.node()]);
    assert_eq!(wanted.refusal.as_ref().unwrap().message, "multiple NVIDIADrivers match the same node a: [a b]");
    for host in [other, both] {
        assert_eq!(host.settle(&wanted, &QUIET).get(keys::OWNER), None);
    }
}

#[test]
fn automatic_upgrades_are_the_drivers_choice() {
    let drivers = [
        pool("on", "on"),
        driver("off", json!({"nodeSelector": {"pool": "off"}, "upgradePolicy": {"autoUpgrade": false}})),
    ];
    let policy = |sandbox: bool| {
        let spec = json!({"driver": {"useNvidiaDriverCRD": true}, "sandboxWorkloads": {"enabled": sandbox}});
        Wanted::of(Some(&cluster_policy(spec)), None, &drivers)
    };
    for (wanted, annotated) in [(wanted(&drivers), true), (policy(false), true), (policy(true), false)] {
        let on = in_pool("on").settle(&wanted, &QUIET);
        assert_eq!(
            (on.annotations.contains_key(keys::AUTO_UPGRADE), on.get(upgrade_keys::STATE)),
            (annotated, Some("upgrade-done"))
        );
        let off = in_pool("off").annotation(keys::AUTO_UPGRADE, "true").label(upgrade_keys::STATE, "upgrade-required");
        let off = off.settle(&wanted, &QUIET);
        assert_eq!((off.annotations.len(), off.get(upgrade_keys::STATE)), (0, None));
    }
}

#[test]
fn leaving_nvidia_drivers_takes_owners_away() {
    let host = Host::gpu().label(keys::OWNER, "a").annotation(keys::AUTO_UPGRADE, "true");
    let host = host.annotation(upgrade_keys::NEXT_OWNER, "b").settle(&policy(json!({})), &QUIET);
    assert_eq!((host.get(keys::OWNER), host.annotations.len()), (None, 0));
}

#[test]
fn orphaned_drivers_are_upgraded() {
    let wanted = wanted(&[default("nvd")]);
    let orphan = NodeFacts { orphaned_driver: true, ..QUIET };
    for (state, expected) in [
        ("", "upgrade-required"),
        ("upgrade-done", "upgrade-required"),
        ("upgrade-failed", "upgrade-failed"),
        ("drain-required", "drain-required"),
    ] {
        let host = Host::gpu().label(upgrade_keys::STATE, state).settle(&wanted, &orphan);
        assert_eq!(host.get(upgrade_keys::STATE), Some(expected), "{state}");
        assert!(!host.annotations.contains_key(upgrade_keys::INITIAL));
    }
    let cordoned = Host { unschedulable: true, ..Host::gpu() }.settle(&wanted, &orphan);
    assert_eq!(cordoned.annotations[upgrade_keys::INITIAL], "true", "it is found cordoned afterwards");
    let nobody = Host::gpu().settle(&Wanted::of(None, Some(&gpu_cluster()), &[]), &orphan);
    assert_eq!(nobody.get(upgrade_keys::STATE), None);
}

#[test]
fn another_owner_gets_a_node_with_a_driver_through_an_upgrade() {
    let wanted = wanted(&[pool("a", "a"), pool("b", "b")]);
    let running = NodeFacts { owned_driver: true, ..QUIET };
    let moved = in_pool("b").label(keys::OWNER, "a").label(upgrade_keys::STATE, "upgrade-done");
    let decision = decide(&wanted, &moved.node(), &running);
    assert_eq!(
        decision.events[0].message,
        "driver moves from NVIDIADriver a to NVIDIADriver b as an upgrade of this node"
    );
    let host = moved.settle(&wanted, &running);
    assert_eq!((host.get(keys::OWNER), host.get(upgrade_keys::STATE)), (Some("a"), Some("upgrade-required")));
    assert_eq!(host.annotations[upgrade_keys::NEXT_OWNER], "b");

    let back = host.clone().label("pool", "a").settle(&wanted, &running);
    assert!(!back.annotations.contains_key(upgrade_keys::NEXT_OWNER), "it stays where it is after all");
    let alone = host.label("pool", "none").settle(&wanted, &running);
    assert_eq!(alone.annotations[upgrade_keys::NEXT_OWNER], "");
}

#[test]
fn another_owner_gets_a_node_at_once_where_nothing_can_be_lost() {
    let wanted = wanted(&[pool("a", "a"), pool("b", "b")]);
    let running = NodeFacts { owned_driver: true, ..QUIET };
    let moved = in_pool("b").label(keys::OWNER, "a");
    assert_eq!(moved.settle(&wanted, &QUIET).get(keys::OWNER), Some("b"), "no driver runs there");
    let gone = in_pool("b").label(keys::OWNER, "deleted");
    assert_eq!(gone.settle(&wanted, &running).get(keys::OWNER), Some("b"), "its owner is gone, and its driver with it");
}
