//! Nodes without feature labels: Node Feature Discovery has not run there, or has not applied its labels.

use crate::doctor::finding::{Finding, Scope, Severity};
use crate::doctor::index::{FEATURES, Index, condition, has_gpu, items, label, reference, text};
use crate::snapshot::named;

/// Labels that driver selection needs, without the prefix.
const NEEDED: &[&str] = &["kernel-version.full", "system-os_release.ID", "system-os_release.VERSION_ID"];

const FIX: &str = "see that node-feature-discovery runs and tolerates the node's taints: kubectl get pods -A -l \
                   app.kubernetes.io/name=node-feature-discovery -o wide";

/// Whether anything besides feature discovery indicates GPUs on a node: many clusters run discovery only on GPU nodes.
fn may_have_gpus(node: &serde_json::Value) -> bool {
    let hints = ["nvidia.com/", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator", "accelerator"];
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    labels.into_iter().any(|(key, _)| hints.iter().any(|hint| key.starts_with(hint)))
}

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let policies = index.snapshot.of("nvidia.com", "ClusterPolicy");
    let reported = policies.iter().filter_map(|policy| {
        let ready = condition(policy, "Ready").filter(|ready| ready["reason"] == "NFDLabelsMissing")?;
        let finding = Finding::about(policy, text(&ready["message"])).scope(Scope::Cluster);
        Some(finding.evidence(format!("{}, condition Ready: NFDLabelsMissing", reference(policy))).fix(FIX))
    });
    let mut all: Vec<Finding> = reported.collect();
    if !all.is_empty() {
        return all;
    }
    let discovered = |node: &serde_json::Value| {
        node["metadata"]["labels"].as_object().is_some_and(|labels| labels.keys().any(|key| key.starts_with(FEATURES)))
    };
    let runs_somewhere = index.nodes().iter().any(discovered);
    for node in index.nodes() {
        let name = named(node).1;
        let apart = node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"].is_null()
            && items(&node["spec"]["taints"]).iter().all(|taint| taint["effect"] == "PreferNoSchedule");
        if runs_somewhere && !discovered(node) && apart && !has_gpu(node) && may_have_gpus(node) {
            let finding = Finding::on_node(name, "feature discovery has not run, so nobody knows whether it has GPUs");
            let line = format!("Node {name}: no label begins with {FEATURES}");
            all.push(finding.severity(Severity::Warning).evidence(line).fix(FIX));
        }
    }
    if policies.is_empty() {
        return all;
    }
    for node in index.gpu_nodes() {
        let name = named(node).1;
        let missing: Vec<String> =
            NEEDED.iter().map(|label| format!("{FEATURES}{label}")).filter(|key| label(node, key).is_empty()).collect();
        if !missing.is_empty() {
            let what = format!("labels are missing that choose a driver: {}", missing.join(", "));
            all.push(
                Finding::on_node(name, what).evidence(format!("Node {name} has a GPU and not these labels")).fix(FIX),
            );
        } else if label(node, capstan_node::labels::GPU_PRESENT) != "true"
            && policies.iter().all(|policy| index.exceeds_grace_period(&policy["metadata"]["creationTimestamp"]))
            && index.exceeds_grace_period(&node["metadata"]["creationTimestamp"])
        {
            let finding = Finding::on_node(name, "it has a GPU, and the operator has not labelled it");
            let finding = finding.evidence(format!("Node {name}: nvidia.com/gpu.present is not true"));
            all.push(finding.fix("see that the operator runs and leads: capstan status"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    #[test]
    fn a_node_where_discovery_has_not_run() {
        let node = |labels| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "new", "labels": labels}});
        let hinted = node(json!({"cloud.google.com/gke-accelerator": "nvidia-h100"}));
        assert_only(&Cluster::healthy().add(hinted), "feature-discovery");
        assert_healthy(&Cluster::healthy().add(node(json!({}))));
    }

    #[test]
    fn control_planes_need_no_discovery() {
        let labels = json!({"node-role.kubernetes.io/control-plane": "", "accelerator": "none"});
        assert_healthy(
            &Cluster::healthy()
                .add(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cp", "labels": labels}})),
        );
    }

    #[test]
    fn a_label_that_the_driver_needs() {
        let cluster = Cluster::healthy().edit("Node", "gpu-1", |node| {
            node["metadata"]["labels"]
                .as_object_mut()
                .unwrap()
                .remove("feature.node.kubernetes.io/kernel-version.full");
        });
        let report = assert_only(&cluster, "feature-discovery");
        assert!(report.causes[0].title.ends_with("kernel-version.full"), "{report:?}");
    }

    #[test]
    fn a_cluster_without_discovery_is_told_in_the_words_of_the_policy() {
        let cluster = Cluster::healthy().edit("ClusterPolicy", "cluster-policy", |policy| {
            policy["status"]["conditions"] =
                json!([{"type": "Ready", "status": "True", "reason": "NFDLabelsMissing", "message": "No NFD labels found"}]);
        });
        let report = assert_only(&cluster, "feature-discovery");
        assert_eq!(report.causes[0].title, "ClusterPolicy cluster-policy: No NFD labels found");
    }
}
