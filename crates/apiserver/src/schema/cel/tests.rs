//! Results, errors and costs of expressions equal those of kube-apiserver.

use super::*;

/// Costs, outcomes and expressions, recorded with the evaluator of Kubernetes 1.37 on the object in `object.json`.
const EXPRESSIONS: &str = include_str!("expressions.tsv");

fn recorded() -> Value {
    serde_json::from_str(include_str!("object.json")).expect("the recorded object is JSON")
}

fn outcome_of(mut schema: Value, rule: &str, object: &Value) -> Outcome {
    schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    let schema = compile(&schema);
    evaluate(&Rules::compile(&schema), &schema, object, None)
}

#[test]
fn expressions_cost_and_mean_the_same() {
    let recorded = recorded();
    for line in EXPRESSIONS.lines() {
        let mut parts = line.splitn(3, '\t');
        let mut part = || parts.next().expect("three columns");
        let (cost, wanted, rule) = (part(), part(), part());
        let outcome = outcome_of(recorded["schema"].clone(), rule, &recorded["object"]);
        let found = match outcome.causes.as_slice() {
            [] => "holds".to_owned(),
            [cause] if cause.message.starts_with("Invalid value: failed rule") => "fails".to_owned(),
            [cause, ..] => cause.message.trim_start_matches("Invalid value: \"object\": ").to_owned(),
        };
        assert!(found.starts_with(wanted), "{rule}: {found}, not {wanted}");
        assert_eq!(outcome.cost.to_string(), cost, "cost of {rule}");
    }
}

fn lines(schema: Value, object: Value, old: Option<Value>) -> Vec<String> {
    let schema = compile(&json!({"type": "object", "properties": {"spec": schema}}));
    let old = old.map(|old| json!({"spec": old}));
    let outcome = evaluate(&Rules::compile(&schema), &schema, &json!({"spec": object}), old.as_ref());
    let causes = outcome.causes.iter().map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message));
    causes.chain(outcome.warnings.iter().map(|warning| format!("warning {warning}"))).collect()
}

#[test]
fn transition_rules_need_an_old_value() {
    let schema =
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]});
    assert_eq!(lines(schema.clone(), json!(2), None), [""; 0]);
    assert_eq!(lines(schema, json!(2), Some(json!(1))), ["FieldValueInvalid spec: Invalid value: 2: fixed"]);
    let optional = json!({"type": "integer", "x-kubernetes-validations": [
        {"rule": "oldSelf.orValue(0) < self", "optionalOldSelf": true}]});
    assert_eq!(
        lines(optional, json!(-1), None),
        ["FieldValueInvalid spec: Invalid value: -1: failed rule: oldSelf.orValue(0) < self"]
    );
}

#[test]
fn items_of_list_maps_are_compared_by_key() {
    let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
        "type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "never less"}]}});
    let old = json!([{"k": "b", "v": 2}, {"k": "a", "v": 0}]);
    let new = json!([{"k": "a", "v": 1}, {"k": "b", "v": 1}]);
    assert_eq!(lines(schema, new, Some(old)), ["FieldValueInvalid spec[1]: Invalid value: never less"]);
}

#[test]
fn a_rule_says_where_and_why_it_fails() {
    for (rule, wanted) in [
        (json!({"reason": "FieldValueForbidden", "message": "m"}), "FieldValueForbidden spec.a: Forbidden: m"),
        (json!({"reason": "FieldValueRequired", "message": "m"}), "FieldValueRequired spec.a: Required value: m"),
        (json!({"reason": "FieldValueDuplicate", "message": "m"}), "FieldValueDuplicate spec.a: Duplicate value"),
        (json!({"messageExpression": "'a is ' + string(self.a)"}), "FieldValueInvalid spec.a: Invalid value: a is 1"),
        (
            json!({"message": "m", "messageExpression": "string(self.a / 0)"}),
            "FieldValueInvalid spec.a: Invalid value: m",
        ),
    ] {
        let mut rule = rule;
        rule["rule"] = "self.a > 1".into();
        rule["fieldPath"] = ".a".into();
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [rule]});
        assert_eq!(lines(schema, json!({"a": 1}), None), [wanted]);
    }
}

#[test]
fn what_was_wrong_before_is_only_worth_a_warning() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 10"}]}, "b": {"type": "integer"}}});
    let old = json!({"a": 1, "b": 1});
    assert_eq!(
        lines(schema.clone(), json!({"a": 1, "b": 2}), Some(old.clone())),
        ["warning spec.a: Invalid value: 1: failed rule: self > 10"]
    );
    assert_eq!(
        lines(schema, json!({"a": 2, "b": 2}), Some(old)),
        ["FieldValueInvalid spec.a: Invalid value: 2: failed rule: self > 10"]
    );
}

#[test]
fn a_rule_that_costs_too_much_ends_validation() {
    let schema = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [
        {"rule": "self.all(x, self.all(y, x == y))"}, {"rule": "false"}]});
    let found = lines(schema, vec!["a"; 700].into(), None);
    assert_eq!(
        found,
        [
            "FieldValueInvalid spec: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.all(x, self.all(y, x == y))"
        ]
    );
}

/// Expressions and what kube-apiserver reports when a CRD is written: errors, or the estimated cost. A leading question
/// mark means `optionalOldSelf`.
const CHECKS: &str = include_str!("checks.tsv");

#[test]
fn expressions_are_checked_and_estimated_as_by_a_real_server() {
    let schema = &recorded()["schema"];
    let mut wrong = Vec::new();
    for line in CHECKS.lines() {
        let (text, wanted) = line.split_once('\t').expect("two columns");
        let found = check::compiled(schema, &text.replace("\\n", "\n")).replace('\n', "\\n");
        if found != wanted {
            wrong.push(format!("{text}\n   ours:   {found}\n   theirs: {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_expression_that_is_too_deep_or_too_long_is_refused() {
    let schema = &recorded()["schema"];
    let check = |text: &str| check::compiled(schema, text);
    let refused = |why: &str| format!("compilation failed: ERROR: <input>:-1:0: {why}");
    let nested = |depth: usize, inner: &str| format!("{}{inner}{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(check(&nested(100, "true")), "0");
    assert_eq!(check(&nested(300, "true")), refused("expression recursion limit exceeded: 250"));
    assert_eq!(check(&format!("true{}", " && true".repeat(300))), "0");
    assert_eq!(check(&format!("{}true", "!".repeat(301))), "1");
    let too_deep = refused("max recursion depth exceeded");
    assert_eq!(check(&format!("self.spec{}", ".a".repeat(300))), too_deep);
    assert_eq!(check(&format!("1{} == 1", "+1".repeat(300))), too_deep);
    assert_eq!(check(&(0..100).fold("self".to_owned(), |inner, _| format!("({inner}{})", ".a".repeat(240)))), too_deep);
    assert_eq!(check(&(0..100).fold("true".to_owned(), |inner, _| format!("[1].all(x, {inner})"))), too_deep);
    let long = format!("self.spec.i == {}", "1".repeat(100_001));
    assert_eq!(check(&long), refused("expression code point size exceeds limit: size: 100016, limit 100000"));
}
