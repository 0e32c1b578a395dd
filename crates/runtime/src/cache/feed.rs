//! The watch of one kind: list, watch, and restart with backoff.
//!
//! kube's `watcher` is not used: it restarts without backoff when a stream ends, does not report it, and one object
//! that cannot be decoded fails the whole list.

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

use super::{Cache, Feed, Key, Source, UndecodableObject};
use crate::error::{Class, Streak, class_of, class_of_code};
use crate::kinds::{Keep, Presence};

/// Streaming lists (WatchList) are used from this server version on.
const WATCH_LIST_SINCE: ServerVersion = ServerVersion { major: 1, minor: 34, patch: 0 };

/// Page size of a list: a page is in memory as a whole.
const PAGE_SIZE: u32 = 500;
/// Page size of kinds of which most fields are dropped, such as nodes: the objects are large.
const LARGE_PAGE_SIZE: u32 = 200;

/// Servers send a bookmark about once a minute: a stream without any event for longer counts as dead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);

/// Maximum restart delay of a kind that has synced once.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(10);

/// Consecutive failures after which a warning is logged.
const WARN_AFTER_FAILURES: u32 = 5;

/// Watches one kind; never returns.
pub(super) async fn run(cache: Cache, client: Client, index: usize) {
    run_feed(&cache, client, &cache.shared.tables[index]).await;
}

/// Watches the objects of a feed; never returns.
pub(super) async fn run_feed(cache: &Cache, client: Client, feed: &Feed) {
    let mut watch = Watch {
        cache,
        client,
        feed,
        resume: None,
        streaming_lists: true,
        streak: Streak::default(),
        progressed: false,
    };
    loop {
        let ended = watch.list_and_watch().await;
        if std::mem::take(&mut watch.progressed) {
            watch.streak = Streak::default();
        }
        let (class, failures) = watch.report(ended);
        cache.shared.metrics.watch_restarted(feed.table.kind.label());
        let delay = class.delay(failures);
        // Reconciles use the cached objects of a synced kind: they must not get stale.
        tokio::time::sleep(if feed.table.synced() { delay.min(MAX_RESTART_DELAY) } else { delay }).await;
    }
}

/// Why a watch ended.
enum WatchEnd {
    /// The stream ended normally.
    StreamEnded,
    /// The resourceVersion is too old (410 Gone).
    Expired,
    /// A request or the stream failed.
    Failed(Class, String),
}

impl From<kube::Error> for WatchEnd {
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
    /// resourceVersion to resume from; `None` to start with a list.
    resume: Option<String>,
    /// Whether the server supports streaming lists.
    streaming_lists: bool,
    streak: Streak,
    /// Whether this watch made progress.
    progressed: bool,
}

