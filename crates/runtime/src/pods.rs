//! Trimming of pods that are watched by the thousand: node, owner, health, and what decides whether they can be
//! evicted.

use serde_json::{Value, json};

use crate::trim::Part;

/// Environment variables that identify a container's configuration. Others are dropped: they may be secrets.
const ENV_VARS: &[&str] = &["DRIVER_CONFIG_DIGEST"];

/// Annotations that decide whether a pod can be evicted.
const ANNOTATIONS: &[&str] = &["kubernetes.io/config.mirror"];

/// Fields of the status of an unhealthy container.
const CONTAINER: &[&str] = &["name", "image", "ready", "restartCount", "state", "lastState"];

/// The fields that are decoded at all.
pub(crate) const POD_FIELDS: &[Part] = {
    use Part::{All, Each, Of};
    const CONTAINER: &[Part] = &[Each("env", &[All("name"), All("value")]), All("resources")];
    const SPEC: &[Part] = &[
        All("nodeName"),
        All("resourceClaims"),
        Each("initContainers", CONTAINER),
        Each("containers", CONTAINER),
        Each("volumes", &[All("emptyDir")]),
    ];
    const RUN: &[Part] =
        &[All("name"), All("image"), All("ready"), All("restartCount"), All("state"), All("lastState")];
    const STATUS: &[Part] = &[
        All("phase"),
        All("reason"),
        All("message"),
        All("resourceClaimStatuses"),
        Each("containerStatuses", RUN),
        Each("initContainerStatuses", RUN),
        All("conditions"),
    ];
    &[All("apiVersion"), All("kind"), All("metadata"), Of("spec", SPEC), Of("status", STATUS)]
};

/// Drops the fields that are not cached.
pub(crate) fn trim(pod: &mut Value) {
    keep(pod, &["apiVersion", "kind", "metadata", "spec", "status"]);
    within(pod, "metadata", metadata);
    within(pod, "spec", spec);
    within(pod, "status", status);
    drop_empty(pod);
}

fn metadata(meta: &mut Value) {
    const KEPT: &[&str] = &[
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "labels",
        "annotations",
        "ownerReferences",
    ];
    keep(meta, KEPT);
    within(meta, "annotations", |all| keep(all, ANNOTATIONS));
    within(meta, "ownerReferences", |all| each(all, |owner| keep(owner, &["kind", "name", "uid", "controller"])));
}

fn spec(spec: &mut Value) {
    keep(spec, &["nodeName", "resourceClaims", "initContainers", "containers", "volumes"]);
    for kind in ["initContainers", "containers"] {
        within(spec, kind, |all| each(all, container));
    }
    within(spec, "volumes", |all| {
        each(all, |volume| {
            let directory = volume["emptyDir"].as_object();
            let limit = directory.map(|one| one.get("sizeLimit").and_then(Value::as_str).unwrap_or("none"));
            *volume = limit.map_or(Value::Null, |limit| json!({"emptyDir": {"sizeLimit": limit}}));
        });
    });
}

fn container(container: &mut Value) {
    keep(container, &["env", "resources"]);
    within(container, "env", |all| {
        each(all, |one| {
            if !one["name"].as_str().is_some_and(|name| ENV_VARS.contains(&name)) {
                *one = Value::Null;
            }
        });
    });
    within(container, "resources", |resources| {
        keep(resources, &["requests", "limits"]);
        for kind in ["requests", "limits"] {
            within(resources, kind, |all| select(all, |name| name.contains('/')));
        }
    });
}

/// Health of a pod: of a healthy one only that it is ready.
fn status(status: &mut Value) {
    const KEPT: &[&str] = &[
        "phase",
        "reason",
        "message",
        "resourceClaimStatuses",
        "containerStatuses",
        "initContainerStatuses",
        "conditions",
    ];
    keep(status, KEPT);
    let ready =
        |containers: &Value| containers.as_array().is_some_and(|all| all.iter().all(|one| one["ready"] == true));
    let healthy = status["phase"] == "Running" && ready(&status["containerStatuses"]);
    within(status, "containerStatuses", |all| each(all, |one| keep(one, if healthy { &["ready"] } else { CONTAINER })));
    within(status, "initContainerStatuses", |all| {
        each(all, |one| if healthy { finished_check(one) } else { keep(one, CONTAINER) })
    });
    within(status, "conditions", |all| {
        each(all, |one| match (one["type"].as_str(), one["status"].as_str()) {
            (Some("Ready"), _) | (Some("PodScheduled"), Some("False")) => {
                keep(one, &["type", "status", "reason", "message", "lastTransitionTime"]);
            }
            _ => *one = Value::Null,
        });
    });
}

