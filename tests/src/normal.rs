//! Normalizes responses of two servers for comparison: without UIDs, times, resource versions and tokens.

use serde_json::{Map, Value, json};

use crate::exchange::Answer;

/// A body without what may differ between equivalent servers.
pub fn body(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut out: Map<String, Value> =
                fields.iter().map(|(name, field)| (hide(name), member(name, field))).collect();
            hide_generated(&mut out);
            sort_causes(&mut out);
            Value::Object(out)
        }
        Value::Array(items) => items.iter().filter(|item| !is_progress(item)).map(body).collect(),
        Value::String(text) => hide(text).into(),
        other => other.clone(),
    }
}

/// Bookmarks are periodic, except for the one that ends the initial events.
fn is_progress(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null()
}

fn member(name: &str, field: &Value) -> Value {
    match (name, field) {
        ("uid" | "resourceVersion" | "continue" | "token" | "ca.crt", Value::String(text)) if !text.is_empty() => {
            json!("*")
        }
        ("clusterIP", Value::String(address)) if address != "None" && !address.is_empty() => json!("*"),
        ("clusterIPs", Value::Array(all)) if all != &[json!("None")] => json!(["*"]),
        ("nodePort", Value::Number(_)) => json!("*"),
        ("cells", Value::Array(cells)) => {
            cells.iter().map(|cell| if is_age(cell) { json!("*") } else { body(cell) }).collect()
        }
        // Bindings are evaluated in no particular order.
        ("nonResourceRules" | "resourceRules", Value::Array(rules)) => {
            let mut rules: Vec<Value> = rules.iter().map(body).collect();
            rules.sort_by_key(Value::to_string);
            rules.into()
        }
        _ => body(field),
    }
}

/// The suffix of a generated name is random.
fn hide_generated(fields: &mut Map<String, Value>) {
    let (Some(Value::String(base)), Some(Value::String(name))) = (fields.get("generateName"), fields.get("name"))
    else {
        return;
    };
    if name.len() == base.len() + 5 && name.starts_with(base.as_str()) {
        fields.insert("name".into(), format!("{base}*").into());
    }
}

/// A real server validates the fields of custom resources in no particular order.
fn sort_causes(status: &mut Map<String, Value>) {
    let custom = at(&Value::Object(status.clone()), "details.group")
        .is_some_and(|group| group.as_str().is_some_and(|group| group.ends_with("example.com")));
    let Some(Value::Array(causes)) = status.get_mut("details").and_then(|details| details.get_mut("causes")) else {
        return;
    };
    if !custom || causes.len() < 2 {
        return;
    }
    causes.sort_by_key(Value::to_string);
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((start, list)) = message.split_once(" is invalid: [")
    {
        let mut parts: Vec<&str> = list.trim_end_matches(']').split(", ").collect();
        parts.sort_unstable();
        *message = format!("{start} is invalid: [{}]", parts.join(", "));
    }
}

/// An age, as `5s` or `3m2s`.
fn is_age(cell: &Value) -> bool {
    let text = cell.as_str().unwrap_or_default();
    let mut digits = false;
    !text.is_empty()
        && text.chars().all(|c| {
            let unit = digits && matches!(c, 's' | 'm' | 'h' | 'd' | 'y');
            digits = c.is_ascii_digit();
            digits || unit
        })
        && !digits
}

/// Prefixes of numbers that differ between servers.
const BEFORE_NUMBERS: [&str; 5] = [
    "current: ",
    "ResourceVersion in record (",
    "resourceVersion\\\":\\\"",
    "resourceVersion\":\"",
    "too old resource version: 1 (",
];

/// A text without UIDs, current times, random name suffixes, and resource versions.
fn hide(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (kept, skipped) = if rest.get(..36).is_some_and(is_uid) {
            ("*", 36)
        } else if let Some(length) = time_length(rest) {
            ("*", length)
        } else if rest.starts_with(ACCESS) && rest.len() >= ACCESS.len() + 5 {
            ("kube-api-access-*", ACCESS.len() + 5)
        } else {
            (&rest[..first.len_utf8()], first.len_utf8())
        };
        out += kept;
        rest = &rest[skipped..];
        if BEFORE_NUMBERS.iter().any(|words| out.ends_with(words)) {
            let number = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            out += if number > 0 { "*" } else { "" };
            rest = &rest[number..];
        }
    }
    out
}

