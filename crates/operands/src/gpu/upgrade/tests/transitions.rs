//! Every transition of a node, the way there and the way back.

use super::*;

/// Where a node is after one pass.
fn leads_to(settings: &Settings, machine: Machine, expected: State) -> (Machine, Option<Step>) {
    let (after, step) = after(settings, &machine, NOW);
    assert_eq!(after.current(), expected, "from {:?}: {step:?}", machine.current());
    (after, step)
}

fn with_drain() -> Settings {
    let eviction = Eviction { force: false, delete_empty_dir: false, timeout: Some(300) };
    let text = drain_selector(None);
    let drain = Drain { eviction, selector: Selector::parse(&text).ok(), text };
    Settings { drain: Some(drain), ..generous() }
}

fn with_wait(timeout: Option<i64>) -> Settings {
    let wait = Wait { selector: Selector::parse("app=job").unwrap(), timeout, text: "app=job".into() };
    Settings { wait: Some(wait), ..generous() }
}

/// A node with one pod.
fn with_pod(machine: Machine, pod: PodOf) -> Machine {
    machine.with(|machine| machine.pods = Some(vec![pod]))
}

fn job() -> PodOf {
    PodOf { labels: [("app".into(), "job".into())].into(), ..PodOf::new("train") }
}

#[test]
fn an_outdated_driver_requires_an_upgrade() {
    for state in [State::Unset, State::Done] {
        let (node, _) = leads_to(&generous(), Machine::old("a").state(state), State::Required);
        assert!(!node.has(keys::INITIAL));
        let (node, _) = leads_to(&generous(), Machine::old("a").state(state).cordoned(), State::Required);
        assert!(node.has(keys::INITIAL), "a node that was cordoned stays so");
    }
}

#[test]
fn a_driver_that_waits_for_safe_load_requires_an_upgrade() {
    let waiting = Machine::new("a").state(State::Done).annotated(keys::SAFE_LOAD, "pod");
    leads_to(&generous(), waiting, State::Required);
}

#[test]
fn a_node_with_the_wanted_driver_is_done() {
    leads_to(&generous(), Machine::new("a"), State::Done);
    assert_eq!(after(&generous(), &Machine::new("a").state(State::Done), NOW).1, None);
}

#[test]
fn an_orphan_is_upgraded_on_request_only() {
    let orphan = Machine::old("a").driver(|driver| driver.owner = None);
    leads_to(&generous(), orphan.clone(), State::Done);
    leads_to(&generous(), orphan.annotated(keys::REQUESTED, "true"), State::Required);
}

#[test]
fn a_request_for_the_driver_that_is_loaded_is_answered_not_acted_on() {
    let asked = Machine::new("a").state(State::Done).annotated(keys::REQUESTED, "true");
    let (node, step) = leads_to(&generous(), asked, State::Done);
    assert!(!node.has(keys::REQUESTED) && !node.unschedulable);
    assert_eq!(step.unwrap().events[0].message, "runs the wanted driver already: there is nothing to upgrade");
}

#[test]
fn a_node_without_a_driver_pod_is_left_alone() {
    let bare = Machine::new("a").with(|machine| machine.driver = None);
    assert_eq!(after(&generous(), &bare, NOW).1, None);
}

#[test]
fn a_node_that_began_is_cordoned_in_the_same_write() {
    // Pods that were listed before the node was cordoned prove nothing: it waits for another look.
    let (node, step) = leads_to(&generous(), Machine::old("a").state(State::Required), State::PodDeletion);
    assert!(node.unschedulable && !node.has(keys::INITIAL));
    assert_eq!(step.unwrap().delete_driver, None);
    let (_, step) = leads_to(&generous(), node, State::PodRestart);
    assert!(step.unwrap().delete_driver.is_some());
}

#[test]
fn the_request_is_taken_back_when_it_begins() {
    let asked = Machine::old("a").state(State::Required).annotated(keys::REQUESTED, "true");
    assert!(!after(&generous(), &asked, NOW).0.has(keys::REQUESTED));
}

#[test]
fn a_skipped_node_never_begins() {
    let skipped = Machine::old("a").state(State::Required).with(|machine| {
        machine.labels.insert(keys::SKIP.into(), "true".into());
    });
    assert_eq!(after(&generous(), &skipped, NOW).1, None);
    let pass = pass(&generous(), &[skipped], NOW);
    assert!(pass.summary.examples[0].reason.contains("is skipped"), "{pass:?}");
}

