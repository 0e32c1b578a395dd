//! `capstan up --data`: a cluster that is killed and restarted, and unusable directories.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/running.rs"]
mod running;
mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use kube::api::{DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use kube::{Api, Client, Config, ResourceExt};
use running::{Running, capstan, said};
use serde_json::Value;
use support::error_line;

/// Kinds that are not written in the settled state.
const STABLE_KINDS: [(&str, &str, &str); 8] = [
    ("", "v1", "ConfigMap"),
    ("", "v1", "Namespace"),
    ("", "v1", "Secret"),
    ("", "v1", "Service"),
    ("", "v1", "ServiceAccount"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
];
/// Kinds whose status follows the running containers.
const VOLATILE_KINDS: [(&str, &str, &str); 5] = [
    ("", "v1", "Pod"),
    ("apps", "v1", "DaemonSet"),
    ("apps", "v1", "Deployment"),
    ("apps.nvidia.com", "v1alpha1", "NIMService"),
    ("nvidia.com", "v1", "ClusterPolicy"),
];

/// Whether a pod name is one of a validator workload.
fn is_check(name: &str) -> bool {
    ["nvidia-cuda-validator-", "nvidia-device-plugin-validator-"].contains(&name)
}

/// All objects that must survive a restart unchanged; those with a volatile status without it.
#[tokio::main(flavor = "current_thread")]
async fn stable_objects(kubeconfig: &Path) -> BTreeMap<String, Value> {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let mut all = BTreeMap::new();
    for (at, (group, version, kind)) in STABLE_KINDS.iter().chain(&VOLATILE_KINDS).enumerate() {
        let (resource, _) = pinned_kind(&client, &GroupVersionKind::gvk(group, version, kind)).await.unwrap();
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let found = objects.list(&ListParams::default()).await.unwrap().items;
        assert!(!found.is_empty(), "no {kind}");
        // Validator workloads run again when their node restarts, under another name.
        let checks = |object: &DynamicObject| object.metadata.generate_name.as_deref().is_some_and(is_check);
        for mut object in found.into_iter().filter(|object| !checks(object)) {
            let key = format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
            if at >= STABLE_KINDS.len() {
                (object.metadata.resource_version, object.metadata.managed_fields) = (None, None);
                object.data.as_object_mut().unwrap().remove("status");
            }
            all.insert(key, serde_json::to_value(object).unwrap());
        }
    }
    all
}

/// Waits until `capstan status` reports everything ready.
fn until_all_works(kubeconfig: &Path) {
    let mut watched = capstan(&["status", "--watch", "-o", "json", "--kubeconfig"])
        .arg(kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watched.stdout.take().unwrap()).lines();
    let works = |line: &String| serde_json::from_str::<Value>(line).unwrap()["ready"] == true;
    assert!(lines.map(Result::unwrap).any(|line| works(&line)), "it ended before");
    watched.kill().unwrap();
    watched.wait().unwrap();
}

#[test]
fn a_cluster_that_is_killed_goes_on_where_it_was() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().to_str().unwrap();
    let mut first = Running::start(&["--nodes", "1", "--gpus", "4", "--data", dir]);
    first.until(|line| line["event"] == "ready");
    let kubeconfig = data.path().join("kubeconfig-from-before");
    std::fs::copy(first.file("kubeconfig"), &kubeconfig).unwrap();
    until_all_works(&kubeconfig);
    let before = stable_objects(&kubeconfig);

    let text = error_line(&capstan(&["up", "--data", dir]).output().unwrap());
    let fix = "stop the other `capstan up`, or choose another directory with --data";
    assert_eq!(text, format!("capstan: {dir}/cluster.redb is in use by another process: {fix}\n"));

    drop(first);
    let mut again = Running::start(&["--data", dir]);
    again.until(|line| line["stage"] == "pods" && line["state"] == "done");
    again.until(|line| line["event"] == "ready");
    until_all_works(&kubeconfig);
    let after = stable_objects(&kubeconfig);
    for (key, object) in &before {
        assert_eq!(after.get(key), Some(object), "{key}");
    }
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    let status = again.run(&["status"]);
    assert!(said(&status).contains("NIMService nim/llama  Ready"), "{}", said(&status));
}

#[test]
fn a_directory_that_cannot_be_used_is_one_line_with_what_to_do() {
    let text = error_line(&capstan(&["up", "--data", "/dev/null/cluster"]).output().unwrap());
    assert!(text.starts_with("capstan: cannot make the directory /dev/null/cluster: "), "{text}");
    assert!(text.ends_with(": choose another with --data\n"), "{text}");
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("cluster.redb"), "somebody's notes").unwrap();
    let text = error_line(&capstan(&["up", "--data", data.path().to_str().unwrap()]).output().unwrap());
    assert!(text.contains("cluster.redb is damaged, or no store: "), "{text}");
    assert!(text.ends_with(": move it away to begin anew, or choose another directory with --data\n"), "{text}");
}
