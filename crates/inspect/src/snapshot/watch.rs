//! A watched snapshot: each kind is listed once and then watched, so that observers cost the API server only the
//! changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::kinds::{self, Kind};
use super::read::{PAGE, fields, plain, resource, slim};
use super::{Snapshot, name_of, named};
use crate::error::root_cause;
use crate::{Error, Result};

/// Changes within this time are delivered together.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// Delivered without a change as well: an expired lease matters, too.
const TICK: Duration = Duration::from_secs(5);

/// A watch event of a kind.
type KindEvent = (String, watcher::Result<Event<DynamicObject>>);

/// A watched cluster.
pub struct Watch {
    state: WatchState,
    kinds: BTreeMap<String, Kind>,
    events: SelectAll<BoxStream<'static, KindEvent>>,
}

impl Watch {
    /// Starts to watch these kinds; [`Watch::next`] returns once all are listed.
    pub async fn start<S: AsRef<str>>(client: &Client, names: &[S]) -> Result<Self> {
        let version = client.apiserver_version().await;
        let version = version.map_err(|error| Error::Unreachable(root_cause(&error)))?;
        let kinds = kinds::all().into_iter().map(|kind| (name_of(&kind.group, &kind.kind), kind));
        let kinds: BTreeMap<String, Kind> =
            kinds.filter(|(name, _)| names.iter().any(|one| one.as_ref() == name)).collect();
        let mut state = WatchState { unknown: kinds.keys().cloned().collect(), ..WatchState::default() };
        state.snapshot.server_version = version.git_version;
        let events = kinds.iter().map(|(name, kind)| {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
            let config = watcher::Config::default().page_size(PAGE);
            let config = fields(kind).iter().fold(config, |config, selector| config.fields(selector));
            let name = name.clone();
            watcher(api, config).default_backoff().map(move |event| (name.clone(), event)).boxed()
        });
        Ok(Self { events: events.collect(), kinds, state })
    }

    /// The snapshot at the next change, or after a while; an error if the API server does not respond and the snapshot
    /// is stale.
    pub async fn next(&mut self) -> Result<&Snapshot, String> {
        let mut end = Instant::now() + TICK;
        let mut debouncing = false;
        loop {
            match timeout_at(end, self.events.next()).await {
                Ok(Some((name, event))) => {
                    self.handle_event(&name, event);
                    if !debouncing {
                        (debouncing, end) = (true, Instant::now() + DEBOUNCE);
                    }
                }
                // Before the initial lists are complete, only errors are reported.
                _ if !self.state.unknown.is_empty() && self.state.error_message.is_none() => {
                    (debouncing, end) = (false, Instant::now() + TICK);
                }
                _ => break,
            }
        }
        self.state.snapshot.taken = Some(Timestamp::now());
        match &self.state.error_message {
            Some(why) => Err(why.clone()),
            None => Ok(&self.state.snapshot),
        }
    }

    fn handle_event(&mut self, name: &str, event: watcher::Result<Event<DynamicObject>>) {
        let Some(kind) = self.kinds.get(name) else { return };
        let read = |object: DynamicObject| plain(kind, slim, object);
        match event {
            Ok(Event::Init) => self.state.begin(name),
            Ok(Event::InitApply(object)) => self.state.list(name, read(object)),
            Ok(Event::InitDone) => self.state.complete(name),
            Ok(Event::Apply(object)) => self.state.set(name, read(object)),
            Ok(Event::Delete(object)) => self.state.remove(name, &read(object)),
            Err(error) => self.state.fail(name, error),
        }
    }
}

/// State of the watched cluster.
#[derive(Default)]
struct WatchState {
    /// Objects of each kind, ordered by name.
    snapshot: Snapshot,
    /// Incomplete lists.
    lists: BTreeMap<String, Vec<Value>>,
    /// Kinds without a complete list.
    unknown: BTreeSet<String>,
    /// Why the API server does not respond, if so.
    error_message: Option<String>,
}

