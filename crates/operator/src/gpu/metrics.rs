//! The metrics by which clusters with GPUs are watched today, under the names that dashboards and alerts know.

use std::sync::atomic::AtomicU64;

use capstan_operands::gpu::policy::measures::Measures;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// One gauge per field of [`Measures`], and what is counted. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    gauges: [Gauge; 9],
    last_success: Gauge<f64, AtomicU64>,
    total: Counter,
    failed: Counter,
}

/// Names and meanings, in the order of [`values`].
const GAUGES: [(&str, &str); 9] = [
    ("gpu_nodes_total", "Nodes with GPUs"),
    ("reconciliation_status", "1 all is well, 0 something is not ready, -1 nothing can be done"),
    ("reconciliation_has_nfd_labels", "Whether feature discovery has labelled any node"),
    ("openshift_driver_toolkit_enabled", "1 the driver toolkit is used, 0 not asked for, -1 not possible"),
    ("openshift_driver_toolkit_nfd_too_old", "Whether nodes do not say which version of the system they run"),
    ("openshift_driver_toolkit_imagestream_missing", "Whether the image stream of the driver toolkit is missing"),
    ("openshift_driver_toolkit_rhcos_tags_missing", "Whether a version that nodes run is missing in it"),
    ("openshift_driver_toolkit_imagestream_broken", "Whether it has a tag without a name"),
    ("driver_auto_upgrade_enabled", "Whether drivers are upgraded automatically"),
];

fn values(measures: &Measures) -> [i64; 9] {
    [
        measures.gpu_nodes_total,
        measures.reconciliation_status,
        measures.reconciliation_has_nfd_labels,
        measures.openshift_driver_toolkit_enabled,
        measures.openshift_driver_toolkit_nfd_too_old,
        measures.openshift_driver_toolkit_imagestream_missing,
        measures.openshift_driver_toolkit_rhcos_tags_missing,
        measures.openshift_driver_toolkit_imagestream_broken,
        measures.driver_auto_upgrade_enabled,
    ]
}

impl Metrics {
    /// Makes them visible.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("gpu_operator");
        for ((name, help), gauge) in GAUGES.into_iter().zip(&self.gauges) {
            registry.register(name, help, gauge.clone());
        }
        let success = self.last_success.clone();
        registry.register("reconciliation_last_success_ts_seconds", "When all was well last", success);
        registry.register("reconciliation", "How often policies were looked at", self.total.clone());
        registry.register("reconciliation_failed", "How often all was not well then", self.failed.clone());
    }

    /// Takes in one look at the policy that counts, or at its absence.
    pub(super) fn saw(&self, measures: &Measures, now: Timestamp) {
        for (gauge, value) in self.gauges.iter().zip(values(measures)) {
            gauge.set(value);
        }
        if measures.reconciliation_status >= 0 {
            self.total.inc();
        }
        match measures.reconciliation_status {
            1 => drop(self.last_success.set(now.as_second() as f64)),
            0 => drop(self.failed.inc()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_called_what_dashboards_call_them() {
        let metrics = Metrics::default();
        let all = capstan_runtime::Metrics::with(|registry| metrics.register(registry));
        metrics.saw(
            &Measures { gpu_nodes_total: 3, reconciliation_status: 1, ..Measures::default() },
            Timestamp::UNIX_EPOCH,
        );
        metrics.saw(&Measures { gpu_nodes_total: 3, ..Measures::default() }, Timestamp::UNIX_EPOCH);
        let text = all.encode();
        for line in [
            "gpu_operator_gpu_nodes_total 3",
            "gpu_operator_reconciliation_status 0",
            "gpu_operator_reconciliation_total 2",
            "gpu_operator_reconciliation_failed_total 1",
            "gpu_operator_reconciliation_last_success_ts_seconds 0.0",
            "gpu_operator_openshift_driver_toolkit_imagestream_broken 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("# EOF").count(), 1);
    }
}
