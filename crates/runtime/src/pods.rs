//! What is kept of pods that are watched by the thousand: where they are, whose they are, how they do, and who would
//! miss them.

use serde_json::{Map, Value, json};

use crate::trim::Part;

/// Variables that say what a container was made from. Those of users may be secrets.
const VARIABLES: &[&str] = &["DRIVER_CONFIG_DIGEST"];

/// Annotations that decide whether a pod can be evicted.
const ANNOTATIONS: &[&str] = &["kubernetes.io/config.mirror"];

/// Where what is kept comes from: the rest need not be read.
pub(crate) const READ: &[Part] = {
    use Part::{All, Each, Of};
    const CONTAINER: &[Part] = &[All("env"), All("resources")];
    const SPEC: &[Part] = &[
        All("nodeName"),
        All("resourceClaims"),
        Each("initContainers", CONTAINER),
        Each("containers", CONTAINER),
        Each("volumes", &[All("emptyDir")]),
    ];
    &[All("apiVersion"), All("kind"), All("metadata"), Of("spec", SPEC), All("status")]
};

/// Drops what is not kept.
pub(crate) fn trim(pod: &mut Value) {
    let status = &pod["status"];
    let kept = json!({
        "apiVersion": pod["apiVersion"],
        "kind": pod["kind"],
        "metadata": metadata(&pod["metadata"]),
        "spec": spec(&pod["spec"]),
        "status": self::status(status),
    });
    *pod = without_empty(kept);
}

fn metadata(meta: &Value) -> Value {
    let mut kept = fields(
        meta,
        &["name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "labels"],
    );
    kept["annotations"] = fields(&meta["annotations"], ANNOTATIONS);
    kept["ownerReferences"] =
        each(&meta["ownerReferences"], |owner| fields(owner, &["kind", "name", "uid", "controller"]));
    kept
}

fn spec(spec: &Value) -> Value {
    let mut kept = fields(spec, &["nodeName", "resourceClaims"]);
    for kind in ["initContainers", "containers"] {
        kept[kind] = each(&spec[kind], |container| {
            let variables = container["env"].as_array().into_iter().flatten();
            let known = |one: &&Value| one["name"].as_str().is_some_and(|name| VARIABLES.contains(&name));
            let gpus = |resources: &Value| match resources.as_object() {
                Some(all) => {
                    all.iter().filter(|(name, _)| name.contains('/')).map(|(k, v)| (k.clone(), v.clone())).collect()
                }
                None => Value::Null,
            };
            let resources = &container["resources"];
            json!({
                "env": variables.filter(known).collect::<Vec<_>>(),
                "resources": {"requests": gpus(&resources["requests"]), "limits": gpus(&resources["limits"])},
            })
        });
    }
    kept["volumes"] = each(&spec["volumes"], |volume| match volume["emptyDir"].is_object() {
        true => json!({"emptyDir": {"sizeLimit": volume["emptyDir"]["sizeLimit"].as_str().unwrap_or("none")}}),
        false => Value::Null,
    });
    kept
}

/// How a pod does: of one that is well, only that it is.
fn status(status: &Value) -> Value {
    let mut kept = fields(status, &["phase", "reason", "message", "resourceClaimStatuses"]);
    let ready =
        |containers: &Value| containers.as_array().is_some_and(|all| all.iter().all(|one| one["ready"] == true));
    let well = status["phase"] == "Running" && ready(&status["containerStatuses"]);
    kept["containerStatuses"] = each(&status["containerStatuses"], |one| container(one, well));
    kept["initContainerStatuses"] =
        each(&status["initContainerStatuses"], |one| if well { check(one) } else { container(one, well) });
    kept["conditions"] = each(&status["conditions"], |one| match (one["type"].as_str(), one["status"].as_str()) {
        (Some("Ready"), _) | (Some("PodScheduled"), Some("False")) => {
            fields(one, &["type", "status", "reason", "message", "lastTransitionTime"])
        }
        _ => Value::Null,
    });
    kept
}

fn container(status: &Value, well: bool) -> Value {
    const KEPT: &[&str] = &["name", "image", "ready", "restartCount", "state", "lastState"];
    if well { json!({"ready": true}) } else { fields(status, KEPT) }
}

/// Of a check of a validator that is over: when it ended. The phases of a node are known by that.
fn check(status: &Value) -> Value {
    let end = &status["state"]["terminated"]["finishedAt"];
    let is_check = status["name"].as_str().is_some_and(|name| name.ends_with("-validation"));
    if !is_check || end.is_null() {
        return Value::Null;
    }
    json!({"name": status["name"], "state": {"terminated": {"finishedAt": end}}})
}

/// Some fields of an object.
fn fields(value: &Value, names: &[&str]) -> Value {
    let Some(all) = value.as_object() else { return json!({}) };
    let kept: Map<String, Value> =
        names.iter().filter_map(|name| Some(((*name).to_owned(), all.get(*name)?.clone()))).collect();
    Value::Object(kept)
}

fn each(list: &Value, kept: impl Fn(&Value) -> Value) -> Value {
    list.as_array().map_or(Value::Null, |items| items.iter().map(kept).collect())
}

/// What says nothing is left out. Items of lists stay where they are if they say something.
fn without_empty(value: Value) -> Value {
    let says = |value: &Value| match value {
        Value::Null => false,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, without_empty(value)));
            Value::Object(fields.filter(|(_, value)| says(value)).collect())
        }
        Value::Array(items) => items.into_iter().map(without_empty).filter(says).collect(),
        other => other,
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
