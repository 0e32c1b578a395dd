//! Label and field selectors.

use std::sync::Arc;

use super::Object;
use crate::error::{Result, Status};

/// Which objects of a table: everything, unless something is said.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only in this namespace.
    pub namespace: Option<Arc<str>>,
    /// Only those with such labels.
    pub labels: LabelSelector,
    /// Only those with such fields.
    pub fields: FieldSelector,
}

impl Selection {
    /// Whether an object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace())
            && self.labels.matches(|key| object.label(key))
            && self.fields.matches(object)
    }
}

/// A label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<LabelTerm>);

/// One term of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelTerm {
    key: String,
    test: LabelTest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelTest {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Reads `app=web,tier in (a, b),!old`.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            Ok(Self::default())
        } else {
            Err(Status::bad_request("selectors are not served yet"))
        }
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels, given by a look-up, are selected.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|term| {
            let value = label(&term.key);
            match &term.test {
                LabelTest::Exists => value.is_some(),
                LabelTest::Absent => value.is_none(),
                LabelTest::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                LabelTest::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
                LabelTest::Above(bound) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *bound),
                LabelTest::Below(bound) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *bound),
            }
        })
    }
}

/// A field selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldTerm>);

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Reads `spec.nodeName=a,status.phase!=Running`.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            Ok(Self::default())
        } else {
            Err(Status::bad_request("selectors are not served yet"))
        }
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|term| {
            let value = match term.path.as_str() {
                "metadata.name" => object.name(),
                "metadata.namespace" => object.namespace(),
                path => object.fields.get(path).unwrap_or_default(),
            };
            (value == term.value) == term.equal
        })
    }

    /// The value that a field must have, if the selector says so.
    pub fn required(&self, path: &str) -> Option<&str> {
        self.0.iter().find(|term| term.equal && term.path == path).map(|term| term.value.as_str())
    }
}
