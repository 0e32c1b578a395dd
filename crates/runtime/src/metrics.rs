//! Prometheus metrics of the runtime: one struct, shared by all parts.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::error::Class;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    controller: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

type HistogramFamily = Family<Controller, Histogram, fn() -> Histogram>;

/// The metrics of this process. Clones share one state.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    product_registry: Arc<Registry>,
    queue_depth: Family<Controller, Gauge>,
    reconcile_seconds: HistogramFamily,
    reconcile_errors: Family<Failure, Counter>,
    requests: Family<Request, Counter>,
    leader: Gauge,
    watch_restarts: Family<OfKind, Counter>,
    cache_objects: Family<OfKind, Gauge<i64, AtomicI64>>,
    events_dropped: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::with(|_| ())
    }
}

fn reconcile_histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

impl Metrics {
    /// The metrics, and those that `more` registers under names of their own.
    pub fn with(more: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::with_prefix("capstan");
        let queue_depth = Family::default();
        let reconcile_seconds = HistogramFamily::new_with_constructor(reconcile_histogram);
        let (reconcile_errors, requests) = (Family::default(), Family::default());
        let (leader, watch_restarts, cache_objects) = (Gauge::default(), Family::default(), Family::default());
        let events_dropped = Counter::default();
        registry.register("queue_depth", "Keys that wait for a reconcile", queue_depth.clone());
        registry.register("reconcile_seconds", "How long reconciles took", reconcile_seconds.clone());
        registry.register("reconcile_errors", "Reconciles that failed, by class", reconcile_errors.clone());
        registry.register("api_requests", "Requests to the API server", requests.clone());
        registry.register("leader", "Whether this process leads", leader.clone());
        registry.register("watch_restarts", "Watches that were started again", watch_restarts.clone());
        registry.register("cache_objects", "Objects that are kept in memory", cache_objects.clone());
        registry.register("events_dropped", "Events that were not recorded", events_dropped.clone());
        let mut product_registry = Registry::default();
        more(&mut product_registry);
        Self {
            registry: Arc::new(registry),
            product_registry: Arc::new(product_registry),
            queue_depth,
            reconcile_seconds,
            reconcile_errors,
            requests,
            leader,
            watch_restarts,
            cache_objects,
            events_dropped,
        }
    }

    /// The OpenMetrics text exposition.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode_registry(&mut text, &self.registry);
        let _ = text::encode(&mut text, &self.product_registry);
        text
    }

    /// Requests sent so far, by verb and kind; tests count writes with it.
    pub fn requests(&self, verb: &'static str, kind: &'static str) -> u64 {
        let of = |outcome| self.requests.get_or_create(&Request { verb, kind, outcome }).get();
        of("ok") + of("error")
    }

    pub(crate) fn queue_depth(&self, controller: &'static str, depth: usize) {
        self.queue_depth.get_or_create(&Controller { controller }).set(depth.try_into().unwrap_or(i64::MAX));
    }

    pub(crate) fn reconciled(&self, controller: &'static str, elapsed: Duration, error: Option<Class>) {
        self.reconcile_seconds.get_or_create(&Controller { controller }).observe(elapsed.as_secs_f64());
        if let Some(class) = error {
            self.reconcile_errors.get_or_create(&Failure { controller, class: class.label() }).inc();
        }
    }

    pub(crate) fn request(&self, verb: &'static str, kind: &'static str, ok: bool) {
        let outcome = if ok { "ok" } else { "error" };
        self.requests.get_or_create(&Request { verb, kind, outcome }).inc();
    }

    pub(crate) fn leading(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    pub(crate) fn watch_restarted(&self, kind: &'static str) {
        self.watch_restarts.get_or_create(&OfKind { kind }).inc();
    }

    /// Restarts of the watch of a kind.
    pub fn watch_restarts(&self, kind: &'static str) -> u64 {
        self.watch_restarts.get_or_create(&OfKind { kind }).get()
    }

    pub(crate) fn cached(&self, kind: &'static str, objects: usize) {
        self.cache_objects.get_or_create(&OfKind { kind }).set(objects.try_into().unwrap_or(i64::MAX));
    }

    pub(crate) fn events_dropped(&self, count: u64) {
        self.events_dropped.inc_by(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_text_that_prometheus_reads() {
        let metrics = Metrics::default();
        metrics.request("apply", "Deployment", true);
        metrics.reconciled("nim-service", Duration::from_millis(3), Some(Class::Conflict));
        metrics.queue_depth("nim-service", 7);
        let text = metrics.encode();
        for line in [
            r#"capstan_api_requests_total{verb="apply",kind="Deployment",outcome="ok"} 1"#,
            r#"capstan_reconcile_errors_total{controller="nim-service",class="conflict"} 1"#,
            r#"capstan_queue_depth{controller="nim-service"} 7"#,
            r#"capstan_reconcile_seconds_bucket{le="0.005",controller="nim-service"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
