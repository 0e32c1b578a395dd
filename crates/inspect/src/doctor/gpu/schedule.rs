//! GPUs that exist but cannot be scheduled: taints, quotas, MIG layouts, or requests larger than a node.

use std::collections::BTreeMap;

use capstan_node::labels;
use capstan_operands::causes::words;
use capstan_semantics::taints;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use serde::Deserialize;
use serde_json::Value;

use crate::doctor::finding::{Finding, Scope, Severity};
use crate::doctor::index::{GPU, Index, Pod, Role, amount, has_gpu, items, label, reference, short, text};
use crate::snapshot::named;

/// Annotation with the startup taint of new nodes, which the operator removes.
const STARTUP: &str = "capstan.dev/startup-taint";

/// `key=value:Effect`.
fn format_taint(taint: &Value) -> String {
    let (key, value, effect) = (text(&taint["key"]), text(&taint["value"]), text(&taint["effect"]));
    if value.is_empty() { format!("{key}:{effect}") } else { format!("{key}={value}:{effect}") }
}

/// Taints that a user set on purpose, without those of Kubernetes and the operator's startup taint.
fn lasting_taints(node: &Value) -> impl Iterator<Item = &Value> {
    let own = text(&node["metadata"]["annotations"][STARTUP]);
    items(&node["spec"]["taints"]).iter().filter(move |taint| {
        let key = text(&taint["key"]);
        let foreign = key.starts_with("node.kubernetes.io/") || key.starts_with("node.cloudprovider.kubernetes.io/");
        taint["effect"] != "PreferNoSchedule" && !foreign && own.split(['=', ':']).next() != Some(key)
    })
}

fn tolerates(spec: &Value, taint: &Value) -> bool {
    let Ok(taint) = Taint::deserialize(taint) else { return false };
    let tolerations = items(&spec["tolerations"]).iter().filter_map(|one| Toleration::deserialize(one).ok());
    tolerations.into_iter().any(|toleration| taints::tolerates(&toleration, &taint))
}

pub(super) fn taint(index: &Index<'_>) -> Vec<Finding> {
    const WHAT: &str = "keeps pods away";
    let tainted: Vec<(&Value, &Value)> =
        index.gpu_nodes().flat_map(|node| lasting_taints(node).map(move |taint| (node, taint))).collect();
    let mut all = Vec::new();
    for (node, taint) in &tainted {
        let (name, taint_text) = (named(node).1, format_taint(taint));
        let present = [Role::Driver, Role::Toolkit, Role::Plugin, Role::Validator];
        let wanted = label(node, labels::GPU_PRESENT) == "true" && label(node, labels::DEPLOY_OPERANDS) != "false";
        if wanted && !present.iter().any(|role| index.on_node(name, *role).next().is_some()) {
            let fix = format!(
                "let the parts of GPU nodes tolerate it: spec.daemonsets.tolerations of the ClusterPolicy, with key {}; or \
                 kubectl taint node {name} {taint_text}-",
                text(&taint["key"])
            );
            let finding = Finding::on_node(name, format!("the taint {taint_text} {WHAT}"));
            all.push(finding.evidence(format!("Node {name}: no part of a GPU node runs there")).fix(fix));
        }
    }
    for pod in &index.pods {
        let Some(message) = pod.unschedulable().filter(|message| message.contains("untolerated taint")) else {
            continue;
        };
        if !wants_gpu(pod) {
            continue;
        }
        let Some((node, taint)) = tainted.iter().find(|(_, taint)| !tolerates(&pod.value["spec"], taint)) else {
            continue;
        };
        let finding = pod.finding(index, format!("the taint {} {WHAT}", format_taint(taint))).object(reference(node));
        all.push(finding.evidence(format!("{}: {}", pod.reference(), short(message))).fix(format!(
            "let the pod tolerate it: tolerations with key {}; or kubectl taint node {} {}-",
            text(&taint["key"]),
            named(node).1,
            format_taint(taint)
        )));
    }
    all
}

