//! Runs the external queries of plans between two reconciles: each in a task of its own, for as long as a plan names
//! it.
//!
//! A key is requeued only when a result changes, so queries cost the API server nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_plan::{Query, QueryResult};
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use crate::cache::Key;
use crate::queue::Queue;

/// Initial backoff after a failure; it doubles up to [`MAX_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
/// Maximum backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Consecutive failures before a query counts as failed; until then an endpoint may just be starting.
const MAX_FAILURES: u32 = 3;
/// Queries in flight at once.
const CONCURRENCY: usize = 32;

/// Runs one query.
pub type QueryFn = Arc<dyn Fn(Query) -> BoxFuture<'static, Result<QueryResult, QueryError>> + Send + Sync>;

/// Looks a result up in a cache, without running the query.
pub type CachedFn = Arc<dyn Fn(&Query) -> Option<QueryResult> + Send + Sync>;

/// Why a query has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The target does not respond, or responds with an error.
    #[error("{0}")]
    NoResponse(String),
    /// The query was not sent, for example while the API server is unreachable. It says nothing about the target.
    #[error("{0}")]
    NotSent(String),
}

impl From<String> for QueryError {
    fn from(reason: String) -> Self {
        Self::NoResponse(reason)
    }
}

/// Runs queries and holds their results. Clones share one state.
#[derive(Clone)]
pub struct QueryRunner {
    shared: Arc<Shared>,
}

struct Shared {
    run: QueryFn,
    cached: CachedFn,
    queue: Queue<Key>,
    permits: Semaphore,
    /// A list per key: a key has one or two queries, and there are many keys.
    states: Mutex<HashMap<Key, Vec<(Query, QueryState)>>>,
}

struct QueryState {
    result: Option<QueryResult>,
    /// Aborted when the query is dropped. `None` if the result came from the cache.
    _task: Option<AbortOnDropHandle<()>>,
}

/// Consecutive failures of a query.
#[derive(Default)]
struct Failures {
    count: u32,
    reason: String,
}

impl Failures {
    /// Counts a failure. After [`MAX_FAILURES`] a different reason starts a new count: a starting server reports errors
    /// that do not last.
    fn record(&mut self, reason: &str) -> u32 {
        let reported = self.count >= MAX_FAILURES;
        self.count = if reported && self.reason != reason { 1 } else { self.count.saturating_add(1) };
        reason.clone_into(&mut self.reason);
        self.count
    }
}

