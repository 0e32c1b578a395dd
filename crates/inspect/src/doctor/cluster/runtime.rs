//! Nodes with a broken container runtime, and runtimes without the handler that pods request.

use capstan_operands::causes::{Cause, Class, words};
use serde_json::Value;

use crate::doctor::finding::{Finding, Scope};
use crate::doctor::index::{Index, Role, condition, short, text};
use crate::snapshot::named;

/// Kubelet messages about a broken container runtime, in lower case.
const RUNTIME_MESSAGES: &[&str] = &[
    "container runtime is down",
    "container runtime status check",
    "runtime is unhealthy",
    "pleg is not healthy",
    "cni plugin not initialized",
    "unknown service runtime.v1",
];
/// Messages of the toolkit or the kubelet about a broken runtime configuration, in lower case.
const CONFIG_MESSAGES: &[&str] = &[
    "unable to load containerd config",
    "failed to load toml",
    "unable to restart containerd",
    "unable to signal containerd",
    "failed to restart containerd",
    "unable to flush config",
    "containerd.sock: connect: connection refused",
    "unknown service runtime.v1",
];

/// Reason and message of a node that is not Ready.
fn not_ready_condition(node: &Value) -> Option<(&str, &str)> {
    let ready = condition(node, "Ready").filter(|one| one["status"] != "True")?;
    Some((text(&ready["reason"]), text(&ready["message"])))
}

pub(super) fn node_not_ready(index: &Index<'_>) -> Vec<Finding> {
    let not_ready_nodes = index.nodes().iter().filter_map(|node| Some((named(node).1, not_ready_condition(node)?)));
    not_ready_nodes
        .filter(|(_, (_, message))| !words::says(message, RUNTIME_MESSAGES))
        .map(|(name, (reason, message))| {
            let what = if reason == "NodeStatusUnknown" { "its kubelet is silent" } else { "the node is not Ready" };
            Finding::on_node(name, what)
                .evidence(format!("Node {name}, condition Ready: {reason}: {}", short(message)))
                .fix(format!("kubectl describe node {name}; on the node: systemctl status kubelet"))
        })
        .collect()
}

pub(super) fn broken(index: &Index<'_>) -> Vec<Finding> {
    const WHAT: &str = "the container runtime does not work";
    let fix = |name: &str| {
        format!(
            "on node {name}: systemctl status containerd, containerd config dump; the toolkit keeps the file that it \
             changed as config.toml.bak beside it"
        )
    };
    let mut all = Vec::new();
    for node in index.nodes() {
        let name = named(node).1;
        if let Some((reason, message)) =
            not_ready_condition(node).filter(|(_, message)| words::says(message, RUNTIME_MESSAGES))
        {
            let line = format!("Node {name}, condition Ready: {reason}: {}", short(message));
            all.push(Finding::on_node(name, WHAT).evidence(line).fix(fix(name)));
        } else if let Some(restarts) =
            condition(node, "FrequentContainerdRestart").filter(|one| one["status"] == "True")
        {
            let line =
                format!("Node {name}, condition FrequentContainerdRestart: {}", short(text(&restarts["message"])));
            all.push(Finding::on_node(name, "containerd restarts again and again").evidence(line).fix(fix(name)));
        }
    }
    for pod in index.pods.iter().filter(|pod| pod.role != Role::Workload && !pod.is_ready() && !pod.node.is_empty()) {
        let at = format!("node {}", pod.node);
        if all.iter().any(|finding: &Finding| finding.at == at) {
            continue;
        }
        let event = index
            .warnings("Pod", pod.namespace, pod.name)
            .find(|event| words::says(text(&event["message"]), CONFIG_MESSAGES));
        let output = index.find_output(pod, CONFIG_MESSAGES).map(|(_, line)| line);
        if let Some(line) = output.or_else(|| event.map(|event| text(&event["message"]))) {
            let line = format!("{}: {}", pod.reference(), short(line));
            all.push(pod.finding(index, WHAT).evidence(line).fix(fix(pod.node)));
        }
    }
    all
}