fn wants_gpu(pod: &Pod<'_>) -> bool {
    pod.devices().iter().any(|name| name.starts_with("nvidia.com/")) || pod.value["spec"]["resourceClaims"].is_array()
}

pub(super) fn quota(index: &Index<'_>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for event in index.all_warnings().filter(|event| index.is_short_of_pods(event)) {
        let message = text(&event["message"]);
        let Some(name) = words::between(message, "exceeded quota: ", ",").filter(|_| message.contains("nvidia.com/"))
        else {
            continue;
        };
        let about = &event["involvedObject"];
        let namespace = text(&about["namespace"]);
        let object = format!("{} {namespace}/{}", text(&about["kind"]), text(&about["name"]));
        if all.iter().any(|finding| finding.at == object) {
            continue;
        }
        let finding = Finding::new(
            object.clone(),
            format!("ResourceQuota {namespace}/{name} allows no more GPUs"),
            Scope::Objects,
        );
        let finding = finding.object(object.clone()).object(format!("ResourceQuota {namespace}/{name}"));
        all.push(finding.evidence(format!("{object}: {}", short(message))).fix(format!(
            "kubectl describe quota -n {namespace} {name}; raise its requests.nvidia.com/gpu, or end something there"
        )));
    }
    all
}

pub(super) fn mig(index: &Index<'_>) -> Vec<Finding> {
    let failed = index.nodes().iter().filter(|node| label(node, labels::MIG_CONFIG_STATE) == "failed");
    let failed = failed.map(|node| {
        let (name, layout) = (named(node).1, label(node, labels::MIG_CONFIG));
        Finding::on_node(name, format!("the MIG layout {layout} could not be applied"))
            .evidence(format!("Node {name}: nvidia.com/mig.config={layout}, nvidia.com/mig.config.state=failed"))
            .fix(format!(
                "choose a layout that these GPUs have: kubectl label node {name} nvidia.com/mig.config=all-disabled \
                 --overwrite; the MIG manager's log says what was wrong, and pods that use the GPUs must go first"
            ))
    });
    // MIG resources of nodes, and whether any node has some.
    let mut offered: BTreeMap<&str, bool> = BTreeMap::new();
    for (name, count) in index.nodes().iter().filter_map(|node| node["status"]["allocatable"].as_object()).flatten() {
        if name.starts_with("nvidia.com/mig-") {
            *offered.entry(name).or_default() |= amount(count) > 0;
        }
    }
    let has_none = |name: &str| name.starts_with("nvidia.com/mig-") && offered.get(name) != Some(&true);
    let have = offered.keys().copied().collect::<Vec<_>>().join(", ");
    let have = if have.is_empty() { "none".to_owned() } else { have };
    let wanting = index.pods.iter().filter_map(|pod| Some((pod, pod.unschedulable()?)));
    let unlike = wanting.filter_map(|(pod, message)| {
        let resource = pod.devices().into_iter().find(|name| has_none(name))?;
        let finding = pod.finding(index, format!("no node has {resource}: no MIG layout makes it"));
        Some(
            finding
                .evidence(format!("{}: {}", pod.reference(), short(message)))
                .evidence(format!("MIG devices that nodes offer: {have}"))
                .fix("label a node with a layout that has it (nvidia.com/mig.config), with migManager.enabled and mig.strategy: mixed in the ClusterPolicy"),
        )
    });
    failed.chain(unlike).collect()
}

