//! Requests as data, and the servers' responses.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::normal;

/// Request timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of asynchronous changes on a server.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Poll interval of those.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A request. Most fields have defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `GET /api/v1/namespaces/x`: verb and path with query. `${name}` is replaced by a value that an earlier step
    /// saved.
    pub send: String,
    /// Body: an object, or text to send verbatim.
    pub body: Option<Value>,
    /// Content type; derived from the verb by default.
    #[serde(rename = "type")]
    pub content_type: Option<String>,
    /// `Accept`; JSON by default.
    pub accept: Option<String>,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Sent without credentials.
    #[serde(default)]
    pub anonymous: bool,
    /// Repeated until the response matches; only the last response counts.
    pub until: Option<Until>,
    /// Values to save from the response, as in `uid: metadata.uid`.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Compares only these parts of the body.
    #[serde(default)]
    pub only: Vec<String>,
    /// Paths of the response that may differ, each with a reason.
    #[serde(default)]
    pub differs: BTreeMap<String, String>,
}

/// Condition of a repeated request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// Status code; 200 by default.
    pub code: Option<u16>,
    /// Path in the body.
    pub at: Option<String>,
    /// Expected value; any by default.
    pub is: Option<Value>,
}

/// A sequence of requests from an empty state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What is compared.
    pub name: String,
    /// Steps in order.
    pub steps: Vec<Step>,
}

/// A normalized response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The request.
    pub send: String,
    /// HTTP status; 0 without a response.
    pub code: u16,
    /// Content type.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// `Warning` headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Body.
    pub body: Value,
}

/// Clients of a server: administrator and anonymous.
#[derive(Clone)]
pub struct Peer {
    /// With the administrator's token.
    pub admin: Client,
    /// Without credentials.
    pub anonymous_client: Client,
}

/// Why there is no response.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A server to compare.
#[expect(async_fn_in_trait, reason = "only called from tests that run on one thread")]
pub trait Side {
    /// Its clients.
    fn peer(&self) -> &Peer;

    /// Waits until controllers have set up a new namespace.
    async fn set_up(&self, namespace: &str) -> Result<(), Failure>;
}

/// Sends all steps of a case to one server.
pub async fn play(side: &impl Side, case: &Case) -> Vec<Answer> {
    let (mut answers, mut saved) = (Vec::new(), BTreeMap::new());
    for step in &case.steps {
        let answer = run(side, step, &mut saved).await.unwrap_or_else(|error| Answer {
            send: step.send.clone(),
            code: 0,
            content_type: String::new(),
            warnings: Vec::new(),
            body: format!("no answer: {error}").into(),
        });
        answers.push(answer);
    }
    answers
}

/// One step, repeated until the response matches.
async fn run(side: &impl Side, step: &Step, saved: &mut BTreeMap<String, String>) -> Result<Answer, Failure> {
    let begin = tokio::time::Instant::now();
    loop {
        let (mut answer, raw) = send(side.peer(), step, saved).await?;
        let done = step.until.as_ref().is_none_or(|until| until.met(answer.code, &raw));
        if !done && begin.elapsed() < CONVERGENCE_TIMEOUT {
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        }
        if !done {
            return Err(
                format!("not as wanted after {} s: {} {raw}", CONVERGENCE_TIMEOUT.as_secs(), answer.code).into()
            );
        }
        if step.send == "POST /api/v1/namespaces" && answer.code == 201 {
            side.set_up(raw["metadata"]["name"].as_str().unwrap_or_default()).await?;
        }
        for (name, path) in &step.save {
            let value = normal::at(&raw, path).map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
            saved.insert(name.clone(), value.unwrap_or_default());
        }
        if !step.only.is_empty() {
            let parts =
                step.only.iter().map(|path| (path.clone(), normal::at(&raw, path).cloned().unwrap_or_default()));
            answer.body = normal::body(&parts.collect());
        }
        return Ok(answer);
    }
}

impl Until {
    fn met(&self, code: u16, body: &Value) -> bool {
        let there = self.at.as_ref().map(|path| normal::at(body, path).unwrap_or(&Value::Null));
        code == self.code.unwrap_or(200)
            && there.is_none_or(|there| self.is.as_ref().map_or(!there.is_null(), |wanted| there == wanted))
    }
}

/// Sends one request; returns the response and its raw body. A watch is read until the server ends it.
async fn send(peer: &Peer, step: &Step, saved: &BTreeMap<String, String>) -> Result<(Answer, Value), Failure> {
    let target = fill(&step.send, saved);
    let (verb, path) = target.split_once(' ').ok_or("send is `VERB PATH`")?;
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
        request = request.header(name, fill(value, saved));
    }
    let body = match &step.body {
        None => String::new(),
        Some(Value::String(text)) => fill(text, saved),
        Some(value) => fill(&value.to_string(), saved),
    };
    let client = if step.anonymous { &peer.anonymous_client } else { &peer.admin };
    let response =
        tokio::time::timeout(REQUEST_TIMEOUT, client.send(request.body(body.into_bytes().into())?)).await??;
    let code = response.status().as_u16();
    let text = |name: &str| -> Vec<String> {
        let values = response.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.map(str::to_owned).collect()
    };
    let (warnings, content_type) = (text("warning"), text("content-type").concat());
    let bytes = tokio::time::timeout(REQUEST_TIMEOUT, response.into_body().collect()).await??.to_bytes();
    let raw = match content_type.as_str() {
        // The formatting of YAML does not matter.
        "application/yaml" => serde_saphyr::from_slice(&bytes)?,
        _ => read(&bytes, is_watch(path) && code == 200),
    };
    let body = normal::body(&raw);
    Ok((Answer { send: step.send.clone(), code, content_type, warnings, body }, raw))
}

/// `text` with `${name}` replaced by saved values.
fn fill(text: &str, saved: &BTreeMap<String, String>) -> String {
    saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

fn is_watch(path: &str) -> bool {
    path.contains("watch=true") || path.contains("watch=1") || path.contains("/watch/")
}

/// Parses JSON, concatenated JSON documents (a watch), or text.
fn read(bytes: &[u8], watch: bool) -> Value {
    if let (false, Ok(value)) = (watch, serde_json::from_slice(bytes)) {
        return value;
    }
    let all: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(bytes).into_iter().collect();
    all.map(Value::from).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}
