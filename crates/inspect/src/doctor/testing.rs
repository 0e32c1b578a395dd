//! Fixtures: a small healthy cluster, and ways to break it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Report, diagnose};
use crate::snapshot::{Snapshot, named};

/// Time of the snapshot, and creation time of its objects.
const NOW: &str = "2026-06-01T12:00:00Z";
const BEGAN: &str = "2026-06-01T11:50:00Z";

pub(super) struct Cluster {
    pub(super) snapshot: Snapshot,
}

/// Operand pods of a GPU node: app, init containers, container.
const OPERANDS: &[(&str, &[&str], &str)] = &[
    ("driver", &["k8s-driver-manager"], "nvidia-driver-ctr"),
    ("toolkit", &["driver-validation"], "nvidia-container-toolkit-ctr"),
    ("plugin", &["driver-validation", "toolkit-validation"], "nvidia-device-plugin"),
    (
        "validator",
        &["driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation"],
        "nvidia-operator-validator",
    ),
];

impl Cluster {
    /// Three nodes with eight GPUs each, of which a model server uses one.
    pub(super) fn healthy() -> Self {
        let taken = Some(NOW.parse().unwrap());
        let mut cluster = Self { snapshot: Snapshot::default() };
        cluster.snapshot.taken = taken;
        cluster.snapshot.server_version = "v1.37.1".into();
        for node in ["gpu-0", "gpu-1", "gpu-2"] {
            cluster.snapshot.add(gpu_node(node));
            for (app, init, container) in OPERANDS {
                cluster.snapshot.add(pod("capstan", app, node, init, container));
            }
        }
        let mut server = pod("nim", "llama", "gpu-0", &[], "llama-ctr");
        server["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet".into();
        server["spec"]["imagePullSecrets"] = json!([{"name": "ngc-secret"}]);
        server["spec"]["volumes"] =
            json!([{"name": "model-store", "persistentVolumeClaim": {"claimName": "llama-pvc"}}]);
        cluster
            .add(server)
            .add(json!({
                "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService",
                "metadata": {"name": "llama", "namespace": "nim"}, "status": {"state": "Ready"},
            }))
            .add(json!({
                "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
                "metadata": {"name": "cluster-policy", "creationTimestamp": BEGAN},
                "status": {"state": "ready", "conditions": [{"type": "Ready", "status": "True", "reason": "Reconciled"}]},
            }))
            .add(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "standard"},
                "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer",
            }))
            .add(json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}))
            .add(json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "llama-pvc", "namespace": "nim"}, "status": {"phase": "Bound"},
            }))
    }

    pub(super) fn add(mut self, object: Value) -> Self {
        self.snapshot.add(object);
        self
    }

    pub(super) fn remove(mut self, kind: &str, name: &str) -> Self {
        self.snapshot.objects.get_mut(kind).unwrap().retain(|object| named(object).1 != name);
        self
    }

    /// Changes an object of a kind, whatever its group.
    pub(super) fn edit(mut self, kind: &str, name: &str, edit: impl FnOnce(&mut Value)) -> Self {
        let lists = self.snapshot.objects.iter_mut().filter(|(key, _)| key.split('.').next() == Some(kind));
        let found = lists.flat_map(|(_, list)| list).find(|object| named(object).1 == name);
        edit(found.unwrap_or_else(|| panic!("no {kind} {name}")));
        self
    }

    pub(super) fn without_gpus(self, node: &str) -> Self {
        self.edit("Node", node, |node| {
            for field in ["capacity", "allocatable"] {
                node["status"][field] = json!({});
            }
        })
    }

    /// A line in a container's log.
    pub(super) fn log(mut self, app: &str, node: &str, container: &str, line: &str) -> Self {
        self.snapshot
            .logs
            .insert(format!("{}/{app}-{node}/{container}", namespace(app)), format!("starting\n{line}\n"));
        self
    }

    /// A container in CrashLoopBackOff after that line. Pods that depend on a driver wait.
    pub(super) fn crashing(mut self, app: &str, node: &str, container: &str, line: &str) -> Self {
        let key = format!("{}/{app}-{node}/{container}#previous", namespace(app));
        self.snapshot.logs.insert(key, format!("starting\n{line}\n\n"));
        let cluster = self.status(app, node, container, |status| {
            status["restartCount"] = 4.into();
            status["state"] = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}});
            status["lastState"] = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        });
        if app != "driver" {
            return cluster;
        }
        cluster
            .waits("validator", node, "driver-validation")
            .waits("plugin", node, "driver-validation")
            .without_gpus(node)
    }

    /// A container whose image pull failed.
    pub(super) fn unpulled(self, app: &str, node: &str, container: &str, message: &str) -> Self {
        self.status(app, node, container, |status| {
            status["image"] = "r.io/some:v9".into();
            status["state"] = json!({"waiting": {"reason": "ImagePullBackOff", "message": message}});
        })
    }

    /// A container that runs and is not ready.
    pub(super) fn unready(self, app: &str, node: &str, container: &str) -> Self {
        self.status(app, node, container, |_| {})
    }

    /// A pod blocked in an init container.
    pub(super) fn waits(self, app: &str, node: &str, container: &str) -> Self {
        self.status(app, node, container, |status| status["state"] = json!({"running": {"startedAt": BEGAN}}))
    }

    /// Changes a container status; the pod becomes unready.
    fn status(self, app: &str, node: &str, container: &str, change: impl FnOnce(&mut Value)) -> Self {
        self.edit("Pod", &format!("{app}-{node}"), |pod| {
            pod["status"]["conditions"][0]["status"] = "False".into();
            let lists = ["initContainerStatuses", "containerStatuses"];
            for list in lists {
                for one in
                    pod["status"][list].as_array_mut().into_iter().flatten().filter(|one| one["name"] == container)
                {
                    one["ready"] = false.into();
                }
            }
            let place = |list: &str| format!("/status/{list}");
            let found = lists.iter().find(|list| {
                let all = pod.pointer(&place(list)).and_then(Value::as_array);
                all.is_some_and(|all| all.iter().any(|one| one["name"] == container))
            });
            let list = found.unwrap_or_else(|| panic!("no container {container}"));
            let all = pod.pointer_mut(&place(list)).and_then(Value::as_array_mut).unwrap();
            change(all.iter_mut().find(|one| one["name"] == container).unwrap());
        })
    }

    pub(super) fn warning(self, kind: &str, namespace: &str, name: &str, reason: &str, message: &str) -> Self {
        self.add(json!({
            "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": reason, "message": message,
            "metadata": {"name": format!("{name}.1"), "namespace": namespace},
            "involvedObject": {"kind": kind, "namespace": namespace, "name": name},
        }))
    }

    /// A ReplicaSet that lacks a pod.
    pub(super) fn short_of_pods(self, name: &str) -> Self {
        self.add(json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": "nim"},
            "spec": {"replicas": 1}, "status": {"replicas": 0},
        }))
    }

    /// An unschedulable pod.
    pub(super) fn unschedulable(self, name: &str, resource: &str, amount: u32, message: &str) -> Self {
        self.add(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "nim"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {resource: amount.to_string()}}}]},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
            ]},
        }))
    }
}

