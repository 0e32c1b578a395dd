//! Upgrades that others began, ones that are no longer wanted, and what is shown of them.

use serde_json::json;

use super::*;
use crate::gpu::nodes::OWNER;

#[test]
fn every_state_of_the_reference_is_read() {
    for state in State::ALL {
        let labels = [(keys::STATE.to_owned(), state.label().to_owned())].into();
        assert_eq!(State::of(Entries::Map(&labels)), state);
    }
}

#[test]
fn times_that_the_reference_wrote_count() {
    let wait = Wait { selector: Selector::parse("").unwrap(), timeout: Some(60), text: String::new() };
    let settings = Settings { wait: Some(wait), ..generous() };
    let machine = Machine::old("a").state(State::WaitForJobs).cordoned().annotated(keys::WAIT_START, NOW - 61);
    let machine = machine.with(|machine| machine.pods = Some(vec![PodOf::new("p")]));
    assert_eq!(after(&settings, &machine, NOW).0.current(), State::PodDeletion);
    let machine = Machine::new("a").state(State::Validation).cordoned().annotated(keys::VALIDATION_START, NOW - 601);
    let machine = machine.with(|machine| machine.validators.clear());
    assert_eq!(after(&settings, &machine, NOW).0.current(), State::Failed);
}

#[test]
fn a_wait_without_a_start_gets_one() {
    let machine = Machine::new("a").state(State::PodRestart).cordoned().with(|machine| machine.driver = None);
    let (node, _) = after(&generous(), &machine, NOW);
    assert_eq!(node.annotations[keys::SINCE], NOW.to_string());
    assert_eq!(after(&generous(), &node, NOW + 1).1, None, "and only once");
}

#[test]
fn a_node_that_failed_under_the_reference_is_tried_again() {
    let machine = Machine::old("a").state(State::Failed).cordoned();
    let (node, _) = after(&generous(), &machine, NOW);
    let (node, _) = after(&generous(), &node, NOW + 300);
    assert_eq!((node.current(), node.annotations[keys::ATTEMPTS].as_str()), (State::PodRestart, "1"));
}

#[test]
fn an_unknown_state_is_no_dead_end() {
    let mut machine = Machine::old("a");
    machine.labels.insert(keys::STATE.into(), "invented-later".into());
    assert_eq!(after(&generous(), &machine, NOW).0.current(), State::Required);
    assert_eq!(after(&generous(), &machine.clone().cordoned(), NOW).0.current(), State::PodRestart);
    let reserved = Machine::old("a").state(State::PostMaintenance).cordoned();
    assert_eq!(after(&generous(), &reserved, NOW).0.current(), State::PodRestart);
}

#[test]
fn one_daemon_set_that_lacks_pods_does_not_stop_the_others() {
    let machines = [Machine::new("a").with(|machine| machine.driver = None), Machine::old("b").state(State::Required)];
    assert_eq!(
        pass(&generous(), &machines, NOW).steps.iter().map(|step| step.node.as_str()).collect::<Vec<_>>(),
        ["b"]
    );
}

#[test]
fn nodes_under_way_are_given_back_when_upgrades_are_switched_off() {
    let machine =
        Machine::old("a").state(State::Drain).cordoned().annotated(keys::SINCE, 1).annotated(keys::FROM, "old");
    let mut left = machine.clone();
    left.apply(&abandon(&machine.view().node));
    assert!(left.labels.is_empty() && left.annotations.is_empty() && !left.unschedulable, "{left:?}");

    let before = Machine::old("a").state(State::Drain).cordoned().annotated(keys::INITIAL, "true");
    let mut left = before.clone();
    left.apply(&abandon(&before.view().node));
    assert!(left.annotations.is_empty() && left.unschedulable);

    let waiting = Machine::old("a").state(State::Required).cordoned();
    assert_eq!(abandon(&waiting.view().node).unschedulable, None, "somebody else cordoned it");
    let asked = Machine::new("a").annotated(keys::REQUESTED, "true");
    assert!(abandon(&asked.view().node).is_empty());
}

