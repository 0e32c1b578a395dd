//! Tests of applies and updates that need no comparison with kube-apiserver.

use serde_json::{Value, json};

use super::managed::{self, Force, Reset};
use super::patch;
use super::testing::{Widget, object};
use crate::schema::builtin;

fn entries(object: &Value) -> Vec<(String, String, Option<String>)> {
    let text = |entry: &Value, key: &str| entry[key].as_str().map(str::to_owned);
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let row = |entry: &Value| {
        let manager = text(entry, "manager").unwrap_or_default();
        (manager, text(entry, "operation").unwrap_or_default(), text(entry, "time"))
    };
    entries.iter().map(row).collect()
}

#[test]
fn times_are_whole_seconds_and_move_only_with_changes() {
    let widget = Widget::new();
    let first = widget.apply(None, "a", 0, &json!({"size": 1}), Force::No).expect("applied");
    let stamp = |text: &str| Some(text.to_owned());
    let a = |time: Option<String>| ("a".to_owned(), "Apply".to_owned(), time);
    assert_eq!(entries(&first), [a(stamp("2023-11-14T22:13:20Z"))]);
    let same = widget.apply(Some(&first), "a", 1, &json!({"size": 1}), Force::No).expect("applied");
    assert_eq!(same, first);
    let other = widget.apply(Some(&first), "a", 2, &json!({"size": 2}), Force::No).expect("applied");
    assert_eq!(entries(&other), [a(stamp("2023-11-14T22:15:20Z"))]);
}

#[test]
fn managers_stand_in_the_order_of_operation_time_and_name() {
    let widget = Widget::new();
    let live = widget.update(None, "late-name", 0, &json!({"size": 1}));
    let live = widget.update(Some(&live), "b", 1, &json!({"size": 1, "color": "c"}));
    let live = widget.update(Some(&live), "a", 1, &json!({"size": 1, "color": "c", "tags": ["t"]}));
    let live = widget.apply(Some(&live), "z", 2, &json!({"items": [{"name": "one"}]}), Force::No).expect("applied");
    let names: Vec<String> = entries(&live).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["z", "late-name", "a", "b"]);
}

#[test]
fn who_joins_without_changing_a_value_gets_no_time() {
    let widget = Widget::new();
    let first = widget.apply(None, "a", 0, &json!({"size": 1}), Force::No).expect("applied");
    let joined = widget.apply(Some(&first), "b", 1, &json!({"size": 1}), Force::No).expect("no conflict");
    let times: Vec<bool> = entries(&joined).iter().map(|(_, _, time)| time.is_some()).collect();
    assert_eq!((joined["spec"].clone(), times), (json!({"size": 1}), vec![false, true]));
}

