//! The JSONPath of printer columns: fields, indexes, slices, wildcards, filters and recursive descent.

use std::cmp::Ordering;

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>, i64),
    All,
    Descend,
    Filter(Operand, Option<(Operator, Operand)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(Path),
    Value(Value),
}

impl Path {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`; `None` if it is invalid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let text = text.trim();
        let text = text.strip_prefix('$').unwrap_or(text);
        let mut rest = text.strip_prefix('@').unwrap_or(text);
        while !rest.is_empty() {
            rest = if let Some(tail) = rest.strip_prefix("..") {
                steps.push(Step::Descend);
                if tail.starts_with('[') { tail } else { field(tail, &mut steps)? }
            } else if let Some(tail) = rest.strip_prefix('.') {
                // A dot before a bracket or at the end is ignored.
                if tail.is_empty() || tail.starts_with('[') { tail } else { field(tail, &mut steps)? }
            } else if rest.starts_with('[') {
                let end = closing(rest)?;
                steps.push(bracket(&rest[1..end])?);
                &rest[end + 1..]
            } else {
                field(rest, &mut steps)?
            };
        }
        Some(Self(steps))
    }

    /// All values that the path matches.
    pub(super) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.follow(value)).collect();
        }
        found
    }
}

/// Parses a field up to the next dot or bracket; a backslash escapes.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let (mut name, mut escaped, mut end) = (String::new(), false, text.len());
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {
                name.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => {
                end = at;
                break;
            }
            c => name.push(c),
        }
    }
    if name.is_empty() {
        return None;
    }
    steps.push(if name == "*" { Step::All } else { Step::Field(name) });
    Some(&text[end..])
}

/// Offset of the closing bracket, respecting quotes and nested brackets.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return comparison(filter);
    }
    if let Some(name) = unquote(text) {
        return Some(Step::Field(name));
    }
    if text.contains(':') {
        let part = |text: Option<&str>| match text.map(str::trim) {
            None | Some("") => Some(None),
            Some(number) => number.parse().ok().map(Some),
        };
        let mut parts = text.split(':');
        let (start, end) = (part(parts.next())?, part(parts.next())?);
        return Some(Step::Slice(start, end, part(parts.next())?.unwrap_or(1)));
    }
    text.parse().ok().map(Step::Index)
}

fn comparison(text: &str) -> Option<Step> {
    let operators = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    for (sign, operator) in operators {
        if let Some((left, right)) = text.split_once(sign) {
            return Some(Step::Filter(operand(left)?, Some((operator, operand(right)?))));
        }
    }
    Some(Step::Filter(operand(text)?, None))
}

fn operand(text: &str) -> Option<Operand> {
    let text = text.trim();
    if text.starts_with(['@', '$', '.']) {
        return Path::parse(text).map(Operand::Path);
    }
    match unquote(text) {
        Some(text) => Some(Operand::Value(text.into())),
        None => serde_json::from_str(text).ok().map(Operand::Value),
    }
}

fn unquote(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    Some(inner.replace("\\\"", "\"").replace("\\'", "'"))
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(index) => at(value, *index).into_iter().collect(),
            Step::Slice(start, end, step) => slice(value, *start, *end, *step),
            Step::All => children(value),
            Step::Descend => descend(value),
            Step::Filter(left, comparison) => {
                children(value).into_iter().filter(|item| holds(item, left, comparison.as_ref())).collect()
            }
        }
    }
}

fn at(value: &Value, index: i64) -> Option<&Value> {
    let list = value.as_array()?;
    let index = if index < 0 { index + i64::try_from(list.len()).ok()? } else { index };
    list.get(usize::try_from(index).ok()?)
}

fn slice(value: &Value, start: Option<i64>, end: Option<i64>, step: i64) -> Vec<&Value> {
    let Some(list) = value.as_array() else { return Vec::new() };
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let absolute = |index: i64| (if index < 0 { index + length } else { index }).clamp(0, length);
    let (start, end) = (absolute(start.unwrap_or(0)), absolute(end.unwrap_or(length)));
    let step = usize::try_from(step.max(1)).unwrap_or(1);
    (start..end).step_by(step).filter_map(|index| at(value, index)).collect()
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

fn descend(value: &Value) -> Vec<&Value> {
    let mut found = vec![value];
    found.extend(children(value).into_iter().flat_map(descend));
    found
}

fn holds(item: &Value, left: &Operand, comparison: Option<&(Operator, Operand)>) -> bool {
    let resolve = |operand: &Operand| match operand {
        Operand::Path(path) => path.find(item).first().map(|value| (*value).clone()),
        Operand::Value(value) => Some(value.clone()),
    };
    let Some((operator, right)) = comparison else { return resolve(left).is_some() };
    let (Some(left), Some(right)) = (resolve(left), resolve(right)) else { return false };
    let order = compare(&left, &right);
    match operator {
        Operator::Equal => left == right || order == Some(Ordering::Equal),
        Operator::NotEqual => left != right && order != Some(Ordering::Equal),
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn no_path_is_too_odd(text in r"[.\[\]?()@'*:=<>a-c0-9\\ -]{0,30}") {
            if let Some(path) = Path::parse(&text) {
                path.find(&json!({"a": [{"b": 1}, [2, 3]], "c": {"a": "x"}}));
            }
        }
    }

    #[test]
    fn paths_lead_where_they_should() {
        let value = json!({
            "metadata": {"labels": {"app.kubernetes.io/name": "x"}},
            "spec": {"items": [{"n": 1, "v": "a"}, {"n": 2, "v": "b"}, {"n": 3}], "on": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
        });
        let cases = [
            (".spec.on", json!([true])),
            ("$.spec.on", json!([true])),
            (r".metadata.labels.app\.kubernetes\.io/name", json!(["x"])),
            (".metadata.labels['app.kubernetes.io/name']", json!(["x"])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type=='Done')].status", json!(["False"])),
            (".spec.items[0].v", json!(["a"])),
            (".spec.items[-1].n", json!([3])),
            (".spec.items[*].n", json!([1, 2, 3])),
            (".spec.items[0:2].n", json!([1, 2])),
            (".spec.items[?(@.n>=2)].n", json!([2, 3])),
            (".spec.items[?(@.v)].n", json!([1, 2])),
            ("..v", json!(["a", "b"])),
            (".spec.missing.deep", json!([])),
        ];
        for (text, expected) in cases {
            let found = Path::parse(text).unwrap();
            assert_eq!(json!(found.find(&value)), expected, "{text}");
        }
        for nonsense in [".spec.items[", ".spec.items[x]", ".a..", ".[?(@.a==)]"] {
            assert_eq!(Path::parse(nonsense), None, "{nonsense}");
        }
    }
}
