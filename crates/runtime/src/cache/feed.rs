//! The watch of one kind: list, follow, and start again when it breaks.
//!
//! kube's `watcher` is not used: it starts again without a pause when a stream ends, does not say that it did, and one
//! object that cannot be parsed fails the whole list.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use capstan_plan::ServerVersion;
use futures::{AsyncBufReadExt, StreamExt};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::{Cache, Feed, Key, Poison, Source};
use crate::error::{Class, Streak, class_of, class_of_code};
use crate::kinds::{Keep, Presence};

/// A server that can send a list as a stream of events does so from this version on.
const STREAMS_LISTS: ServerVersion = ServerVersion { major: 1, minor: 34, patch: 0 };

/// Objects per page of a list: a page is in memory as a whole, as the server sends it.
const PAGE: u32 = 500;
/// The same, of objects of which most is dropped: nodes are as large as they are many.
const PAGE_OF_LARGE: u32 = 200;

/// Servers send a bookmark about once a minute: a stream that is silent for longer is taken to be dead.
const SILENCE: Duration = Duration::from_secs(180);

/// What was seen once is asked for again after this long at the latest.
const BLIND: Duration = Duration::from_secs(10);

/// After so many failures in a row people should know.
const WORTH_A_WARNING: u32 = 5;

/// Follows one kind for ever.
pub(super) async fn run(cache: Cache, client: Client, index: usize) {
    follow(&cache, client, &cache.shared.tables[index]).await;
}

/// Follows what a feed shows for ever.
pub(super) async fn follow(cache: &Cache, client: Client, feed: &Feed) {
    let mut watch = Watch { cache, client, feed, resume: None, streams: true, streak: Streak::default(), busy: false };
    loop {
        let ended = watch.turn().await;
        if std::mem::take(&mut watch.busy) {
            watch.streak = Streak::default();
        }
        let (class, failures) = watch.report(ended);
        cache.shared.metrics.watch_restarted(feed.table.kind.label());
        let delay = class.delay(failures);
        // Decisions are made with what is known of a kind that could be seen once: that must not be old.
        tokio::time::sleep(if feed.table.synced() { delay.min(BLIND) } else { delay }).await;
    }
}

/// Why a turn ended.
enum Ended {
    /// The stream is over, as every stream is some day.
    Over,
    /// The version to go on from is too old, or somebody says so.
    Expired,
    /// Something failed.
    Failed(Class, String),
}

impl From<kube::Error> for Ended {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 410 => Self::Expired,
            kube::Error::Api(status) => Self::Failed(class_of(&error), status.message.clone()),
            _ => Self::Failed(class_of(&error), error.to_string()),
        }
    }
}

struct Watch<'a> {
    cache: &'a Cache,
    client: Client,
    feed: &'a Feed,
    /// Version from which to go on; none to begin with a list.
    resume: Option<String>,
    /// Whether the server may be asked to stream lists.
    streams: bool,
    streak: Streak,
    /// Whether this turn brought anything.
    busy: bool,
}

