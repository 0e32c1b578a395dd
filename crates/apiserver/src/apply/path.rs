//! Elements of field paths: `f:spec`, `k:{"name":"web"}`, `v:"a"`, `i:0`.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use super::gofmt;

/// A path element. Ordered as in the `managedFields` of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// Field of a struct, or key of a map.
    Field(String),
    /// List item by its key fields, sorted by name.
    Key(Vec<(String, Scalar)>),
    /// Item of a set.
    Value(Scalar),
    /// List item by index.
    Index(i64),
}

/// A JSON value with the total order of structured-merge-diff: numbers, text, booleans, lists, maps, null.
#[derive(Clone, Debug)]
pub(crate) struct Scalar(pub Value);

/// A path from the root of an object.
pub(crate) type Path = Vec<Element>;

impl Element {
    /// A field.
    pub(crate) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// Encodes a FieldsV1 key.
    pub(crate) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| {
                        format!("{}:{}", gofmt::json(&Value::String(name.clone())), gofmt::json(&value.0))
                    })
                    .collect();
                format!("k:{{{}}}", fields.join(","))
            }
            Self::Value(value) => format!("v:{}", gofmt::json(&value.0)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Decodes a FieldsV1 key; `Ok(None)` for an unknown kind of element, which is skipped.
    pub(crate) fn decode(text: &str) -> Result<Option<Self>, String> {
        if text.len() < 2 {
            return Err("key must be 2 characters long:".into());
        }
        if text.as_bytes()[1] != b':' {
            return Err(format!("missing colon: {text}"));
        }
        // The first two bytes are ASCII or the second would not be a colon at a character boundary.
        let rest = text.get(2..).ok_or_else(|| format!("missing colon: {text}"))?;
        let element = match text.as_bytes()[0] {
            b'f' => Self::Field(rest.to_owned()),
            b'v' => Self::Value(Scalar(serde_json::from_str(rest).map_err(|error| error.to_string())?)),
            b'i' => Self::Index(rest.parse().map_err(|_| format!("strconv.Atoi: parsing {rest:?}: invalid syntax"))?),
            b'k' => match serde_json::from_str(rest).map_err(|error| error.to_string())? {
                Value::Object(map) => Self::Key(map.into_iter().map(|(name, value)| (name, Scalar(value))).collect()),
                _ => return Err(format!("expected an object: {rest}")),
            },
            _ => return Ok(None),
        };
        Ok(Some(element))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path as errors print it: `.spec.containers[name="web"].image`.
pub(crate) fn display(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Null => f.write_str("null"),
            Value::String(text) => f.write_str(&gofmt::quoted(text)),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| Self(item.clone()).to_string()).collect();
                write!(f, "[{}]", items.join(","))
            }
            Value::Object(map) => map.iter().try_for_each(|(key, item)| write!(f, "{key}={}", Self(item.clone()))),
            other => f.write_str(&gofmt::plain(other)),
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.0, &other.0)
    }
}

/// Whether two values are equal, with numbers compared by value (`1` equals `1.0`).
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => order_numbers(left, right) == Ordering::Equal,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| left.0 == right.0 && same(left.1, right.1))
        }
        (left, right) => left == right,
    }
}

fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => order_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| order(left, right));
            pairs.fold(Ordering::Equal, Ordering::then).then(left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| left.0.cmp(right.0).then(order(left.1, right.1)));
            pairs.fold(Ordering::Equal, Ordering::then).then(left.len().cmp(&right.len()))
        }
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

fn order_numbers(left: &Number, right: &Number) -> Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => {
            let float = |number: &Number| number.as_f64().unwrap_or_default();
            float(left).total_cmp(&float(right))
        }
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_encoding() {
        let texts = [
            "f:",
            "f:spec",
            "f: with spaces ",
            "f:kubectl.kubernetes.io/last-applied-configuration",
            r#"k:{"name":"web"}"#,
            r#"k:{"containerPort":8080,"protocol":"TCP"}"#,
            r#"k:{"optional":null}"#,
            r#"v:"text""#,
            "v:1234",
            "v:true",
            "i:0",
            "f:spec-🚀",
            r#"k:{"name":"你好"}"#,
            r#"k:{"name":"a\u0026b"}"#,
        ];
        for text in texts {
            let element = Element::decode(text).expect(text).expect(text);
            assert_eq!(element.encode(), text);
        }
    }

    #[test]
    fn bad_elements_are_errors_and_unknown_ones_are_skipped() {
        for text in ["", "f", "no-colon", "i:", "i:1.5", "i: 0", "v:", "v:nope", "k:[]", r#"k:{"a":"b""#, "é:"] {
            assert!(Element::decode(text).is_err(), "{text}");
        }
        assert_eq!(Element::decode("r:later"), Ok(None));
    }

    #[test]
    fn paths_print_as_in_conflicts() {
        let path = ["f:spec", "f:ports", r#"k:{"port":80,"protocol":"TCP"}"#, "f:finalizers", r#"v:"a/b""#, "i:3"];
        let path: Path = path.iter().map(|text| Element::decode(text).expect("valid").expect("known")).collect();
        assert_eq!(display(&path), r#".spec.ports[port=80,protocol="TCP"].finalizers[="a/b"][3]"#);
    }

    #[test]
    fn numbers_compare_by_value() {
        assert!(same(&serde_json::json!({"a": [1]}), &serde_json::json!({"a": [1.0]})));
        assert!(!same(&serde_json::json!({"a": [1]}), &serde_json::json!({"a": [2]})));
    }
}
