//! A watch that lives as long as somebody wants to know: of what a cluster has too much of to watch it all.

use std::sync::Arc;

use capstan_plan::Live;
use kube::Client;
use tokio_util::task::AbortOnDropHandle;

use super::{Cache, Feed, feed};
use crate::kinds::Kind;

/// Objects that are followed until this is dropped. Changes are handed to the subscribers of the cache.
pub struct Followed {
    feed: Arc<Feed>,
    _task: AbortOnDropHandle<()>,
}

impl Followed {
    /// The objects; `None` until all were told.
    pub fn objects(&self) -> Option<Vec<Live>> {
        self.feed.table.synced().then(|| self.feed.table.all())
    }
}

impl Cache {
    /// Follows the objects of a kind that a field selector selects.
    pub fn follow(&self, client: Client, kind: &'static Kind, selector: String) -> Followed {
        let feed = Arc::new(Feed::new(kind, Some(selector)));
        let (cache, followed) = (self.clone(), feed.clone());
        let task = tokio::spawn(async move { feed::follow(&cache, client, &followed).await });
        Followed { feed, _task: AbortOnDropHandle::new(task) }
    }
}
