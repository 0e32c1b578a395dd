//! Object counts by kind and state, with the metric names of the upstream NIM operator.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_plan::{Gvk, Live};
use capstan_runtime::{Cache, Gate};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// State of objects without a status.
const UNKNOWN: &str = "Unknown";
/// All objects, whatever their state.
const ALL: &str = "all";

/// The gauge of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateMetric {
    /// Its name.
    pub(crate) name: &'static str,
    /// States that are exported even with a count of 0.
    pub(crate) states: &'static [&'static str],
}

/// Counts of one kind by state.
#[derive(Debug)]
struct Counted {
    kind: Cow<'static, str>,
    metric: StateMetric,
    counts: Mutex<BTreeMap<String, i64>>,
}

/// The gauges of all kinds. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct States {
    kinds: Arc<Mutex<Vec<Arc<Counted>>>>,
    gate: Gate,
}

impl States {
    /// No counts yet. Nothing is exported while `gate` is closed: dashboards sum over replicas.
    pub(crate) fn new(gate: Gate) -> Self {
        Self { kinds: Arc::default(), gate }
    }

    /// Counts the objects of a kind in `cache` from now on.
    pub(crate) fn follow<K: kube::Resource<DynamicType = ()>>(&self, metric: StateMetric, cache: &Cache) {
        let counted = self.add::<K>(metric);
        cache.subscribe(move |change| {
            if change.is::<K>() {
                counted.update(change.old.map(state), change.new.map(state));
            }
        });
    }

    fn add<K: kube::Resource<DynamicType = ()>>(&self, metric: StateMetric) -> Arc<Counted> {
        let counted = Arc::new(Counted { kind: Gvk::of::<K>().kind, metric, counts: Mutex::default() });
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).push(counted.clone());
        counted
    }
}

impl Collector for States {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if !self.gate.is_open() {
            return Ok(());
        }
        for one in self.kinds.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let help = format!("{} objects by state", one.kind);
            let mut metric = encoder.encode_descriptor(one.metric.name, &help, None, MetricType::Gauge)?;
            for (state, count) in one.values() {
                ConstGauge::new(count).encode(metric.encode_family(&[("status", state)])?)?;
            }
        }
        Ok(())
    }
}

impl Counted {
    /// Updates the counts on a change of an object.
    fn update(&self, old: Option<&str>, new: Option<&str>) {
        if old == new {
            return;
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (state, step) in [(old, -1), (new, 1)] {
            let Some(state) = state else { continue };
            *counts.entry(state.to_owned()).or_default() += step;
        }
        counts.retain(|_, count| *count != 0);
    }

    fn values(&self) -> BTreeMap<String, i64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all = (ALL.to_owned(), counts.values().sum());
        let zero = self.metric.states.iter().chain(&[UNKNOWN]).map(|state| ((*state).to_owned(), 0));
        zero.chain([all]).chain(counts).collect()
    }
}

fn state(object: &Live) -> &str {
    object["status"]["state"].as_str().filter(|state| !state.is_empty()).unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use capstan_api::nim::NimService;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    const SERVICES: &str = "nimService_status_total";

    /// States of NIMServices, and those who count them.
    fn counted(gate: Gate) -> (States, Arc<Counted>) {
        let states = States::new(gate);
        let metric = StateMetric { name: SERVICES, states: &["Failed", "NotReady", "Pending", "Ready"] };
        let services = states.add::<NimService>(metric);
        (states, services)
    }

    fn text(states: &States) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(states.clone()));
        encode(&mut text, &registry).expect("text");
        text
    }

    fn services(states: &States) -> Vec<String> {
        let text = text(states);
        let lines = text.lines().filter_map(|line| line.strip_prefix(SERVICES)?.strip_prefix("{status=\""));
        lines.map(|rest| rest.replace("\"}", "")).collect()
    }

    #[test]
    fn an_object_counts_in_the_state_that_it_is_in() {
        let (states, counted) = counted(Gate::open());
        counted.update(None, Some(UNKNOWN));
        counted.update(None, Some("Ready"));
        counted.update(Some(UNKNOWN), Some("NotReady"));
        counted.update(Some("Ready"), Some("Ready"));
        assert_eq!(services(&states), ["Failed 0", "NotReady 1", "Pending 0", "Ready 1", "Unknown 0", "all 2"]);
        counted.update(Some("Ready"), None);
        assert_eq!(services(&states), ["Failed 0", "NotReady 1", "Pending 0", "Ready 0", "Unknown 0", "all 1"]);
    }

    #[test]
    fn a_state_of_the_operator_before_us_is_shown_while_something_is_in_it() {
        let (states, counted) = counted(Gate::open());
        counted.update(None, Some("PVC-Created"));
        assert!(services(&states).contains(&"PVC-Created 1".to_owned()));
        counted.update(Some("PVC-Created"), Some("Ready"));
        assert_eq!(services(&states), ["Failed 0", "NotReady 0", "Pending 0", "Ready 1", "Unknown 0", "all 1"]);
    }

    #[test]
    fn only_the_leader_shows_them() {
        assert_eq!(text(&counted(Gate::closed()).0), "# EOF\n");
    }
}