#[test]
fn another_owner_gets_the_node_after_it_was_emptied() {
    let moving = Machine::new("a").state(State::Done).annotated(keys::NEXT_OWNER, "b").with(|machine| {
        machine.labels.insert(OWNER.into(), "a".into());
        machine.pods = Some(vec![PodOf::new("p")]);
    });
    assert_eq!(bucket(&moving.view().node), Some("b"));
    let mut machine = moving;
    for now in 0..2 {
        (machine, _) = after(&generous(), &machine, NOW + now);
        assert_eq!(machine.labels[OWNER], "a");
    }
    assert_eq!(machine.current(), State::PodDeletion);
    machine.pods = Some(Vec::new());
    let (machine, step) = after(&generous(), &machine, NOW + 3);
    assert_eq!((machine.current(), machine.labels[OWNER].as_str()), (State::PodRestart, "b"));
    assert!(!machine.has(keys::NEXT_OWNER) && step.unwrap().delete_driver.is_none());
}

#[test]
fn a_node_that_loses_its_owner_is_emptied_and_given_back() {
    let moving = Machine::new("a").state(State::PodRestart).cordoned().annotated(keys::NEXT_OWNER, "");
    let moving = moving.with(|machine| drop(machine.labels.insert(OWNER.into(), "a".into())));
    assert_eq!(bucket(&moving.view().node), Some("a"));
    let (machine, _) = after(&generous(), &moving, NOW);
    assert!(machine.labels.is_empty() && machine.annotations.is_empty() && !machine.unschedulable, "{machine:?}");
}

#[test]
fn metrics_count_nodes() {
    let machines = [
        Machine::new("a").state(State::Done),
        Machine::new("b").state(State::Failed).cordoned(),
        Machine::new("c").state(State::Validation).cordoned(),
        Machine::old("d").state(State::Required),
        Machine::old("e").state(State::Required),
    ];
    let settings = Settings { max_parallel: 3, max_unavailable: Some(Amount::Count(4)), ..generous() };
    let counts = pass(&settings, &machines, NOW).counts;
    assert_eq!(counts, Counts { in_progress: 2, done: 1, available: 1, failed: 1, pending: 2 });
    let mut sum = counts;
    sum += counts;
    assert_eq!((sum.pending, sum.available), (4, 2));
}

#[test]
fn the_summary_names_a_few_nodes_and_never_all() {
    let mut machines: Vec<_> =
        (0..50).map(|index| Machine::old(&format!("n{index:02}")).state(State::Required)).collect();
    let failed = Machine::old("bad").state(State::Failed).annotated(keys::REASON, "EvictionFailed: pod work/p stays");
    machines.push(failed.annotated(keys::SINCE, 0));
    let settings = Settings { max_parallel: 1, max_unavailable: Some(Amount::Count(1)), ..generous() };
    let text = Pass::clone(&pass(&settings, &machines, 10)).summary.to_string();
    assert!(
        text.starts_with(
            "the wanted driver works on 0 of 51 nodes, 49 upgrade-required, 1 pod-deletion-required, 1 upgrade-failed; "
        ),
        "{text}"
    );
    assert!(text.contains("bad since 1970-01-01T00:00:00Z: EvictionFailed: pod work/p stays"), "{text}");
    assert!(text.contains("waits for its turn: 1 under way of 1, 1 out of use of 1"), "{text}");
    assert!(text.len() < 500);
}

#[test]
fn a_policy_is_not_ready_while_drivers_are_upgraded() {
    let nodes = |labels: &[&[(&str, &str)]]| {
        let nodes: Vec<_> = labels
            .iter()
            .map(|labels| json!({"metadata": {"labels": labels.iter().copied().collect::<BTreeMap<_, _>>()}}))
            .collect();
        let mut unfinished = Unfinished::default();
        nodes.iter().for_each(|node| unfinished.add(&Node::of(node)));
        unfinished.reasons()
    };
    let owned = |state| [(OWNER, "nvd"), (keys::STATE, state)];
    assert_eq!(nodes(&[&[(OWNER, "nvd")], &owned(""), &owned("upgrade-done")]), None);
    for state in ["upgrade-required", "upgrade-failed", "pod-restart-required", "uncordon-required", "invented-later"] {
        assert!(nodes(&[&owned(state)]).is_some(), "{state}");
        assert_eq!(nodes(&[&[(keys::STATE, state)]]), None, "no owner");
        assert_eq!(nodes(&[&[(OWNER, "nvd"), (keys::STATE, state), (keys::SKIP, "true")]]), None, "skipped");
    }
    let [first, second] =
        nodes(&[&owned("upgrade-required"), &owned("upgrade-failed"), &owned("drain-required")]).unwrap();
    assert_eq!(first, "driver upgrade is not completed");
    assert_eq!(second, "nodes owned by NVIDIADrivers: 1 pending, 1 in progress, 1 failed");
}