impl QueryRunner {
    /// Runs queries with `run`, unless `cached` has the result, and adds a key to `queue` when a result for it changes.
    pub fn new(run: QueryFn, cached: CachedFn, queue: Queue<Key>) -> Self {
        let shared = Shared { run, cached, queue, permits: Semaphore::new(CONCURRENCY), states: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The results that are available for a key.
    pub fn results(&self, key: &Key) -> BTreeMap<Query, QueryResult> {
        let states = self.states();
        let own = states.get(key).into_iter().flatten();
        own.filter_map(|(query, state)| Some((query.clone(), state.result.clone()?))).collect()
    }

    /// Replaces the queries of a key. Returns whether one of the new ones has a result already.
    pub fn set_queries(&self, key: &Key, queries: &[Query]) -> bool {
        let mut states = self.states();
        if queries.is_empty() {
            states.remove(key);
            return false;
        }
        let own = states.entry(key.clone()).or_default();
        own.retain(|(query, _)| queries.contains(query));
        let mut ready = false;
        for query in queries {
            if own.iter().all(|(known, _)| known != query) {
                let state = match (self.shared.cached)(query).filter(|_| query.refresh().is_none()) {
                    Some(result) => QueryState { result: Some(result), _task: None },
                    None => self.spawn(key, query),
                };
                ready |= state.result.is_some();
                own.push((query.clone(), state));
            }
        }
        own.shrink_to_fit();
        ready
    }

    /// Spawns the task that runs a query until its result is final or the query is dropped.
    fn spawn(&self, key: &Key, query: &Query) -> QueryState {
        // Weak, because the state holds the task.
        let (shared, key, query) = (Arc::downgrade(&self.shared), key.clone(), query.clone());
        let task = tokio::spawn(async move {
            let mut failures = Failures::default();
            while let Some(shared) = shared.upgrade() {
                let delay = shared.run_once(&key, &query, &mut failures).await;
                drop(shared);
                match delay {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => return,
                }
            }
        });
        QueryState { result: None, _task: Some(AbortOnDropHandle::new(task)) }
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Key, Vec<(Query, QueryState)>>> {
        self.shared.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Runs a query once. Returns the delay until the next run.
    async fn run_once(&self, key: &Key, query: &Query, failures: &mut Failures) -> Option<Duration> {
        let result = {
            let _permit = self.permits.acquire().await.ok()?;
            (self.run)(query.clone()).await
        };
        match result {
            Ok(result) => {
                *failures = Failures::default();
                self.store(key, query, result);
                query.refresh()
            }
            Err(QueryError::NotSent(reason)) => {
                tracing::debug!(object = %key, ?query, reason, "query not sent; retrying");
                // The last result stays valid.
                Some(FIRST_BACKOFF)
            }
            Err(QueryError::NoResponse(reason)) => {
                let count = failures.record(&reason);
                tracing::debug!(object = %key, ?query, reason, count, "query failed; retrying");
                if count >= MAX_FAILURES
                    && let Some(result) = query.failed(reason)
                {
                    self.store(key, query, result);
                }
                Some(MAX_BACKOFF.min(FIRST_BACKOFF * 2_u32.saturating_pow(count.saturating_sub(1).min(8))))
            }
        }
    }

    fn store(&self, key: &Key, query: &Query, result: QueryResult) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let known = states.get_mut(key).and_then(|own| own.iter_mut().find(|(known, _)| known == query));
        let Some((_, state)) = known else { return };
        if state.result.as_ref() != Some(&result) {
            state.result = Some(result);
            drop(states);
            self.queue.add(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn model() -> Query {
        Query::Model { url: "http://x".into(), revision: "1".into() }
    }

    fn runner(
        results: impl Fn(usize) -> Result<String, QueryError> + Send + Sync + 'static,
    ) -> (QueryRunner, Queue<Key>, Key) {
        let count = AtomicUsize::new(0);
        let run: QueryFn = Arc::new(move |_| {
            let result = results(count.fetch_add(1, Ordering::SeqCst));
            Box::pin(async move { result.map(|name| QueryResult::Model(Ok(name))) })
        });
        let queue = Queue::default();
        (QueryRunner::new(run, Arc::new(|_| None), queue.clone()), queue, Key::new("ns", "a"))
    }

    fn refused() -> QueryError {
        QueryError::NoResponse("refused".into())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_stands_while_we_cannot_ask() {
        let (runner, queue, key) =
            runner(|attempt| Err(if attempt < 3 { refused() } else { QueryError::NotSent("no API server".into()) }));
        runner.set_queries(&key, &[model()]);
        assert_eq!(queue.next().await, key);
        queue.done(&key);
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
        assert_eq!(runner.results(&key)[&model()], QueryResult::Model(Err("refused".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn another_reason_is_told_only_when_it_lasts() {
        let (runner, queue, key) = runner(|attempt| {
            Err(QueryError::NoResponse(if attempt == 4 || attempt > 6 { "forbidden" } else { "no such Secret" }.into()))
        });
        runner.set_queries(&key, &[model()]);
        for expected in ["no such Secret", "forbidden"] {
            assert_eq!(queue.next().await, key);
            queue.done(&key);
            assert_eq!(runner.results(&key)[&model()], QueryResult::Model(Err(expected.into())));
        }
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_is_returned_at_once_and_never_queried() {
        let labels = QueryResult::Image(Ok(Vec::new()));
        let (run, cached): (QueryFn, CachedFn) = {
            let labels = labels.clone();
            (Arc::new(|query| panic!("ran {query:?}")), Arc::new(move |_| Some(labels.clone())))
        };
        let queue = Queue::default();
        let (runner, key) = (QueryRunner::new(run, cached, queue.clone()), Key::new("ns", "a"));
        let image = Query::Image(capstan_plan::Image { name: "nim/llama".into(), ..Default::default() });
        assert!(runner.set_queries(&key, std::slice::from_ref(&image)));
        assert_eq!(runner.results(&key), BTreeMap::from([(image.clone(), labels)]));
        assert!(!runner.set_queries(&key, &[image]), "it had a result before");
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_wakes_its_key_once() {
        let (runner, queue, key) = runner(|_| Ok("llama".into()));
        runner.set_queries(&key, &[model()]);
        assert_eq!(queue.next().await, key);
        queue.done(&key);
        assert_eq!(runner.results(&key)[&model()], QueryResult::Model(Ok("llama".into())));
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_may_fail_twice_and_then_it_is_silent_until_it_answers() {
        let (runner, queue, key) =
            runner(|attempt| if (1..=3).contains(&attempt) { Err(refused()) } else { Ok("llama".into()) });
        runner.set_queries(&key, &[model()]);
        for expected in [Ok("llama".into()), Err("refused".into()), Ok("llama".into())] {
            assert_eq!(queue.next().await, key);
            queue.done(&key);
            assert_eq!(runner.results(&key)[&model()], QueryResult::Model(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_plan_names_is_not_asked_any_more() {
        let (runner, queue, key) = runner(|attempt| Ok(attempt.to_string()));
        runner.set_queries(&key, &[model()]);
        queue.next().await;
        queue.done(&key);
        runner.set_queries(&key, &[]);
        assert!(runner.results(&key).is_empty());
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
    }
}