impl Watch<'_> {
    /// One turn: a list if one is due, then events until the stream ends.
    async fn turn(&mut self) -> Ended {
        let result = if self.resume.is_some() {
            self.follow(None).await
        } else if self.streams && self.cache.server().is_some_and(|server| server >= STREAMS_LISTS) {
            self.feed.table.begin();
            self.follow(Some(BTreeSet::new())).await
        } else {
            match self.list().await {
                Ok(()) => self.follow(None).await,
                Err(ended) => Err(ended),
            }
        };
        match result {
            Ok(()) => Ended::Over,
            Err(ended) => ended,
        }
    }

    /// Reads a list page by page.
    async fn list(&mut self) -> Result<(), Ended> {
        let kind = self.feed.table.kind;
        let page = if matches!(kind.keep, Keep::Only(_) | Keep::Pod) { PAGE_OF_LARGE } else { PAGE };
        let mut params = ListParams::default().limit(page);
        params.label_selector = kind.label_selector();
        params.field_selector = self.feed.field_selector();
        let request = Request::new(self.feed.path());
        self.feed.table.begin();
        let mut seen = BTreeSet::new();
        loop {
            let request = match kind.keep {
                Keep::Metadata => request.list_metadata(&params),
                _ => request.list(&params),
            };
            let request = self.client.request::<List>(request.map_err(kube::Error::BuildRequest)?);
            let answer = timeout(SILENCE, request).await.map_err(silent)?;
            self.cache.shared.metrics.request("list", kind.label(), answer.is_ok());
            let List { metadata, items } = answer?;
            for item in &items {
                seen.extend(self.take(item.get(), Source::List)?);
            }
            match metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => {
                    self.listed(seen, metadata.resource_version);
                    return Ok(());
                }
            }
        }
    }

    /// Follows events, which begin with the list itself if `list` is given.
    async fn follow(&mut self, mut list: Option<BTreeSet<Key>>) -> Result<(), Ended> {
        let kind = self.feed.table.kind;
        let mut params = if list.is_some() { WatchParams::streaming_lists() } else { WatchParams::default() };
        params.timeout = Some(fastrand::u32(200..290));
        params.label_selector = kind.label_selector();
        params.field_selector = self.feed.field_selector();
        let version = self.resume.clone().unwrap_or_default();
        let request = Request::new(self.feed.path());
        let request = match kind.keep {
            Keep::Metadata => request.watch_metadata(&params, &version),
            _ => request.watch(&params, &version),
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        // Servers from 1.37 on compress events one by one, which clients cannot undo.
        request.headers_mut().insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
        let answer = timeout(SILENCE, self.client.request_stream(request)).await.map_err(silent)?;
        self.cache.shared.metrics.request("watch", kind.label(), answer.is_ok());
        let stream = match answer {
            Ok(stream) => stream,
            Err(error) => return Err(self.refused(error, list.is_some())),
        };
        let started = Instant::now();
        let mut lines = pin!(stream.lines());
        while let Some(line) = timeout(SILENCE, lines.next()).await.map_err(silent)? {
            let line = line.map_err(|error| Ended::Failed(Class::Unavailable, error.to_string()))?;
            self.event(&line, &mut list)?;
        }
        self.busy |= started.elapsed() > SILENCE;
        Ok(())
    }

    /// A server may say that it streams no lists, whatever its version.
    fn refused(&mut self, error: kube::Error, streaming: bool) -> Ended {
        if streaming && class_of(&error) == Class::Invalid {
            self.streams = false;
        }
        error.into()
    }

    fn event(&mut self, line: &str, list: &mut Option<BTreeSet<Key>>) -> Result<(), Ended> {
        let Some(Event { type_, object }) = Event::read(line) else { return Err(self.no_event()) };
        match type_.as_ref() {
            "ADDED" | "MODIFIED" => {
                let source = if list.is_some() { Source::List } else { Source::Watch };
                let key = self.take(object, source)?;
                if let Some(list) = list.as_mut() {
                    list.extend(key);
                }
            }
            "DELETED" => {
                let object = self.stub(object)?;
                self.cache.change(self.feed, || self.feed.table.remove(Source::Watch, &object));
                self.passed(version(&object), Source::Watch);
            }
            "BOOKMARK" => {
                let object = self.stub(object)?;
                if object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
                    && let Some(seen) = list.take()
                {
                    self.listed(seen, version(&object).map(Into::into));
                }
                let source = if list.is_some() { Source::List } else { Source::Watch };
                self.passed(version(&object), source);
            }
            _ => {
                let status: Status = serde_json::from_str(object).unwrap_or_default();
                // Whatever broke the stream, it may break it again at the same place.
                self.resume = None;
                return Err(match status.code {
                    410 => Ended::Expired,
                    code => Ended::Failed(class_of_code(code), status.message),
                });
            }
        }
        self.busy = true;
        Ok(())
    }

    /// Not even the frame of an event: what was lost is not known, so everything is read again.
    fn no_event(&mut self) -> Ended {
        self.resume = None;
        Ended::Failed(Class::Unavailable, "the server sent something that is no event".into())
    }

    /// The identity of an object.
    fn stub(&mut self, text: &str) -> Result<Value, Ended> {
        stub(text).ok_or_else(|| self.no_event())
    }

    /// Keeps an object; one that cannot be read is reported and left out.
    fn take(&mut self, text: &str, source: Source) -> Result<Option<Key>, Ended> {
        let table = &self.feed.table;
        // Half of what a watch tells are writes of ours, whose answers are here already.
        let known = Cell::new(false);
        let news = |metadata: &Value| {
            known.set(source == Source::Watch && table.has(metadata));
            !known.get()
        };
        match table.kind.read_news(text, &news) {
            Ok(object) => {
                let (key, version) = (Key::of(&object), version(&object).map(str::to_owned));
                if !known.get() {
                    self.cache.change(self.feed, || table.put(source, object));
                }
                self.passed(version.as_deref(), source);
                Ok(Some(key))
            }
            Err(error) => {
                let object = self.stub(text)?;
                self.passed(version(&object), source);
                self.cache.change(self.feed, || table.remove(Source::Watch, &object));
                let Key { namespace, name } = Key::of(&object);
                let reference = table.kind.reference(&namespace, &name);
                let uid = super::uid(&object).to_owned();
                self.cache.poisoned(&Poison { reference, uid, reason: error.to_string() });
                Ok(None)
            }
        }
    }

    /// Remembers how far the stream is. Items of a list come in no order of versions.
    fn passed(&mut self, version: Option<&str>, source: Source) {
        if let (Some(version), Source::Watch) = (version, source) {
            self.feed.table.passed(version);
            self.resume = Some(version.into());
        }
    }

    /// The list is complete.
    fn listed(&mut self, seen: BTreeSet<Key>, version: Option<String>) {
        let table = &self.feed.table;
        self.cache.changes(self.feed, false, || table.finish(&seen, version.as_deref()));
        self.resume = version;
        self.cache.shared.metrics.cached(table.kind.label(), table.len());
        self.busy = true;
        self.cache.set_absent(self.feed, false);
    }

    /// Says what happened, once and not every time, in which class it falls, and how often it did in a row.
    fn report(&mut self, ended: Ended) -> (Class, u32) {
        let kind = self.feed.table.kind;
        let (class, reason) = match ended {
            Ended::Over => {
                tracing::debug!(%kind, "watch ended; restarting");
                return (Class::Unavailable, self.streak.another(Class::Unavailable));
            }
            Ended::Expired => {
                self.resume = None;
                (Class::Unavailable, "the version to go on from is too old".to_owned())
            }
            Ended::Failed(class, reason) => (class, reason),
        };
        let failures = self.streak.another(class);
        if failures == WORTH_A_WARNING {
            tracing::warn!(%kind, class = class.label(), reason, "watch failed; retrying");
        } else {
            tracing::debug!(%kind, class = class.label(), reason, "watch failed");
        }
        if kind.presence == Presence::Optional {
            match class {
                Class::NotFound => self.cache.shared.rediscover.notify_one(),
                // Not to be allowed to see a kind that clusters may lack is the same as lacking it.
                Class::Forbidden if !self.feed.table.synced() => self.cache.set_absent(self.feed, true),
                _ => {}
            }
        }
        (class, failures)
    }
}

