//! Whose policy rules a node, and what the one who rules says about it.

use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};
use serde_json::{Value, json};

use super::*;
use crate::gpu::nodes::OWNER;

fn policy(driver: Value, sandboxes: bool) -> ClusterPolicy {
    let spec = json!({
        "operator": {}, "daemonsets": {}, "driver": driver, "toolkit": {}, "devicePlugin": {}, "dcgm": {},
        "dcgmExporter": {}, "gfd": {}, "nodeStatusExporter": {}, "sandboxWorkloads": {"enabled": sandboxes},
    });
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

fn driver(name: &str, upgrade: Value) -> NvidiaDriver {
    let spec = json!({"default": false, "driverType": "gpu", "image": "x", "upgradePolicy": upgrade});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

#[test]
fn a_policy_upgrades_only_if_it_says_so() {
    let on = json!({"autoUpgrade": true});
    let rules = |driver: Value, sandboxes| GoverningPolicies::of(Some(&policy(driver, sandboxes)), None, &[], None);
    assert!(matches!(rules(json!({"upgradePolicy": on}), false), GoverningPolicies::Policy(_)));
    for (driver, sandboxes) in [
        (json!({}), false),
        (json!({"upgradePolicy": {}}), false),
        (json!({"upgradePolicy": on}), true),
        (json!({"upgradePolicy": on, "enabled": false}), false),
    ] {
        assert_eq!(rules(driver.clone(), sandboxes), GoverningPolicies::Disabled, "{driver}");
    }
    let cluster: GpuCluster =
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"draDriver": {}}})).unwrap();
    let policy = policy(json!({"upgradePolicy": on}), false);
    assert_eq!(
        GoverningPolicies::of(Some(&policy), Some(&cluster), &[], None),
        GoverningPolicies::Disabled,
        "it cannot be told"
    );
    assert_eq!(GoverningPolicies::of(None, None, &[driver("a", json!({}))], None), GoverningPolicies::Disabled);
}

#[test]
fn a_driver_rules_the_nodes_it_owns_or_is_about_to_unless_it_is_switched_off() {
    let apart = policy(json!({"useNvidiaDriverCRD": true}), false);
    let drivers = [driver("a", Value::Null), driver("b", json!({"autoUpgrade": false}))];
    let governing_policies = GoverningPolicies::of(Some(&apart), None, &drivers, None);
    let node = |owner: &str, next: Option<&str>| json!({"metadata": {"labels": {OWNER: owner}, "annotations": {keys::NEXT_OWNER: next}}});
    let of = |node: &Value| governing_policies.of_node(&Node::of(node)).map(str::to_owned);
    assert_eq!(of(&node("a", None)).as_deref(), Some("a"));
    assert_eq!(of(&node("b", None)), None);
    assert_eq!(of(&node("b", Some("a"))).as_deref(), Some("a"));
    assert_eq!(of(&node("a", Some(""))).as_deref(), Some("a"));
    assert_eq!(of(&json!({"metadata": {}})), None);
}

#[test]
fn the_condition_turns_with_an_event_in_the_same_words() {
    let settings = Settings { max_failures: Some(Amount::Count(0)), retries: 0, ..generous() };
    let failed = Machine::old("bad").state(State::Failed).annotated(keys::REASON, "DriverCrashes: x");
    let failed = failed.annotated(keys::ATTEMPTS, 1).cordoned();
    let report = |machines: &[Machine]| Report::of(&pass(&settings, machines, NOW), &settings, &[]);
    let fine = report(&[Machine::new("n").state(State::Done)]);
    let halted = report(&[failed, Machine::old("n").state(State::Required)]);
    let mut list = Vec::new();
    assert_eq!(show(&mut list, Some(Some(&fine)), None, at(NOW)), None, "no news");
    assert_eq!((list[0].status.as_str(), list[0].reason.as_str()), ("True", "Complete"));
    let note = show(&mut list, Some(Some(&halted)), None, at(NOW)).unwrap();
    assert_eq!((list[0].reason.as_str(), &note.message), ("Halted", &list[0].message));
    assert!(note.message.starts_with("halted: failed on 1 of 2 nodes, more than 0; "), "{}", note.message);
    assert_eq!(show(&mut list, Some(Some(&halted)), None, at(NOW)), None, "it is said once");
    show(&mut list, None, None, at(NOW));
    assert_eq!(list.len(), 1, "nobody has looked yet");
    show(&mut list, Some(None), None, at(NOW));
    assert!(list.is_empty(), "nothing is upgraded");
}

#[test]
fn a_first_install_is_no_upgrade_that_is_complete() {
    let report = |machines: &[Machine]| Report::of(&pass(&generous(), machines, NOW), &generous(), &[]);
    let starting = Machine::new("b").driver(|driver| driver.ready = false);
    let installing = report(&[Machine::new("a").with(|machine| machine.driver = None), starting.clone()]);
    let installed = report(&[Machine::new("a"), Machine::new("b")]);
    let restarting = report(&[Machine::new("a").state(State::Done), starting.state(State::Done)]);
    let mut list = Vec::new();
    let nothing = "no node waits for an upgrade; the wanted driver works on";
    for (report, reason, message) in [
        (&installing, "NothingToUpgrade", format!("{nothing} 0 of 2 nodes")),
        (&installed, "Complete", "the wanted driver works on 2 of 2 nodes".into()),
        (&restarting, "NothingToUpgrade", format!("{nothing} 1 of 2 nodes")),
        (&installed, "Complete", "the wanted driver works on 2 of 2 nodes".into()),
    ] {
        assert_eq!(show(&mut list, Some(Some(report)), None, at(NOW)), None, "no news");
        assert_eq!((list[0].status.as_str(), list[0].reason.as_str(), &list[0].message), ("True", reason, &message));
    }
}