#[test]
fn skipping_a_node_ends_an_upgrade_that_has_not_touched_the_driver() {
    for state in [State::Cordon, State::WaitForJobs, State::PodDeletion, State::Drain] {
        let machine = Machine::old("a").state(state).cordoned().with(|machine| {
            machine.labels.insert(keys::SKIP.into(), "true".into());
        });
        let (node, _) = leads_to(&with_wait(None), machine, State::Required);
        assert!(!node.unschedulable);
    }
}

#[test]
fn a_node_that_somebody_uncordons_waits_for_another_turn() {
    for state in [State::WaitForJobs, State::PodDeletion, State::Drain] {
        let machine = with_pod(Machine::old("a").state(state).annotated(keys::INITIAL, "true"), PodOf::new("p"));
        let (node, step) = leads_to(&generous(), machine, State::Required);
        assert!(!node.unschedulable && !node.has(keys::INITIAL) && step.unwrap().evict.is_empty());
    }
}

#[test]
fn a_node_whose_driver_pod_comes_or_goes_is_not_begun() {
    let none = Machine::old("a").state(State::Required).with(|machine| machine.driver = None);
    let going = Machine::old("a").state(State::Required).driver(|driver| driver.terminating = true);
    for machine in [none, going] {
        assert_eq!(after(&generous(), &machine, NOW).1, None, "somebody replaces it by hand");
    }
}

#[test]
fn a_node_that_is_not_ready_waits_for_it() {
    let machine = Machine::old("a").state(State::Required).with(|machine| machine.ready = false);
    assert_eq!(after(&generous(), &machine, NOW).1, None);
}

#[test]
fn the_loaded_driver_is_left_alone_when_it_is_wanted_again() {
    leads_to(&generous(), Machine::new("a").state(State::Required), State::Done);
    for state in [State::Cordon, State::WaitForJobs, State::PodDeletion, State::Drain] {
        let machine = with_pod(Machine::new("a").state(state).cordoned(), PodOf::new("p"));
        let (node, step) = leads_to(&with_drain(), machine, State::Done);
        let step = step.unwrap();
        assert!(!node.unschedulable && step.evict.is_empty() && step.delete_driver.is_none());
    }
}

#[test]
fn only_the_pod_is_replaced_when_the_driver_is_the_same() {
    let machine = with_pod(Machine::old("a").state(State::Required), PodOf::new("p"));
    let same = machine.clone().driver(|driver| driver.digest = "2".into());
    let (node, step) = leads_to(&generous(), same.clone(), State::PodRestart);
    let step = step.unwrap();
    assert!(node.unschedulable && step.evict.is_empty() && step.delete_driver.is_some());

    let no_digest = same.clone().driver(|driver| driver.digest = String::new());
    let no_digest = no_digest.with(|machine| machine.wanted.as_mut().unwrap().2 = String::new());
    let orphan = same.clone().driver(|driver| driver.owner = None);
    let asked = same.clone().annotated(keys::REQUESTED, "true");
    let waiting = same.annotated(keys::SAFE_LOAD, "pod");
    for machine in [machine, no_digest, orphan, asked, waiting] {
        let (node, _) = leads_to(&generous(), machine, State::PodDeletion);
        assert_eq!(after(&generous(), &node, NOW).1.unwrap().evict.len(), 1);
    }
}

#[test]
fn nothing_is_waited_for_without_a_selector() {
    let machine = with_pod(Machine::old("a").state(State::WaitForJobs).cordoned(), job());
    leads_to(&generous(), machine.clone(), State::PodDeletion);
    let no_deletion = Settings { pod_deletion: None, ..with_drain() };
    leads_to(&no_deletion, machine, State::Drain);
}

#[test]
fn jobs_are_waited_for() {
    let waiting = Machine::old("a").state(State::WaitForJobs).cordoned();
    let (node, step) = leads_to(&with_wait(None), with_pod(waiting.clone(), job()), State::WaitForJobs);
    assert!(!node.has(keys::WAIT_START), "without a timeout there is no start");
    assert!(step.unwrap().evict.is_empty());
    let other = PodOf { gpu: false, ..PodOf::new("web") };
    leads_to(&with_wait(None), with_pod(waiting, other), State::PodRestart);
}

