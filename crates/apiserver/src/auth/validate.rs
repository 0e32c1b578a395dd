//! Validation of roles and bindings beyond their schemas.

use serde_json::Value;

use crate::error::Cause;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Validates a role or binding; `old` is the previous state.
pub(super) fn check(kind: &str, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut found = Findings::default();
    match kind {
        "Role" | "ClusterRole" => {
            for (index, rule) in list(object, "rules").iter().enumerate() {
                found.rule(&format!("rules[{index}]"), rule, kind == "Role");
            }
            found.aggregation(&object["aggregationRule"]);
        }
        "RoleBinding" | "ClusterRoleBinding" => found.binding(object, old, kind == "RoleBinding"),
        _ => {}
    }
    // kube-apiserver reports errors of declarative validation after those of handwritten validation.
    found.first.into_iter().chain(found.last).collect()
}

#[derive(Default)]
struct Findings {
    first: Vec<Cause>,
    last: Vec<Cause>,
}

impl Findings {
    fn rule(&mut self, path: &str, rule: &Value, namespaced: bool) {
        let urls = list(rule, "nonResourceURLs");
        let has = |key: &str| !list(rule, key).is_empty();
        if !has("verbs") {
            self.last.push(required(&format!("{path}.verbs"), ""));
        }
        if !urls.is_empty() {
            let field = format!("{path}.nonResourceURLs");
            let shown = &rule["nonResourceURLs"];
            if namespaced {
                self.first.push(invalid(&field, shown, "namespaced rules cannot apply to non-resource URLs"));
            }
            if has("apiGroups") || has("resources") || has("resourceNames") {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                self.first.push(invalid(&field, shown, why));
            }
            return;
        }
        if !has("apiGroups") {
            let why = "resource rules must supply at least one api group";
            self.first.push(required(&format!("{path}.apiGroups"), why));
        }
        if !has("resources") {
            let why = "resource rules must supply at least one resource";
            self.first.push(required(&format!("{path}.resources"), why));
        }
    }

    fn aggregation(&mut self, rule: &Value) {
        if rule.is_object() && list(rule, "clusterRoleSelectors").is_empty() {
            let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            self.first.push(required("aggregationRule.clusterRoleSelectors", why));
        }
    }

    fn binding(&mut self, object: &Value, old: Option<&Value>, namespaced: bool) {
        let role = &object["roleRef"];
        if text(role, "apiGroup") != GROUP {
            self.first.push(unsupported("roleRef.apiGroup", text(role, "apiGroup"), &[GROUP]));
        }
        let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        if !kinds.contains(&text(role, "kind")) {
            self.first.push(unsupported("roleRef.kind", text(role, "kind"), kinds));
        }
        match text(role, "name") {
            "" => self.last.push(required("roleRef.name", "")),
            name => {
                for why in capstan_semantics::names::path_segment(name) {
                    self.first.push(invalid("roleRef.name", &name.into(), &why));
                }
            }
        }
        for (index, subject) in list(object, "subjects").iter().enumerate() {
            self.subject(&format!("subjects[{index}]"), subject, namespaced);
        }
        if old.is_some_and(|old| old["roleRef"] != *role) {
            let shown = serde_json::json!({
                "APIGroup": text(role, "apiGroup"), "Kind": text(role, "kind"), "Name": text(role, "name"),
            });
            self.last.push(invalid("roleRef", &shown, "field is immutable"));
        }
    }

    fn subject(&mut self, path: &str, subject: &Value, namespaced: bool) {
        if text(subject, "name").is_empty() {
            self.last.push(required(&format!("{path}.name"), ""));
        }
        let group = text(subject, "apiGroup");
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !group.is_empty() {
                    self.first.push(unsupported(&format!("{path}.apiGroup"), group, &[""]));
                }
                if !namespaced && text(subject, "namespace").is_empty() {
                    self.first.push(required(&format!("{path}.namespace"), ""));
                }
            }
            "User" | "Group" if group == GROUP => {}
            "User" | "Group" => self.first.push(unsupported(&format!("{path}.apiGroup"), group, &[GROUP])),
            other => {
                self.first.push(unsupported(&format!("{path}.kind"), other, &["ServiceAccount", "User", "Group"]));
            }
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn required(field: &str, why: &str) -> Cause {
    let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
    Cause { reason: "FieldValueRequired", message, field: field.to_owned() }
}

fn invalid(field: &str, shown: &Value, why: &str) -> Cause {
    Cause { reason: "FieldValueInvalid", message: format!("Invalid value: {shown}: {why}"), field: field.to_owned() }
}

fn unsupported(field: &str, given: &str, supported: &[&str]) -> Cause {
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    let message = format!("Unsupported value: {given:?}: supported values: {}", supported.join(", "));
    Cause { reason: "FieldValueNotSupported", message, field: field.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_is_told_in_the_words_and_order_of_a_real_server() {
        let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "x"});
        let subjects = json!([{"kind": "User", "name": "", "apiGroup": GROUP}, {"kind": "ServiceAccount", "name": "x"},
            {"kind": "Foo", "name": "x"}]);
        let cases = [
            (
                "ClusterRole",
                json!({"rules": [{"apiGroups": [""], "resources": ["pods"]}]}),
                "rules[0].verbs: Required value",
            ),
            (
                "Role",
                json!({"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]}),
                r#"rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
            ),
            (
                "ClusterRoleBinding",
                json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "x"}}),
                r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#,
            ),
            (
                "ClusterRoleBinding",
                json!({"roleRef": role, "subjects": subjects}),
                r#"subjects[1].namespace: Required value, subjects[2].kind: Unsupported value: "Foo": supported values: "ServiceAccount", "User", "Group", subjects[0].name: Required value"#,
            ),
            ("RoleBinding", json!({"roleRef": role}), ""),
        ];
        for (kind, object, expected) in cases {
            let found: Vec<String> =
                check(kind, &object, None).iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
            assert_eq!(found.join(", "), expected, "{kind} {object}");
        }
    }

    #[test]
    fn a_binding_keeps_its_role() {
        let binding = |name: &str| json!({"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}});
        let found = check("RoleBinding", &binding("b"), Some(&binding("a")));
        assert_eq!(
            found[0].message,
            r#"Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"b"}: field is immutable"#
        );
    }
}
