//! Condition, taint and timeline.

use jiff::Timestamp;

use super::super::ready::*;
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn progress<'a>(phases: &'a [(Phase, Option<Timestamp>)], waits: Option<&'a str>) -> Progress<'a> {
    Progress { began: at(100), phases, waits }
}

#[test]
fn the_condition_says_what_is_missing() {
    let phases = [(Phase::Driver, Some(at(160))), (Phase::Plugin, None), (Phase::Validation, None)];
    let patch = progress(&phases, Some("pod p: ImagePullBackOff")).condition(&json!({}), at(200)).unwrap();
    let condition = &patch["status"]["conditions"][0];
    assert_eq!((condition["type"].as_str(), condition["status"].as_str()), (Some("GPUReady"), Some("False")));
    assert_eq!(condition["reason"], "WaitingForDevicePlugin");
    assert_eq!(condition["message"], "waits for device plugin: pod p: ImagePullBackOff");
    assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:03:20Z");
}

#[test]
fn the_condition_is_written_only_when_it_changes() {
    let waiting = [(Phase::Driver, None)];
    let first = progress(&waiting, None).condition(&json!({}), at(200)).unwrap();
    assert_eq!(progress(&waiting, None).condition(&first, at(300)), None);
    let other = progress(&waiting, Some("slow")).condition(&first, at(300)).unwrap();
    assert_eq!(other["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:03:20Z", "it is still not ready");
    let ready = progress(&[(Phase::Driver, Some(at(400)))], None).condition(&first, at(400)).unwrap();
    assert_eq!(ready["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:06:40Z");
    assert!(ever_ready(&ready) && !ever_ready(&first));
}

#[test]
fn the_timeline_has_seconds_per_phase() {
    let phases = [
        (Phase::Labels, Some(at(101))),
        (Phase::Driver, Some(at(161))),
        (Phase::Toolkit, Some(at(150))),
        (Phase::Validation, Some(at(190))),
    ];
    let note = progress(&phases, None).timeline().unwrap();
    assert_eq!(note.message, "GPUs can be used after 90 s: labels 1 s, driver 60 s, toolkit 0 s, validation 29 s");
    assert_eq!(progress(&[(Phase::Driver, None)], None).timeline(), None);
}

#[test]
fn the_startup_taint_comes_once_and_goes_when_the_node_works() {
    let taint = StartupTaint::parse("example.com/starting=yes:NoExecute").unwrap();
    let added = taint.change(&json!({}), false).unwrap();
    assert_eq!(
        added["spec"]["taints"][0],
        json!({"key": "example.com/starting", "value": "yes", "effect": "NoExecute"})
    );
    assert_eq!(taint.change(&added, false), None);
    assert_eq!(taint.change(&added, true), Some(taint.lift()));
    let failing = progress(&[(Phase::Driver, None)], None).condition(&json!({}), at(200)).unwrap();
    assert_eq!(taint.change(&failing, false), None, "a node that was seen before keeps its pods");
}

#[test]
fn a_startup_taint_that_cannot_be_read_is_named() {
    assert_eq!(StartupTaint::parse("key").unwrap(), StartupTaint::parse("key:NoSchedule").unwrap());
    for (text, fix) in [
        ("key:Never", "write NoSchedule, PreferNoSchedule or NoExecute"),
        (":NoSchedule", "write key:Effect"),
        ("a b", "write key:Effect"),
    ] {
        let error = StartupTaint::parse(text).unwrap_err();
        assert!(error.starts_with("annotation capstan.dev/startup-taint: ") && error.contains(fix), "{error}");
    }
}

#[test]
fn uninstalling_removes_condition_and_taint() {
    let node = progress(&[(Phase::Driver, None)], None).condition(&json!({}), at(200)).unwrap();
    assert_eq!(forget(&node).unwrap()["status"]["conditions"][0], json!({"type": "GPUReady", "$patch": "delete"}));
    assert_eq!(forget(&json!({})), None);
    let lift = StartupTaint::parse("key").unwrap().lift();
    assert_eq!(lift["spec"]["taints"][0], json!({"$patch": "delete", "key": "key"}));
}
