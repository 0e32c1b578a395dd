//! Condition and timeline.

use std::time::Duration;

use jiff::Timestamp;

use super::super::ready::*;
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn waits(phase: Phase, why: &str) -> Progress {
    Progress { open: Some((phase, why.into())), began: at(100), over: Vec::new() }
}

fn works(over: &[(Phase, i64)]) -> Progress {
    Progress { open: None, began: at(100), over: over.iter().map(|(phase, end)| (*phase, at(*end))).collect() }
}

/// The node after a patch of its status that has to be made.
fn told(progress: &Progress, node: &Value, now: i64) -> Value {
    progress.condition_update(node, at(now)).patch.unwrap()
}

#[test]
fn the_condition_names_the_operand_and_what_it_waits_for() {
    let node = told(&waits(Phase::Plugin, "pod p: ImagePullBackOff"), &json!({}), 200);
    let condition = &node["status"]["conditions"][0];
    assert_eq!((condition["type"].as_str(), condition["status"].as_str()), (Some("GPUReady"), Some("False")));
    assert_eq!(condition["reason"], "DevicePluginNotReady");
    assert_eq!(condition["message"], "waits for device plugin: pod p: ImagePullBackOff");
    assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:03:20Z");
}

#[test]
fn another_word_about_a_node_that_waits_is_written_twice_a_minute_at_most() {
    let first = told(&waits(Phase::Driver, "a"), &json!({}), 200);
    assert_eq!(waits(Phase::Driver, "a").condition_update(&first, at(900)), ConditionUpdate::default());
    let soon = waits(Phase::Toolkit, "b").condition_update(&first, at(210));
    assert_eq!((soon.patch, soon.requeue), (None, Some(Duration::from_secs(20))));
    let later = told(&waits(Phase::Toolkit, "b"), &first, 230);
    assert_eq!(later["status"]["conditions"][0]["reason"], "ContainerToolkitNotReady");
    assert_eq!(later["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:03:20Z", "it is still not ready");
    let ready = told(&works(&[]), &later, 231);
    assert_eq!(ready["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:03:51Z");
}

#[test]
fn the_timeline_has_seconds_per_phase() {
    let waiting = told(&waits(Phase::Driver, "a"), &json!({}), 101);
    let phases = [(Phase::Driver, 161), (Phase::Toolkit, 150), (Phase::Validation, 190)];
    let note = works(&phases).condition_update(&waiting, at(190)).note.unwrap();
    assert_eq!(
        note.message,
        "GPUs can be used after 90 s: labels 1 s, driver 60 s, container toolkit 0 s, validation 29 s"
    );
    assert_eq!(waits(Phase::Driver, "b").condition_update(&waiting, at(190)).note, None);
}

#[test]
fn a_node_that_works_again_counts_from_when_it_stopped() {
    let ready = told(&works(&[]), &told(&waits(Phase::Driver, "a"), &json!({}), 101), 190);
    let stopped = told(&waits(Phase::Driver, "b"), &ready, 500);
    assert_eq!(stopped["status"]["conditions"][0]["message"], "GPUs worked before: waits for driver: b");
    let note =
        works(&[(Phase::Driver, 520), (Phase::Validation, 530)]).condition_update(&stopped, at(530)).note.unwrap();
    assert_eq!(note.message, "GPUs can be used again after 30 s: driver 20 s, validation 10 s");
}

#[test]
fn a_node_that_was_ready_all_the_time_is_no_news() {
    let first = works(&[(Phase::Validation, 50)]).condition_update(&json!({}), at(500));
    assert_eq!(first.note, None);
    assert_eq!(first.patch.unwrap()["status"]["conditions"][0]["message"], "GPUs can be used");
}

#[test]
fn a_timeline_whose_event_may_be_lost_is_told_again_for_a_while() {
    let waiting = told(&waits(Phase::Driver, "a"), &json!({}), 101);
    let works = works(&[(Phase::Driver, 161), (Phase::Validation, 190)]);
    let first = works.condition_update(&waiting, at(190));
    let ready = first.patch.unwrap();
    let again = works.condition_update(&ready, at(400));
    assert_eq!((again.patch, again.note), (None, first.note));
    assert_eq!(works.condition_update(&ready, at(491)), ConditionUpdate::default(), "old news is none");
    let quiet = told(&works, &json!({}), 190);
    assert_eq!(
        works.condition_update(&quiet, at(191)),
        ConditionUpdate::default(),
        "a node that was not seen waiting is no news"
    );
}

#[test]
fn only_a_condition_of_ours_is_taken_away() {
    let node = told(&waits(Phase::Driver, "a"), &json!({}), 200);
    assert_eq!(forget(&node).unwrap()["status"]["conditions"][0], json!({"type": "GPUReady", "$patch": "delete"}));
    assert_eq!(forget(&json!({})), None);
    let others = json!({"status": {"conditions": [{"type": "GPUReady", "status": "True", "reason": "SomeProbe"}]}});
    assert_eq!(forget(&others), None);
}
