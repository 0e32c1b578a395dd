//! TTL of events: they expire an hour after their last write.
//!
//! Event bodies are not read; watching their keys is enough.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::ops::{Caller, DeleteOptions, ListOptions, Server, Target, WatchEvent};
use futures::StreamExt;
use tokio::time::Instant;

use crate::context::Context;
use crate::informer::split_key;

pub(crate) fn start(context: &Context, ttl: Duration) {
    context.spawn(run(context.server.clone(), ttl));
}

/// Events in the order of their last write.
#[derive(Default)]
struct WriteOrder {
    /// Resource version of the last write, by key.
    written: HashMap<Arc<str>, u64>,
    /// Time, key and resource version. An entry is stale if its event was written again.
    order: VecDeque<(Instant, Arc<str>, u64)>,
}

impl WriteOrder {
    fn write(&mut self, key: &Arc<str>, revision: u64) {
        self.written.insert(key.clone(), revision);
        self.order.push_back((Instant::now(), key.clone(), revision));
    }

    fn forget(&mut self, key: &Arc<str>) {
        self.written.remove(key);
    }

    fn drop_stale(&mut self) {
        while self.order.front().is_some_and(|(_, key, revision)| self.written.get(key) != Some(revision)) {
            self.order.pop_front();
        }
    }

    /// The event that expires first, and when it was written.
    fn oldest(&mut self) -> Option<(Instant, Arc<str>)> {
        self.drop_stale();
        self.order.front().map(|(at, key, _)| (*at, key.clone()))
    }
}

async fn run(server: Server, ttl: Duration) {
    let caller = Caller::system("apiserver");
    let Some(resource) = server.registry().lookup("", "v1", "events") else { return };
    let target = Target::all(resource.clone(), None);
    let options = ListOptions { resource_version: "0".to_owned(), ..ListOptions::default() };
    let mut ages = WriteOrder::default();
    loop {
        let Ok(mut events) = server.watch(&caller, &target, &options).await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        loop {
            let oldest = ages.oldest();
            let due = oldest.as_ref().map_or_else(|| Instant::now() + ttl, |(at, _)| *at + ttl);
            tokio::select! {
                event = events.next() => match event {
                    Some(WatchEvent::Added(event) | WatchEvent::Modified(event)) => {
                        if ages.written.get(event.key()) != Some(&event.revision) {
                            ages.write(event.key(), event.revision);
                        }
                    }
                    Some(WatchEvent::Deleted(event)) => ages.forget(event.key()),
                    Some(WatchEvent::Bookmark { .. }) => {}
                    Some(WatchEvent::Error(_)) | None => break,
                },
                () = tokio::time::sleep_until(due), if oldest.is_some() => {
                    if let Some((_, key)) = oldest {
                        ages.forget(&key);
                        let (namespace, name) = split_key(&key);
                        let one = Target::one(resource.clone(), Some(namespace), name);
                        // It may have been deleted already, with its namespace.
                        let _ = server.delete(&caller, &one, &DeleteOptions::default()).await;
                    }
                }
            }
        }
    }
}
