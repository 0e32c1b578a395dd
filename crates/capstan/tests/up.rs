//! `capstan up` from a new user's view: Ready, and one clear line for each mistake.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::error_line;

fn up(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_capstan")).arg("up").args(args).env_remove("RUST_LOG").output().unwrap()
}

#[test]
fn a_newcomer_gets_a_service_that_is_ready_and_nothing_is_left_behind() {
    let file = std::env::temp_dir().join(format!("capstan-test-{}.kubeconfig", std::process::id()));
    let output = up(&["--exit-when-ready", "--timeout", "300", "-o", "json", "--kubeconfig", file.to_str().unwrap()]);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(err, "");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done: Vec<&str> =
        lines.iter().filter(|line| line["state"] == "done").map(|line| line["stage"].as_str().unwrap()).collect();
    assert_eq!(done, ["cluster", "nodes", "operator", "GPUs", "apply", "NIMService"]);
    assert!(lines.iter().any(|line| line["event"] == "ready"));
    assert!(!file.exists(), "the kubeconfig of a cluster that is gone");
}

#[test]
fn an_operator_beside_the_cluster_makes_it_ready() {
    let file = std::env::temp_dir().join(format!("capstan-test-{}-beside.kubeconfig", std::process::id()));
    let path = file.to_str().unwrap();
    let args = ["up", "--no-operator", "--exit-when-ready", "--timeout", "300", "-o", "json", "--kubeconfig", path];
    let capstan = || Command::new(env!("CARGO_BIN_EXE_capstan"));
    let mut up = capstan().args(args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let asked = lines.find(|line| line.contains("nobody has brought")).unwrap();
    assert!(asked.contains("the kind NIMService of apps.nvidia.com"), "{asked}");
    let image = concat!("ghcr.io/capstan/capstan:", env!("CARGO_PKG_VERSION"));
    assert!(asked.contains(&format!("KUBECONFIG={path} CAPSTAN_IMAGE={image} capstan operator")), "{asked}");
    let mut operator = capstan();
    operator.args(["operator", "--health-probe-bind-address=0"]).env("KUBECONFIG", path).env("CAPSTAN_IMAGE", image);
    let mut operator = operator.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let rest: Vec<String> = lines.collect();
    let ended = up.wait().unwrap();
    operator.kill().unwrap();
    operator.wait().unwrap();
    assert!(ended.success(), "{rest:#?}");
    assert!(rest.iter().any(|line| line.contains(r#""stage":"NIMService""#) && line.contains("done")), "{rest:#?}");
}

/// Sends a signal after an output line, and asserts a clean exit that removes the kubeconfig.
fn assert_ends_on(signal: &str, args: &[&str], said: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    let mut up = Command::new(env!("CARGO_BIN_EXE_capstan"));
    up.args(["up", "--timeout", "300", "-o", "json", "--kubeconfig"]).arg(&file).args(args).env_remove("RUST_LOG");
    let mut up = up.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains(said)), "it ended before {said}");
    assert!(file.exists());
    assert!(Command::new("kill").args(["-s", signal, &up.id().to_string()]).status().unwrap().success());
    // Read to the end, as writing to a closed pipe fails.
    lines.for_each(drop);
    let ended = up.wait().unwrap();
    assert!(ended.success() && !file.exists(), "SIG{signal} after {said}: {ended}");
}

#[test]
fn signals_end_it_and_its_kubeconfig_goes() {
    for signal in ["TERM", "INT", "HUP"] {
        assert_ends_on(signal, &["--no-operator"], "nobody has brought");
    }
    assert_ends_on("TERM", &[], r#""event":"ready""#);
}

#[test]
fn a_port_in_use_is_one_line_that_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let text = error_line(&up(&["--port", &port]));
    assert_eq!(text, format!("capstan: port {port} is in use: choose another with --port, or leave it out\n"));
}

#[test]
fn a_missing_file_is_one_line_with_its_name() {
    let text = error_line(&up(&["-f", "/nonexistent/service.yaml"]));
    assert!(text.contains("/nonexistent/service.yaml"), "{text}");
}

#[test]
fn a_bad_flag_names_the_value_and_the_limits() {
    let output = up(&["--nodes", "0"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("invalid value '0' for '--nodes <NODES>': 0 is not in 1..=5000"), "{text}");
}
