//! Watch cache of the objects of a kind: listing thousands of them repeatedly would cost more than what is measured.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::TryStreamExt;
use kube::core::WatchEvent;
use serde_json::Value;

/// Poll interval, and so the resolution of measurements.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Objects by namespace and name.
pub(super) type Objects = BTreeMap<String, Value>;

/// A watched cache of one kind. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct WatchCache {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    objects: Objects,
    /// Number of observed changes.
    changes: u64,
}

impl WatchCache {
    /// Watches the objects at a path.
    pub(super) fn follow(client: &kube::Client, path: &str) -> Self {
        let cache = Self::default();
        let (mine, client, path) = (cache.clone(), client.clone(), path.to_owned());
        tokio::spawn(async move {
            loop {
                // A watch that ends relists.
                let _ = mine.watch(&client, &path).await;
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        cache
    }

    async fn watch(&self, client: &kube::Client, path: &str) -> Result<()> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let request = http::Request::get(format!("{path}{sign}watch=1")).body(Vec::new())?;
        let mut events = pin!(client.request_events::<Value>(request).await?);
        while let Some(event) = events.try_next().await? {
            let mut state = self.state();
            state.changes += 1;
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    state.objects.insert(key(&object), object);
                }
                WatchEvent::Deleted(object) => {
                    state.objects.remove(&key(&object));
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of observed changes.
    pub(super) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Reads all objects.
    pub(super) fn read<T>(&self, reader: impl FnOnce(&Objects) -> T) -> T {
        reader(&self.state().objects)
    }

    /// Number of objects that match.
    pub(super) fn count(&self, is: impl Fn(&Value) -> bool) -> usize {
        self.read(|all| all.values().filter(|one| is(one)).count())
    }

    /// Waits until a condition on all objects holds.
    pub(super) async fn until(&self, limit: Duration, what: &str, done: impl Fn(&Objects) -> bool) -> Result<()> {
        let (begin, mut checked) = (Instant::now(), None);
        loop {
            let changes = self.changes();
            if checked != Some(changes) && self.read(&done) {
                return Ok(());
            }
            checked = Some(changes);
            if begin.elapsed() > limit {
                bail!("not after {} s: {what}", limit.as_secs());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until this many objects match.
    pub(super) async fn until_count(
        &self,
        limit: Duration,
        what: &str,
        count: usize,
        is: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let enough = |all: &Objects| all.values().filter(|one| is(one)).count() >= count;
        match self.until(limit, what, enough).await {
            Err(error) => Err(error.context(format!("{} of {count}", self.count(&is)))),
            done => done,
        }
    }
}

/// Namespace and name.
fn key(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}
