//! Canaries, halting, going back, trying again.

use super::*;

fn fleet(count: usize) -> Vec<Machine> {
    (0..count).map(|index| Machine::old(&format!("n{index}")).state(State::Required)).collect()
}

fn apply(machines: &mut [Machine], pass: &Pass) {
    for step in &pass.steps {
        machines.iter_mut().find(|machine| machine.name == step.node).unwrap().apply(&step.patch);
    }
}

fn under_way(machines: &[Machine]) -> Vec<&str> {
    let idle = |machine: &&Machine| !matches!(machine.current(), State::Required | State::Done);
    machines.iter().filter(idle).map(|machine| machine.name.as_str()).collect()
}

/// The nodes under way succeed.
fn succeed(settings: &Settings, machines: &mut [Machine], now: i64) {
    for machine in machines.iter_mut().filter(|machine| !matches!(machine.current(), State::Required | State::Done)) {
        let (labels, annotations) = (machine.labels.clone(), machine.annotations.clone());
        *machine = Machine { labels, annotations, unschedulable: true, ..Machine::new(&machine.name) }
            .state(State::PodRestart);
    }
    let pass = pass(settings, machines, now);
    apply(machines, &pass);
}

#[test]
fn canaries_go_first_and_have_to_prove_themselves() {
    let settings = Settings { canary: Some(Canary { size: Amount::Count(2), soak: 3600 }), ..generous() };
    let mut machines = fleet(5);
    let first = pass(&settings, &machines, NOW);
    apply(&mut machines, &first);
    assert_eq!(under_way(&machines), ["n0", "n1"]);

    let second = pass(&settings, &machines, NOW + 1);
    apply(&mut machines, &second);
    assert_eq!(under_way(&machines), ["n0", "n1"], "the others wait");
    assert!(
        second.summary.examples.iter().any(|one| one.reason == "waits for canaries: 0 of 2 are done"),
        "{second:?}"
    );

    succeed(&settings, &mut machines, NOW + 10);
    let soaking = pass(&settings, &machines, NOW + 20);
    assert_eq!((soaking.steps.len(), soaking.wake), (0, Some(at(NOW + 3611))));
    assert_eq!(soaking.summary.examples[0].reason, "waits for canaries to prove themselves until 1970-01-12T14:46:50Z");

    let proven = pass(&settings, &machines, NOW + 3611);
    apply(&mut machines, &proven);
    assert_eq!(under_way(&machines), ["n2", "n3", "n4"]);
    succeed(&settings, &mut machines, NOW + 4000);
    assert!(machines.iter().all(|machine| machine.annotations.is_empty()), "nothing is left: {machines:?}");
}

#[test]
fn a_canary_that_fails_stops_the_others() {
    let settings = Settings { canary: Some(Canary { size: Amount::Count(1), soak: 0 }), retries: 0, ..generous() };
    let mut machines = fleet(3);
    let first = pass(&settings, &machines, NOW);
    apply(&mut machines, &first);
    machines[0].labels.insert(keys::STATE.into(), State::Failed.label().into());
    assert!(pass(&settings, &machines, NOW + 100_000).steps.iter().all(|step| step.node == "n0"));
}

#[test]
fn a_canary_that_is_taken_back_does_not_wait_for_itself() {
    let settings = Settings { canary: Some(Canary { size: Amount::Count(1), soak: 0 }), ..generous() };
    let mut machines = fleet(2);
    let first = pass(&settings, &machines, NOW);
    apply(&mut machines, &first);
    machines[0].unschedulable = false;
    for now in 1..3 {
        let next = pass(&settings, &machines, NOW + now);
        apply(&mut machines, &next);
    }
    assert_eq!(under_way(&machines), ["n0"]);
    let canary = Machine::old("n0").state(State::Required).annotated(keys::CANARY, "new");
    assert_eq!(after(&settings, &canary, NOW).0.current(), State::PodDeletion);
}

