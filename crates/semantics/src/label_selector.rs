//! Label selectors: the string form of requests, and the JSON and typed forms in objects.
//!
//! [`LabelSelector`] is compiled once and matched often; [`selects`] evaluates a typed selector once, uncompiled.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use serde_json::Value;

use crate::requirement::{Operator, Requirement};
use crate::selector_text;

/// Labels of an object, as in its metadata.
pub type Labels = BTreeMap<String, String>;

/// Why a string or an object is not a label selector, in the words of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSelector(pub String);

/// A compiled label selector. The default selects everything. Equivalent selectors are equal, whatever form they had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Parses `app=web,tier in (a, b),!old`.
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        selector_text::parse(text).map(Self::of).map_err(InvalidSelector)
    }

    /// Parses a `metav1.LabelSelector`: `matchLabels` and `matchExpressions`.
    pub fn from_json(selector: &Value) -> Result<Self, InvalidSelector> {
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let mut all: Vec<Requirement> =
            labels.map(|(key, value)| Requirement::equal(key, value.as_str().unwrap_or_default())).collect();
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let name = expression["operator"].as_str().unwrap_or_default();
            let operator = match Operator::of(name) {
                Operator::Greater | Operator::Less | Operator::Unknown => {
                    return Err(InvalidSelector(format!("{name:?} is not a valid label selector operator")));
                }
                operator => operator,
            };
            all.push(Requirement::new(key, operator, values));
        }
        Ok(Self::of(all))
    }

    /// Compiles a typed selector. An unknown operator selects nothing.
    pub fn new(selector: &v1::LabelSelector) -> Self {
        let equal = selector.match_labels.iter().flatten().map(|(key, value)| Requirement::equal(key, value));
        let others =
            selector.match_expressions.iter().flatten().map(|one| {
                Requirement::new(&one.key, Operator::of(&one.operator), one.values.clone().unwrap_or_default())
            });
        Self::of(equal.chain(others).collect())
    }

    /// Selects objects that have all these labels.
    pub fn of_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        Self::of(labels.into_iter().map(|(key, value)| Requirement::equal(key, value)).collect())
    }

    /// Selects the intersection of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        Self::of(self.0)
    }

    /// Excludes objects with this label.
    #[must_use]
    pub fn except(mut self, key: &str, value: &str) -> Self {
        self.0.push(Requirement::new(key, Operator::NotIn, vec![value.to_owned()]));
        Self::of(self.0)
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it selects labels given by a lookup function.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }

    /// Whether it selects an object with these labels.
    pub fn matches_labels(&self, labels: Option<&Labels>) -> bool {
        self.matches(|key| value_of(labels, key))
    }

    /// Whether it selects a JSON object.
    pub fn matches_json(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.matches(|key| labels[key].as_str())
    }

    /// An equality requirement: a label that every selected object has.
    pub fn required_label(&self) -> Option<(&str, &str)> {
        self.0.iter().find_map(|one| match (one.operator, one.values.as_slice()) {
            (Operator::In, [value]) => Some((one.key.as_str(), value.as_str())),
            _ => None,
        })
    }

    fn of(mut all: Vec<Requirement>) -> Self {
        for requirement in &mut all {
            requirement.values.sort_unstable();
        }
        all.sort_unstable();
        all.dedup();
        Self(all)
    }
}

/// Whether a typed selector selects these labels. An empty one selects everything.
pub fn selects(selector: &v1::LabelSelector, labels: Option<&Labels>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, wanted)| value_of(labels, key) == Some(wanted));
    equal
        && selector.match_expressions.iter().flatten().all(|one| {
            Operator::of(&one.operator).matches(value_of(labels, &one.key), one.values.as_deref().unwrap_or_default())
        })
}

/// Whether a typed selector selects everything.
pub fn is_empty(selector: &v1::LabelSelector) -> bool {
    selector.match_labels.iter().flatten().next().is_none()
        && selector.match_expressions.iter().flatten().next().is_none()
}

/// Whether `labels` contains all of `wanted`, as in a Service's selector.
pub fn contains(labels: Option<&Labels>, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| value_of(labels, key) == Some(value))
}

pub(crate) fn value_of<'a>(labels: Option<&'a Labels>, key: &str) -> Option<&'a str> {
    labels.and_then(|labels| labels.get(key)).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn texts_select() {
        let labels = |key: &str| match key {
            "app" => Some("web"),
            "example.com/size" => Some("12"),
            "empty" => Some(""),
            _ => None,
        };
        let cases = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=web", true),
            ("app==web,other!=x", true),
            ("app = db", false),
            ("app in (db, web),example.com/size>11", true),
            ("app notin (db)", true),
            ("other notin (db)", true),
            ("other in (db)", false),
            ("example.com/size<12", false),
            ("empty=", true),
            ("empty in (,x)", true),
            ("empty in (x,)", true),
            ("empty!=", false),
            ("in in (in),app", false),
            ("app in ()", false),
            ("app notin ()", true),
        ];
        for (text, selected) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(labels), selected, "{text}");
        }
    }

    #[test]
    fn mistakes_are_worded_like_the_real_ones() {
        let cases = [
            ("app in x", "unable to parse requirement: found 'x' expected: '('"),
            ("app=a b", "found 'b', expected: ',' or 'end of string'"),
            ("app,", "found '', expected: identifier after ','"),
            (",app", "found ',', expected: !, identifier, or 'end of string'"),
            ("app x", "unable to parse requirement: found 'x', expected: in, notin, =, ==, !=, gt, lt"),
            ("app in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("app in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
            ("app in (a,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
            (
                "a>b",
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn the_json_form_is_read() {
        let selector = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}, {"key": "x", "operator": "DoesNotExist"}],
        });
        let selector = LabelSelector::from_json(&selector).unwrap();
        assert!(selector.matches_json(&json!({"metadata": {"labels": {"app": "web", "tier": "a"}}})));
        assert!(!selector.matches_json(&json!({"metadata": {"labels": {"app": "web", "tier": "a", "x": "y"}}})));
        assert!(!selector.matches_json(&json!({"metadata": {}})));
    }

    #[test]
    fn selectors_select() {
        let have: Labels = read(json!({"app": "web", "tier": "2"}));
        let cases = [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}), true),
            (json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), false),
            (json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "Sometimes"}]}), false),
        ];
        for (selector, selected) in cases {
            let typed = read(selector.clone());
            assert_eq!(LabelSelector::new(&typed).matches_labels(Some(&have)), selected, "{selector}");
            assert_eq!(selects(&typed, Some(&have)), selected, "{selector}");
        }
    }

    #[test]
    fn selectors_that_say_the_same_are_equal() {
        let one = LabelSelector::new(&read(json!({"matchLabels": {"a": "1", "b": "2"}})));
        let two = LabelSelector::new(&read(json!({"matchExpressions": [
            {"key": "b", "operator": "In", "values": ["2"]}, {"key": "a", "operator": "In", "values": ["1"]},
        ]})));
        assert_eq!(one, two);
        assert_eq!(one.required_label(), Some(("a", "1")));
    }
}
