//! A temporary watch with a field selector, for kinds of which a cluster has too many objects to watch all.

use std::sync::Arc;

use capstan_plan::Live;
use kube::Client;
use tokio_util::task::AbortOnDropHandle;

use super::{Cache, Feed, feed};
use crate::kinds::Kind;

/// A watch that ends when this is dropped. Its changes go to the subscribers of the cache.
pub struct ScopedWatch {
    feed: Arc<Feed>,
    _task: AbortOnDropHandle<()>,
}

impl ScopedWatch {
    /// The objects; `None` before the initial list is complete.
    pub fn objects(&self) -> Option<Vec<Live>> {
        self.feed.table.synced().then(|| self.feed.table.all())
    }
}

impl Cache {
    /// Watches the objects of a kind that match a field selector.
    pub fn watch_scoped(&self, client: Client, kind: &'static Kind, selector: String) -> ScopedWatch {
        let feed = Arc::new(Feed::new(kind, Some(selector)));
        let (cache, watched) = (self.clone(), feed.clone());
        let task = tokio::spawn(async move { feed::run_feed(&cache, client, &watched).await });
        ScopedWatch { feed, _task: AbortOnDropHandle::new(task) }
    }
}
