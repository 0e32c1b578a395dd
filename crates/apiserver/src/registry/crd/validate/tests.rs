//! CRDs are rejected for the same reasons as by kube-apiserver.

use super::*;
use crate::registry::crd::prepare;

/// CRDs and their errors, recorded with the validation of Kubernetes 1.37.
const CASES: &str = include_str!("cases.jsonl");
/// The same for validation rules.
const RULES: &str = include_str!("rules.jsonl");

#[test]
fn faults_are_those_of_a_real_server() {
    for line in CASES.lines().chain(RULES.lines()) {
        let case: Value = serde_json::from_str(line).expect("a case is JSON");
        let mut crd = case["crd"].clone();
        prepare(&mut crd);
        let old = case.get("old").map(|old| {
            let mut old = old.clone();
            prepare(&mut old);
            old
        });
        let mut found: Vec<String> =
            validate(&crd, old.as_ref()).iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        found.sort();
        let wanted: Vec<&str> = case["causes"].as_array().expect("causes").iter().map(text).collect();
        assert_eq!(found, wanted, "{}", case["crd"]["spec"]);
    }
}

#[test]
fn odd_schemas_are_warned_about_once() {
    let crd = |format: &str| {
        serde_json::json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "a": {"type": "string", "format": format},
            "b": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}}}}}]}})
    };
    let set = "x-kubernetes-list-type: set for items of type \"object\" is not supported by server-side apply or CEL validation rules";
    assert_eq!(warnings(&crd("odd"), None), ["unrecognized format \"odd\"", set]);
    assert_eq!(warnings(&crd("date"), None), [set]);
    assert_eq!(warnings(&crd("odd"), Some(&crd("date"))), ["unrecognized format \"odd\""]);
}
