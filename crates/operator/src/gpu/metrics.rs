//! Metrics with the names of the upstream GPU operator, for existing dashboards and alerts.

use std::sync::atomic::AtomicU64;

use capstan_operands::gpu::cluster_policy::measures::Measures;
use capstan_operands::gpu::upgrade::Counts;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// One gauge per field of [`Measures`], and counters. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    gauges: [Gauge; 8],
    upgrades: [Gauge; 6],
    last_success: Gauge<f64, AtomicU64>,
    total: Counter,
    failed: Counter,
}

/// Names and help texts, in the order of [`values`].
const GAUGES: [(&str, &str); 8] = [
    ("gpu_nodes_total", "Nodes with GPUs"),
    ("reconciliation_status", "1 all is well, 0 something is not ready, -1 nothing can be done"),
    ("reconciliation_has_nfd_labels", "Whether feature discovery has labelled any node"),
    ("openshift_driver_toolkit_enabled", "1 the driver toolkit is used, 0 not asked for, -1 not possible"),
    ("openshift_driver_toolkit_nfd_too_old", "Whether nodes do not say which version of the system they run"),
    ("openshift_driver_toolkit_imagestream_missing", "Whether the image stream of the driver toolkit is missing"),
    ("openshift_driver_toolkit_rhcos_tags_missing", "Whether a version that nodes run is missing in it"),
    ("openshift_driver_toolkit_imagestream_broken", "Whether it has a tag without a name"),
];

/// The same, in the order of [`Metrics::record_upgrades`].
const UPGRADES: [(&str, &str); 6] = [
    ("driver_auto_upgrade_enabled", "Whether drivers are upgraded automatically"),
    ("nodes_upgrades_in_progress", "Nodes whose driver is being upgraded"),
    ("nodes_upgrades_done", "Nodes with the wanted driver"),
    ("nodes_upgrades_failed", "Nodes on which the upgrade failed"),
    ("nodes_upgrades_available", "Nodes whose upgrade may begin now"),
    ("nodes_upgrades_pending", "Nodes that wait for their turn"),
];

fn values(measures: &Measures) -> [i64; 8] {
    [
        measures.gpu_nodes_total,
        measures.reconciliation_status,
        measures.reconciliation_has_nfd_labels,
        measures.openshift_driver_toolkit_enabled,
        measures.openshift_driver_toolkit_nfd_too_old,
        measures.openshift_driver_toolkit_imagestream_missing,
        measures.openshift_driver_toolkit_rhcos_tags_missing,
        measures.openshift_driver_toolkit_imagestream_broken,
    ]
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("gpu_operator");
        for ((name, help), gauge) in GAUGES.into_iter().zip(&self.gauges) {
            registry.register(name, help, gauge.clone());
        }
        for ((name, help), gauge) in UPGRADES.into_iter().zip(&self.upgrades) {
            registry.register(name, help, gauge.clone());
        }
        let success = self.last_success.clone();
        registry.register("reconciliation_last_success_ts_seconds", "When all was well last", success);
        registry.register("reconciliation", "How often policies were looked at", self.total.clone());
        registry.register("reconciliation_failed", "How often all was not well then", self.failed.clone());
    }

    /// Records the upgrade counts of all nodes; `None` if auto-upgrade is off.
    pub(super) fn record_upgrades(&self, counts: Option<Counts>) {
        let on = counts.is_some();
        let Counts { in_progress, done, available, failed, pending } = counts.unwrap_or_default();
        let values = [usize::from(on), in_progress, done, failed, available, pending];
        for (gauge, value) in self.upgrades.iter().zip(values) {
            gauge.set(value as i64);
        }
    }

    /// Records a reconcile of the active policy, or its absence.
    pub(super) fn record(&self, measures: &Measures, now: Timestamp) {
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
        metrics.record(
            &Measures { gpu_nodes_total: 3, reconciliation_status: 1, ..Measures::default() },
            Timestamp::UNIX_EPOCH,
        );
        metrics.record(&Measures { gpu_nodes_total: 3, ..Measures::default() }, Timestamp::UNIX_EPOCH);
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

    #[test]
    fn there_is_each_metric_of_the_operator_that_this_one_replaces_and_no_other() {
        let metrics = Metrics::default();
        let all = capstan_runtime::Metrics::with(|registry| metrics.register(registry));
        let text = all.encode();
        let names = text.lines().filter_map(|line| line.strip_prefix("gpu_operator_")?.split([' ', '{']).next());
        let names: std::collections::BTreeSet<&str> = names.collect();
        let reference = [
            "driver_auto_upgrade_enabled",
            "gpu_nodes_total",
            "nodes_upgrades_available",
            "nodes_upgrades_done",
            "nodes_upgrades_failed",
            "nodes_upgrades_in_progress",
            "nodes_upgrades_pending",
            "openshift_driver_toolkit_enabled",
            "openshift_driver_toolkit_imagestream_broken",
            "openshift_driver_toolkit_imagestream_missing",
            "openshift_driver_toolkit_nfd_too_old",
            "openshift_driver_toolkit_rhcos_tags_missing",
            "reconciliation_failed_total",
            "reconciliation_has_nfd_labels",
            "reconciliation_last_success_ts_seconds",
            "reconciliation_status",
            "reconciliation_total",
        ];
        assert_eq!(names.into_iter().collect::<Vec<_>>(), reference);
    }

    #[test]
    fn upgrades_are_counted_as_long_as_there_are_any() {
        let metrics = Metrics::default();
        let all = capstan_runtime::Metrics::with(|registry| metrics.register(registry));
        metrics.record_upgrades(Some(Counts { in_progress: 2, done: 3, available: 4, failed: 5, pending: 6 }));
        let text = all.encode();
        for line in [
            "gpu_operator_driver_auto_upgrade_enabled 1",
            "gpu_operator_nodes_upgrades_in_progress 2",
            "gpu_operator_nodes_upgrades_done 3",
            "gpu_operator_nodes_upgrades_available 4",
            "gpu_operator_nodes_upgrades_failed 5",
            "gpu_operator_nodes_upgrades_pending 6",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        metrics.record_upgrades(None);
        assert!(all.encode().lines().any(|one| one == "gpu_operator_nodes_upgrades_failed 0"));
    }
}
