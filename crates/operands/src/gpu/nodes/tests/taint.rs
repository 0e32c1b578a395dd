//! The startup taint.

use capstan_plan::kit::scope::is_tolerated;
use k8s_openapi::api::core::v1::Toleration;

use super::super::taint::{Stage, settle};
use super::*;

fn taint(text: &str) -> StartupTaint {
    StartupTaint::parse(text).unwrap()
}

/// The node after what has to change; a second look changes nothing.
fn settled(wanted: Option<&str>, node: &Value, stage: Stage) -> Value {
    let wanted = wanted.map(taint);
    let mut patch = NodePatch::default();
    settle(wanted.as_ref(), node, stage, &mut patch);
    assert_eq!(patch.needs_lock(), patch.taints.is_some(), "the list is written on the version that was seen");
    let mut after = node.clone();
    if !patch.is_empty() {
        json_patch_merge(&mut after, &patch.to_json(None));
    }
    let later = if stage == Stage::New { Stage::Waiting } else { stage };
    let mut again = NodePatch::default();
    settle(wanted.as_ref(), &after, later, &mut again);
    assert!(again.is_empty(), "{again:?}");
    after
}

/// RFC 7386, as far as it goes here.
fn json_patch_merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        match value {
            Value::Null => drop(target.as_object_mut().unwrap().remove(key)),
            value => json_patch_merge(&mut target[key.as_str()], value),
        }
    }
}

fn taints(node: &Value) -> Vec<&str> {
    node["spec"]["taints"].as_array().into_iter().flatten().filter_map(|taint| taint["key"].as_str()).collect()
}

fn noted(node: &Value) -> Option<&str> {
    node["metadata"]["annotations"]["capstan.dev/startup-taint"].as_str()
}

fn of_others() -> Value {
    json!({"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}, {"key": "k", "effect": "NoExecute"}]}})
}

#[test]
fn a_new_node_is_tainted_and_freed_when_it_works() {
    let new = settled(Some("k=v"), &of_others(), Stage::New);
    assert_eq!(taints(&new), ["theirs", "k", "k"], "the same key with another effect is another taint");
    assert_eq!(new["spec"]["taints"][2], json!({"key": "k", "value": "v", "effect": "NoSchedule"}));
    assert_eq!(noted(&new), Some("k=v:NoSchedule"));
    assert_eq!(settled(Some("k=v"), &new, Stage::Waiting), new);
    let freed = settled(Some("k=v"), &new, Stage::Works);
    assert_eq!((taints(&freed), noted(&freed)), (vec!["theirs", "k"], None));
}

#[test]
fn a_node_that_joins_with_the_taint_is_freed_too() {
    let joined =
        json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]}});
    let new = settled(Some("k"), &joined, Stage::New);
    assert_eq!((new["spec"].clone(), noted(&new)), (joined["spec"].clone(), Some("k:NoSchedule")));
    assert!(taints(&settled(Some("k"), &joined, Stage::Works)).is_empty(), "even by somebody who never saw it before");
}

#[test]
fn only_a_new_node_gets_the_taint() {
    assert_eq!(settled(Some("k"), &of_others(), Stage::Waiting), of_others());
    let removed_by_hand = json!({"metadata": {"annotations": {"capstan.dev/startup-taint": "k:NoSchedule"}}});
    let after = settled(Some("k"), &removed_by_hand, Stage::Waiting);
    assert_eq!((taints(&after), noted(&after)), (vec![], None));
}

#[test]
fn without_the_option_or_the_install_it_goes_and_others_stay() {
    let new = settled(Some("k"), &of_others(), Stage::New);
    for (wanted, stage) in [(None, Stage::Waiting), (None, Stage::New), (Some("k"), Stage::Free), (None, Stage::Free)] {
        let after = settled(wanted, &new, stage);
        assert_eq!((taints(&after), noted(&after)), (vec!["theirs", "k"], None));
    }
    let foreign = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    assert_eq!(settled(None, &foreign, Stage::Free), foreign, "a taint that we never had to do with stays");
}

#[test]
fn another_name_takes_the_place_of_the_one_before() {
    let new = settled(Some("old"), &of_others(), Stage::New);
    let moved = settled(Some("new:NoExecute"), &new, Stage::Waiting);
    assert_eq!((taints(&moved), noted(&moved)), (vec!["theirs", "k", "new"], Some("new:NoExecute")));
    let works = settled(Some("new"), &new, Stage::Works);
    assert_eq!((taints(&works), noted(&works)), (vec!["theirs", "k"], None));
}

#[test]
fn what_cannot_be_read_is_named_with_its_fix() {
    assert_eq!(taint("key"), taint("key:NoSchedule"));
    for (text, fix) in [
        ("key:Never", "write NoSchedule, PreferNoSchedule or NoExecute"),
        (":NoSchedule", "write key:Effect"),
        ("a b", "write key:Effect"),
    ] {
        let error = StartupTaint::parse(text).unwrap_err();
        assert!(error.contains(fix), "{error}");
    }
}

#[test]
fn operands_tolerate_it_once() {
    let one = taint("k:NoSchedule");
    let toleration = |key: Option<&str>, effect: Option<&str>| Toleration {
        key: key.map(Into::into),
        operator: Some("Exists".into()),
        effect: effect.map(Into::into),
        ..Default::default()
    };
    let covers = |list: &[Toleration]| is_tolerated(&one.toleration(), list);
    assert!(covers(&[one.toleration()]) && covers(&[toleration(None, None)]));
    assert!(!covers(&[toleration(Some("other"), None), toleration(Some("k"), Some("NoExecute"))]));
}