#[test]
fn jobs_are_waited_for_until_the_timeout() {
    let settings = with_wait(Some(60));
    let waiting = with_pod(Machine::old("a").state(State::WaitForJobs).cordoned(), job());
    let (node, _) = leads_to(&settings, waiting, State::WaitForJobs);
    assert_eq!(node.annotations[keys::WAIT_START], NOW.to_string());
    assert_eq!(after(&settings, &node, NOW + 60).0.current(), State::WaitForJobs);
    let (node, step) = after(&settings, &node, NOW + 61);
    assert_eq!(node.current(), State::PodDeletion);
    assert!(!node.has(keys::WAIT_START));
    assert_eq!(step.unwrap().evict[0].name, "train");
    assert_eq!(pass(&settings, &[Machine::old("a").state(State::Done)], NOW).wake, None);
}

#[test]
fn what_nobody_announces_is_looked_at_again() {
    let wake = |settings: &Settings, machine: Machine| pass(settings, &[machine], NOW).wake;
    let evicting = Machine::old("a").state(State::PodDeletion).cordoned();
    assert_eq!(wake(&generous(), with_pod(evicting.clone(), PodOf::new("p"))), Some(at(NOW + 16)), "a refusal");
    assert_eq!(
        wake(&generous(), evicting.with(|machine| machine.pods = None)),
        Some(at(NOW + 16)),
        "a list that failed"
    );
    let waiting = Machine::old("a").state(State::WaitForJobs).cordoned();
    assert_eq!(wake(&with_wait(None), with_pod(waiting, job())), Some(at(NOW + 16)), "the end of a job");
    let restarting = Machine::old("a").state(State::PodRestart).cordoned();
    assert_eq!(wake(&generous(), restarting), Some(at(NOW + 31)), "a deletion that got lost");
}

#[test]
fn pods_that_use_gpus_are_evicted_before_the_driver_goes() {
    let evicting = Machine::old("a").state(State::PodDeletion).cordoned();
    let (node, step) = leads_to(&generous(), with_pod(evicting.clone(), PodOf::new("p")), State::PodDeletion);
    let step = step.unwrap();
    assert_eq!(step.evict, [Pod { namespace: "work".into(), name: "p".into(), uid: "p".into() }]);
    assert_eq!((step.delete_driver, node.annotations[keys::SINCE].as_str()), (None, NOW.to_string().as_str()));

    let going = PodOf { terminating: true, ..PodOf::new("p") };
    let (_, step) = leads_to(&generous(), with_pod(evicting.clone(), going), State::PodDeletion);
    assert!(step.unwrap().evict.is_empty(), "a pod that goes is waited for, not evicted again");

    let other = PodOf { gpu: false, ..PodOf::new("web") };
    leads_to(&generous(), with_pod(evicting, other), State::PodRestart);
}

#[test]
fn pods_that_may_not_be_evicted_lead_to_a_drain_or_to_failure() {
    let lonely = PodOf { controller: PodController::None, ..PodOf::new("p") };
    let scratch = PodOf { empty_dir: true, ..PodOf::new("p") };
    let daemon = PodOf { controller: PodController::DaemonSet, ..PodOf::new("p") };
    for (pod, fix) in
        [(lonely.clone(), "podDeletion.force"), (scratch.clone(), "deleteEmptyDir"), (daemon, "DaemonSet")]
    {
        let machine = with_pod(Machine::old("a").state(State::PodDeletion).cordoned(), pod);
        let (node, step) = leads_to(&generous(), machine.clone(), State::Failed);
        let reason = &node.annotations[keys::REASON];
        assert!(reason.starts_with("EvictionFailed: pod work/p") && reason.contains(fix), "{reason}");
        assert!(!node.unschedulable, "the old driver works: the node is given back");
        assert!(step.unwrap().evict.is_empty(), "all or none");
        assert_ne!(after(&with_drain(), &machine, NOW).1.unwrap().events[0].message, "");
    }
    let force = Eviction { force: true, delete_empty_dir: true, timeout: Some(300) };
    let settings = Settings { pod_deletion: Some(force), ..generous() };
    for pod in [lonely, scratch] {
        let machine = with_pod(Machine::old("a").state(State::PodDeletion).cordoned(), pod);
        assert_eq!(after(&settings, &machine, NOW).1.unwrap().evict.len(), 1);
    }
}

