//! `capstan status`, `versions`, `completions` and `man` from a user's view.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/running.rs"]
mod running;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use running::{Running, capstan, program, said};
use serde_json::Value;

#[test]
fn a_cluster_that_works_is_ready_in_every_format() {
    let mut cluster = Running::start(&["--nodes", "2", "--gpus", "4"]);
    cluster.until(|line| line["event"] == "ready");

    let text = cluster.run(&["status"]);
    let drawn = said(&text);
    assert_eq!(text.status.code(), Some(0), "{drawn}");
    assert!(drawn.starts_with("ready: 2 of 2 GPU nodes work, 1 of 1 services serve\n"), "{drawn}");
    assert!(drawn.contains("8 nvidia.com/gpu") && drawn.contains("NIMService nim/llama  Ready"), "{drawn}");
    assert!(!drawn.contains('\u{1b}'), "colours where nobody looks");

    let tree: Value = serde_json::from_slice(&cluster.run(&["status", "-o", "json"]).stdout).unwrap();
    assert_eq!((&tree["verdict"]["ready"], &tree["nodes"]["working"]), (&Value::Bool(true), &2.into()));
    let yaml = said(&cluster.run(&["status", "-o", "yaml"]));
    assert!(yaml.contains("ready: true"), "{yaml}");

    let versions: Value = serde_json::from_slice(&cluster.run(&["versions", "-o", "json"]).stdout).unwrap();
    let components = versions["components"].as_array().unwrap();
    let driver = components.iter().find(|one| one["container"] == "nvidia-driver-ctr").unwrap();
    assert_eq!((&driver["wanted"]["image"], &driver["differs"]), (&"driver".into(), &false.into()));
    assert_eq!(driver["running"][0]["pods"], 2);
    assert_eq!(versions["crds"].as_array().unwrap().iter().filter(|crd| crd["differs"].is_string()).count(), 0);

    let watched = capstan(&["status", "--watch", "-o", "json", "--kubeconfig"])
        .arg(cluster.file("kubeconfig"))
        .stdout(Stdio::piped())
        .spawn();
    let mut watched = watched.unwrap();
    let lines = BufReader::new(watched.stdout.take().unwrap()).lines();
    let mut verdicts = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let first = verdicts.next().unwrap();
    assert_eq!((&first["ready"], first["verdict"].as_str().unwrap()), (&true.into(), drawn.lines().next().unwrap()));
    delete_service(&cluster, "nim", "llama");
    let then = verdicts.find(|line| line["ready"] == true && *line != first).unwrap();
    assert_eq!(then["verdict"], "ready: 2 of 2 GPU nodes work");
    drop(cluster);
    let last = verdicts.next().unwrap();
    assert!(last["ready"].is_null() && last["verdict"].as_str().unwrap().starts_with("unknown: "), "{last}");
    watched.kill().unwrap();
    watched.wait().unwrap();
}

/// Deletes a NIMService as a user does.
fn delete_service(cluster: &Running, namespace: &str, name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let kubeconfig = Kubeconfig::read_from(cluster.file("kubeconfig")).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let kind = GroupVersionKind::gvk("apps.nvidia.com", "v1alpha1", "NIMService");
        let resource = ApiResource::from_gvk_with_plural(&kind, "nimservices");
        let client = kube::Client::try_from(config).unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    });
}

#[test]
fn a_cluster_that_waits_ends_with_2_and_says_what_for() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("service.yaml");
    std::fs::write(&manifest, NOWHERE).unwrap();
    let mut cluster = Running::start(&["--nodes", "1", "--gpus", "1", "-f", manifest.to_str().unwrap()]);
    let unschedulable = |line: &Value| line["text"].as_str().is_some_and(|text| text.contains("Unschedulable"));
    cluster.until(|line| line["stage"] == "NIMService" && unschedulable(line));
    let output = cluster.run(&["status"]);
    let drawn = said(&output);
    assert_eq!(output.status.code(), Some(2), "{drawn}");
    let first = drawn.lines().next().unwrap();
    assert!(first.starts_with("not ready: NIMService default/nowhere: "), "{drawn}");
    assert!(
        first.contains("Unschedulable") && first.ends_with("(1 of 1 GPU nodes work, 0 of 1 services serve)"),
        "{drawn}"
    );
}

const NOWHERE: &str = "
apiVersion: v1
kind: Secret
metadata: {name: ngc}
stringData: {NGC_API_KEY: x}
---
apiVersion: apps.nvidia.com/v1alpha1
kind: NIMService
metadata: {name: nowhere}
spec:
  image: {repository: nvcr.io/nim/meta/llama, tag: '1.0', pullSecrets: [ngc]}
  authSecret: ngc
  storage: {emptyDir: {}}
  nodeSelector: {place: nowhere}
  expose: {service: {port: 8000}}
";

#[test]
fn no_cluster_is_an_error_of_one_line() {
    let output = capstan(&["status", "--kubeconfig", "/nonexistent"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("capstan: no cluster to talk to: /nonexistent") && text.lines().count() == 1, "{text}");
}

#[test]
fn kubectl_runs_it_as_a_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-capstan");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_capstan"), &plugin).unwrap();
    let output = program(&plugin, &["status", "--help"]).output().unwrap();
    assert!(output.status.success());
    assert!(said(&output).contains("capstan status --watch"), "{}", said(&output));
}

#[test]
fn every_command_has_examples() {
    let help = said(&capstan(&["--help"]).output().unwrap());
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).map_while(|line| line.strip_prefix("  "));
    let names: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"status") && names.contains(&"up"), "{help}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let help = said(&capstan(&[name, "--help"]).output().unwrap());
        assert!(help.contains("Examples:"), "capstan {name} --help has no examples");
    }
}

#[test]
fn shells_and_man_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&capstan(&["completions", shell]).output().unwrap());
        assert!(script.contains("gather") && script.contains("max-size"), "{shell}");
    }
    assert!(said(&capstan(&["man"]).output().unwrap()).contains("capstan\\-status"));
    let dir = tempfile::tempdir().unwrap();
    let output = capstan(&["man", "--dir", dir.path().to_str().unwrap()]).output().unwrap();
    assert!(output.status.success() && dir.path().join("capstan-status.1").exists());
}
