//! API discovery: which kinds the server serves, and so which watches run.
//!
//! Built-in kinds are watched at once. For optional kinds their group and version is discovered: at the start, whenever
//! a CRD of the group changes, when a watch gets a 404, and periodically. That is a handful of small responses; the
//! aggregated discovery document has hundreds of kinds in a large cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use capstan_plan::ServerVersion;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Cache, feed};
use crate::error::{Class, class_of};
use crate::kinds::Presence;

/// Interval of rediscovery without a CRD change: for aggregated API servers, which have no CRD.
const RESYNC_INTERVAL: Duration = Duration::from_secs(300);

/// Debounce: a CRD changes several times in a row before it is served.
const CRD_DEBOUNCE: Duration = Duration::from_millis(50);

/// Delays of the extra discoveries after a CRD change: a CRD is served only some time after its condition says so,
/// later still with several API servers.
const RECHECK_DELAYS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(6), Duration::from_secs(20)];

/// Timeout of a discovery request.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps one watch running per served kind, until `stop`.
pub(super) async fn run(cache: Cache, client: Client, stop: CancellationToken) {
    let work = async {
        let watches = Watches { cache: cache.clone(), client, running: BTreeMap::new() };
        watches.run().await;
    };
    stop.run_until_cancelled(work).await;
}

struct Watches {
    cache: Cache,
    client: Client,
    running: BTreeMap<usize, tokio_util::task::AbortOnDropHandle<()>>,
}

impl Watches {
    async fn run(mut self) {
        self.read_version().await;
        self.watch_crds();
        for index in 0..self.cache.shared.tables.len() {
            if self.cache.shared.tables[index].table.kind.presence == Presence::BuiltIn {
                self.watch(index, self.cache.shared.tables[index].table.kind.version);
            }
        }
        let mut failures = 0;
        let mut rechecks = [].iter();
        loop {
            let complete = self.discover().await;
            failures = if complete { 0 } else { failures + 1 };
            let recheck = if complete { rechecks.next() } else { None };
            let delay = match recheck {
                Some(recheck) => *recheck,
                None if complete => jittered(RESYNC_INTERVAL),
                None => Class::Unavailable.delay(failures),
            };
            match timeout(delay, self.cache.shared.rediscover.notified()).await {
                Ok(()) => {
                    sleep(CRD_DEBOUNCE).await;
                    rechecks = RECHECK_DELAYS.iter();
                }
                // Control planes are upgraded while we run.
                Err(_) if complete && recheck.is_none() => self.read_version().await,
                Err(_) => {}
            }
        }
    }

    /// Reads the server version, with retries: it decides whether lists are streamed.
    async fn read_version(&self) {
        for failures in 1.. {
            let response = timeout(DISCOVERY_TIMEOUT, self.client.apiserver_version()).await;
            match response {
                Ok(Ok(info)) => {
                    self.cache.shared.server.send_replace(Some(ServerVersion::parse(&info.git_version)));
                    return;
                }
                Ok(Err(error)) if failures == 1 => tracing::warn!(%error, "API server unreachable; retrying"),
                Ok(Err(error)) => tracing::debug!(%error, "API server unreachable"),
                Err(_) => tracing::debug!("API server did not respond"),
            }
            sleep(Class::Unavailable.delay(failures)).await;
        }
    }

    /// Triggers rediscovery when a CRD of one of our groups changes.
    fn watch_crds(&self) {
        let groups: BTreeSet<_> = self.cache.optional().map(|feed| feed.table.kind.group).collect();
        // Weak, because the cache holds its subscribers.
        let shared = std::sync::Arc::downgrade(&self.cache.shared);
        self.cache.subscribe(move |change| {
            let group = change.key.name.split_once('.').map_or("", |(_, group)| group);
            if change.is::<CustomResourceDefinition>()
                && groups.contains(group)
                && let Some(shared) = shared.upgrade()
            {
                shared.rediscover.notify_one();
            }
        });
    }

    /// Discovers every group, and starts and stops watches. Returns whether all requests succeeded.
    async fn discover(&mut self) -> bool {
        let cache = self.cache.clone();
        let groups: BTreeSet<_> =
            cache.optional().map(|feed| (feed.table.kind.group, feed.table.kind.version)).collect();
        let mut responses = BTreeMap::new();
        for (group, version) in groups {
            responses.insert((group, version), self.list_resources(group, version).await);
        }
        for (index, feed) in cache.shared.tables.iter().enumerate() {
            let kind = feed.table.kind;
            if kind.presence == Presence::BuiltIn {
                continue;
            }
            // Older versions are discovered only where the newer ones are not served.
            let mut found = Some(None);
            for version in std::iter::once(&kind.version).chain(kind.older) {
                let known = responses.get(&(kind.group, *version)).cloned();
                let response = match known {
                    Some(response) => response,
                    None => self.list_resources(kind.group, version).await,
                };
                let served = response.as_ref().map(|served| served.contains(kind.plural));
                responses.insert((kind.group, *version), response);
                found = served.map(|served| served.then_some(*version));
                if found != Some(None) {
                    break;
                }
            }
            match found {
                Some(Some(version)) => self.watch(index, version),
                Some(None) => self.stop_watch(index),
                None => {}
            }
        }
        responses.values().all(Option::is_some)
    }

    /// The plurals of a group and version; `None` if the request failed.
    async fn list_resources(&self, group: &str, version: &str) -> Option<BTreeSet<String>> {
        let group_version = format!("{group}/{version}");
        let response = timeout(DISCOVERY_TIMEOUT, self.client.list_api_group_resources(&group_version)).await.ok()?;
        match response {
            Ok(list) => Some(list.resources.into_iter().map(|resource| resource.name).collect()),
            Err(error) if class_of(&error) == Class::NotFound => Some(BTreeSet::new()),
            Err(error) => {
                tracing::debug!(group_version, %error, "API discovery failed");
                None
            }
        }
    }

    fn watch(&mut self, index: usize, version: &'static str) {
        let before = {
            let feed = &self.cache.shared.tables[index];
            std::mem::replace(&mut *feed.version.lock().unwrap_or_else(PoisonError::into_inner), version)
        };
        if self.running.contains_key(&index) && before == version {
            return;
        }
        self.cache.update_served();
        let task = tokio::spawn(feed::run(self.cache.clone(), self.client.clone(), index));
        self.running.insert(index, tokio_util::task::AbortOnDropHandle::new(task));
    }

    /// Stops a watch and clears its table.
    fn stop_watch(&mut self, index: usize) {
        let feed = &self.cache.shared.tables[index];
        if self.running.remove(&index).is_some() {
            tracing::info!(kind = %feed.table.kind, "kind no longer served; watch stopped");
            self.cache.changes(feed, false, || feed.table.clear());
        }
        self.cache.set_absent(feed, true);
    }
}

fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * fastrand::f64())
}
