//! Defaults of workload controllers and autoscalers.

use serde_json::{Map, Value, json};

use super::{template, volume};
use crate::admit::json::{Fill, Read};
use crate::admit::prepare::TEMPLATE_GENERATION;

/// A Deployment.
pub(super) fn deployment(deployment: &mut Value) {
    let Some(spec) = deployment.inner_or_new("spec") else { return };
    spec.fill("replicas", 1);
    if let Some(strategy) = spec.inner_or_new("strategy") {
        rolling(strategy, &[("maxUnavailable", "25%".into()), ("maxSurge", "25%".into())]);
    }
    spec.fill("revisionHistoryLimit", 10);
    spec.fill("progressDeadlineSeconds", 600);
    template(spec, "template");
}

/// A DaemonSet.
pub(super) fn daemon_set(set: &mut Value) {
    // kube-apiserver converts `templateGeneration` into this annotation before it computes managed fields.
    if let Some(annotations) = set.inner_or_new("metadata").and_then(|meta| meta.inner_or_new("annotations")) {
        annotations.fill(TEMPLATE_GENERATION, "0");
    }
    let Some(spec) = set.inner_or_new("spec") else { return };
    if let Some(strategy) = spec.inner_or_new("updateStrategy") {
        rolling(strategy, &[("maxUnavailable", 1.into()), ("maxSurge", 0.into())]);
    }
    spec.fill("revisionHistoryLimit", 10);
    template(spec, "template");
}

fn rolling(strategy: &mut Value, defaults: &[(&str, Value)]) {
    strategy.fill_zero("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate"
        && let Some(rolling) = strategy.inner_or_new("rollingUpdate")
    {
        for (key, value) in defaults {
            rolling.fill(key, value.clone());
        }
    }
}

/// A ReplicaSet.
pub(super) fn replica_set(set: &mut Value) {
    let Some(spec) = set.inner_or_new("spec") else { return };
    spec.fill("replicas", 1);
    template(spec, "template");
}

/// A StatefulSet.
pub(super) fn stateful_set(set: &mut Value) {
    let Some(spec) = set.inner_or_new("spec") else { return };
    spec.fill_zero("podManagementPolicy", "OrderedReady");
    if let Some(strategy) = spec.inner_or_new("updateStrategy") {
        if strategy.text("type").is_empty() {
            strategy.put("type", "RollingUpdate");
            strategy.fill("rollingUpdate", Map::new());
        }
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.inner("rollingUpdate")
        {
            rolling.fill("partition", 0);
            rolling.fill("maxUnavailable", 1);
        }
    }
    if let Some(policy) = spec.inner_or_new("persistentVolumeClaimRetentionPolicy") {
        policy.fill_zero("whenDeleted", "Retain");
        policy.fill_zero("whenScaled", "Retain");
    }
    spec.fill("replicas", 1);
    spec.fill("revisionHistoryLimit", 10);
    for claim in spec.items("volumeClaimTemplates") {
        claim.fill_zero("apiVersion", "v1");
        claim.fill_zero("kind", "PersistentVolumeClaim");
        volume::claim(claim);
    }
    template(spec, "template");
}

/// A ReplicationController: selector and labels default to the template's labels.
pub(super) fn replication_controller(controller: &mut Value) {
    let Some(spec) = controller.inner_or_new("spec") else { return };
    spec.fill("replicas", 1);
    let labels = spec["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        spec.fill_zero("selector", labels.clone());
    }
    template(spec, "template");
    if labels.is_object()
        && let Some(meta) = controller.inner_or_new("metadata")
    {
        meta.fill_zero("labels", labels);
    }
}

/// A HorizontalPodAutoscaler, in either version.
pub(super) fn autoscaler(autoscaler: &mut Value, version: &str) {
    let Some(spec) = autoscaler.inner_or_new("spec") else { return };
    spec.fill("minReplicas", 1);
    if version == "v1" {
        return;
    }
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    spec.fill_zero("metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    if let Some(behavior) = spec.inner("behavior") {
        let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
        if let Some(up) = behavior.inner_or_new("scaleUp") {
            up.fill("stabilizationWindowSeconds", 0);
            up.fill("selectPolicy", "Max");
            up.fill("policies", json!([policy("Pods", 4), policy("Percent", 100)]));
        }
        if let Some(down) = behavior.inner_or_new("scaleDown") {
            down.fill("selectPolicy", "Max");
            down.fill("policies", json!([policy("Percent", 100)]));
        }
    }
}
