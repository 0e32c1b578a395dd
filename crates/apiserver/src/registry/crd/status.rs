//! The status of a CRD: accepted names, and conditions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{text, texts};

/// A condition to set.
#[derive(Clone, Debug)]
pub struct Condition<'a> {
    kind: &'a str,
    status: &'a str,
    reason: &'a str,
    message: String,
}

impl<'a> Condition<'a> {
    /// A condition with status True or False.
    pub fn new(kind: &'a str, holds: bool, reason: &'a str, message: impl Into<String>) -> Self {
        Self { kind, status: if holds { "True" } else { "False" }, reason, message: message.into() }
    }
}

/// The condition of that type.
pub fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    crd["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn holds(crd: &Value, kind: &str) -> bool {
    condition(crd, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Sets a condition; `lastTransitionTime` changes only with its status.
pub fn set_condition(crd: &mut Value, wanted: &Condition<'_>, now: &str) {
    let conditions = &mut crd["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(conditions) = conditions else { return };
    let known = conditions.iter_mut().find(|condition| condition["type"] == wanted.kind);
    let mut new = json!({
        "type": wanted.kind, "status": wanted.status, "lastTransitionTime": now,
        "reason": wanted.reason, "message": wanted.message,
    });
    match known {
        Some(known) => {
            if known["status"] == new["status"] && !known["lastTransitionTime"].is_null() {
                new["lastTransitionTime"] = known["lastTransitionTime"].take();
            }
            *known = new;
        }
        None => conditions.push(new),
    }
}

/// The CRD with updated status, given the other CRDs; `None` if it is up to date.
pub fn settle(crd: &Value, others: &[Value], now: &str) -> Option<Value> {
    let mut new = crd.clone();
    approve(&mut new, now);
    if crd["spec"]["names"] != crd["status"]["acceptedNames"] {
        accept_names(&mut new, others, now);
    }
    if holds(&new, "NamesAccepted") && !holds(&new, "Established") {
        let message = "the initial names have been accepted";
        set_condition(&mut new, &Condition::new("Established", true, "InitialNamesAccepted", message), now);
    }
    (new != *crd).then_some(new)
}

/// Names of a group that other CRDs use.
struct TakenNames {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl TakenNames {
    fn by(others: &[Value], crd: &Value) -> Self {
        let (group, name) = (&crd["spec"]["group"], &crd["metadata"]["name"]);
        let mut taken = Self { resources: BTreeSet::new(), kinds: BTreeSet::new() };
        for other in
            others.iter().filter(|other| other["spec"]["group"] == *group && other["metadata"]["name"] != *name)
        {
            let names = &other["status"]["acceptedNames"];
            taken.resources.extend(["plural", "singular"].map(|key| text(&names[key]).to_owned()));
            taken.resources.extend(texts(&names["shortNames"]));
            taken.kinds.extend(["kind", "listKind"].map(|key| text(&names[key]).to_owned()));
        }
        taken
    }
}

fn accept_names(crd: &mut Value, others: &[Value], now: &str) {
    let taken = TakenNames::by(others, crd);
    let wanted = crd["spec"]["names"].clone();
    let mut accepted = crd["status"]["acceptedNames"].clone();
    if !accepted.is_object() {
        accepted = json!({});
    }
    let mut conflict: Option<(&str, String)> = None;
    let in_use = |name: &str| format!("\"{name}\" is already in use");
    for (key, used, reason) in [
        ("plural", &taken.resources, "PluralConflict"),
        ("singular", &taken.resources, "SingularConflict"),
        ("shortNames", &taken.resources, "ShortNamesConflict"),
        ("kind", &taken.kinds, "KindConflict"),
        ("listKind", &taken.kinds, "ListKindConflict"),
    ] {
        let names = if wanted[key].is_array() { texts(&wanted[key]) } else { vec![text(&wanted[key]).to_owned()] };
        let mine = if accepted[key].is_array() { texts(&accepted[key]) } else { vec![text(&accepted[key]).to_owned()] };
        let clashes: Vec<String> =
            names.iter().filter(|name| !mine.contains(name) && used.contains(*name)).map(|name| in_use(name)).collect();
        match clashes.as_slice() {
            [] => copy(&wanted, &mut accepted, key),
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    copy(&wanted, &mut accepted, "categories");
    crd["status"]["acceptedNames"] = accepted;
    let condition = match conflict {
        Some((reason, message)) => Condition::new("NamesAccepted", false, reason, message),
        None => Condition::new("NamesAccepted", true, "NoConflicts", "no conflicts found"),
    };
    set_condition(crd, &condition, now);
    if holds(crd, "NamesAccepted") || condition_is_there(crd, "Established") {
        return;
    }
    set_condition(crd, &Condition::new("Established", false, "NotAccepted", "not all names are accepted"), now);
}

fn condition_is_there(crd: &Value, kind: &str) -> bool {
    condition(crd, kind).is_some()
}

fn copy(from: &Value, to: &mut Value, key: &str) {
    match &from[key] {
        Value::Null => drop(to.as_object_mut().map(|to| to.remove(key))),
        value => to[key] = value.clone(),
    }
}

/// CRDs in `*.k8s.io` groups need the annotation `api-approved.kubernetes.io`.
fn approve(crd: &mut Value, now: &str) {
    let group = text(&crd["spec"]["group"]);
    if !["k8s.io", "kubernetes.io"].iter().any(|owner| group == *owner || group.ends_with(&format!(".{owner}"))) {
        return;
    }
    const KEY: &str = "api-approved.kubernetes.io";
    let annotation = crd["metadata"]["annotations"][KEY].as_str().map(str::to_owned);
    let condition = match annotation.as_deref() {
        None | Some("") => {
            let message = format!(
                "protected groups must have approval annotation \"{KEY}\", see https://github.com/kubernetes/enhancements/pull/1111"
            );
            Condition::new(CONFORMANT, false, "MissingAnnotation", message)
        }
        Some(text) if text.starts_with("unapproved") => {
            Condition::new(CONFORMANT, false, "UnapprovedAnnotation", format!("not approved: \"{text}\""))
        }
        Some(text) if is_url(text) => {
            Condition::new(CONFORMANT, true, "ApprovedAnnotation", format!("approved in {text}"))
        }
        Some(text) => {
            let message = format!(
                "protected groups must have approval annotation \"{KEY}\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
            );
            debug_assert!(!text.is_empty(), "an empty annotation is no annotation");
            Condition::new(CONFORMANT, false, "InvalidAnnotation", message)
        }
    };
    set_condition(crd, &condition, now);
}

const CONFORMANT: &str = "KubernetesAPIApprovalPolicyConformant";

pub(super) fn is_url(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.split('/').next().unwrap_or("").is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(plural: &str, kind: &str) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List")}},
        })
    }

    #[test]
    fn the_first_to_ask_gets_the_names() {
        let first = settle(&crd("widgets", "Widget"), &[], "t1").expect("a change");
        assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
        assert!(holds(&first, "NamesAccepted") && holds(&first, "Established"));
        assert_eq!(settle(&first, std::slice::from_ref(&first), "t2"), None, "it is settled");

        let second = settle(&crd("others", "Widget"), std::slice::from_ref(&first), "t2").expect("a change");
        assert!(!holds(&second, "NamesAccepted") && !holds(&second, "Established"));
        let refused = condition(&second, "NamesAccepted").expect("a condition");
        assert_eq!(
            (refused["reason"].as_str(), refused["message"].as_str()),
            (Some("ListKindConflict"), Some("\"WidgetList\" is already in use"))
        );

        let freed = settle(&second, &[], "t3").expect("a change");
        assert!(holds(&freed, "Established"), "the names have become free");
    }
}
