//! `capstan crds`: output, and one clear line for each mistake.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::process::{Command, Output};

use support::error_line;

fn capstan(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_capstan"))
        .args(args)
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn prints_every_kind_as_yaml_documents() {
    let output = capstan(&["crds"]);
    assert!(output.status.success());
    let kinds = stdout(&output).lines().filter(|line| *line == "kind: CustomResourceDefinition").count();
    assert_eq!(kinds, 31);
}

#[test]
fn prints_one_kind_by_any_of_its_names() {
    for name in ["NVIDIADriver", "nvidiadrivers", "nvd", "nvidiadrivers.nvidia.com", "NvidiaDriver"] {
        let output = capstan(&["crds", "--kind", name]);
        assert!(stdout(&output).contains("name: nvidiadrivers.nvidia.com"), "{name}");
    }
}

#[test]
fn prints_json_that_kubectl_takes() {
    let output = capstan(&["crds", "--kind", "NIMCache", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][0]["metadata"]["name"], "nimcaches.apps.nvidia.com");
}

#[test]
fn an_unknown_kind_is_one_line_with_the_choices() {
    let text = error_line(&capstan(&["crds", "--kind", "NIMServce"]));
    assert!(text.starts_with(r#"capstan: unknown kind "NIMServce": choose one of NIMService, NIMCache"#), "{text}");
}

#[test]
fn no_cluster_is_one_line_that_says_what_to_set() {
    let text = error_line(&capstan(&["crds", "--apply"]));
    assert!(text.starts_with("capstan: no cluster to talk to: "), "{text}");
    assert!(text.contains("KUBECONFIG"), "{text}");
}
