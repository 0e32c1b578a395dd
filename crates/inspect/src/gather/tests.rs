//! Archives of small snapshots.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use serde_json::json;

use super::{archive, timeline};
use crate::snapshot::Snapshot;

/// Logs that barely compress, youngest first.
fn with_logs() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for index in 0..4_u64 {
        let name = format!("p{index}");
        let ended = json!({"terminated": {"finishedAt": format!("2026-11-01T1{}:00:00Z", 9 - index)}});
        snapshot.add(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"},
            "status": {"containerStatuses": [{"name": "c", "state": ended}]}}));
        let mut number = index + 1;
        let mut noise = || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{number:x}\n")
        };
        snapshot.logs.insert(format!("ns/{name}/c"), (0..2000).map(|_| noise()).collect());
    }
    snapshot
}

#[test]
fn the_oldest_logs_go_first_and_the_archive_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.tar.gz");
    let all = archive(with_logs(), &file, u64::MAX).unwrap();
    assert!(all.notes.is_empty(), "{all:?}");
    let size = std::fs::metadata(&file).unwrap().len();
    let archived = archive(with_logs(), &file, size * 3 / 4).unwrap();
    assert!(std::fs::metadata(&file).unwrap().len() <= size * 3 / 4);
    let kept: Vec<String> = Snapshot::load(&file).unwrap().logs.into_keys().collect();
    assert!(kept.contains(&"ns/p0/c".into()) && !kept.contains(&"ns/p3/c".into()), "{kept:?}");
    assert!(archived.notes[0].contains("of 4 logs are left out, the oldest ones"), "{archived:?}");
}

#[test]
fn a_limit_that_cannot_be_kept_is_an_error_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.tar.gz");
    let error = archive(with_logs(), &file, 10).unwrap_err().to_string();
    assert!(error.contains("--max-size") && !file.exists(), "{error}");
}

#[test]
fn a_timeline_has_events_and_conditions_in_their_order() {
    let mut snapshot = Snapshot::default();
    snapshot.add(
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "ns"}, "type": "Warning",
        "reason": "BackOff", "message": "back-off\nrestarting", "count": 3, "lastTimestamp": "2026-11-01T10:00:02Z",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "ns"}}),
    );
    snapshot.add(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-11-01T10:00:01Z"}]}}));
    let expected = "2026-11-01T10:00:01Z  Changed  Node n  Ready=True KubeletReady\n\
                    2026-11-01T10:00:02Z  Warning  Pod ns/p  BackOff: back-off restarting (3 times)\n";
    assert_eq!(timeline::of(&snapshot), expected);
}
