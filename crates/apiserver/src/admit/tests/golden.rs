//! Requests with responses recorded from kube-apiserver.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    steps: Vec<Step>,
}

/// One request. An update is merged into the live object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    create: Option<String>,
    update: Option<String>,
    status: Option<String>,
    delete: Option<String>,
    #[serde(default)]
    body: Value,
    /// Whether the whole object is compared, and not only its existence.
    #[serde(default)]
    show: bool,
    /// kube-apiserver needs time here until all components have seen the write; ours does not.
    #[serde(default)]
    wait: bool,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Answer {
    code: u16,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    causes: Vec<(String, String, String)>,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    warnings: Vec<String>,
}

/// Removes what differs between any two servers.
fn scrub(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::Object(meta)) = members.get_mut("metadata") {
                for key in ["uid", "creationTimestamp", "resourceVersion", "managedFields"] {
                    meta.remove(key);
                }
            }
            for (key, value) in members {
                let star = match key.as_str() {
                    "lastTransitionTime" | "lastPhaseTransitionTime" | "timeAdded" => !value.is_null(),
                    "nodePort" | "healthCheckNodePort" => true,
                    "clusterIP" => value != "None",
                    key => key.ends_with("controller-uid"),
                };
                match key.as_str() {
                    _ if star => *value = "*".into(),
                    "clusterIPs" if *value != json!(["None"]) => *value = json!(["*"]),
                    _ => scrub(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::String(text) if text.starts_with("kube-api-access-") => *value = "kube-api-access-*".into(),
        _ => {}
    }
}

async fn answer(bench: &Bench, step: &Step) -> Answer {
    let (created, result) = if let Some(resource) = &step.create {
        let mut body = step.body.clone();
        if body.is_null() {
            body = json!({});
        }
        if body["metadata"]["name"].is_null() && body["metadata"]["generateName"].is_null() {
            body["metadata"]["name"] = "x".into();
        }
        (true, bench.write(resource, body).await)
    } else if let Some(path) = &step.delete {
        let (resource, name) = path.split_once('/').expect("resource and name");
        return match bench.delete(resource, name).await {
            Ok(()) => Answer { code: 200, ..empty() },
            Err(status) => refusal(status),
        };
    } else {
        let path = step.update.as_ref().or(step.status.as_ref()).expect("a step does something");
        let (resource, name) = path.split_once('/').expect("resource and name");
        let target = bench.target(resource, Some(name));
        let target = if step.status.is_some() { target.sub("status") } else { target };
        (false, bench.merge(&target, step.body.clone()).await)
    };
    match result {
        Err(status) => refusal(status),
        Ok(written) => {
            let mut object = if step.show { written.object.value() } else { Value::Null };
            scrub(&mut object);
            let warnings = written.warnings.iter().map(|text| format!("299 - {text:?}")).collect();
            Answer { code: if created { 201 } else { 200 }, object, warnings, ..empty() }
        }
    }
}

fn empty() -> Answer {
    Answer {
        code: 0,
        message: String::new(),
        reason: String::new(),
        causes: Vec::new(),
        object: Value::Null,
        warnings: Vec::new(),
    }
}

fn refusal(status: Status) -> Answer {
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let causes = status.details["causes"].as_array().into_iter().flatten();
    let causes = causes.map(|cause| (text(cause, "reason"), text(cause, "field"), text(cause, "message"))).collect();
    Answer { code: status.code, message: status.message, reason: status.reason.into(), causes, ..empty() }
}

/// A message without UIDs and without long Go structs.
fn without_identity(text: &str) -> String {
    static UID: LazyLock<Regex> = LazyLock::new(|| Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap());
    let text = UID.replace_all(text, "*");
    match (text.find("Invalid value: {"), text.rfind("}: ")) {
        (Some(start), Some(end)) if end > start + 400 => {
            format!("{}Invalid value: {{...{}", &text[..start], &text[end..])
        }
        _ => text.into_owned(),
    }
}

/// kube-apiserver iterates maps in random order, and ends some messages with a diff of Go structs.
fn comparable(mut answer: Answer) -> Answer {
    let first_line = |text: &str| without_identity(text.lines().next().unwrap_or_default());
    if answer.code >= 300 {
        // Unknown fields are tested elsewhere.
        answer.warnings.clear();
    }
    for (_, _, message) in &mut answer.causes {
        *message = first_line(message);
    }
    answer.causes.sort();
    answer.message = match answer.causes.len() {
        0 | 1 => first_line(&answer.message),
        _ => answer.message.split(": ").next().unwrap_or_default().to_owned(),
    };
    answer
}

async fn compare(cases: &str, answers: &str) {
    let cases: Vec<Case> = serde_saphyr::from_str(cases).unwrap();
    let mut answers: BTreeMap<String, Vec<Answer>> = serde_json::from_str(answers).unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let expected = answers.remove(&case.name).unwrap_or_else(|| panic!("{} has no answers", case.name));
        let user = UserInfo { uid: "1".into(), ..UserInfo::new("admin", &["system:masters"]) };
        let bench = Bench::new(Settings::default()).await.user(user);
        bench.create("serviceaccounts", json!({"metadata": {"name": "default"}})).await.unwrap();
        let steps: Vec<&Step> = case.steps.iter().filter(|step| !step.wait).collect();
        assert_eq!(steps.len(), expected.len(), "{}: a step without an answer, or the other way round", case.name);
        for (step, expected) in steps.into_iter().zip(expected) {
            let (actual, expected) = (comparable(answer(&bench, step).await), comparable(expected));
            if actual != expected {
                let (actual, expected) = (format!("{actual:#?}"), format!("{expected:#?}"));
                let lines = |a: &str, b: &str| -> Vec<String> {
                    let b: Vec<&str> = b.lines().collect();
                    a.lines().filter(|line| !b.contains(line)).map(|line| line.trim().to_owned()).collect()
                };
                let (more, less) = (lines(&actual, &expected).join("\n    "), lines(&expected, &actual).join("\n    "));
                wrong.push(format!("{}:\n  ours:\n    {more}\n  theirs:\n    {less}", case.name));
            }
        }
    }
    assert!(answers.is_empty(), "answers without a case: {:?}", answers.keys());
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
}

macro_rules! golden {
    ($($name:ident $file:literal)*) => {
        $(#[tokio::test]
        async fn $name() {
            compare(include_str!(concat!("cases/", $file, ".yaml")), include_str!(concat!("cases/", $file, ".json"))).await;
        })*
    };
}

golden! {
    defaults_are_those_of_a_real_server "defaults"
    mistakes_in_pods_are_worded_as_by_a_real_server "pods"
    mistakes_in_workloads_are_worded_as_by_a_real_server "workloads"
    mistakes_in_other_kinds_are_worded_as_by_a_real_server "others"
    policies_decide_as_on_a_real_server "policies"
    policies_change_objects_as_on_a_real_server "mutations"
    quotas_hold_as_on_a_real_server "quotas"
    mistakes_in_services_are_worded_as_by_a_real_server "services"
}