/// Pods that wait for GPUs. That all are in use is normal on a busy cluster.
pub(super) fn insufficient(index: &Index<'_>) -> Vec<Finding> {
    let largest = index.nodes().iter().map(|node| amount(&node["status"]["allocatable"][GPU])).max().unwrap_or(0);
    let waiting = index.pods.iter().filter_map(|pod| Some((pod, pod.unschedulable()?)));
    waiting
        .filter(|(pod, message)| message.contains(&format!("Insufficient {GPU}")) && pod.requested(GPU) > 0)
        .map(|(pod, message)| {
            let requested_gpus = pod.requested(GPU);
            let line = format!("{}: {}", pod.reference(), short(message));
            let (what, fix, severity) = if largest == 0 {
                let what = "no node offers GPUs".to_owned();
                let fix = if index.nodes().iter().any(has_gpu) {
                    "make the GPUs of the nodes usable: kubectl apply -f examples/gpu/minimal.yaml"
                } else {
                    "add a node with GPUs; feature discovery has found none"
                };
                (what, fix.to_owned(), Severity::Error)
            } else if requested_gpus > largest {
                let what = format!("it asks for {requested_gpus} GPUs, and no node has more than {largest}");
                (
                    what,
                    format!("ask for {largest} at most, or spread over nodes: spec.multiNode of a NIMService"),
                    Severity::Error,
                )
            } else {
                ("it waits until GPUs are free".to_owned(), String::new(), Severity::Note)
            };
            pod.finding(index, what).evidence(line).fix(fix).severity(severity)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn tainted() -> Cluster {
        Cluster::healthy().edit("Node", "gpu-1", |node| {
            node["spec"]["taints"] = json!([{"key": "dedicated", "value": "research", "effect": "NoSchedule"}]);
        })
    }

    #[test]
    fn a_taint_that_a_pod_does_not_tolerate() {
        let message = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu.";
        let report = assert_only(&tainted().unschedulable("train", "nvidia.com/gpu", 1, message), "gpu-taint");
        assert_eq!(report.causes[0].title, "Pod nim/train: the taint dedicated=research:NoSchedule keeps pods away");
    }

    #[test]
    fn a_taint_whose_name_the_startup_taint_begins_with() {
        let cluster = tainted().edit("Node", "gpu-1", |node| {
            node["metadata"]["annotations"][super::STARTUP] = "dedicated-to-nobody-yet:NoSchedule".into();
        });
        let message = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu.";
        assert_only(&cluster.unschedulable("train", "nvidia.com/gpu", 1, message), "gpu-taint");
    }

    #[test]
    fn a_taint_that_parts_of_gpu_nodes_do_not_tolerate() {
        let apps = ["driver", "toolkit", "plugin", "validator"];
        let cluster = apps.iter().fold(tainted(), |cluster, app| cluster.remove("Pod", &format!("{app}-gpu-1")));
        assert_only(&cluster.without_gpus("gpu-1"), "gpu-taint");
    }

    #[test]
    fn a_quota_that_is_used_up() {
        let message = "Error creating: pods \"train-x\" is forbidden: exceeded quota: gpus, requested: \
                       requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=0";
        let cluster =
            Cluster::healthy().short_of_pods("train").warning("ReplicaSet", "nim", "train", "FailedCreate", message);
        let report = assert_only(&cluster, "gpu-quota");
        assert_eq!(report.causes[0].title, "ReplicaSet nim/train: ResourceQuota nim/gpus allows no more GPUs");
    }

    #[test]
    fn a_mig_layout_that_failed_or_that_nobody_has() {
        let failed = Cluster::healthy().edit("Node", "gpu-1", |node| {
            node["metadata"]["labels"]["nvidia.com/mig.config"] = "all-9g".into();
            node["metadata"]["labels"]["nvidia.com/mig.config.state"] = "failed".into();
        });
        assert_only(&failed, "mig-layout");
        let message = "0/3 nodes are available: 3 Insufficient nvidia.com/mig-3g.71gb.";
        assert_only(&Cluster::healthy().unschedulable("train", "nvidia.com/mig-3g.71gb", 1, message), "mig-layout");
    }

    #[test]
    fn a_pod_that_asks_for_more_than_a_node_has() {
        let message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.";
        assert_only(&Cluster::healthy().unschedulable("train", "nvidia.com/gpu", 9, message), "gpus-insufficient");
    }

    #[test]
    fn a_busy_cluster_is_well() {
        let message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.";
        assert_healthy(&Cluster::healthy().unschedulable("train", "nvidia.com/gpu", 8, message));
    }
}
