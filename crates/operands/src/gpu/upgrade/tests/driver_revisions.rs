//! Which driver a node should have, and how a driver that failed is remembered.

use capstan_plan::{LiveObjects, Object, Ref};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use serde_json::{Value, json};

use super::*;

fn template(digest: &str) -> Value {
    let env = json!([{"name": "DRIVER_CONFIG_DIGEST", "value": digest}]);
    json!({"spec": {"nodeSelector": {"os": "a"}, "containers": [{"name": "nvidia-driver-ctr", "env": env}]}})
}

fn set(digest: &str, rejected: Option<&str>) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": "drivers", "namespace": "gpu", "uid": "ds", "annotations": {REJECTED: rejected},
            "labels": {"app.kubernetes.io/component": "nvidia-driver"},
            "ownerReferences": [{"name": "nvd", "uid": "x"}],
        },
        "spec": {"template": template(digest)},
    })
}

fn revision(number: i64, hash: &str, digest: &str) -> Value {
    let mut template = template(digest);
    template["$patch"] = "replace".into();
    json!({
        "metadata": {
            "name": format!("drivers-{hash}"), "labels": {"controller-revision-hash": hash},
            "ownerReferences": [{"uid": "ds"}],
        },
        "revision": number, "data": {"spec": {"template": template}},
    })
}

#[test]
fn a_node_gets_the_newest_revision_of_the_daemon_set_that_selects_it() {
    let (sets, revisions) = ([set("2", None)], [revision(2, "new", "2"), revision(1, "old", "1")]);
    let driver_revisions = DriverRevisions::of(&sets, &revisions);
    let node = |os: &str| json!({"metadata": {"labels": {"os": os}}});
    let target = Target { daemon_set: "ds", revision: "new", digest: "2" };
    assert_eq!(driver_revisions.wanted(&Node::of(&node("a"))), Some(target));
    assert_eq!(driver_revisions.wanted(&Node::of(&node("b"))), None);
    let other = json!({"metadata": {"labels": {"app": "x"}, "uid": "ds"}});
    assert_eq!(DriverRevisions::of([&other], &revisions).wanted(&Node::of(&node("a"))), None, "no driver");
}

#[test]
fn a_driver_that_failed_is_noted_once_and_forgotten_with_the_next_one() {
    let revisions = [revision(1, "old", "1"), revision(2, "new", "2")];
    let note = RevisionRejection { daemon_set: "drivers".into(), rejected: Some("2 drivers-old".into()) };
    assert_eq!(DriverRevisions::of(&[set("2", None)], &revisions).reject("old"), Some(note));
    let noted = [set("2", Some("2 drivers-old"))];
    let driver_revisions = DriverRevisions::of(&noted, &revisions);
    assert_eq!((driver_revisions.reject("old"), driver_revisions.clear_rejections()), (None, vec![]));
    assert_eq!(driver_revisions.held_back("").count(), 0, "it is on its way back");

    let back = [revision(3, "old", "1"), revision(2, "new", "2")];
    let driver_revisions = DriverRevisions::of(&noted, &back);
    assert_eq!(
        (driver_revisions.held_back("nvd").collect::<Vec<_>>(), driver_revisions.clear_rejections()),
        (vec!["drivers"], vec![])
    );
    assert_eq!(driver_revisions.held_back("other").count(), 0);

    let third = [revision(3, "old", "1"), revision(2, "new", "2"), revision(4, "next", "3")];
    let forgiven = RevisionRejection { daemon_set: "drivers".into(), rejected: None };
    assert_eq!(DriverRevisions::of(&noted, &third).clear_rejections(), [forgiven]);
}

#[test]
fn the_same_driver_in_another_pod_is_nothing_to_go_back_to() {
    let revisions = [revision(1, "old", "2"), revision(2, "new", "2")];
    assert_eq!(DriverRevisions::of(&[set("2", None)], &revisions).reject("old"), None);
    assert_eq!(DriverRevisions::of(&[set("2", None)], &revisions).reject("gone"), None);
}

#[test]
fn while_the_wanted_driver_is_the_one_that_failed_the_template_before_stays() {
    let reference = Ref::of::<DaemonSet>("gpu", "drivers");
    let wanted = |digest: &str| Object {
        reference: reference.clone(),
        body: json!({"spec": {"template": template(digest)}}),
        policy: capstan_plan::Policy::Apply,
        preserved: Vec::new(),
    };
    let mut live = LiveObjects::default();
    live.insert(reference.clone(), std::sync::Arc::new(set("2", Some("2 drivers-old"))));
    assert_eq!(kept_revisions(&live), [Ref::of::<ControllerRevision>("gpu", "drivers-old")]);
    assert_eq!(hold_back(wanted("2"), &live), wanted("2"), "nothing is there to go back to");
    live.insert(Ref::of::<ControllerRevision>("gpu", "drivers-old"), std::sync::Arc::new(revision(1, "old", "1")));
    assert_eq!(hold_back(wanted("2"), &live), wanted("1"));
    assert_eq!(hold_back(wanted("3"), &live), wanted("3"));
}
