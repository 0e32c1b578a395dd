//! Log tails of unhealthy containers, which show the causes.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::api::LogParams;
use kube::{Api, Client, ResourceExt};

use super::Snapshot;

/// Lines per log.
const LINES: i64 = 200;
/// Maximum number of logs.
pub(super) const MAX_LOGS: usize = 200;
/// Maximum number of logs of similar containers: on a large cluster most are equal.
const MAX_SIMILAR_LOGS: usize = 10;
/// Concurrent requests.
const CONCURRENCY: usize = 8;
/// Containers of device plugins.
const PLUGINS: [&str; 2] = ["nvidia-device-plugin", "capstan-node-agent"];
const GPU: &str = "nvidia.com/gpu";

/// A log to read.
struct LogRequest {
    namespace: String,
    pod: String,
    container: String,
    previous: bool,
    /// Logs of failed containers are more useful than those of waiting ones.
    failed: bool,
    /// Owner of the pod.
    owner: String,
}

/// Log tails of unhealthy containers, by the keys of [`Snapshot`].
pub(super) async fn read(client: &Client, snapshot: &Snapshot) -> BTreeMap<String, String> {
    let pods = snapshot.typed::<Pod>();
    fetch(client, choose(&pods, &nodes_with_unhealthy_gpus(snapshot))).await
}

/// Log tails of all containers of these pods, healthy or not.
pub async fn all_of(client: &Client, pods: &[Pod]) -> BTreeMap<String, String> {
    let statuses = |pod: &Pod| pod.status.as_ref().and_then(|status| status.container_statuses.clone());
    let wanted = pods.iter().flat_map(|pod| {
        statuses(pod).into_iter().flatten().map(|container| LogRequest {
            namespace: pod.namespace().unwrap_or_default(),
            pod: pod.name_any(),
            container: container.name,
            previous: false,
            failed: false,
            owner: String::new(),
        })
    });
    fetch(client, wanted.take(MAX_LOGS).collect()).await
}

async fn fetch(client: &Client, wanted: Vec<LogRequest>) -> BTreeMap<String, String> {
    let read = futures::stream::iter(wanted).map(|one| async move {
        let api: Api<Pod> = Api::namespaced(client.clone(), &one.namespace);
        let params = LogParams {
            container: Some(one.container.clone()),
            previous: one.previous,
            tail_lines: Some(LINES),
            ..LogParams::default()
        };
        let text = api.logs(&one.pod, &params).await.ok().filter(|text| !text.is_empty())?;
        let previous = if one.previous { "#previous" } else { "" };
        Some((format!("{}/{}/{}{previous}", one.namespace, one.pod, one.container), text))
    });
    read.buffer_unordered(CONCURRENCY).filter_map(|read| async { read }).collect().await
}

/// Logs to read: some of each owner, failed containers first.
fn choose(pods: &[Pod], unhealthy_nodes: &BTreeSet<String>) -> Vec<LogRequest> {
    let mut all: Vec<LogRequest> = pods.iter().flat_map(|pod| wanted(pod, unhealthy_nodes)).collect();
    all.sort_by_key(|one| !one.failed);
    let mut counts: BTreeMap<(String, String, String, bool), usize> = BTreeMap::new();
    all.retain(|one| {
        let alike = (one.namespace.clone(), one.owner.clone(), one.container.clone(), one.previous);
        let count = counts.entry(alike).or_default();
        *count += 1;
        *count <= MAX_SIMILAR_LOGS
    });
    all.truncate(MAX_LOGS);
    all
}

/// Nodes with unallocatable GPUs: their device plugin logs the reason, though it is ready.
fn nodes_with_unhealthy_gpus(snapshot: &Snapshot) -> BTreeSet<String> {
    let differs = |node: &&Node| {
        let status = node.status.as_ref();
        let capacity = status.and_then(|status| status.capacity.as_ref()?.get(GPU));
        let allocatable = status.and_then(|status| status.allocatable.as_ref()?.get(GPU));
        capacity.is_some() && capacity != allocatable
    };
    snapshot.typed::<Node>().iter().filter(differs).map(ResourceExt::name_any).collect()
}

fn wanted(pod: &Pod, unhealthy_nodes: &BTreeSet<String>) -> Vec<LogRequest> {
    let status = pod.status.as_ref();
    let on_unhealthy =
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_some_and(|node| unhealthy_nodes.contains(node));
    let containers = status
        .iter()
        .flat_map(|status| status.init_container_statuses.iter().chain(status.container_statuses.iter()).flatten());
    let owner = pod.owner_references().first().map_or_else(|| pod.name_any(), |owner| owner.name.clone());
    let one = |container: &ContainerStatus, failed, previous| LogRequest {
        namespace: pod.namespace().unwrap_or_default(),
        pod: pod.name_any(),
        container: container.name.clone(),
        previous,
        failed,
        owner: owner.clone(),
    };
    let mut all = Vec::new();
    for container in containers {
        let state = container.state.clone().unwrap_or_default();
        let failed = state.terminated.as_ref().is_some_and(|ended| ended.exit_code != 0);
        let runs_unready = state.running.is_some() && !container.ready;
        if failed || runs_unready || (on_unhealthy && PLUGINS.contains(&container.name.as_str())) {
            all.push(one(container, failed || on_unhealthy, false));
        }
        if container.restart_count > 0 && !container.ready {
            all.push(one(container, true, true));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, owner: &str, status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "ns",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner, "uid": owner}],
            },
            "spec": {"containers": []}, "status": status,
        }))
        .unwrap()
    }

    fn container(restarts: u32, state: Value) -> Value {
        json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": restarts, "state": state}])
    }

    #[test]
    fn those_that_fail_are_read_before_the_many_that_wait_for_them() {
        let waits = |index| {
            let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
            pod(&format!("wait-{index}"), "waiters", json!({"initContainerStatuses": container(0, state)}))
        };
        let fails = |index| {
            let state = json!({"waiting": {"reason": "CrashLoopBackOff"}});
            pod(&format!("fail-{index}"), "drivers", json!({"containerStatuses": container(1, state)}))
        };
        let pods: Vec<Pod> = (0..50).map(waits).chain((0..50).map(fails)).collect();
        let chosen = choose(&pods, &BTreeSet::new());
        assert_eq!(chosen.len(), 2 * MAX_SIMILAR_LOGS, "some of each kind");
        assert!(chosen.iter().take(MAX_SIMILAR_LOGS).all(|one| one.pod.starts_with("fail-") && one.previous));
    }
}