fn version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty())
}

fn silent(_: tokio::time::error::Elapsed) -> Ended {
    Ended::Failed(Class::Unavailable, "the server went silent".into())
}

struct Event<'a> {
    type_: Cow<'a, str>,
    /// As text, which may be no JSON.
    object: &'a str,
}

impl<'a> Event<'a> {
    fn read(line: &'a str) -> Option<Self> {
        // So servers write events; where the object ends is found out when it is read.
        let plain = || {
            let (type_, rest) = line.strip_prefix(r#"{"type":""#)?.split_once('"')?;
            let object = rest.strip_prefix(r#","object":"#)?.strip_suffix('}')?;
            type_.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(Self { type_: type_.into(), object })
        };
        #[derive(Deserialize)]
        struct Any<'a> {
            #[serde(rename = "type", borrow)]
            type_: Cow<'a, str>,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let any = || serde_json::from_str::<Any<'_>>(line).ok();
        plain().or_else(|| any().map(|Any { type_, object }| Self { type_, object: object.get() }))
    }
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_: Option<String>,
}

/// The identity of an object, read without looking at anything else in it; nothing if it is no JSON.
fn stub(text: &str) -> Option<Value> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Meta {
        name: String,
        namespace: String,
        uid: String,
        resource_version: String,
        annotations: Option<std::collections::BTreeMap<String, String>>,
    }
    #[derive(Default, Deserialize)]
    struct Stub {
        #[serde(default)]
        metadata: Meta,
    }
    let read = serde_json::from_str::<Stub>(text);
    let is_json = || serde_json::from_str::<IgnoredAny>(text).is_ok();
    let meta = read.ok().or_else(|| is_json().then(Stub::default))?.metadata;
    Some(serde_json::json!({"metadata": {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "annotations": meta.annotations,
    }}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<(String, &str)> {
        Event::read(line).map(|event| (event.type_.into_owned(), event.object))
    }

    #[test]
    fn an_event_is_read_however_it_is_written() {
        let event = Some(("ADDED".to_owned(), r#"{"a":{}}"#));
        assert_eq!(read(r#"{"type":"ADDED","object":{"a":{}}}"#), event);
        assert_eq!(read(r#"{ "object":{"a":{}}, "type":"ADDED" }"#), event);
        assert_eq!(read(r#"{"type":"\u0041DDED","object":{"a":{}}}"#), event);
        for line in ["", "{}", "null", r#"{"type":"ADDED"}"#, r#"{"type":"ADDED","#, r#"{"object":{}}"#] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_no_json_has_no_identity() {
        let (_, cut) = read(r#"{"type":"ADDED","object":{"metadata":{"name":"a"}"#).unwrap();
        assert_eq!(stub(cut), None);
        let name = |text: &str| stub(text).map(|object| object["metadata"]["name"].clone());
        assert_eq!(name(r#"{"metadata":{"name":"a"},"spec":[]}"#), Some("a".into()));
        assert_eq!(name(r#"{"metadata":{"name":7}}"#), Some("".into()));
    }
}
