//! GPUs that a node has but does not offer: the device plugin is down, the driver is not loaded, or GPUs are missing.

use capstan_operands::causes::{Cause, Class, words};
use serde_json::Value;

use crate::doctor::finding::Finding;
use crate::doctor::index::{GPU, Index, Pod, Role, amount, condition, items, label, short, text};
use crate::snapshot::named;

/// Text for a node without a device plugin.
fn absent() -> String {
    Cause::of(Class::PluginNotRunning, "").what("")
}

/// The driver pod is ready, but the operands that depend on it find no driver.
pub(super) fn driver_not_loaded(index: &Index<'_>) -> Vec<Finding> {
    let others = index.pods.iter().filter(|pod| !matches!(pod.role, Role::Driver | Role::Workload) && !pod.is_ready());
    let mut all: Vec<Finding> = Vec::new();
    for (pod, (container, line)) in others.filter_map(|pod| Some((pod, index.find_output(pod, words::NOT_LOADED)?))) {
        let line = format!("{}, container {container}: {}", pod.reference(), short(line));
        let at = format!("node {}", pod.node);
        if let Some(known) = all.iter_mut().find(|one| one.at == at) {
            *known = known.clone().object(pod.reference()).evidence(line);
            continue;
        }
        let fix = format!(
            "look at `lsmod | grep nvidia` and `dmesg | grep -i nvrm` on node {0}; then have the driver loaded anew: \
             kubectl delete pod -A -l app.kubernetes.io/component=nvidia-driver --field-selector spec.nodeName={0}",
            pod.node
        );
        let what = Cause::of(Class::NotLoaded, "").what("");
        let mut finding = pod.finding(index, what).evidence(line).fix(fix);
        for driver in index.on_node(pod.node, Role::Driver) {
            let state = if driver.is_ready() { "is ready" } else { "is not ready" };
            finding = finding.object(driver.reference()).evidence(format!("{} {state}", driver.reference()));
        }
        all.push(finding);
    }
    all
}

/// The node should offer GPUs, but its device plugin is missing or fails.
pub(super) fn not_running(index: &Index<'_>) -> Vec<Finding> {
    let wanting = index.gpu_nodes().filter(|node| label(node, capstan_node::DEVICE_PLUGIN.deploy_label()) == "true");
    wanting.filter(|node| !offers(node)).filter_map(|node| missing(index, node)).collect()
}

fn missing(index: &Index<'_>, node: &Value) -> Option<Finding> {
    let name = named(node).1;
    let mut plugins: Vec<&Pod<'_>> = index.on_node(name, Role::Plugin).collect();
    plugins.sort_by_key(|pod| pod.is_ready());
    let Some(pod) = plugins.first() else {
        let young = |object: &Value| !index.exceeds_grace_period(&object["metadata"]["creationTimestamp"]);
        let policies = index.snapshot.of("nvidia.com", "ClusterPolicy");
        if young(node) || policies.iter().any(young) || is_being_placed(index) {
            return None;
        }
        let fix = "kubectl get daemonsets -A -l app.kubernetes.io/managed-by=gpu-operator, and see why none of their \
                   pods is on the node: taints, or labels nvidia.com/gpu.deploy.*";
        return Some(
            Finding::on_node(name, absent()).evidence(format!("Node {name}: no pod of the device plugin")).fix(fix),
        );
    };
    if pod.is_ready() {
        let ready = condition(pod.value, "Ready")?;
        return index.exceeds_grace_period(&ready["lastTransitionTime"]).then(|| {
            pod.finding(index, "the device plugin runs, and the kubelet offers no GPUs")
                .evidence(format!("{} is ready", pod.reference()))
                .evidence(format!("Node {name}: {GPU} is not among its resources"))
                .fix(format!("kubectl logs -n {} {}", pod.namespace, pod.name))
        });
    }
    // Waiting pods are reported by the barrier rule.
    let container = pod.containers().find(|one| !one.init && one.failure().is_some())?;
    let line = index.last_line(pod, container.name).unwrap_or("nothing was logged");
    Some(
        pod.finding(index, absent())
            .evidence(format!("{}: {} restarts", pod.reference(), container.restarts()))
            .evidence(format!("{}, container {}: {}", pod.reference(), container.name, short(line)))
            .fix(format!("kubectl logs -n {} {} -c {} --previous", pod.namespace, pod.name, container.name)),
    )
}

/// Whether pods of the device plugin are still being created: on a large cluster that takes a while.
fn is_being_placed(index: &Index<'_>) -> bool {
    let sets = index.snapshot.of("apps", "DaemonSet").iter();
    let plugins = sets.filter(|set| {
        let containers = items(&set["spec"]["template"]["spec"]["containers"]).iter();
        containers.into_iter().any(|one| ["nvidia-device-plugin", "capstan-node-agent"].contains(&text(&one["name"])))
    });
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    plugins.into_iter().any(|set| {
        let status = &set["status"];
        let unseen = number(&status["observedGeneration"]) < number(&set["metadata"]["generation"]);
        unseen || number(&status["currentNumberScheduled"]) < number(&status["desiredNumberScheduled"])
    })
}

/// Whether a node has allocatable GPUs or MIG devices.
fn offers(node: &Value) -> bool {
    let all = node["status"]["capacity"].as_object().into_iter().flatten();
    let mut of_gpus = all
        .filter(|(name, _)| *name == GPU || name.starts_with("nvidia.com/mig-") || name.starts_with("nvidia.com/gpu."));
    of_gpus.any(|(_, value)| amount(value) > 0)
}

