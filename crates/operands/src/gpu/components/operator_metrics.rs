//! Metrics of the operator itself: a Service, a ServiceMonitor and, on OpenShift, alerts.

use capstan_plan::Object;
use capstan_plan::kit::monitoring::{alert, labelled, scraped_service};
use capstan_plan::kit::rbac::{role, role_binding, rule};
use k8s_openapi::api::core::v1::ServiceSpec;
use serde_json::json;

use super::monitor::{monitor, rules};
use super::{MANAGER, Operand, Outcome, PolicyCx};

pub(crate) const OPERAND: Operand =
    Operand { name: "state-operator-metrics", condition: "OperatorMetrics", deploy: None, enabled: |_| true, objects };

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let settings = cx.spec().operator.metrics.as_ref().and_then(|metrics| metrics.service_monitor.as_ref());
    let mut objects = vec![scraped_service(&cx.scope, MANAGER, "gpu-operator-metrics", 8080, ServiceSpec::default())];
    objects.extend(monitor(cx, MANAGER, "gpu-operator-metrics", "operator", settings));
    if cx.cluster.openshift.is_some() {
        objects.extend(prometheus(cx));
        objects.extend(rules(cx, "nvidia-gpu-operator-metrics", json!([{"name": "gpu-operator", "rules": alerts()}])));
    }
    Ok(objects)
}

/// RBAC for OpenShift's Prometheus in our namespace.
fn prometheus(cx: &PolicyCx<'_>) -> [Object; 2] {
    let name = "prometheus-k8s";
    let metadata = || labelled(&cx.scope, name, MANAGER);
    let rules = vec![rule("", &["services", "endpoints", "pods"], &["get", "list", "watch"])];
    [role(metadata(), rules), role_binding(metadata(), name, name, "openshift-monitoring")]
}

fn alerts() -> Vec<serde_json::Value> {
    let toolkit = |suffix: &str, enabled: &str, metric: &str, summary: &str| {
        let name = format!("GPUOperatorOpenshiftDriverToolkitEnabled{suffix}");
        let expr = format!(
            "gpu_operator_openshift_driver_toolkit_enabled == {enabled} and gpu_operator_openshift_driver_toolkit_{metric} == 1"
        );
        alert(&name, &expr, "30m", summary)
    };
    vec![
        alert(
            "GPUOperatorReconciliationFailed",
            "gpu_operator_reconciliation_status != 1",
            "1h",
            "The GPU stack is not what its ClusterPolicy asks for",
        ),
        alert(
            "GPUOperatorReconciliationFailedNfdLabelsMissing",
            "gpu_operator_reconciliation_status != 1 and gpu_operator_reconciliation_has_nfd_labels == 0",
            "30m",
            "No node carries labels of feature discovery",
        ),
        toolkit("NfdTooOld", "-1", "nfd_too_old", "Nodes lack the label with the version of their system"),
        toolkit("ImageStreamMissing", "-1", "imagestream_missing", "The image stream of the driver toolkit is missing"),
        toolkit(
            "ImageStreamBroken",
            "1",
            "imagestream_broken",
            "The image stream of the driver toolkit has a tag without a name",
        ),
        toolkit(
            "ImageTagsMissing",
            "1",
            "rhcos_tags_missing",
            "The image stream of the driver toolkit lacks a version of the nodes",
        ),
        alert(
            "GPUOperatorDriverAutoUpgradeFailures",
            "gpu_operator_driver_auto_upgrade_enabled == 1 and gpu_operator_nodes_upgrades_failed > 0",
            "30m",
            "A driver upgrade failed on some node",
        ),
    ]
}