/// Pods that cannot be created because their RuntimeClass is missing.
pub(super) fn class_missing(index: &Index<'_>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for event in index.all_warnings() {
        let message = text(&event["message"]);
        let Some(class) = words::between(message, "RuntimeClass \"", "\" not found") else { continue };
        if index.snapshot.find("node.k8s.io", "RuntimeClass", "", class).is_some() || !index.is_short_of_pods(event) {
            continue;
        }
        let about = &event["involvedObject"];
        let name = format!("{} {}/{}", text(&about["kind"]), text(&about["namespace"]), text(&about["name"]));
        if all.iter().any(|finding| finding.at == name) {
            continue;
        }
        let finding = Finding::new(name.clone(), format!("there is no RuntimeClass {class}"), Scope::Objects);
        all.push(finding.object(name.clone()).evidence(format!("{name}: {}", short(message))).fix(format!(
            "name one of `kubectl get runtimeclasses` in runtimeClassName, or let a ClusterPolicy make it: \
             spec.operator.runtimeClass: {class}"
        )));
    }
    all
}

/// Pods whose RuntimeClass exists, but whose node lacks its handler.
pub(super) fn handler_missing(index: &Index<'_>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for pod in index.pods.iter().filter(|pod| !pod.is_ready() && !pod.node.is_empty()) {
        let events = index.warnings("Pod", pod.namespace, pod.name).map(|event| text(&event["message"]));
        let waits = pod.containers().filter_map(|one| Some(one.waiting()?.1)).collect::<Vec<_>>();
        let Some((handler, message)) =
            events.chain(waits).find_map(|message| Some((words::handler(message)?, message)))
        else {
            continue;
        };
        let line = format!("{}: {}", pod.reference(), short(message));
        let known = all.iter_mut().find(|one| one.runs_on == pod.node);
        if let Some(known) = known {
            *known = known.clone().object(pod.reference()).evidence(line);
            continue;
        }
        let toolkit = index.on_node(pod.node, Role::Toolkit).next();
        let fix = match toolkit {
            Some(toolkit) => format!(
                "the toolkit writes it: kubectl logs -n {0} {1}; then kubectl delete pod -n {0} {1}",
                toolkit.namespace, toolkit.name
            ),
            None => "let the toolkit write it: spec.toolkit.enabled: true in the ClusterPolicy".into(),
        };
        let mut finding = Finding::on_node(pod.node, Cause::of(Class::RuntimeHandler, handler).what(""));
        finding.runs_on = pod.node.into();
        all.push(finding.object(pod.reference()).evidence(line).fix(fix));
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn not_ready(reason: &str, message: &str) -> Cluster {
        Cluster::healthy().edit("Node", "gpu-1", |node| {
            let status = if reason == "NodeStatusUnknown" { "Unknown" } else { "False" };
            node["status"]["conditions"] =
                json!([{"type": "Ready", "status": status, "reason": reason, "message": message}]);
        })
    }

    #[test]
    fn a_kubelet_that_is_silent() {
        let report =
            assert_only(&not_ready("NodeStatusUnknown", "Kubelet stopped posting node status."), "node-not-ready");
        assert_eq!(report.causes[0].title, "node gpu-1: its kubelet is silent");
    }

    #[test]
    fn a_runtime_that_is_down() {
        assert_only(
            &not_ready("KubeletNotReady", "[container runtime is down, PLEG is not healthy]"),
            "runtime-broken",
        );
        let cluster = Cluster::healthy().crashing(
            "toolkit",
            "gpu-1",
            "nvidia-container-toolkit-ctr",
            "unable to restart containerd: exit status 1",
        );
        assert_only(&cluster, "runtime-broken");
    }

    #[test]
    fn a_class_that_is_not_there() {
        let message =
            "Error creating: pods \"train-1\" is forbidden: pod rejected: RuntimeClass \"nvidia-old\" not found";
        let cluster =
            Cluster::healthy().short_of_pods("train").warning("ReplicaSet", "nim", "train", "FailedCreate", message);
        assert_only(&cluster, "runtime-class");
    }

    #[test]
    fn an_event_outlives_its_reason() {
        let message = "Error creating: pods \"train-1\" is forbidden: pod rejected: RuntimeClass \"nvidia\" not found";
        assert_healthy(&Cluster::healthy().short_of_pods("train").warning(
            "ReplicaSet",
            "nim",
            "train",
            "FailedCreate",
            message,
        ));
    }

    #[test]
    fn a_handler_that_the_runtime_does_not_know() {
        let message = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no \
                       runtime for \"nvidia\" is configured";
        let cluster = Cluster::healthy().unready("validator", "gpu-1", "nvidia-operator-validator").warning(
            "Pod",
            "capstan",
            "validator-gpu-1",
            "FailedCreatePodSandBox",
            message,
        );
        let report = assert_only(&cluster, "runtime-handler");
        assert_eq!(report.causes[0].title, "node gpu-1: the container runtime has no handler \"nvidia\"");
    }
}