/// Of a finished validation init container: when it ended. The phases of a node are computed from it.
fn finished_check(status: &mut Value) {
    let end = &status["state"]["terminated"]["finishedAt"];
    let is_check = status["name"].as_str().is_some_and(|name| name.ends_with("-validation"));
    *status = if !is_check || end.is_null() {
        Value::Null
    } else {
        json!({"name": status["name"], "state": {"terminated": {"finishedAt": end}}})
    };
}

/// Keeps some fields of an object; null if it is not an object.
fn keep(value: &mut Value, names: &[&str]) {
    select(value, |name| names.contains(&name));
}

fn select(value: &mut Value, kept: impl Fn(&str) -> bool) {
    match value {
        Value::Object(fields) => fields.retain(|name, _| kept(name)),
        other => *other = Value::Null,
    }
}

/// Edits a field, if it is present.
fn within(value: &mut Value, name: &str, edit: impl FnOnce(&mut Value)) {
    if let Some(field) = value.get_mut(name) {
        edit(field);
    }
}

/// Edits the items of a list; null if it is not a list.
fn each(list: &mut Value, edit: impl Fn(&mut Value)) {
    match list {
        Value::Array(items) => items.iter_mut().for_each(edit),
        other => *other = Value::Null,
    }
}

/// Drops nulls and empty values. Returns whether anything is left.
fn drop_empty(value: &mut Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(fields) => {
            fields.retain(|_, value| drop_empty(value));
            !fields.is_empty()
        }
        Value::Array(items) => {
            items.retain_mut(drop_empty);
            !items.is_empty()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver pod, as large as they are.
    fn pod() -> Value {
        let mount = |number: i32| json!({"name": format!("volume-{number}"), "mountPath": format!("/path/{number}")});
        let volume = |number: i32| json!({"name": format!("volume-{number}"), "hostPath": {"path": "/x", "type": ""}});
        let variables =
            json!([{"name": "DRIVER_CONFIG_DIGEST", "value": "1234"}, {"name": "TOKEN", "value": "secret"}]);
        let mounts: Vec<_> = (0..15).map(mount).collect();
        let container = |name: &str| {
            json!({
                "name": name, "image": "example.com/driver:1", "env": variables, "volumeMounts": mounts,
                "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}},
            })
        };
        let told = |name: &str| {
            json!({
                "name": name, "ready": true, "restartCount": 3, "containerID": "x".repeat(64), "imageID": "y".repeat(64),
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            })
        };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "nvidia-driver-daemonset-abcde", "namespace": "capstan", "uid": "u", "resourceVersion": "7",
                "labels": {"app": "nvidia-driver-daemonset", "controller-revision-hash": "5d9"},
                "annotations": {"note": "x".repeat(500)},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "o", "controller": true}],
            },
            "spec": {
                "nodeName": "gpu-1", "initContainers": [container("k8s-driver-manager")],
                "containers": [container("nvidia-driver-ctr")], "tolerations": [{"operator": "Exists"}],
                "volumes": (0..15).map(volume).chain([json!({"name": "e", "emptyDir": {}})]).collect::<Vec<_>>(),
            },
            "status": {
                "phase": "Running", "hostIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "Initialized", "status": "True"}],
                "initContainerStatuses": [told("k8s-driver-manager")], "containerStatuses": [told("nvidia-driver-ctr")],
            },
        })
    }

    #[test]
    fn of_a_pod_that_is_well_little_is_kept() {
        let mut kept = pod();
        let before = kept.to_string().len();
        trim(&mut kept);
        let after = kept.to_string().len();
        assert!(before > 4_000 && after < 1_000, "{before} bytes, and {after} are kept: {kept}");
        assert_eq!(
            kept["spec"]["initContainers"][0]["env"],
            json!([{"name": "DRIVER_CONFIG_DIGEST", "value": "1234"}])
        );
        assert_eq!(kept["spec"]["containers"][0]["resources"], json!({"limits": {"nvidia.com/gpu": "1"}}));
        assert_eq!(kept["spec"]["volumes"], json!([{"emptyDir": {"sizeLimit": "none"}}]));
        assert_eq!(kept["metadata"]["ownerReferences"][0]["uid"], "o");
        assert_eq!(kept["status"]["containerStatuses"], json!([{"ready": true}]));
        assert!(!kept.to_string().contains("secret"));
    }

    #[test]
    fn of_a_pod_that_is_not_well_the_reason_is_kept() {
        let mut kept = pod();
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        let status = &mut kept["status"]["containerStatuses"][0];
        (status["ready"], status["state"]) = (false.into(), waiting.clone());
        trim(&mut kept);
        assert_eq!(
            kept["status"]["containerStatuses"],
            json!([{"name": "nvidia-driver-ctr", "ready": false, "restartCount": 3, "state": waiting}])
        );
        assert!(kept["status"]["initContainerStatuses"].is_array());
    }
}