#[test]
fn an_eviction_that_takes_too_long_leads_to_a_drain_or_to_failure() {
    let guarded = PodOf { refused: Some("disruption budget web needs 2 healthy pods and has 2"), ..PodOf::new("p") };
    let machine = Machine::old("a").state(State::PodDeletion).cordoned().annotated(keys::SINCE, NOW - 301);
    let machine = with_pod(machine, guarded);
    let (node, _) = leads_to(&generous(), machine.clone(), State::Failed);
    let reason = &node.annotations[keys::REASON];
    assert!(
        reason.contains("p: disruption budget web needs 2 healthy pods and has 2, for more than 300 s"),
        "{reason}"
    );
    let (_, step) = leads_to(&with_drain(), machine.clone(), State::Drain);
    assert_eq!(step.unwrap().evict.len(), 1);
    let patient = Eviction { force: false, delete_empty_dir: false, timeout: None };
    leads_to(&Settings { pod_deletion: Some(patient), ..generous() }, machine, State::PodDeletion);
}

#[test]
fn a_drain_evicts_what_it_selects() {
    let mut machine = Machine::old("a").state(State::Drain).cordoned();
    let skip = [(keys::SKIP_DRAIN.to_owned(), "true".to_owned())].into();
    machine.pods = Some(vec![
        PodOf { gpu: false, ..PodOf::new("web") },
        PodOf { labels: skip, ..PodOf::new("left") },
        PodOf { controller: PodController::DaemonSet, ..PodOf::new("daemon") },
        PodOf { controller: PodController::Kubelet, ..PodOf::new("static") },
    ]);
    let (_, step) = leads_to(&with_drain(), machine.clone(), State::Drain);
    assert_eq!(step.unwrap().evict.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["web"]);
    machine.pods.as_mut().unwrap().remove(0);
    leads_to(&with_drain(), machine.clone(), State::PodRestart);
    leads_to(&generous(), machine, State::PodRestart);
}

#[test]
fn a_drain_that_cannot_be_done_fails_with_a_reason() {
    let lonely = PodOf { controller: PodController::None, ..PodOf::new("p") };
    let (node, _) =
        leads_to(&with_drain(), with_pod(Machine::old("a").state(State::Drain).cordoned(), lonely), State::Failed);
    assert!(node.annotations[keys::REASON].starts_with("DrainFailed: pod work/p belongs to no controller"));
    let late = Machine::old("a").state(State::Drain).cordoned().annotated(keys::SINCE, NOW - 301);
    let (node, _) = leads_to(&with_drain(), with_pod(late, PodOf::new("p")), State::Failed);
    assert!(node.annotations[keys::REASON].starts_with("DrainFailed: evicts pod work/p"));
}

#[test]
fn the_driver_pod_is_replaced() {
    let restarting = Machine::old("a").state(State::PodRestart).cordoned();
    let orphan = Machine::new("a").driver(|driver| driver.owner = None).state(State::PodRestart).cordoned();
    for machine in [restarting.clone(), orphan] {
        let (_, step) = leads_to(&generous(), machine, State::PodRestart);
        assert_eq!(step.unwrap().delete_driver.unwrap().uid, "a-1");
    }
    let going = restarting.driver(|driver| driver.terminating = true);
    let (_, step) = leads_to(&generous(), going, State::PodRestart);
    assert_eq!(step.unwrap().delete_driver, None);
}

#[test]
fn a_new_driver_is_validated_and_the_node_given_back() {
    let (node, _) = leads_to(&generous(), Machine::new("a").state(State::PodRestart).cordoned(), State::Done);
    assert!(!node.unschedulable && node.annotations.is_empty(), "{node:?}");
    let unready = Machine::new("a").state(State::PodRestart).cordoned().driver(|driver| driver.ready = false);
    leads_to(&generous(), unready, State::PodRestart);
}

#[test]
fn safe_load_is_let_through_when_the_node_is_empty() {
    let waiting = Machine::new("a").state(State::PodRestart).cordoned().annotated(keys::SAFE_LOAD, "pod");
    let (node, step) = leads_to(&generous(), waiting.driver(|driver| driver.ready = false), State::PodRestart);
    assert!(!node.has(keys::SAFE_LOAD));
    assert_eq!(step.unwrap().delete_driver, None, "the pod itself is the wanted one");
    let late = Machine::new("a").state(State::Validation).cordoned().annotated(keys::SAFE_LOAD, "pod");
    assert!(!after(&generous(), &late, NOW).0.has(keys::SAFE_LOAD));
}

