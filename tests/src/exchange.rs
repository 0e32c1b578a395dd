//! Requests as data, and answers in a form in which two servers can be compared.

use std::collections::BTreeMap;

use http_body_util::BodyExt;
use kube::Client;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// One request. Most fields have a usual value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `GET /api/v1/namespaces/x`: verb and path with query.
    pub send: String,
    /// Body: an object, or text for what must go out as it is.
    pub body: Option<Value>,
    /// Content type; follows from the verb when absent.
    #[serde(rename = "type")]
    pub content_type: Option<String>,
    /// `Accept`; JSON when absent.
    pub accept: Option<String>,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Paths of the answer that may differ, each with a reason.
    #[serde(default)]
    pub differs: BTreeMap<String, String>,
}

/// A sequence of requests that starts from nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What is compared.
    pub name: String,
    /// In order.
    pub steps: Vec<Step>,
}

/// An answer, normalised.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// `Warning` headers.
    pub warnings: Vec<String>,
    /// Body.
    pub body: Value,
}

/// Sends `step` and reads the answer. A watch is read until the server ends it.
pub async fn send(client: &Client, step: &Step) -> Result<Answer, Box<dyn std::error::Error>> {
    let (verb, path) = step.send.split_once(' ').ok_or("send is `VERB PATH`")?;
    let usual = match verb {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = http::Request::builder()
        .method(verb)
        .uri(path)
        .header("accept", step.accept.as_deref().unwrap_or("application/json"))
        .header("content-type", step.content_type.as_deref().unwrap_or(usual))
        .header("user-agent", "compare/1");
    for (name, value) in &step.headers {
        request = request.header(name, value);
    }
    let body = match &step.body {
        None => Vec::new(),
        Some(Value::String(text)) => text.clone().into_bytes(),
        Some(value) => serde_json::to_vec(value)?,
    };
    let limit = std::time::Duration::from_secs(20);
    let response = tokio::time::timeout(limit, client.send(request.body(body.into())?)).await??;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().filter_map(|value| value.to_str().ok());
    let warnings = warnings.map(str::to_owned).collect();
    let bytes = tokio::time::timeout(limit, response.into_body().collect()).await??.to_bytes();
    Ok(Answer { code, warnings, body: normal(&read(&bytes)) })
}

/// JSON, one JSON document per line (a watch), or text.
fn read(bytes: &[u8]) -> Value {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return value;
    }
    let lines: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(bytes).into_iter().collect();
    lines.map(Value::from).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

/// The same without what may differ between two servers that behave alike: identities, times, versions, tokens.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut out = Map::new();
            for (name, field) in fields {
                let field = match (name.as_str(), field) {
                    ("uid" | "resourceVersion" | "continue", Value::String(text)) if !text.is_empty() => json!("*"),
                    ("creationTimestamp" | "time" | "deletionTimestamp" | "lastTransitionTime", Value::String(_)) => {
                        json!("*")
                    }
                    ("clusterIP", Value::String(address)) if address != "None" && !address.is_empty() => json!("*"),
                    ("clusterIPs", Value::Array(all)) if all != &[json!("None")] => json!(["*"]),
                    ("nodePort", Value::Number(_)) => json!("*"),
                    _ => normal(field),
                };
                out.insert(name.clone(), field);
            }
            Value::Object(out)
        }
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::String(text) => hide_versions(text).into(),
        other => other.clone(),
    }
}

/// UIDs inside messages.
fn hide_versions(text: &str) -> String {
    let is_uid = |word: &str| {
        word.len() == 36
            && word.chars().enumerate().all(|(at, c)| match at {
                8 | 13 | 18 | 23 => c == '-',
                _ => c.is_ascii_hexdigit(),
            })
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.char_indices().map(|(at, _)| at).find(|at| rest.get(*at..*at + 36).is_some_and(is_uid))
    {
        out += &rest[..start];
        out += "*";
        rest = &rest[start + 36..];
    }
    out + rest
}

/// Where two answers differ, as `path: ours, theirs`.
pub fn differences(ours: &Answer, theirs: &Answer) -> Vec<(String, String)> {
    let mut out = Vec::new();
    if ours.code != theirs.code {
        out.push(("code".to_owned(), format!("{} / {}", ours.code, theirs.code)));
    }
    if ours.warnings != theirs.warnings {
        out.push(("warnings".to_owned(), format!("{:?} / {:?}", ours.warnings, theirs.warnings)));
    }
    compare(&ours.body, &theirs.body, "body", &mut out);
    out
}

/// Where two values differ, as `path: one / other`.
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
                let (a, b) = (ours.get(name).unwrap_or(&Value::Null), theirs.get(name).unwrap_or(&Value::Null));
                compare(a, b, &format!("{path}.{name}"), out);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                compare(ours, theirs, &format!("{path}[{index}]"), out);
            }
        }
        _ if ours == theirs => {}
        _ => out.push((path.to_owned(), format!("{ours} / {theirs}"))),
    }
}
