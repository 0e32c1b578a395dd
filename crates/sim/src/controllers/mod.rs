//! Controllers: each file is one, and in it `reconcile` brings one object closer to what its spec says.
//!
//! A reconcile looks at the caches only, decides, and writes what differs. It may run at any time and any number of
//! times; when all is well it writes nothing.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::Status;

use crate::context::Context;
use crate::queue::Queue;
use crate::writer::{is_conflict, is_not_found};

/// What becomes of a key after a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until something changes.
    Done,
    /// Look again after this time, whatever happens.
    After(Duration),
}

/// Result of a reconcile.
pub type Reconciled = Result<Outcome, Status>;

/// Which controllers run, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {}

/// Starts all controllers.
pub(crate) fn start(context: &Context, settings: &Settings) {
    let _ = (context, settings);
}

/// Works on the keys of a queue until the cluster stops.
pub(crate) fn run<F, R>(context: &Context, name: &'static str, workers: usize, queue: Queue, reconcile: F)
where
    F: Fn(Arc<str>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Reconciled> + Send,
{
    for _ in 0..workers {
        let (queue, reconcile) = (queue.clone(), reconcile.clone());
        context.spawn(async move {
            loop {
                let key = queue.next().await;
                match reconcile(key.clone()).await {
                    Ok(outcome) => {
                        queue.forget(&key);
                        if let Outcome::After(delay) = outcome {
                            queue.add_after(key.clone(), delay);
                        }
                    }
                    Err(error) => {
                        if !is_conflict(&error) && !is_not_found(&error) {
                            tracing::debug!(controller = name, %key, %error, "reconcile failed");
                        }
                        queue.retry(key.clone());
                    }
                }
                queue.done(&key);
            }
        });
    }
}