#[test]
fn a_driver_that_crashes_fails_with_a_reason() {
    let crashing = |restarts| {
        Machine::new("a")
            .state(State::PodRestart)
            .cordoned()
            .driver(|driver| (driver.ready, driver.restarts) = (false, restarts))
    };
    leads_to(&generous(), crashing(10), State::PodRestart);
    let (node, step) = leads_to(&generous(), crashing(11), State::Failed);
    assert_eq!(node.annotations[keys::REASON], "DriverCrashes: driver pod a-1 is not well, after 11 restarts");
    assert!(node.unschedulable, "the new driver does not work: nobody may use the node");
    assert!(step.unwrap().events[0].message.ends_with("tries again in 300 s"));
    leads_to(&Settings { restart_threshold: 20, ..generous() }, crashing(11), State::PodRestart);
}

#[test]
fn a_driver_that_does_not_come_fails_with_a_reason() {
    let late = Machine::new("a").state(State::PodRestart).cordoned().annotated(keys::SINCE, NOW - 3601);
    let missing = late.clone().with(|machine| machine.driver = None);
    let (node, _) = leads_to(&generous(), missing, State::Failed);
    assert_eq!(node.annotations[keys::REASON], "DriverMissing: there is no driver pod: its DaemonSet has made none");
    let (node, _) = leads_to(&generous(), late.clone().driver(|driver| driver.ready = false), State::Failed);
    assert_eq!(node.annotations[keys::REASON], "DriverNotReady: driver pod a-1 is not well");
    let (node, _) = leads_to(&generous(), late.driver(|driver| driver.terminating = true), State::Failed);
    assert_eq!(node.annotations[keys::REASON], "DriverNotReady: waits for driver pod a-1 to end");
}

#[test]
fn validation_has_a_deadline_also_without_a_validator() {
    let none = Machine::new("a").state(State::Validation).cordoned().with(|machine| machine.validators.clear());
    let broken = none.clone().with(|machine| machine.validators = vec![("v1".into(), true), ("v2".into(), false)]);
    for (machine, reason) in [
        (none, "ValidatorMissing: there is no validator pod on this node"),
        (broken, "ValidationFailed: validator pod v2 waits"),
    ] {
        let (node, _) = leads_to(&generous(), machine, State::Validation);
        assert_eq!(node.annotations[keys::VALIDATION_START], NOW.to_string());
        assert_eq!(after(&generous(), &node, NOW + 600).0.current(), State::Validation);
        assert_eq!(pass(&generous(), std::slice::from_ref(&node), NOW).wake, Some(at(NOW + 601)));
        let (failed, _) = after(&generous(), &node, NOW + 601);
        assert_eq!(failed.annotations[keys::REASON], reason);
        assert!(failed.current() == State::Failed && !failed.has(keys::VALIDATION_START) && failed.unschedulable);
        let patient = Settings { validation_timeout: 1000, ..generous() };
        assert_eq!(after(&patient, &node, NOW + 601).0.current(), State::Validation);
        assert_eq!(
            after(&generous(), &failed, NOW + 602).0.current(),
            State::Failed,
            "a ready pod proves nothing here"
        );
    }
}

#[test]
fn a_template_that_changes_during_validation_does_not_cost_another_drain() {
    let (node, step) = leads_to(&generous(), Machine::old("a").state(State::Validation).cordoned(), State::PodRestart);
    assert!(node.unschedulable && step.unwrap().delete_driver.is_some());
}

#[test]
fn a_node_that_was_cordoned_before_stays_so() {
    for state in [State::Validation, State::Uncordon, State::Failed] {
        let machine = Machine::new("a").state(state).cordoned().annotated(keys::INITIAL, "true");
        let (node, _) = leads_to(&generous(), machine, State::Done);
        assert!(node.unschedulable && !node.has(keys::INITIAL));
    }
}

#[test]
fn a_failed_node_recovers_when_its_driver_does() {
    let (node, _) = leads_to(&generous(), Machine::new("a").state(State::Failed).cordoned(), State::Done);
    assert!(!node.unschedulable);
}
