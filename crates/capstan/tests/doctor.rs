//! `capstan doctor` on clusters with faults injected by `capstan up`: it names exactly the injected faults.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Timeout until all faults show on a machine under load.
const DEADLINE: Duration = Duration::from_secs(180);
/// Timeout of the doctor for a visible fault.
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(10);
/// Waits shorter than this are not reported: `--grace-period` of the doctor.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// A cluster that ends with the test.
struct Up {
    child: Child,
    kubeconfig: PathBuf,
    _dir: tempfile::TempDir,
}

impl Up {
    /// Starts a cluster and waits for an `event` line.
    fn start(args: &[&str], event: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.args(["up", "-o", "json", "--timeout", "300", "--kubeconfig"]).arg(&kubeconfig).args(args);
        let mut child = command.env_remove("RUST_LOG").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut up = Self { child, kubeconfig, _dir: dir };
        let mut said = Vec::new();
        for line in lines {
            let line = line.unwrap();
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["event"] == event {
                return up;
            }
            said.push(line);
        }
        panic!("ended with {} before {event}: {said:#?}", up.child.wait().unwrap());
    }

    /// Writes a snapshot of the cluster, without secrets.
    fn save(&self) -> PathBuf {
        let file = self.kubeconfig.with_extension("snapshot.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.args(["plan", "--from-cluster"]).arg(&file).arg("--kubeconfig").arg(&self.kubeconfig);
        assert!(command.output().unwrap().status.success());
        file
    }

    fn values(&self) -> PathBuf {
        self.kubeconfig.with_extension("values.yaml")
    }

    /// The first snapshot that meets a condition.
    fn until(&self, what: &str, wanted: impl Fn(&Value) -> Result<(), String>) -> Value {
        let begin = Instant::now();
        loop {
            let text = std::fs::read_to_string(self.save()).unwrap();
            let snapshot: Value = serde_json::from_str(&text).unwrap();
            match wanted(&snapshot) {
                Ok(()) => return snapshot,
                Err(missing) => assert!(begin.elapsed() < DEADLINE, "{what}: {missing}"),
            }
        }
    }

    /// Runs the doctor once, within the timeout, and expects exactly these rules.
    fn assert_named_at_once(&self, expected: &[&str], more: &[&str]) -> Value {
        let expected: BTreeSet<String> = expected.iter().map(|rule| (*rule).to_owned()).collect();
        let look = Instant::now();
        let (output, report) = doctor("--kubeconfig", &self.kubeconfig, more);
        eprintln!("named {} classes in {:.1} s", expected.len(), look.elapsed().as_secs_f64());
        assert!(look.elapsed() < DIAGNOSIS_TIMEOUT, "a look took {:?}", look.elapsed());
        let found = rules(&report);
        let (missing, wrong): (Vec<_>, Vec<_>) =
            (expected.difference(&found).collect(), found.difference(&expected).collect());
        assert!(found == expected, "not named: {missing:?}; named for nothing: {wrong:?}; {report:#}");
        assert_eq!(output.status.code(), Some(2));
        report
    }

    /// Repeats until the doctor names exactly these rules.
    fn assert_diagnosis(&self, expected: &[&str], more: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|rule| (*rule).to_owned()).collect();
        let begin = Instant::now();
        let mut named = BTreeSet::new();
        loop {
            let look = Instant::now();
            let (output, report) = doctor("--kubeconfig", &self.kubeconfig, more);
            assert!(look.elapsed() < DIAGNOSIS_TIMEOUT, "a look took {:?}", look.elapsed());
            let causes = report["causes"].as_array().unwrap();
            let found = rules(&report);
            let new: Vec<_> = found.difference(&named).cloned().collect();
            if !new.is_empty() {
                eprintln!("{:.1} s: {}", begin.elapsed().as_secs_f64(), new.join(", "));
            }
            named.extend(new);
            if found == expected {
                let healthy = expected.is_empty();
                assert_eq!(output.status.code(), Some(if healthy { 0 } else { 2 }), "{report:#}");
                assert_eq!(report["healthy"], healthy);
                eprintln!("named all of {} after {:.1} s", expected.len(), begin.elapsed().as_secs_f64());
                return;
            }
            let missing: Vec<_> = expected.difference(&found).collect();
            let wrong: Vec<_> =
                causes.iter().filter(|cause| !expected.contains(cause["rule"].as_str().unwrap())).collect();
            assert!(begin.elapsed() < DEADLINE, "not named: {missing:#?}\nnamed for nothing: {wrong:#?}");
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rules of a report.
fn rules(report: &Value) -> BTreeSet<String> {
    let causes = report["causes"].as_array().unwrap();
    causes.iter().map(|cause| cause["rule"].as_str().unwrap().to_owned()).collect()
}

/// Objects of a kind in a snapshot.
fn all<'a>(snapshot: &'a Value, kind: &str) -> &'a [Value] {
    snapshot["objects"][kind].as_array().map_or(&[], Vec::as_slice)
}

/// Whether a fault of a node is visible in the status of the node and its pods.
fn shows(snapshot: &Value, fault: &str, node: &str) -> bool {
    let pods = || all(snapshot, "Pod").iter().filter(|pod| pod["spec"]["nodeName"] == node);
    let containers = || {
        let lists = ["initContainerStatuses", "containerStatuses"];
        pods().flat_map(move |pod| lists.map(|list| pod["status"][list].as_array().into_iter().flatten())).flatten()
    };
    let fails = |name: &str| {
        let mut all = containers().filter(|one| one["name"] == name && one["ready"] == false);
        all.any(|one| {
            let ends = ["state", "lastState"].map(|state| one[state]["terminated"]["exitCode"].as_i64().unwrap_or(0));
            ends.iter().any(|code| *code != 0)
        })
    };
    let waits = |reason: &str| containers().any(|one| one["state"]["waiting"]["reason"] == reason);
    let found = all(snapshot, "Node").iter().find(|one| one["metadata"]["name"] == node).unwrap();
    let gpus = |field: &str| found["status"][field]["nvidia.com/gpu"].as_str().unwrap_or_default();
    let ready = || found["status"]["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == "Ready");
    match fault {
        "driver-in-use" => fails("k8s-driver-manager"),
        "driver-not-loaded" => fails("driver-validation"),
        fault if fault.starts_with("driver-") => fails("nvidia-driver-ctr"),
        "fabric-manager" => fails("cuda-validation"),
        "plugin-not-running" => fails("nvidia-device-plugin") || fails("capstan-node-agent"),
        "init-barrier" => {
            let mut waiting = containers().filter(|one| one["name"] == "driver-validation");
            let taken = time(&snapshot["taken"]);
            waiting.any(|one| {
                let since = &one["state"]["running"]["startedAt"];
                since.is_string() && taken.duration_since(time(since)).unsigned_abs() > GRACE_PERIOD
            })
        }
        "gpus-missing" => gpus("capacity") == "7",
        "xid" => gpus("allocatable") == "7",
        "image-pull" => waits("ImagePullBackOff") || waits("ErrImagePull"),
        "runtime-handler" => waits("CreateContainerError"),
        "runtime-broken" | "node-not-ready" => ready().is_some_and(|one| one["status"] == "False"),
        "gpu-taint" => all(snapshot, "Pod").iter().any(|pod| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            pod["metadata"]["namespace"] == "fault-gpu-taint"
                && conditions.into_iter().any(|one| one["type"] == "PodScheduled" && one["status"] == "False")
        }),
        // The others are visible from the start.
        _ => true,
    }
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

fn doctor(source: &str, file: &Path, more: &[&str]) -> (Output, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.args(["doctor", "-o", "json", source]).arg(file).args(more);
    let output = command.env_remove("RUST_LOG").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report =
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    (output, report)
}

#[test]
fn a_healthy_cluster_gives_no_alarm() {
    let up = Up::start(&[], "ready");
    up.assert_diagnosis(&[], &["--grace-period", "0"]);
}

#[test]
fn what_is_wrong_with_nodes_is_named() {
    // Fault, and the rule that finds it.
    let faults = [
        ("driver-headers-missing", "driver-headers-missing"),
        ("driver-nouveau-loaded", "driver-nouveau-loaded"),
        ("driver-secure-boot", "driver-secure-boot"),
        ("driver-kernel-unsupported", "driver-kernel-unsupported"),
        ("driver-in-use", "driver-in-use"),
        ("driver-not-loaded", "driver-not-loaded"),
        ("fabric-manager", "fabric-manager"),
        ("init-barrier", "init-barrier"),
        ("plugin-not-running", "plugin-not-running"),
        ("gpus-missing", "gpus-missing"),
        ("xid", "xid"),
        ("image-pull", "image-pull"),
        ("gpu-taint", "gpu-taint"),
        ("mig-layout", "mig-layout"),
        ("runtime-handler", "runtime-handler"),
        ("runtime-broken", "runtime-broken"),
        ("node-not-ready", "node-not-ready"),
        ("kubernetes-version", "kubernetes-version"),
        ("feature-discovery", "feature-discovery"),
        ("vfs-over-limit", "vfs-missing"),
    ];
    let nodes = (faults.len() + 2).to_string();
    let place = |index: usize| format!("gpu-{}", index + 1);
    let flags: Vec<String> =
        faults.iter().enumerate().map(|(index, (fault, _))| format!("--fault={fault}@{}", place(index))).collect();
    let args: Vec<&str> = ["--nodes", &nodes].into_iter().chain(flags.iter().map(String::as_str)).collect();
    let up = Up::start(&args, "broken");
    // From here on one run is enough.
    up.until("not all faults show", |snapshot| {
        let shown = |index: usize, fault: &str| shows(snapshot, fault, &place(index));
        let hidden = faults.iter().enumerate().filter(|(index, (fault, _))| !shown(*index, fault));
        let hidden: Vec<_> = hidden.map(|(_, (fault, _))| *fault).collect();
        if hidden.is_empty() { Ok(()) } else { Err(hidden.join(", ")) }
    });
    let report = up.assert_named_at_once(&faults.map(|(_, class)| class), &[]);
    // The operator's own conditions have the same text.
    let told = [
        "driver-headers-missing",
        "driver-nouveau-loaded",
        "driver-secure-boot",
        "driver-kernel-unsupported",
        "driver-in-use",
        "driver-not-loaded",
        "fabric-manager",
        "runtime-handler",
    ];
    let causes = report["causes"].as_array().unwrap();
    let title = |rule: &&str| causes.iter().find(|cause| cause["rule"] == *rule).unwrap()["title"].as_str().unwrap();
    let titles = told.each_ref().map(title);
    up.until("the operator does not say", |snapshot| {
        let policies = all(snapshot, "ClusterPolicy.nvidia.com").iter();
        let conditions: Vec<&Value> =
            policies.flat_map(|one| one["status"]["conditions"].as_array().into_iter().flatten()).collect();
        let events = all(snapshot, "Event").iter().filter(|one| one["involvedObject"]["kind"] == "ClusterPolicy");
        let events: Vec<&Value> = events.collect();
        for title in titles {
            let in_condition = conditions.iter().any(|one| one["message"].as_str().unwrap_or_default().contains(title));
            let in_event = events.iter().any(|one| one["type"] == "Warning" && one["message"] == title);
            if !(in_condition && in_event) {
                return Err(format!("{title}: condition {in_condition}, event {in_event}"));
            }
        }
        Ok(())
    });
}

#[test]
fn what_is_wrong_with_the_cluster_is_named() {
    let faults = [
        "runtime-class",
        "registry-secret",
        "volume-pending",
        "volume-full",
        "cache-profile",
        "gpu-quota",
        "gpus-insufficient",
        "rdma-missing",
        "vfs-missing",
        "crd-outdated",
        "webhook-unreachable",
        "helm-values",
    ];
    let flags = faults.map(|fault| format!("--fault={fault}"));
    let up = Up::start(&flags.each_ref().map(String::as_str), "broken");
    let values = up.values();
    up.assert_diagnosis(&faults, &["--values", values.to_str().unwrap()]);
    // A saved snapshot gives the same result.
    let (_, live) = doctor("--kubeconfig", &up.kubeconfig, &[]);
    let (output, offline) = doctor("--snapshot", &up.save(), &[]);
    assert_eq!((output.status.code(), rules(&offline)), (Some(2), rules(&live)));
}

#[test]
fn mistakes_are_told_in_one_line() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_capstan")).args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = run(&["doctor", "--snapshot", "/nonexistent/cluster.json"]);
    assert_eq!((code, text.lines().count()), (Some(1), 1), "{text}");
    let (_, text) = run(&["up", "--fault", "driver-broken"]);
    assert!(text.contains("there is no fault \"driver-broken\": choose one of helm-values,"), "{text}");
    let (_, text) = run(&["up", "--fault", "xid@gpu-7"]);
    assert_eq!(text, "capstan: there is no node gpu-7: there are gpu-0 to gpu-1, see --nodes\n");
}