fn namespace(app: &str) -> &'static str {
    if OPERANDS.iter().any(|(operand, ..)| *operand == app) { "capstan" } else { "nim" }
}

fn gpu_node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": BEGAN, "labels": {
            "kubernetes.io/hostname": name,
            "feature.node.kubernetes.io/pci-10de.present": "true",
            "feature.node.kubernetes.io/kernel-version.full": "6.8.0-45-generic",
            "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
            "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.deploy.device-plugin": "true",
        }},
        "status": {
            "capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8"},
            "nodeInfo": {"kubeletVersion": "v1.37.1", "kernelVersion": "6.8.0-45-generic"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn pod(namespace: &str, app: &str, node: &str, init: &[&str], container: &str) -> Value {
    let done = |name: &&str| {
        let state = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        json!({"name": name, "ready": true, "restartCount": 0, "state": state})
    };
    let named = |name: &&str| json!({"name": name});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{app}-{node}"), "namespace": namespace, "labels": {"app": app}, "creationTimestamp": BEGAN,
            "ownerReferences": [{"kind": "DaemonSet", "name": app}],
        },
        "spec": {
            "nodeName": node, "containers": [{"name": container}],
            "initContainers": init.iter().map(named).collect::<Vec<_>>(),
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": BEGAN}],
            "initContainerStatuses": init.iter().map(done).collect::<Vec<_>>(),
            "containerStatuses": [
                {"name": container, "ready": true, "restartCount": 0, "state": {"running": {"startedAt": BEGAN}}},
            ],
        },
    })
}

/// A cluster whose policy has that status.
pub(super) fn policy(state: &str, conditions: Value) -> Cluster {
    Cluster::healthy().edit("ClusterPolicy", "cluster-policy", |policy| {
        policy["status"] = json!({"state": state, "conditions": conditions});
    })
}

fn report(cluster: &Cluster) -> Report {
    diagnose(&cluster.snapshot, Duration::from_secs(30), Vec::new())
}

/// Asserts that exactly this rule has one finding.
pub(super) fn assert_only(cluster: &Cluster, rule: &str) -> Report {
    let report = report(cluster);
    let rules: Vec<&str> = report.causes.iter().map(|cause| cause.rule).collect();
    assert_eq!(rules, [rule], "{report:#?}");
    let cause = &report.causes[0];
    assert!(!cause.fix.is_empty() && !cause.evidence.is_empty() && !cause.objects.is_empty(), "{cause:#?}");
    report
}

pub(super) fn assert_healthy(cluster: &Cluster) {
    let report = report(cluster);
    assert!(report.healthy, "{report:#?}");
}

#[test]
fn nothing_is_wrong_with_a_healthy_cluster() {
    assert_healthy(&Cluster::healthy());
}

#[test]
fn no_two_rules_explain_each_other() {
    for one in super::rules() {
        for other in super::rules().iter().filter(|other| other.name != one.name) {
            assert!(!(one.explains(other.name) && other.explains(one.name)), "{} and {}", one.name, other.name);
        }
    }
}

#[test]
fn no_rule_comes_after_one_that_it_explains() {
    let rules = super::rules();
    for (place, rule) in rules.iter().enumerate() {
        let explained = rules[..place].iter().find(|earlier| rule.explains(earlier.name));
        assert!(explained.is_none(), "{} comes before {}", explained.map_or("", |one| one.name), rule.name);
    }
}

#[test]
fn rules_explain_rules_that_are_there() {
    for rule in super::rules() {
        for explained in rule.explains.iter().copied().flatten() {
            assert!(super::rule(explained).is_some(), "{} explains {explained}", rule.name);
        }
    }
}
