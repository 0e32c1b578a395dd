//! Simulated nodes and workload controllers for a control plane without nodes.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::{Cluster, send};
use super::models::digest;
use super::watch_cache::{Objects, WatchCache};

const NODE: &str = "bench";
pub(super) const JSON: &str = "application/json";
pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// Concurrent requests.
const CONCURRENCY: usize = 16;

/// Registers a node with capacity for all model pods.
pub(super) async fn node(cluster: &Cluster) -> Result<()> {
    let room = json!({"cpu": "10000", "memory": "100Ti", "pods": "10000", "nvidia.com/gpu": "10000"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
        "status": {"capacity": room, "allocatable": room, "conditions": [is("Ready")]},
    });
    cluster.send("POST", "/api/v1/nodes", JSON, &node).await.map(drop)
}

/// Registers GPU nodes without operands, as kubelets and feature discovery leave them.
pub(super) async fn gpu_nodes(cluster: &Cluster, names: Vec<String>) -> Result<()> {
    each(names, |name| {
        let client = cluster.client.clone();
        async move { send(&client, "POST", "/api/v1/nodes", JSON, &gpu_node(&name)).await.map(drop) }
    })
    .await
}

/// CPU features, of which nodes have dozens.
const FEATURES: [&str; 16] = [
    "ADX",
    "AESNI",
    "AMXBF16",
    "AMXINT8",
    "AMXTILE",
    "AVX",
    "AVX2",
    "AVX512BF16",
    "AVX512BW",
    "AVX512CD",
    "AVX512DQ",
    "AVX512F",
    "AVX512VL",
    "FMA3",
    "SHA",
    "VAES",
];

fn gpu_node(name: &str) -> Value {
    let mut labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
        "feature.node.kubernetes.io/kernel-version.full": "6.8.0-45-generic",
        "nvidia.com/gpu.product": "NVIDIA-H200",
    });
    for feature in FEATURES {
        labels[format!("feature.node.kubernetes.io/cpu-cpuid.{feature}")] = "true".into();
    }
    let images = (0..20).map(|number| {
        let image = format!("registry.example.com/team/image-{number}");
        json!({"names": [format!("{image}@{}", digest(&image)), format!("{image}:1.0")], "sizeBytes": 100_000_000})
    });
    let room = json!({"cpu": "192", "memory": "2Ti", "pods": "110", "ephemeral-storage": "1Ti"});
    let conditions =
        ["Ready"].map(is).into_iter().chain(["MemoryPressure", "DiskPressure", "PIDPressure"].map(
            |kind| json!({"type": kind, "status": "False", "lastTransitionTime": now(), "lastHeartbeatTime": now()}),
        ));
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": room, "allocatable": room, "conditions": conditions.collect::<Vec<_>>(),
            "images": images.collect::<Vec<_>>(),
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "Ubuntu 24.04.1 LTS",
                "kernelVersion": "6.8.0-45-generic", "containerRuntimeVersion": "containerd://2.0.0",
                "kubeletVersion": "v1.37.1", "kubeProxyVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
            },
        },
    })
}

/// Runs a pod of every Deployment on the node.
pub(super) async fn pods(cluster: &Cluster, deployments: &WatchCache) -> Result<()> {
    each(all(deployments), |deployment| {
        let client = cluster.client.clone();
        async move { run_pod(&client, &deployment, NODE).await }
    })
    .await
}

/// Marks every Deployment as available.
pub(super) async fn available(cluster: &Cluster, deployments: &WatchCache) -> Result<()> {
    each(all(deployments), |deployment| {
        let client = cluster.client.clone();
        async move {
            let (replicas, generation) = (&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]);
            let status = json!({"status": {
                "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas, "availableReplicas": replicas, "conditions": [is("Available")],
            }});
            write_status(&client, "apps/v1", "deployments", &deployment, &status).await
        }
    })
    .await
}

fn all(objects: &WatchCache) -> Vec<Value> {
    objects.read(|all| all.values().cloned().collect())
}

/// Creates a pod of a workload on a node, and marks it as running.
pub(super) async fn run_pod(client: &kube::Client, workload: &Value, node: &str) -> Result<()> {
    let pod = pod(workload, node);
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let pod = send(client, "POST", &format!("/api/v1/namespaces/{namespace}/pods"), JSON, &pod).await?;
    write_status(client, "v1", "pods", &pod, &json!({"status": running(&pod)})).await
}

/// The pod of a workload on a node.
fn pod(workload: &Value, node: &str) -> Value {
    let (meta, template) = (&workload["metadata"], &workload["spec"]["template"]);
    let mut spec = template["spec"].clone();
    spec["nodeName"] = node.into();
    let mut labels = template["metadata"]["labels"].clone();
    labels["controller-revision-hash"] = "bench".into();
    let name = format!("{}-{node}", meta["name"].as_str().unwrap_or_default());
    let owner = json!({
        "apiVersion": workload["apiVersion"], "kind": workload["kind"], "name": meta["name"], "uid": meta["uid"],
        "controller": true,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": meta["namespace"], "labels": labels,
            "annotations": template["metadata"]["annotations"], "ownerReferences": [owner],
        },
        "spec": spec,
    })
}

