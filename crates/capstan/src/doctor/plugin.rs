//! GPUs that a node has and does not offer: the plugin does not run, the driver is not loaded, or some are missing.

use capstan_operands::causes::{Cause, Class, words};
use serde_json::Value;

use super::finding::Finding;
use super::look::{GPU, Look, Pod, Role, amount, condition, items, label, short, text};
use crate::snapshot::named;

/// What is said of a node without a plugin.
fn absent() -> String {
    Cause::of(Class::PluginNotRunning, "").what("")
}

/// The driver's pod is well, and those who come after it find no driver.
pub(super) fn driver_not_loaded(look: &Look<'_>) -> Vec<Finding> {
    let others = look.pods.iter().filter(|pod| !matches!(pod.role, Role::Driver | Role::Workload) && !pod.is_ready());
    let mut all: Vec<Finding> = Vec::new();
    for (pod, (container, line)) in others.filter_map(|pod| Some((pod, look.says(pod, words::NOT_LOADED)?))) {
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
        let mut finding = pod.finding(look, what).evidence(line).fix(fix);
        for driver in look.on_node(pod.node, Role::Driver) {
            let state = if driver.is_ready() { "is ready" } else { "is not ready" };
            finding = finding.object(driver.reference()).evidence(format!("{} {state}", driver.reference()));
        }
        all.push(finding);
    }
    all
}

/// The node should offer GPUs, and its plugin is not there or fails.
pub(super) fn not_running(look: &Look<'_>) -> Vec<Finding> {
    let wanting = look.gpu_nodes().filter(|node| label(node, capstan_node::DEVICE_PLUGIN.deploy_label()) == "true");
    wanting.filter(|node| !offers(node)).filter_map(|node| missing(look, node)).collect()
}

fn missing(look: &Look<'_>, node: &Value) -> Option<Finding> {
    let name = named(node).1;
    let mut plugins: Vec<&Pod<'_>> = look.on_node(name, Role::Plugin).collect();
    plugins.sort_by_key(|pod| pod.is_ready());
    let Some(pod) = plugins.first() else {
        let young = |object: &Value| !look.lasts(&object["metadata"]["creationTimestamp"]);
        let policies = look.snapshot.of("nvidia.com", "ClusterPolicy");
        if young(node) || policies.iter().any(young) || is_being_placed(look) {
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
        return look.lasts(&ready["lastTransitionTime"]).then(|| {
            pod.finding(look, "the device plugin runs, and the kubelet offers no GPUs")
                .evidence(format!("{} is ready", pod.reference()))
                .evidence(format!("Node {name}: {GPU} is not among its resources"))
                .fix(format!("kubectl logs -n {} {}", pod.namespace, pod.name))
        });
    }
    // Who waits is told of by what is waited for.
    let container = pod.containers().find(|one| !one.init && one.failure().is_some())?;
    let line = look.last_line(pod, container.name).unwrap_or("nothing was logged");
    Some(
        pod.finding(look, absent())
            .evidence(format!("{}: {} restarts", pod.reference(), container.restarts()))
            .evidence(format!("{}, container {}: {}", pod.reference(), container.name, short(line)))
            .fix(format!("kubectl logs -n {} {} -c {} --previous", pod.namespace, pod.name, container.name)),
    )
}

/// Whether Kubernetes has yet to make pods of the device plugin: on a large cluster that takes a while.
fn is_being_placed(look: &Look<'_>) -> bool {
    let sets = look.snapshot.of("apps", "DaemonSet").iter();
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

/// Whether a node offers GPUs, or parts of them.
fn offers(node: &Value) -> bool {
    let all = node["status"]["capacity"].as_object().into_iter().flatten();
    let mut of_gpus = all
        .filter(|(name, _)| *name == GPU || name.starts_with("nvidia.com/mig-") || name.starts_with("nvidia.com/gpu."));
    of_gpus.any(|(_, value)| amount(value) > 0)
}

/// The node has more GPUs than the driver or the kubelet knows.
pub(super) fn gpus_missing(look: &Look<'_>) -> Vec<Finding> {
    look.gpu_nodes().filter_map(|node| fewer(look, node)).collect()
}

fn fewer(look: &Look<'_>, node: &Value) -> Option<Finding> {
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
    if let Some(present) = on_bus(look, name).filter(|present| counted < *present && !divided) {
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

/// How many GPUs feature discovery has seen on the bus of a node.
fn on_bus(look: &Look<'_>, node: &str) -> Option<i64> {
    let features = look.snapshot.of("nfd.k8s-sigs.io", "NodeFeature").iter();
    let about = features.filter(|one| label(one, "nfd.node.kubernetes.io/node-name") == node);
    let devices = about.flat_map(|one| items(&one["spec"]["features"]["instances"]["pci.device"]["elements"]));
    let is_gpu = |one: &&Value| {
        let class = text(&one["attributes"]["class"]);
        text(&one["attributes"]["vendor"]) == "10de" && ["0300", "0302"].contains(&class)
    };
    // Some configurations of feature discovery do not list devices.
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
