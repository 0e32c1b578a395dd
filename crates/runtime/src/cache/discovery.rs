//! Which kinds the server has, and so which watches run.
//!
//! Kinds that every server has are watched at once. For the others their group and version is asked for: at the start,
//! whenever a CRD of that group changes, when a watch finds nothing, and now and then. That is a handful of small
//! answers, where the document about all groups has hundreds of kinds in a large cluster.

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

/// How often the server is asked though nothing seems to have changed: for aggregated servers, which have no CRD.
const REFRESH: Duration = Duration::from_secs(300);

/// A CRD changes several times in a row before it is served.
const SETTLE: Duration = Duration::from_millis(50);

/// After a change the server is asked again though nothing else happens: it serves a CRD only some time after it says
/// so, later still where there are several API servers.
const AGAIN: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(6), Duration::from_secs(20)];

/// No answer to a question about one group takes longer than this.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps watches running for what the server has, until `stop`.
pub(super) async fn run(cache: Cache, client: Client, stop: CancellationToken) {
    let work = async {
        let watches = Watches { cache: cache.clone(), client, running: BTreeMap::new() };
        watches.keep().await;
    };
    stop.run_until_cancelled(work).await;
}

struct Watches {
    cache: Cache,
    client: Client,
    running: BTreeMap<usize, tokio_util::task::AbortOnDropHandle<()>>,
}

impl Watches {
    async fn keep(mut self) {
        self.learn_version().await;
        self.follow_crds();
        for index in 0..self.cache.shared.tables.len() {
            if self.cache.shared.tables[index].table.kind.presence == Presence::BuiltIn {
                self.watch(index, self.cache.shared.tables[index].table.kind.version);
            }
        }
        let mut failures = 0;
        let mut again = [].iter();
        loop {
            let complete = self.discover().await;
            failures = if complete { 0 } else { failures + 1 };
            let soon = if complete { again.next() } else { None };
            let pause = match soon {
                Some(soon) => *soon,
                None if complete => jittered(REFRESH),
                None => Class::Unavailable.delay(failures),
            };
            match timeout(pause, self.cache.shared.rediscover.notified()).await {
                Ok(()) => {
                    sleep(SETTLE).await;
                    again = AGAIN.iter();
                }
                // Control planes are upgraded while we run.
                Err(_) if complete && soon.is_none() => self.learn_version().await,
                Err(_) => {}
            }
        }
    }

    /// Asks for the version until there is an answer: it decides how lists are read.
    async fn learn_version(&self) {
        for failures in 1.. {
            let answer = timeout(DISCOVERY_TIMEOUT, self.client.apiserver_version()).await;
            match answer {
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

    /// Asks again when a CRD of a group of ours changes.
    fn follow_crds(&self) {
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

    /// Asks about every group, and starts and stops watches. Says whether all questions were answered.
    async fn discover(&mut self) -> bool {
        let cache = self.cache.clone();
        let groups: BTreeSet<_> =
            cache.optional().map(|feed| (feed.table.kind.group, feed.table.kind.version)).collect();
        let mut answers = BTreeMap::new();
        for (group, version) in groups {
            answers.insert((group, version), self.ask(group, version).await);
        }
        for (index, feed) in cache.shared.tables.iter().enumerate() {
            let kind = feed.table.kind;
            if kind.presence == Presence::BuiltIn {
                continue;
            }
            // Older versions are asked for only where the newer ones are not there.
            let mut found = Some(None);
            for version in std::iter::once(&kind.version).chain(kind.older) {
                let known = answers.get(&(kind.group, *version)).cloned();
                let answer = match known {
                    Some(answer) => answer,
                    None => self.ask(kind.group, version).await,
                };
                let served = answer.as_ref().map(|served| served.contains(kind.plural));
                answers.insert((kind.group, *version), answer);
                found = served.map(|served| served.then_some(*version));
                if found != Some(None) {
                    break;
                }
            }
            match found {
                Some(Some(version)) => self.watch(index, version),
                Some(None) => self.forget(index),
                None => {}
            }
        }
        answers.values().all(Option::is_some)
    }

    /// The plurals that a group and version has; none if the server does not say.
    async fn ask(&self, group: &str, version: &str) -> Option<BTreeSet<String>> {
        let group_version = format!("{group}/{version}");
        let answer = timeout(DISCOVERY_TIMEOUT, self.client.list_api_group_resources(&group_version)).await.ok()?;
        match answer {
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
        self.cache.note_served();
        let task = tokio::spawn(feed::run(self.cache.clone(), self.client.clone(), index));
        self.running.insert(index, tokio_util::task::AbortOnDropHandle::new(task));
    }

    /// Stops a watch; everything it showed is gone.
    fn forget(&mut self, index: usize) {
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