/// Simulates the DaemonSet controller: sets run on every selected node. Pods are not created, as there would be
/// thousands.
pub(super) fn daemon_sets(client: &kube::Client, sets: WatchCache, nodes: WatchCache) {
    let client = client.clone();
    tokio::spawn(async move {
        let mut before = (0, 0);
        loop {
            tokio::time::sleep(STATUS_SYNC_INTERVAL).await;
            let now = (sets.changes(), nodes.changes());
            if now != before {
                before = now;
                let outdated = nodes.read(|nodes| sets.read(|sets| outdated(sets, nodes)));
                // A set that was deleted meanwhile is not an error.
                let result = each(outdated, |(set, status)| {
                    let client = client.clone();
                    async move {
                        let _ = write_status(&client, "apps/v1", "daemonsets", &set, &status).await;
                        Ok(())
                    }
                });
                let _ = result.await;
            }
        }
    });
}

/// Interval of DaemonSet status updates.
const STATUS_SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// Simulates all kubelets: bound pods run, terminating pods are removed.
pub(super) fn kubelets(client: &kube::Client, pods: WatchCache) {
    let client = client.clone();
    tokio::spawn(async move {
        let mut before = 0;
        loop {
            tokio::time::sleep(KUBELET_SYNC_INTERVAL).await;
            if pods.changes() == before {
                continue;
            }
            before = pods.changes();
            let ends = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
            let begins = |pod: &Value| pod["status"]["phase"] == "Pending" && !pod["spec"]["nodeName"].is_null();
            let due: Vec<Value> =
                pods.read(|all| all.values().filter(|pod| ends(pod) || begins(pod)).cloned().collect());
            // A pod that was deleted meanwhile is not an error.
            let done = each(due, |pod| {
                let client = client.clone();
                async move {
                    let _ = if ends(&pod) {
                        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
                        let path = format!("/api/v1/namespaces/{}/pods/{}", text("namespace"), text("name"));
                        send(&client, "DELETE", &path, JSON, &json!({"gracePeriodSeconds": 0})).await.map(drop)
                    } else {
                        write_status(&client, "v1", "pods", &pod, &json!({"status": running(&pod)})).await
                    };
                    Ok(())
                }
            });
            let _ = done.await;
        }
    });
}

/// Interval of kubelet syncs.
const KUBELET_SYNC_INTERVAL: Duration = Duration::from_millis(50);

/// DaemonSets with an outdated status, and the new status.
fn outdated(sets: &Objects, nodes: &Objects) -> Vec<(Value, Value)> {
    let chosen = |set: &Value| {
        let selector = &set["spec"]["template"]["spec"]["nodeSelector"];
        nodes.values().filter(|node| selects(selector, &node["metadata"]["labels"])).count()
    };
    let status = |set: &Value| {
        let mut status = json!({"observedGeneration": set["metadata"]["generation"], "numberMisscheduled": 0});
        for field in [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "updatedNumberScheduled",
            "numberReady",
            "numberAvailable",
        ] {
            status[field] = chosen(set).into();
        }
        status
    };
    let result = |set: &Value, wanted: &Value| {
        let fields = wanted.as_object().into_iter().flatten();
        fields
            .into_iter()
            .all(|(field, value)| set["status"][field].as_u64().unwrap_or(0) == value.as_u64().unwrap_or(0))
    };
    let all = sets.values().map(|set| (set, status(set)));
    all.filter(|(set, status)| !result(set, status))
        .map(|(set, status)| (set.clone(), json!({"status": status})))
        .collect()
}

/// Whether labels match a selector.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    selector.as_object().into_iter().flatten().all(|(key, value)| labels[key] == *value)
}

/// Writes the status of an object.
async fn write_status(client: &kube::Client, api: &str, plural: &str, object: &Value, status: &Value) -> Result<()> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let root = if api == "v1" { "api" } else { "apis" };
    let path = format!("/{root}/{api}/namespaces/{}/{plural}/{}/status", text("namespace"), text("name"));
    send(client, "PATCH", &path, MERGE, status).await.map(drop)
}

/// Applies a function to each item, several concurrently.
pub(super) async fn each<T, F>(items: Vec<T>, work: impl Fn(T) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for item in items {
        if tasks.len() >= CONCURRENCY
            && let Some(done) = tasks.join_next().await
        {
            done??;
        }
        tasks.spawn(work(item));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// A true condition.
fn is(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "Bench", "message": "", "lastTransitionTime": now()})
}

/// Status of a running pod.
fn running(pod: &Value) -> Value {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten().map(|container| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "bench", "restartCount": 0,
            "containerID": "bench://1", "ready": true, "started": true, "state": {"running": {"startedAt": now()}},
        })
    });
    json!({
        "phase": "Running", "startTime": now(), "podIP": "192.0.2.10", "podIPs": [{"ip": "192.0.2.10"}],
        "conditions": [is("PodScheduled"), is("Initialized"), is("ContainersReady"), is("Ready")],
        "containerStatuses": containers.collect::<Vec<_>>(),
    })
}

/// The current time in Kubernetes format.
fn now() -> String {
    let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or_default();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_set_runs_on_the_nodes_that_it_chooses() {
        let node = |has: &str| json!({"metadata": {"labels": {"gpu": has}}});
        let nodes = Objects::from([("/a".into(), node("true")), ("/b".into(), node("false"))]);
        let set = json!({
            "metadata": {"name": "set", "generation": 2},
            "spec": {"template": {"spec": {"nodeSelector": {"gpu": "true"}}}},
        });
        let wanted = outdated(&Objects::from([("/set".into(), set.clone())]), &nodes);
        let status = &wanted[0].1["status"];
        assert_eq!((&status["numberAvailable"], &status["observedGeneration"]), (&json!(1), &json!(2)));
        let mut result = set;
        result["status"] = status.clone();
        assert!(
            outdated(&Objects::from([("/set".into(), result)]), &nodes).is_empty(),
            "what is true is not told again"
        );
    }
}
