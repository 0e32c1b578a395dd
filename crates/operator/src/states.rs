//! How many objects of each kind are in which state, under the names that dashboards of model services know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_api::nim::{NimBuild, NimCache, NimPipeline, NimService};
use capstan_plan::{Gvk, Live};
use capstan_runtime::{Cache, Gate};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// State of what has none yet.
const UNKNOWN: &str = "Unknown";
/// All objects, whatever their state.
const ALL: &str = "all";

/// One kind: the name of its gauge, the states that are shown even when nothing is in them, and the counts.
#[derive(Debug)]
struct Counted {
    gvk: Gvk,
    name: &'static str,
    known: &'static [&'static str],
    counts: Mutex<BTreeMap<String, i64>>,
}

/// The gauges of all kinds. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct States {
    kinds: Arc<[Counted]>,
    gate: Gate,
}

impl States {
    /// Nothing is counted yet, and nothing is shown while `gate` is closed: dashboards add up what all replicas say.
    pub(crate) fn new(gate: Gate) -> Self {
        let cache: &[_] = &["Failed", "InProgress", "NotReady", "PVC-Created", "Pending", "Ready", "Started"];
        let service: &[_] = &["Failed", "NotReady", "Pending", "Ready"];
        let pipeline: &[_] = &["Failed", "NotReady", "Ready"];
        let build: &[_] = &["Failed", "InProgress", "NotReady", "Pending", "Ready", "Started"];
        let kinds = [
            (Gvk::of::<NimCache>(), "nimCache_status_total", cache),
            (Gvk::of::<NimService>(), "nimService_status_total", service),
            (Gvk::of::<NimPipeline>(), "nimPipeline_status_total", pipeline),
            (Gvk::of::<NimBuild>(), "nimBuild_status_total", build),
        ];
        let counted = kinds.map(|(gvk, name, known)| Counted { gvk, name, known, counts: Mutex::default() });
        Self { kinds: counted.into(), gate }
    }

    /// Counts what `cache` has from now on.
    pub(crate) fn follow(self, cache: &Cache) {
        cache.subscribe(move |change| {
            if let Some(one) = self.kinds.iter().find(|one| change.kind.is(&one.gvk)) {
                one.moved(change.old.map(state), change.new.map(state));
            }
        });
    }
}

impl Collector for States {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if !self.gate.is_open() {
            return Ok(());
        }
        for one in self.kinds.iter() {
            let help = format!("{} objects by state", one.gvk.kind);
            let mut metric = encoder.encode_descriptor(one.name, &help, None, MetricType::Gauge)?;
            for (state, count) in one.shown() {
                ConstGauge::new(count).encode(metric.encode_family(&[("status", state)])?)?;
            }
        }
        Ok(())
    }
}

impl Counted {
    /// An object came, went, or is in another state than before.
    fn moved(&self, old: Option<&str>, new: Option<&str>) {
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

    fn shown(&self) -> BTreeMap<String, i64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all = (ALL.to_owned(), counts.values().sum());
        let zero = self.known.iter().chain(&[UNKNOWN]).map(|state| ((*state).to_owned(), 0));
        zero.chain([all]).chain(counts).collect()
    }
}

fn state(object: &Live) -> &str {
    object["status"]["state"].as_str().filter(|state| !state.is_empty()).unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    const SERVICES: &str = "nimService_status_total";

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

    fn moved(states: &States, old: Option<&str>, new: Option<&str>) {
        states.kinds.iter().find(|one| one.name == SERVICES).expect("services").moved(old, new);
    }

    #[test]
    fn an_object_counts_in_the_state_that_it_is_in() {
        let states = States::new(Gate::open());
        moved(&states, None, Some(UNKNOWN));
        moved(&states, None, Some("Ready"));
        moved(&states, Some(UNKNOWN), Some("NotReady"));
        moved(&states, Some("Ready"), Some("Ready"));
        assert_eq!(services(&states), ["Failed 0", "NotReady 1", "Pending 0", "Ready 1", "Unknown 0", "all 2"]);
        moved(&states, Some("Ready"), None);
        assert_eq!(services(&states), ["Failed 0", "NotReady 1", "Pending 0", "Ready 0", "Unknown 0", "all 1"]);
    }

    #[test]
    fn a_state_of_the_operator_before_us_is_shown_while_something_is_in_it() {
        let states = States::new(Gate::open());
        moved(&states, None, Some("PVC-Created"));
        assert!(services(&states).contains(&"PVC-Created 1".to_owned()));
        moved(&states, Some("PVC-Created"), Some("Ready"));
        assert_eq!(services(&states), ["Failed 0", "NotReady 0", "Pending 0", "Ready 1", "Unknown 0", "all 1"]);
    }

    #[test]
    fn every_kind_has_a_gauge() {
        let text = text(&States::new(Gate::open()));
        for kind in ["Cache", "Service", "Pipeline", "Build"] {
            let line = format!("nim{kind}_status_total{{status=\"all\"}} 0");
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }

    #[test]
    fn only_the_leader_shows_them() {
        assert_eq!(text(&States::new(Gate::closed())), "# EOF\n");
    }
}