#[test]
fn a_canary_that_is_skipped_is_replaced() {
    let settings = Settings { canary: Some(Canary { size: Amount::Count(1), soak: 0 }), ..generous() };
    let mut machines = fleet(2);
    machines[0].annotations.insert(keys::CANARY.into(), "new".into());
    machines[0].labels.insert(keys::SKIP.into(), "true".into());
    let first = pass(&settings, &machines, NOW);
    apply(&mut machines, &first);
    assert_eq!(under_way(&machines), ["n1"]);
}

#[test]
fn another_driver_has_canaries_of_its_own() {
    let settings = Settings { canary: Some(Canary { size: Amount::Count(1), soak: 0 }), ..generous() };
    let mut machines = fleet(3);
    let first = pass(&settings, &machines, NOW);
    apply(&mut machines, &first);
    succeed(&settings, &mut machines, NOW + 1);
    machines.iter_mut().for_each(|machine| machine.wanted.as_mut().unwrap().1 = "newer".into());
    let required = pass(&settings, &machines, NOW + 2);
    apply(&mut machines, &required);
    let again = pass(&settings, &machines, NOW + 3);
    apply(&mut machines, &again);
    assert_eq!(under_way(&machines).len(), 1);
}

fn failed(name: &str, reason: &str) -> Machine {
    let machine = Machine::new(name)
        .state(State::Failed)
        .cordoned()
        .driver(|driver| (driver.ready, driver.restarts) = (false, 11));
    machine
        .annotated(keys::REASON, reason)
        .annotated(keys::ATTEMPTS, 1)
        .annotated(keys::SINCE, NOW)
        .annotated(keys::TARGET, "new")
        .annotated(keys::FROM, "old")
}

#[test]
fn too_many_failures_halt_the_upgrade() {
    let settings = Settings { max_failures: Some(Amount::Percent(20)), ..generous() };
    let mut machines = fleet(5);
    machines[0] = failed("n0", "ValidationFailed: x");
    let one = pass(&settings, &machines, NOW);
    assert_eq!((one.halted, one.steps.len()), (None, 4));
    machines[1] = failed("n1", "ValidationFailed: x");
    let two = pass(&settings, &machines, NOW);
    assert_eq!(two.halted.as_deref(), Some("halted: failed on 2 of 5 nodes, more than 1"));
    assert!(two.steps.is_empty());
}

#[test]
fn the_last_good_driver_is_named_when_the_driver_is_to_blame() {
    let settings = Settings { max_failures: Some(Amount::Count(1)), rollback: true, ..generous() };
    let mut machines = fleet(5);
    machines[0] = failed("n0", "DriverCrashes: x");
    machines[1] = failed("n1", "EvictionFailed: x");
    assert_eq!(pass(&settings, &machines, NOW).roll_back_to, None, "a pod that stays is not the driver's fault");
    machines[1] = failed("n1", "ValidationFailed: x");
    assert_eq!(pass(&settings, &machines, NOW).roll_back_to.as_deref(), Some("old"));
    assert_eq!(pass(&Settings { rollback: false, ..settings }, &machines, NOW).roll_back_to, None);
}

#[test]
fn going_back_is_never_blocked_by_what_failed() {
    let settings = Settings { max_failures: Some(Amount::Count(1)), rollback: true, retries: 0, ..generous() };
    let mut machines = fleet(4);
    machines[0] = failed("n0", "DriverCrashes: x");
    machines[1] = failed("n1", "DriverCrashes: x");
    machines.iter_mut().for_each(|machine| machine.wanted = Some(("ds".into(), "old".into(), "1".into())));
    let back = pass(&settings, &machines, NOW);
    assert_eq!((back.halted.clone(), back.roll_back_to.clone()), (None, None), "what failed was another driver");
    apply(&mut machines, &back);
    assert_eq!(machines[2].current(), State::Done, "nodes that still have it are not touched");
    assert!(!machines[2].unschedulable);
    for now in 1..4 {
        let pass = pass(&settings, &machines, NOW + now);
        apply(&mut machines, &pass);
    }
    assert_eq!(machines[0].current(), State::PodRestart);
}

