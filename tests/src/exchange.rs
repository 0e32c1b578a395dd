//! Requests as data, and what servers answer to them.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::normal;

/// Longest that a server may take for one answer.
const LIMIT: Duration = Duration::from_secs(20);
/// Longest that something may take that a server does in its own time.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is asked whether that is done.
const PAUSE: Duration = Duration::from_millis(100);

/// One request. Most fields have a usual value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `GET /api/v1/namespaces/x`: verb and path with query. `${name}` stands for what an earlier step saved.
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
    /// Sent without the administrator's token.
    #[serde(default)]
    pub anonymous: bool,
    /// Sent again and again until the answer is like this; only the last answer counts.
    pub until: Option<Until>,
    /// Names for parts of the answer, as in `uid: metadata.uid`.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Only these parts of the body count, because the rest is long and of no interest here.
    #[serde(default)]
    pub only: Vec<String>,
    /// Paths of the answer that may differ, each with a reason.
    #[serde(default)]
    pub differs: BTreeMap<String, String>,
}

/// What is waited for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// Status of the answer; 200 when absent.
    pub code: Option<u16>,
    /// Part of the body.
    pub at: Option<String>,
    /// What is there; anything when absent.
    pub is: Option<Value>,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The request, to tell which one it was.
    pub send: String,
    /// HTTP status; 0 if there was no answer.
    pub code: u16,
    /// Content type of the answer.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// `Warning` headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Body.
    pub body: Value,
}

/// A server, asked as the administrator or as nobody.
#[derive(Clone)]
pub struct Peer {
    /// With the administrator's token.
    pub admin: Client,
    /// Without any.
    pub nobody: Client,
}

/// Why there is no answer.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A server that is compared.
#[expect(async_fn_in_trait, reason = "only called from tests that run on one thread")]
pub trait Side {
    /// How to ask it.
    fn peer(&self) -> &Peer;

    /// Returns when a new namespace has what controllers give it.
    async fn furnish(&self, namespace: &str) -> Result<(), Failure>;
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

/// One step, repeated until the answer is as wanted.
async fn run(side: &impl Side, step: &Step, saved: &mut BTreeMap<String, String>) -> Result<Answer, Failure> {
    let begin = tokio::time::Instant::now();
    loop {
        let (mut answer, raw) = send(side.peer(), step, saved).await?;
        let done = step.until.as_ref().is_none_or(|until| until.met(answer.code, &raw));
        if !done && begin.elapsed() < CONVERGENCE_TIMEOUT {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        if !done {
            return Err(
                format!("not as wanted after {} s: {} {raw}", CONVERGENCE_TIMEOUT.as_secs(), answer.code).into()
            );
        }
        if step.send == "POST /api/v1/namespaces" && answer.code == 201 {
            side.furnish(raw["metadata"]["name"].as_str().unwrap_or_default()).await?;
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

/// Sends one request; the answer and its body as it came. A watch is read until the server ends it.
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
    let client = if step.anonymous { &peer.nobody } else { &peer.admin };
    let response = tokio::time::timeout(LIMIT, client.send(request.body(body.into_bytes().into())?)).await??;
    let code = response.status().as_u16();
    let text = |name: &str| -> Vec<String> {
        let values = response.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.map(str::to_owned).collect()
    };
    let (warnings, content_type) = (text("warning"), text("content-type").concat());
    let bytes = tokio::time::timeout(LIMIT, response.into_body().collect()).await??.to_bytes();
    let raw = match content_type.as_str() {
        // How YAML is written matters to nobody.
        "application/yaml" => serde_saphyr::from_slice(&bytes)?,
        _ => read(&bytes, is_watch(path) && code == 200),
    };
    let body = normal::body(&raw);
    Ok((Answer { send: step.send.clone(), code, content_type, warnings, body }, raw))
}

/// `text` with `${name}` replaced by what was saved under that name.
fn fill(text: &str, saved: &BTreeMap<String, String>) -> String {
    saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

fn is_watch(path: &str) -> bool {
    path.contains("watch=true") || path.contains("watch=1") || path.contains("/watch/")
}

/// JSON, JSON documents one after the other (a watch), or text.
fn read(bytes: &[u8], watch: bool) -> Value {
    if let (false, Ok(value)) = (watch, serde_json::from_slice(bytes)) {
        return value;
    }
    let all: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(bytes).into_iter().collect();
    all.map(Value::from).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}