/// The service account token volume of every pod.
const ACCESS: &str = "kube-api-access-";

fn is_uid(word: &str) -> bool {
    word.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// Length of a leading timestamp: `2026-01-01T00:00:00Z`, with or without a fraction. Years in which no test runs come
/// from the request, and are kept.
fn time_length(text: &str) -> Option<usize> {
    let shape = text.get(..19)?.bytes().zip(b"2020-00-00T00:00:00".iter());
    let is_time = shape.into_iter().enumerate().all(|(at, (byte, shape))| match at {
        0..=2 => byte == *shape,
        _ if *shape == b'0' => byte.is_ascii_digit(),
        _ => byte == *shape,
    });
    let rest = text.get(19..).filter(|_| is_time)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    rest[end..].starts_with('Z').then_some(19 + end + 1)
}

/// The value at `a.b[0].c`; a name with dots is written `["a.b"]`.
pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = value;
    let mut rest = path;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (name, more) = quoted.split_once("\"]")?;
            (value, rest) = (value.get(name)?, more);
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, more) = index.split_once(']')?;
            (value, rest) = (value.get(index.parse::<usize>().ok()?)?, more);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            (value, rest) = (value.get(&rest[..end])?, &rest[end..]);
        }
    }
    Some(value)
}

/// Differences of two responses, as `path: ours, theirs`.
pub fn differences(ours: &Answer, theirs: &Answer) -> Vec<(String, String)> {
    let mut out = Vec::new();
    if ours.code != theirs.code {
        // The bodies are of different kinds then: compare the messages only.
        let say = |answer: &Answer| format!("{} {}", answer.code, show(at(&answer.body, "message")));
        return vec![("code".to_owned(), format!("{} / {}", say(ours), say(theirs)))];
    }
    if ours.content_type != theirs.content_type {
        out.push(("type".to_owned(), format!("{} / {}", ours.content_type, theirs.content_type)));
    }
    if ours.warnings != theirs.warnings {
        out.push(("warnings".to_owned(), format!("{:?} / {:?}", ours.warnings, theirs.warnings)));
    }
    compare(&ours.body, &theirs.body, "body", &mut out);
    out
}

/// Whether a listed path covers a path.
pub fn covers(listed: &str, path: &str) -> bool {
    path.strip_prefix(listed).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Differences of two values, as `path: one / other`.
pub fn contrasts(one: &Value, other: &Value) -> Vec<String> {
    let mut out = Vec::new();
    compare(one, other, "", &mut out);
    out.into_iter().map(|(path, values)| format!("{path}: {values}")).collect()
}

fn compare(ours: &Value, theirs: &Value, path: &str, out: &mut Vec<(String, String)>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
            for name in names {
                match (ours.get(name), theirs.get(name)) {
                    (Some(ours), Some(theirs)) => compare(ours, theirs, &format!("{path}.{name}"), out),
                    (ours, theirs) => {
                        out.push((format!("{path}.{name}"), format!("{} / {}", show(ours), show(theirs))))
                    }
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            let timed = path.ends_with(".managedFields");
            let (ours, theirs) =
                if timed { (by_writer(ours), by_writer(theirs)) } else { (ours.clone(), theirs.clone()) };
            for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                compare(ours, theirs, &format!("{path}[{index}]"), out);
            }
        }
        _ if ours == theirs => {}
        _ => out.push((path.to_owned(), format!("{ours} / {theirs}"))),
    }
}

/// managedFields are ordered by second of the write, then by name: how many writes share a second depends on the load
/// of the machine.
fn by_writer(managers: &[Value]) -> Vec<Value> {
    let mut managers = managers.to_vec();
    managers.sort_by_cached_key(|entry| {
        ["operation", "manager", "subresource", "apiVersion"].map(|field| show(entry.get(field)))
    });
    managers
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), Value::to_string)
}
