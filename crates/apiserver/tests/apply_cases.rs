//! Runs the cases in `cases/apply/*.yaml`: sequences of requests on one object, with expected responses.
//!
//! Cases use only what is observable through the API, so that the same requests can be sent to kube-apiserver and the
//! responses compared: bodies are complete (nothing depends on defaulting), and system fields of metadata are not
//! compared. `CAPSTAN_APPLY_CASES` is another directory of cases.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use capstan_apiserver::apply::managed::{self, Force, Reset, Versions, Write};
use capstan_apiserver::apply::{patch, zero};
use capstan_apiserver::error::Status;
use capstan_apiserver::schema::{Schema, builtin, compile};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Cases for one kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    /// Default version of requests.
    api_version: String,
    kind: String,
    /// `openAPIV3Schema` per version (`example.com/v1`), for a custom kind.
    #[serde(default)]
    schemas: BTreeMap<String, Value>,
    /// Whether the kind has a status subresource.
    #[serde(default)]
    status: bool,
    stories: Vec<Story>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Story {
    /// Description.
    about: String,
    /// Overrides those of the file.
    schemas: Option<BTreeMap<String, Value>>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Step {
    request: Request,
    #[serde(default = "tester")]
    manager: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    force: bool,
    /// Version of this request, if it differs from the case's.
    api_version: Option<String>,
    body: Value,
    expect: Expect,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Request {
    /// POST or PUT.
    Update,
    /// `application/apply-patch+yaml`
    Apply,
    Json,
    Merge,
    Strategic,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Expect {
    /// The object without system fields of metadata, with `managedFields` without times.
    Object(Value),
    /// `code`, `message` and `causes` of the Status.
    Error(Value),
}

fn tester() -> String {
    "tester".into()
}

struct Kinds(BTreeMap<String, Schema>);

impl Versions for Kinds {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.0.get(api_version)
    }
}

impl File {
    fn kinds(&self, story: &Story) -> Kinds {
        let schemas = story.schemas.as_ref().unwrap_or(&self.schemas);
        if !schemas.is_empty() {
            let compiled = |(version, source): (&String, &Value)| (version.clone(), compile(source));
            return Kinds(schemas.iter().map(compiled).collect());
        }
        let (group, version) = self.api_version.split_once('/').unwrap_or(("core", &self.api_version));
        let group = group.split('.').next().expect("split yields something");
        let name = format!("io.k8s.api.{group}.{version}.{}", self.kind);
        let schema = builtin::definition(&name).unwrap_or_else(|| panic!("{name} is not built in"));
        Kinds(BTreeMap::from([(self.api_version.clone(), schema.clone())]))
    }

    fn reset(&self, subresource: &str) -> Reset {
        if self.schemas.is_empty() {
            Reset::builtin(&format!("{}s", self.kind.to_lowercase()), subresource, self.status)
        } else {
            Reset::custom(subresource, self.status)
        }
    }

    /// Resets fields that the endpoint may not set: the main endpoint keeps the status, the subresource everything
    /// else.
    fn settle(&self, mut new: Value, live: Option<&Value>, step: &Step) -> Value {
        if self.status && step.subresource.is_empty() {
            keep(&mut new, live, "status");
        }
        if let Some(skeleton) = zero::skeleton(&self.api_version, &self.kind) {
            zero::fill(&mut new, skeleton);
        }
        if step.subresource.is_empty() {
            return new;
        }
        let entries = new["metadata"]["managedFields"].take();
        for part in ["metadata", "spec"] {
            keep(&mut new, live, part);
        }
        new["metadata"]["managedFields"] = entries;
        new
    }

    /// Runs all steps; returns the failures.
    fn run(&self, story: &Story) -> Vec<String> {
        let kinds = self.kinds(story);
        let mut live: Option<Value> = None;
        let mut faults = Vec::new();
        for (i, step) in story.steps.iter().enumerate() {
            let api_version = step.api_version.as_deref().unwrap_or(&self.api_version);
            let now = jiff::Timestamp::from_second(1_700_000_000 + 60 * i as i64).expect("in range");
            let reset = self.reset(&step.subresource);
            let write = Write {
                versions: &kinds,
                api_version,
                kind: &self.kind,
                manager: &step.manager,
                subresource: &step.subresource,
                reset: &reset,
                now,
            };
            let before = live.as_ref().map(|live| kinds.convert(live, api_version));
            let answer = step.send(before.as_ref(), &write).map(|object| self.settle(object, before.as_ref(), step));
            let (wanted, got) = match (&step.expect, &answer) {
                (Expect::Object(wanted), Ok(got)) => (wanted.clone(), comparable(got)),
                (Expect::Error(wanted), Err(got)) => (wanted.clone(), error(got)),
                (Expect::Object(wanted), Err(got)) => (wanted.clone(), error(got)),
                (Expect::Error(wanted), Ok(got)) => (wanted.clone(), comparable(got)),
            };
            if wanted != got {
                let (wanted, got) = (pretty(&wanted), pretty(&got));
                faults.push(format!("{}, step {}:\n--- wanted\n{wanted}\n--- got\n{got}", story.about, i + 1));
            }
            if let Ok(mut object) = answer {
                // Set by a server.
                object["metadata"]["uid"] = "u".into();
                live = Some(object);
            }
        }
        faults
    }
}

impl Step {
    fn send(&self, live: Option<&Value>, write: &Write<'_>) -> Result<Value, Status> {
        let kind = match self.request {
            Request::Apply => {
                let force = if self.force { Force::Yes } else { Force::No };
                return managed::apply(live, &self.body, write, force);
            }
            Request::Update => return Ok(managed::update(live, self.body.clone(), write)),
            Request::Json => patch::Kind::Json,
            Request::Merge => patch::Kind::Merge,
            Request::Strategic => patch::Kind::Strategic,
        };
        let live = live.expect("a patch needs an object");
        let schema = write.versions.schema(write.api_version).expect("a version of the story");
        let patched = patch::apply(kind, live, &self.body, schema)?;
        Ok(managed::update(Some(live), patched, write))
    }
}

fn keep(new: &mut Value, live: Option<&Value>, part: &str) {
    let Some(new) = new.as_object_mut() else { return };
    match live.and_then(|live| live.get(part)) {
        Some(value) => new.insert(part.to_owned(), value.clone()),
        None => new.remove(part),
    };
}

/// An object without what differs from run to run.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return object };
    for key in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        metadata.remove(key);
    }
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        entries.iter_mut().filter_map(Value::as_object_mut).for_each(|entry| {
            entry.remove("time");
        });
    }
    object
}

fn error(status: &Status) -> Value {
    let mut error = Map::from_iter([("code".into(), status.code.into()), ("message".into(), json!(status.message))]);
    if let Some(causes) = status.details.get("causes") {
        error.insert("causes".into(), causes.clone());
    }
    Value::Object(error)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("values are JSON")
}

fn folder() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/apply");
    std::env::var_os("CAPSTAN_APPLY_CASES").map_or_else(own, PathBuf::from)
}

#[test]
fn stories() {
    let mut faults = Vec::new();
    let mut count = 0;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()).expect("stories").map(|file| file.unwrap().path()).collect();
    files.sort();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("readable");
        let file: File = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for story in &file.stories {
            count += 1;
            faults.extend(file.run(story).into_iter().map(|fault| format!("{}: {fault}", path.display())));
        }
    }
    assert!(faults.is_empty(), "{} of {count} stories:\n{}", faults.len(), faults.join("\n\n"));
    assert!(count > 0, "no stories");
}