impl Watch<'_> {
    /// Lists if needed, then watches until the stream ends.
    async fn list_and_watch(&mut self) -> WatchEnd {
        let result = if self.resume.is_some() {
            self.watch_events(None).await
        } else if self.streaming_lists && self.cache.server().is_some_and(|server| server >= WATCH_LIST_SINCE) {
            self.feed.table.begin();
            self.watch_events(Some(BTreeSet::new())).await
        } else {
            match self.list().await {
                Ok(()) => self.watch_events(None).await,
                Err(ended) => Err(ended),
            }
        };
        match result {
            Ok(()) => WatchEnd::StreamEnded,
            Err(ended) => ended,
        }
    }

    /// Reads a list page by page.
    async fn list(&mut self) -> Result<(), WatchEnd> {
        let kind = self.feed.table.kind;
        let page = if matches!(kind.keep, Keep::Only(_) | Keep::Pod) { LARGE_PAGE_SIZE } else { PAGE_SIZE };
        let mut params = ListParams::default().limit(page);
        params.label_selector = kind.label_selector();
        params.field_selector = self.feed.field_selector();
        let request = Request::new(self.feed.path());
        self.feed.table.begin();
        let mut listed = BTreeSet::new();
        loop {
            let request = match kind.keep {
                Keep::Metadata => request.list_metadata(&params),
                _ => request.list(&params),
            };
            let request = self.client.request::<List>(request.map_err(kube::Error::BuildRequest)?);
            let response = timeout(IDLE_TIMEOUT, request).await.map_err(timed_out)?;
            self.cache.shared.metrics.request("list", kind.label(), response.is_ok());
            let List { metadata, items } = response?;
            for item in &items {
                listed.extend(self.store(item.get(), Source::List)?);
            }
            match metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => {
                    self.finish_list(listed, metadata.resource_version);
                    return Ok(());
                }
            }
        }
    }

    /// Reads watch events. With `list` they begin with the initial list.
    async fn watch_events(&mut self, mut list: Option<BTreeSet<Key>>) -> Result<(), WatchEnd> {
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
        // Servers from 1.37 on compress events one by one, which clients cannot decode.
        request.headers_mut().insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
        let response = timeout(IDLE_TIMEOUT, self.client.request_stream(request)).await.map_err(timed_out)?;
        self.cache.shared.metrics.request("watch", kind.label(), response.is_ok());
        let stream = match response {
            Ok(stream) => stream,
            Err(error) => return Err(self.rejected(error, list.is_some())),
        };
        let started = Instant::now();
        let mut lines = pin!(stream.lines());
        while let Some(line) = timeout(IDLE_TIMEOUT, lines.next()).await.map_err(timed_out)? {
            let line = line.map_err(|error| WatchEnd::Failed(Class::Unavailable, error.to_string()))?;
            self.event(&line, &mut list)?;
        }
        self.progressed |= started.elapsed() > IDLE_TIMEOUT;
        Ok(())
    }

    /// A server may reject streaming lists, whatever its version.
    fn rejected(&mut self, error: kube::Error, streaming: bool) -> WatchEnd {
        if streaming && class_of(&error) == Class::Invalid {
            self.streaming_lists = false;
        }
        error.into()
    }

    fn event(&mut self, line: &str, list: &mut Option<BTreeSet<Key>>) -> Result<(), WatchEnd> {
        let Some(Event { type_, object }) = Event::read(line) else { return Err(self.invalid_event()) };
        match type_.as_ref() {
            "ADDED" | "MODIFIED" => {
                let source = if list.is_some() { Source::List } else { Source::Watch };
                let key = self.store(object, source)?;
                if let Some(list) = list.as_mut() {
                    list.extend(key);
                }
            }
            "DELETED" => {
                let object = self.stub(object)?;
                self.cache.change(self.feed, || self.feed.table.remove(Source::Watch, &object));
                self.advance(version(&object), Source::Watch);
            }
            "BOOKMARK" => {
                let object = self.stub(object)?;
                if object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
                    && let Some(listed) = list.take()
                {
                    self.finish_list(listed, version(&object).map(Into::into));
                }
                let source = if list.is_some() { Source::List } else { Source::Watch };
                self.advance(version(&object), source);
            }
            _ => {
                let status: Status = serde_json::from_str(object).unwrap_or_default();
                // Whatever broke the stream may break it again at the same resourceVersion.
                self.resume = None;
                return Err(match status.code {
                    410 => WatchEnd::Expired,
                    code => WatchEnd::Failed(class_of_code(code), status.message),
                });
            }
        }
        self.progressed = true;
        Ok(())
    }

    /// Not a watch event: what was lost is unknown, so relist.
    fn invalid_event(&mut self) -> WatchEnd {
        self.resume = None;
        WatchEnd::Failed(Class::Unavailable, "invalid watch event".into())
    }

    /// The metadata of an object that need not be decodable.
    fn stub(&mut self, text: &str) -> Result<Value, WatchEnd> {
        stub(text).ok_or_else(|| self.invalid_event())
    }

    /// Stores an object. One that cannot be decoded is reported and left out.
    fn store(&mut self, text: &str, source: Source) -> Result<Option<Key>, WatchEnd> {
        let table = &self.feed.table;
        // Half of the watch events are our own writes, whose responses are cached already.
        let cached = Cell::new(false);
        let is_new = |metadata: &Value| {
            cached.set(source == Source::Watch && table.has(metadata));
            !cached.get()
        };
        match table.kind.read_if(text, &is_new) {
            Ok(object) => {
                let (key, version) = (Key::of(&object), version(&object).map(str::to_owned));
                if !cached.get() {
                    self.cache.change(self.feed, || table.put(source, object));
                }
                self.advance(version.as_deref(), source);
                Ok(Some(key))
            }
            Err(error) => {
                let object = self.stub(text)?;
                self.advance(version(&object), source);
                self.cache.change(self.feed, || table.remove(Source::Watch, &object));
                let Key { namespace, name } = Key::of(&object);
                let reference = table.kind.reference(&namespace, &name);
                let uid = super::uid(&object).to_owned();
                self.cache.undecodable(&UndecodableObject { reference, uid, reason: error.to_string() });
                Ok(None)
            }
        }
    }

    /// Records the resourceVersion up to which the stream was read. Items of a list are in no order.
    fn advance(&mut self, version: Option<&str>, source: Source) {
        if let (Some(version), Source::Watch) = (version, source) {
            self.feed.table.advance(version);
            self.resume = Some(version.into());
        }
    }

    /// Completes a list.
    fn finish_list(&mut self, listed: BTreeSet<Key>, version: Option<String>) {
        let table = &self.feed.table;
        self.cache.changes(self.feed, false, || table.finish(&listed, version.as_deref()));
        self.resume = version;
        self.cache.shared.metrics.cached(table.kind.label(), table.len());
        self.progressed = true;
        self.cache.set_absent(self.feed, false);
    }

    /// Logs why a watch ended, as a warning only once. Returns its class and the number of consecutive failures.
    fn report(&mut self, ended: WatchEnd) -> (Class, u32) {
        let kind = self.feed.table.kind;
        let (class, reason) = match ended {
            WatchEnd::StreamEnded => {
                tracing::debug!(%kind, "watch ended; restarting");
                return (Class::Unavailable, self.streak.record(Class::Unavailable));
            }
            WatchEnd::Expired => {
                self.resume = None;
                (Class::Unavailable, "resourceVersion too old".to_owned())
            }
            WatchEnd::Failed(class, reason) => (class, reason),
        };
        let failures = self.streak.record(class);
        if failures == WARN_AFTER_FAILURES {
            tracing::warn!(%kind, class = class.label(), reason, "watch failed; retrying");
        } else {
            tracing::debug!(%kind, class = class.label(), reason, "watch failed");
        }
        if kind.presence == Presence::Optional {
            match class {
                Class::NotFound => self.cache.shared.rediscover.notify_one(),
                // Forbidden counts as absent for a kind that clusters may lack.
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

fn timed_out(_: tokio::time::error::Elapsed) -> WatchEnd {
    WatchEnd::Failed(Class::Unavailable, "no data from the server within the idle timeout".into())
}

struct Event<'a> {
    type_: Cow<'a, str>,
    /// As text; may be invalid JSON.
    object: &'a str,
}

impl<'a> Event<'a> {
    fn read(line: &'a str) -> Option<Self> {
        // The usual encoding; where the object ends is found when it is decoded.
        let fast = || {
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
        let full = || serde_json::from_str::<Any<'_>>(line).ok();
        fast().or_else(|| full().map(|Any { type_, object }| Self { type_, object: object.get() }))
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

/// `metadata` of an object, decoded without the rest; `None` if it is not JSON.
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