#[test]
fn failed_nodes_are_tried_again_with_growing_pauses() {
    let settings = Settings { retries: 2, backoff: 100, ..generous() };
    let machine = failed("a", "DriverCrashes: x");
    assert_eq!(after(&settings, &machine, NOW + 99).0.current(), State::Failed);
    assert_eq!(pass(&settings, std::slice::from_ref(&machine), NOW + 1).wake, Some(at(NOW + 101)));
    let (again, step) = after(&settings, &machine, NOW + 100);
    assert_eq!(again.current(), State::PodRestart);
    assert!(!again.has(keys::REASON) && again.annotations[keys::RESTART] == "a-1");
    assert_eq!(step.unwrap().delete_driver.unwrap().uid, "a-1", "the pod that crashed is replaced");
    let (failed, _) = after(&settings, &again.driver(|driver| driver.uid = "a-2".into()), NOW + 102);
    assert_eq!((failed.current(), failed.annotations[keys::ATTEMPTS].as_str()), (State::Failed, "2"));
    assert_eq!(after(&settings, &failed, NOW + 102 + 199).0.current(), State::Failed);
    assert_eq!(after(&settings, &failed, NOW + 102 + 200).0.current(), State::PodRestart);
}

#[test]
fn a_driver_that_is_wanted_instead_is_tried_at_once_and_once() {
    let settings = Settings { retries: 0, ..generous() };
    let newer = failed("a", "DriverCrashes: x").with(|machine| machine.wanted.as_mut().unwrap().1 = "newer".into());
    let (again, _) = after(&settings, &newer, NOW);
    assert_eq!(again.current(), State::PodRestart);
    let crashed = again.driver(|driver| driver.revision = "newer".into());
    let (failed, _) = after(&settings, &crashed, NOW + 1);
    assert_eq!((failed.current(), failed.annotations[keys::TARGET].as_str()), (State::Failed, "newer"));
    assert_eq!(after(&settings, &failed, NOW + 1_000_000).1, None);
}

#[test]
fn after_the_last_try_it_stays_failed_until_somebody_asks() {
    let machine = failed("a", "DriverCrashes: x").annotated(keys::ATTEMPTS, 4);
    let (same, _) = after(&generous(), &machine, NOW + 1_000_000);
    assert_eq!(same.current(), State::Failed);
    assert_eq!(pass(&generous(), std::slice::from_ref(&machine), NOW).wake, None);
    let (again, _) = after(&generous(), &machine.annotated(keys::REQUESTED, "true"), NOW + 1);
    assert_eq!(again.current(), State::PodRestart);
    assert!(!again.has(keys::REQUESTED) && !again.has(keys::ATTEMPTS));
}

#[test]
fn a_node_that_was_given_back_takes_no_place_and_waits_for_its_turn() {
    let settings = Settings { max_parallel: 1, max_unavailable: Some(Amount::Count(1)), ..generous() };
    let given_back = Machine::old("n0").state(State::Failed).annotated(keys::REASON, "EvictionFailed: x");
    let given_back = given_back.annotated(keys::ATTEMPTS, 1).annotated(keys::SINCE, NOW);
    let mut machines = vec![given_back, Machine::old("n1").state(State::Required)];
    let first = pass(&settings, &machines, NOW);
    apply(&mut machines, &first);
    assert_eq!(machines[1].current(), State::PodDeletion);
    let second = pass(&settings, &machines, NOW + 300);
    apply(&mut machines, &second);
    assert_eq!(machines[0].current(), State::Required, "it is tried again");
    assert!(!machines[0].unschedulable, "once there is room");
}

#[test]
fn a_value_that_cannot_be_read_holds_further_nodes_back() {
    let annotations = [(format!("{PREFIX}retries"), "many".to_owned())].into();
    let settings = Settings { max_parallel: 0, ..Settings::of(None, Some(&annotations)) };
    let mut machines = fleet(2);
    machines.push(Machine::old("n2").state(State::PodDeletion).cordoned());
    let pass = pass(&settings, &machines, NOW);
    assert_eq!(pass.steps.iter().map(|step| step.node.as_str()).collect::<Vec<_>>(), ["n2"], "what began goes on");
    assert!(pass.summary.examples.iter().any(|one| one.reason.contains("capstan.dev/upgrade-retries")), "{pass:?}");
}
