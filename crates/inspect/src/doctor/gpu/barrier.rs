//! Pods blocked in an init container: at which barrier, and which operand should release it.

use capstan_operands::causes::words::place;
use capstan_operands::causes::{BUILD_TIMEOUT, Cause, Class};

use crate::doctor::finding::Finding;
use crate::doctor::index::{Container, Index, Pod, Role, condition};

/// The operand that releases a barrier.
fn releasing_role(name: &str) -> Option<Role> {
    Some(match name {
        "k8s-driver-manager" | "driver-validation" => Role::Driver,
        "mofed-validation" => Role::Operand,
        "toolkit-validation" => Role::Toolkit,
        "cuda-validation" => Role::Validator,
        "plugin-validation" => Role::Plugin,
        _ => return None,
    })
}

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let mut waits: Vec<(&Pod<'_>, Container<'_>)> = Vec::new();
    for pod in index.pods.iter().filter(|pod| pod.role != Role::Workload && !pod.node.is_empty()) {
        let held = pod
            .containers()
            .find(|one| one.init && one.running().is_some_and(|since| index.exceeds_grace_period(since)));
        waits.extend(held.map(|container| (pod, container)));
    }
    waits.sort_by_key(|(pod, container)| (pod.node, place(container.name)));
    let mut all: Vec<Finding> = Vec::new();
    for (pod, container) in waits {
        let since = container.running().and_then(|since| index.since(since)).unwrap_or_default();
        let line = format!("{} waits in {} for {} s", pod.reference(), container.name, since.as_secs());
        let at = format!("node {}", pod.node);
        // Later barriers of a node depend on the first.
        if let Some(known) = all.iter_mut().find(|one| one.at == at) {
            *known = known.clone().object(pod.reference()).evidence(line);
            continue;
        }
        if is_under_way(index, pod.node, container.name) {
            continue;
        }
        let what = Cause::of(Class::Barrier, container.name).what("");
        let state = releasing_role(container.name).and_then(|role| releaser_state(index, pod, role));
        let logs = format!("kubectl logs -n {} {} -c {}", pod.namespace, pod.name, container.name);
        let finding = pod.finding(index, what).evidence(line).fix(format!("{logs} says what it looks for"));
        all.push(state.into_iter().fold(finding, Finding::evidence));
    }
    all
}

/// Whether the driver is still being built.
fn is_under_way(index: &Index<'_>, node: &str, barrier: &str) -> bool {
    place(barrier) <= place("driver-validation")
        && index.on_node(node, Role::Driver).any(|driver| {
            let began = &driver.value["metadata"]["creationTimestamp"];
            let no_failures = driver.containers().all(|one| one.failure().is_none() && one.restarts() == 0);
            !driver.is_ready() && no_failures && index.since(began).is_some_and(|waited| waited < BUILD_TIMEOUT)
        })
}

/// State of the operand that releases the barrier.
fn releaser_state(index: &Index<'_>, pod: &Pod<'_>, role: Role) -> Option<String> {
    if role == pod.role {
        return None;
    }
    Some(match index.on_node(pod.node, role).next() {
        Some(other) if other.is_ready() => format!("{} is ready", other.reference()),
        Some(other) => {
            let why = condition(other.value, "Ready").map_or("", |one| crate::doctor::index::text(&one["message"]));
            format!("{} is not ready: {why}", other.reference())
        }
        None => format!("Node {}: nothing runs there that would lift it", pod.node),
    })
}

#[cfg(test)]
mod tests {
    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    #[test]
    fn a_barrier_that_nobody_lifts_is_named_with_all_who_wait() {
        let cluster = Cluster::healthy()
            .waits("plugin", "gpu-1", "toolkit-validation")
            .waits("validator", "gpu-1", "driver-validation")
            .without_gpus("gpu-1");
        let report = assert_only(&cluster, "init-barrier");
        assert_eq!(report.causes[0].title, "node gpu-1: stuck at driver-validation, which waits for the driver");
        assert!(report.causes[0].evidence.iter().any(|line| line.contains("driver-gpu-1 is ready")), "{report:?}");
    }

    #[test]
    fn a_driver_that_is_being_built_is_no_trouble() {
        let cluster = Cluster::healthy()
            .unready("driver", "gpu-1", "nvidia-driver-ctr")
            .waits("validator", "gpu-1", "driver-validation")
            .waits("plugin", "gpu-1", "driver-validation")
            .without_gpus("gpu-1");
        assert_healthy(&cluster);
    }
}