#[test]
fn a_default_completes_the_key_of_an_item() {
    let widget = Widget::new();
    let spec = json!({"ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]});
    let live = widget.apply(None, "a", 0, &spec, Force::No).expect("two different keys");
    let named = json!({"ports": [{"port": 80, "protocol": "TCP", "name": "web"}]});
    let live = widget.apply(Some(&live), "b", 1, &named, Force::No).expect("the same item");
    let ports = json!([{"port": 80, "protocol": "TCP", "name": "web"}, {"port": 80, "protocol": "UDP"}]);
    assert_eq!(live["spec"]["ports"], ports);
}

#[test]
fn an_item_that_others_only_added_to_goes_with_its_owner() {
    let widget = Widget::new();
    let live = widget.apply(None, "a", 0, &json!({"items": [{"name": "one", "value": "1"}]}), Force::No).expect("new");
    let more = json!({"items": [{"name": "one", "value": "1", "more": "x"}]});
    let live = widget.update(Some(&live), "c", 1, &more);
    let live = widget.apply(Some(&live), "a", 2, &json!({"size": 1}), Force::No).expect("no conflict");
    // kube-apiserver sets null, too; validation then rejects it, as the list is not nullable.
    assert_eq!(live["spec"], json!({"items": null, "size": 1}));
}

#[test]
fn duplicates_in_live_lists_survive_applies_of_others() {
    let widget = Widget::new();
    let live = widget.update(None, "u", 0, &json!({"tags": ["a", "a"], "items": [{"name": "x"}, {"name": "x"}]}));
    let live = widget.apply(Some(&live), "a", 1, &json!({"tags": ["b"]}), Force::No).expect("no conflict");
    assert_eq!(live["spec"]["tags"], json!(["a", "a", "b"]));
    assert_eq!(live["spec"]["items"], json!([{"name": "x"}, {"name": "x"}]));
}

#[test]
fn live_objects_without_managers_stay_so_until_the_first_apply() {
    let widget = Widget::new();
    let mut live = object(&json!({"size": 1}));
    live["metadata"]["uid"] = "u".into();
    let live = widget.update(Some(&live), "u", 0, &json!({"size": 2}));
    assert_eq!(entries(&live), []);
    let live = widget.apply(Some(&live), "a", 1, &json!({"color": "c"}), Force::No).expect("applied");
    let names: Vec<String> =
        entries(&live).into_iter().map(|(name, operation, _)| format!("{name} {operation}")).collect();
    assert_eq!(names, ["a Apply", "before-first-apply Update"]);
}

#[test]
fn granular_ownership_of_what_has_become_one_value_is_ownership_of_that() {
    let widget = Widget::new();
    let mut live = widget.apply(None, "a", 0, &json!({"selector": {"app": "x"}}), Force::No).expect("new");
    live["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:spec": {"f:selector": {"f:app": {}}}});
    let fault =
        widget.apply(Some(&live), "b", 1, &json!({"selector": {"tier": "z"}}), Force::No).expect_err("a owns it");
    assert_eq!(fault.message, "Apply failed with 1 conflict: conflict with \"a\": .spec.selector");
}

#[test]
fn writers_without_a_name_are_unknown() {
    let widget = Widget::new();
    assert_eq!(entries(&widget.update(None, "", 0, &json!({"size": 1})))[0].0, "unknown");
}

#[test]
fn managers_are_named_after_user_agents() {
    let long = "é".repeat(80);
    let cases = [
        ("kubectl/v1.37.0 (linux/amd64) kubernetes/abc", "kubectl"),
        ("Mozilla", "Mozilla"),
        ("my tool/1", "my tool"),
        ("a\u{7}b\tc/1", "abc"),
        ("", ""),
        (long.as_str(), &long[..128]),
    ];
    for (user_agent, manager) in cases {
        assert_eq!(managed::default_manager(user_agent), manager);
    }
}

#[test]
fn only_times_and_versions_changed_means_unchanged() {
    let entry = |time: &str| json!({"manager": "a", "operation": "Apply", "time": time, "fieldsV1": {}});
    let object = |version: &str, time: &str, value: i64| json!({"metadata": {"resourceVersion": version, "managedFields": [entry(time)]}, "spec": value});
    let old = object("1", "t1", 1);
    assert!(managed::unchanged(&old, &object("2", "t2", 1)));
    assert!(!managed::unchanged(&old, &object("1", "t1", 2)));
    assert!(managed::unchanged(&old, &json!({"metadata": {"managedFields": [entry("t3")]}, "spec": 1})));
    assert!(!managed::unchanged(&old, &json!({"metadata": {"resourceVersion": "1"}, "spec": 1})));
    let mut other = old.clone();
    other["metadata"]["managedFields"][0]["manager"] = "b".into();
    assert!(!managed::unchanged(&old, &other));
}

#[test]
fn broken_managed_fields_are_found() {
    let with = |entry: Value| json!({"metadata": {"managedFields": [entry]}});
    let cases = [
        (json!({}), Some("operation must be `Apply` or `Update`")),
        (json!({"operation": "Update"}), Some("apiVersion must not be empty")),
        (json!({"operation": "Update", "apiVersion": "v1"}), Some("missing fieldsType in managed fields entry 0")),
        (
            json!({"operation": "Update", "apiVersion": "v1", "fieldsType": "V2"}),
            Some("invalid fieldsType \"V2\" in managed fields entry 0"),
        ),
        (json!({"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}), None),
    ];
    for (entry, fault) in cases {
        assert_eq!(managed::invalid(&with(entry)).as_deref(), fault);
    }
}

#[test]
fn endpoints_record_only_what_they_may_set() {
    struct Pods;
    impl managed::Versions for Pods {
        fn schema(&self, api_version: &str) -> Option<&crate::schema::Schema> {
            builtin::definition("io.k8s.api.core.v1.Pod").filter(|_| api_version == "v1")
        }
    }
    let pod = |image: &str, extra: Value| {
        let mut spec = json!({"containers": [{"name": "c", "image": image, "resources": {"limits": {"cpu": "1"}}}]});
        patch_into(&mut spec, extra);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"}, "spec": spec})
    };
    let tracked = |subresource: &str, live: &Value, new: Value| {
        let reset = Reset::builtin("pods", subresource, true);
        let now = jiff::Timestamp::UNIX_EPOCH;
        let (api_version, kind, manager) = ("v1", "Pod", "m");
        let write = managed::Write { versions: &Pods, api_version, kind, manager, subresource, reset: &reset, now };
        let new = managed::update(Some(live), new, &write);
        let entries = new["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let own = entries.iter().find(|entry| entry["manager"] == "m");
        own.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
    };
    let mut live = pod("a", json!({}));
    live["metadata"]["managedFields"] = json!([{
        "manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}},
    }]);
    let mut resized = pod("b", json!({}));
    resized["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2".into();
    let limits = json!({"f:limits": {"f:cpu": {}}});
    let only_resources = json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:resources": limits}}}});
    assert_eq!(tracked("resize", &live, resized.clone()), only_resources);
    assert_eq!(tracked("status", &live, resized), Value::Null);
    let debug = pod("b", json!({"ephemeralContainers": [{"name": "d", "image": "i"}]}));
    let keys: Vec<String> = tracked("ephemeralcontainers", &live, debug)["f:spec"]
        .as_object()
        .map(|fields| fields.keys().cloned().collect())
        .unwrap_or_default();
    assert_eq!(keys, ["f:ephemeralContainers"]);
}

fn patch_into(value: &mut Value, patch: Value) {
    *value = patch::apply(patch::Kind::Merge, value, &patch, &Default::default()).expect("a merge patch");
}