/// The node has more GPUs than the driver or the kubelet reports.
pub(super) fn gpus_missing(index: &Index<'_>) -> Vec<Finding> {
    index.gpu_nodes().filter_map(|node| fewer(index, node)).collect()
}

fn fewer(index: &Index<'_>, node: &Value) -> Option<Finding> {
    let name = named(node).1;
    let (capacity, allocatable) =
        (amount(&node["status"]["capacity"][GPU]), amount(&node["status"]["allocatable"][GPU]));
    if capacity == 0 {
        return None;
    }
    let layout = label(node, capstan_node::labels::MIG_CONFIG);
    let divided = !layout.is_empty() && layout != "all-disabled";
    let counted = label(node, "nvidia.com/gpu.count").parse().unwrap_or(capacity);
    let fix = format!(
        "look at `lspci -d 10de:` and `dmesg | grep -iE 'nvrm|xid'` on node {name}; a GPU that does not come up after a \
         reboot needs to be reseated or replaced"
    );
    if let Some(present) = on_bus(index, name).filter(|present| counted < *present && !divided) {
        let finding = Finding::on_node(name, format!("{counted} of {present} GPUs work"))
            .evidence(format!("NodeFeature of node {name}: {present} GPUs on the PCI bus"))
            .evidence(format!("Node {name}: {GPU} is {capacity}"));
        return Some(finding.fix(fix));
    }
    (allocatable < capacity).then(|| {
        Finding::on_node(name, format!("{allocatable} of {capacity} GPUs are healthy"))
            .evidence(format!("Node {name}: {capacity} {GPU}, of which {allocatable} may be handed out"))
            .fix(fix)
    })
}

/// Number of GPUs on the PCI bus of a node, by feature discovery.
fn on_bus(index: &Index<'_>, node: &str) -> Option<i64> {
    let features = index.snapshot.of("nfd.k8s-sigs.io", "NodeFeature").iter();
    let about = features.filter(|one| label(one, "nfd.node.kubernetes.io/node-name") == node);
    let devices = about.flat_map(|one| items(&one["spec"]["features"]["instances"]["pci.device"]["elements"]));
    let is_gpu = |one: &&Value| {
        let class = text(&one["attributes"]["class"]);
        text(&one["attributes"]["vendor"]) == "10de" && ["0300", "0302"].contains(&class)
    };
    // Some NFD configurations do not list devices.
    i64::try_from(devices.filter(is_gpu).count()).ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_only};

    #[test]
    fn a_plugin_that_fails() {
        let cluster = Cluster::healthy()
            .crashing("plugin", "gpu-1", "nvidia-device-plugin", "listen unix /var/lib/kubelet: permission denied")
            .without_gpus("gpu-1");
        let report = assert_only(&cluster, "plugin-not-running");
        assert!(report.causes[0].evidence[1].ends_with("permission denied"), "{report:?}");
    }

    #[test]
    fn a_plugin_that_fails_while_a_check_waits_for_it() {
        let cluster = Cluster::healthy()
            .crashing("plugin", "gpu-1", "nvidia-device-plugin", "permission denied")
            .waits("validator", "gpu-1", "plugin-validation")
            .without_gpus("gpu-1");
        assert_only(&cluster, "plugin-not-running");
    }

    #[test]
    fn a_plugin_that_is_nowhere() {
        assert_only(&Cluster::healthy().remove("Pod", "plugin-gpu-1").without_gpus("gpu-1"), "plugin-not-running");
    }

    #[test]
    fn a_driver_that_is_not_loaded() {
        let line = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.";
        let cluster = Cluster::healthy()
            .crashing("validator", "gpu-1", "driver-validation", line)
            .waits("plugin", "gpu-1", "driver-validation")
            .without_gpus("gpu-1");
        assert_only(&cluster, "driver-not-loaded");
    }

    #[test]
    fn fewer_gpus_than_on_the_bus() {
        let gpu = json!({"attributes": {"vendor": "10de", "class": "0302"}});
        let bridge = json!({"attributes": {"vendor": "10de", "class": "0680"}});
        let devices: Vec<_> = std::iter::repeat_n(gpu, 8).chain([bridge]).collect();
        let cluster = Cluster::healthy()
            .add(json!({
                "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
                "metadata": {"name": "gpu-1", "namespace": "nfd", "labels": {"nfd.node.kubernetes.io/node-name": "gpu-1"}},
                "spec": {"features": {"instances": {"pci.device": {"elements": devices}}}},
            }))
            .edit("Node", "gpu-1", |node| {
                node["status"]["capacity"]["nvidia.com/gpu"] = "7".into();
                node["status"]["allocatable"]["nvidia.com/gpu"] = "7".into();
            });
        let report = assert_only(&cluster, "gpus-missing");
        assert_eq!(report.causes[0].title, "node gpu-1: 7 of 8 GPUs work");
    }

    #[test]
    fn gpus_that_may_not_be_handed_out() {
        let cluster = Cluster::healthy()
            .edit("Node", "gpu-1", |node| node["status"]["allocatable"]["nvidia.com/gpu"] = "7".into());
        assert_only(&cluster, "gpus-missing");
    }
}