impl WatchState {
    fn begin(&mut self, name: &str) {
        self.lists.insert(name.into(), Vec::new());
    }

    fn list(&mut self, name: &str, object: Value) {
        self.lists.entry(name.into()).or_default().push(object);
    }

    fn complete(&mut self, name: &str) {
        let mut list = self.lists.remove(name).unwrap_or_default();
        list.sort_by(|one, other| named(one).cmp(&named(other)));
        self.snapshot.objects.insert(name.into(), list);
        self.snapshot.unread.remove(name);
        self.unknown.remove(name);
        self.error_message = None;
    }

    fn set(&mut self, name: &str, object: Value) {
        let list = self.snapshot.objects.entry(name.into()).or_default();
        match list.binary_search_by(|one| named(one).cmp(&named(&object))) {
            Ok(place) => list[place] = object,
            Err(place) => list.insert(place, object),
        }
        self.error_message = None;
    }

    fn remove(&mut self, name: &str, object: &Value) {
        let list = self.snapshot.objects.entry(name.into()).or_default();
        if let Ok(place) = list.binary_search_by(|one| named(one).cmp(&named(object))) {
            list.remove(place);
        }
        self.error_message = None;
    }

    fn fail(&mut self, name: &str, error: watcher::Error) {
        use kube::Error::Api;
        use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
        match error {
            // A kind that is not served has no objects; the watch retries.
            InitialListFailed(Api(status)) | WatchStartFailed(Api(status)) if status.code == 404 => self.complete(name),
            InitialListFailed(Api(status)) | WatchStartFailed(Api(status)) if status.code == 403 => {
                self.complete(name);
                self.snapshot.objects.remove(name);
                self.snapshot.unread.insert(name.into(), status.message.clone());
            }
            // Expired: the watcher relists.
            WatchError(_) => {}
            InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
                self.error_message = Some(root_cause(&error));
            }
            other => self.error_message = Some(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::Status;
    use serde_json::json;

    use super::*;

    fn node(name: &str, version: u32) -> Value {
        json!({"kind": "Node", "metadata": {"name": name, "resourceVersion": version.to_string()}})
    }

    fn names(state: &WatchState) -> Vec<&str> {
        state.snapshot.of("", "Node").iter().map(|node| named(node).1).collect()
    }

    fn listed(names: &[&str]) -> WatchState {
        let mut state = WatchState::default();
        state.begin("Node");
        names.iter().for_each(|name| state.list("Node", node(name, 1)));
        state.complete("Node");
        state
    }

    #[test]
    fn what_changes_takes_its_place_in_the_order_of_names() {
        let mut state = listed(&["c", "a"]);
        state.set("Node", node("b", 2));
        state.set("Node", node("a", 3));
        state.remove("Node", &node("c", 4));
        assert_eq!(names(&state), ["a", "b"]);
        assert_eq!(state.snapshot.of("", "Node")[0]["metadata"]["resourceVersion"], "3");
    }

    #[test]
    fn a_list_is_shown_when_it_is_complete_and_forgets_what_is_gone() {
        let mut state = listed(&["a", "b"]);
        state.begin("Node");
        state.list("Node", node("b", 7));
        assert_eq!(names(&state), ["a", "b"]);
        state.complete("Node");
        assert_eq!(names(&state), ["b"]);
    }

    fn refused(code: u16) -> watcher::Error {
        let status = Status { code, message: "no".into(), ..Status::default() };
        watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn what_is_not_served_or_not_allowed_is_no_trouble() {
        let mut state = WatchState { unknown: ["Node".to_owned(), "Pod".to_owned()].into(), ..WatchState::default() };
        state.fail("Node", refused(404));
        state.fail("Pod", refused(403));
        assert!(state.unknown.is_empty() && state.error_message.is_none());
        assert_eq!(state.snapshot.unread, BTreeMap::from([("Pod".to_owned(), "no".to_owned())]));
        state.fail("Node", refused(500));
        assert!(state.error_message.is_some());
    }
}
