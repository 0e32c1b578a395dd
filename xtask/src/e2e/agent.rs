//! `capstan agent` on a real node: kubelet, containerd and runc are real, the GPUs are simulated.
//!
//! The agent's own output is not trusted: the node's status, the kubelet's checkpoint, and the environment, files and
//! device nodes of container processes are checked.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine;
use serde_json::{Value, json};

use super::{Suite, examples};
use crate::cluster::{KUBELET, NODE, PAUSE, Process, ctr, output};
use crate::image;

/// Name of the agent's pod, ServiceAccount and RBAC objects.
const AGENT: &str = "gpu-agent";
const RESOURCE: &str = "nvidia.com/gpu";
const GPUS: usize = 8;
/// The kubelet's checkpoint of allocated devices.
const RECORD: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";
/// Directory of device lists passed as volume mounts.
const MOUNTS: &str = "var/run/nvidia-container-devices";

/// UUID of a simulated H200.
fn uuid(index: usize) -> String {
    format!("GPU-c0ffee03-0000-4000-8000-{index:08x}0000")
}

/// The device plugin alone: capacity, allocations, and recovery from failures of kubelet, plugin and GPU.
pub(super) fn devices(suite: &Suite) -> Result<String> {
    rights(suite)?;
    start(suite, &["agent", "--fake=8xH200", "device-plugin"], &[("HEALTHY_AFTER_SECONDS", "1")])?;
    offers(suite, GPUS)?;
    let two = suite.holder_of("gpus-two", 2)?;
    expect("a pod that asks for two GPUs", &two.visible()?, &uuids(0..2))?;

    let kubelet = Process::of(&suite.home, KUBELET.name);
    kubelet.signal("KILL")?;
    kubelet.ended()?;
    kubelet.start_again()?;
    suite.wait("the plugin does not register again", || Ok(registrations(suite)? >= 2))?;
    offers(suite, GPUS)?;
    let six = suite.holder_of("gpus-six", 6)?;
    expect("what is left for a pod that asks for six", &six.visible()?, &uuids(2..GPUS))?;
    expect("the pod of before", &two.visible()?, &uuids(0..2))?;
    suite.delete_pods(&["gpus-two", "gpus-six"])?;

    ctr(&["tasks", "kill", "--signal", "SIGKILL", &suite.container(AGENT)?])?;
    suite.wait("the agent does not come back", || {
        let pod = suite.json(&["get", "pod", AGENT])?;
        Ok(pod["status"]["containerStatuses"][0]["restartCount"] == 1 && registrations(suite)? >= 1)
    })?;
    offers(suite, GPUS)?;
    let all = suite.holder_of("gpus-all", GPUS)?;
    expect("a pod that asks for all GPUs", &all.visible()?, &uuids(0..GPUS))?;
    suite.delete_pods(&["gpus-all"])?;

    faults(suite, "3 reset\n3 xid 48\n")?;
    offers(suite, GPUS - 1)?;
    let seven = suite.holder_of("gpus-seven", GPUS - 1)?;
    let fit: BTreeSet<String> = uuids(0..GPUS).into_iter().filter(|gpu| *gpu != uuid(3)).collect();
    expect("a pod that asks for all that are well", &seven.visible()?, &fit)?;
    faults(suite, "")?;
    offers(suite, GPUS)?;
    suite.delete_pods(&["gpus-seven", AGENT])?;
    Ok("8 GPUs; 2, 6, 8 and 7 of them were handed out right; kubelet and agent killed, a GPU broken and mended".into())
}

/// Several roles in one process, and the other device list strategies.
pub(super) fn roles(suite: &Suite) -> Result<String> {
    rights(suite)?;
    let driver = driver(&suite.home.join("driver"))?.display().to_string();
    let strategies = "volume-mounts,cdi-annotations,cdi-cri";
    let variables = [
        ("DEVICE_LIST_STRATEGY", strategies),
        ("PASS_DEVICE_SPECS", "true"),
        ("NVIDIA_DRIVER_ROOT", driver.as_str()),
        ("LABEL_NODE", "true"),
        ("WITHDRAW_ON_EXIT", "true"),
        ("DCGM_EXPORTER_KUBERNETES", "true"),
        ("DCGM_EXPORTER_INTERVAL", "1000"),
    ];
    let names = "--roles=device-plugin,feature-discovery,exporter";
    start(suite, &["agent", "--fake=8xH200", names], &variables)?;
    offers(suite, GPUS)?;
    suite.wait("the node has no labels of its GPUs", || {
        let labels = suite.json(&["get", "node", NODE])?["metadata"]["labels"].clone();
        Ok(labels["nvidia.com/gpu.count"] == "8" && labels["nvidia.com/gpu.product"] == "NVIDIA-H200")
    })?;
    let two = suite.holder_of("gpus-two", 2)?;
    let mounted: BTreeSet<String> = names_in(&two.root().join(MOUNTS)).into_iter().collect();
    expect("mounts of a pod that asks for two GPUs", &mounted, &uuids(0..2))?;
    let nodes: BTreeSet<String> =
        names_in(&two.root().join("dev")).into_iter().filter(|name| name.starts_with("nvidia")).collect();
    let wanted = ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"].map(str::to_owned).into();
    expect("device nodes of that pod", &nodes, &wanted)?;
    cdi(suite)?;
    attributed(suite)?;
    suite.delete_pods(&["gpus-two", AGENT])?;
    suite.wait("labels are left on the node", || {
        let labels = suite.json(&["get", "node", NODE])?["metadata"]["labels"].clone();
        Ok(labels["nvidia.com/gpu.count"].is_null())
    })?;
    Ok("labels came and went, metrics name the pod, mounts, device nodes and CDI names are those of its 2 GPUs".into())
}

/// CDI names reach the kubelet, by annotation and by field, and specs exist for them.
fn cdi(suite: &Suite) -> Result<()> {
    let record: Value = serde_json::from_slice(&std::fs::read(RECORD)?).context("the kubelet's record is no JSON")?;
    let entries = record["Data"]["PodDeviceEntries"].as_array().cloned().unwrap_or_default();
    let held = entries.iter().filter(|entry| entry["ResourceName"] == RESOURCE);
    let answers: Vec<&str> = held.filter_map(|entry| entry["AllocResp"].as_str()).collect();
    let [answer] = answers[..] else { bail!("the kubelet remembers {} answers, not 1", answers.len()) };
    let bytes = base64::engine::general_purpose::STANDARD.decode(answer).context("an answer is no base64")?;
    let text = String::from_utf8_lossy(&bytes);
    for gpu in 0..GPUS {
        let (name, wanted) = (format!("k8s.device-plugin.nvidia.com/gpu={}", uuid(gpu)), if gpu < 2 { 2 } else { 0 });
        let count = text.matches(&name).count();
        if count != wanted {
            bail!("{name} is {count} times in what the kubelet was told, not {wanted} times");
        }
    }
    let file = suite.home.join("cdi/k8s.device-plugin.nvidia.com-gpu.json");
    let spec: Value = serde_json::from_slice(&std::fs::read(&file)?).context("the CDI spec is no JSON")?;
    let nodes = |device: &Value| device["containerEdits"]["deviceNodes"][0]["path"].as_str().map(str::to_owned);
    let devices = spec["devices"].as_array().cloned().unwrap_or_default();
    let found: Vec<_> = devices.iter().map(|device| (device["name"].as_str().unwrap_or(""), nodes(device))).collect();
    for gpu in 0..GPUS {
        if !found.contains(&(uuid(gpu).as_str(), Some(format!("/dev/nvidia{gpu}")))) {
            bail!("{} is not in the CDI spec with its device node: {found:?}", uuid(gpu));
        }
    }
    Ok(())
}

/// Metrics of allocated GPUs name their pod, and those of others do not.
fn attributed(suite: &Suite) -> Result<()> {
    let pod = suite.json(&["get", "pod", AGENT])?;
    let address = format!("{}:9400", pod["status"]["podIP"].as_str().unwrap_or_default());
    suite.wait("metrics do not say which pod holds a GPU", || {
        let text = examples::get(&address, "/metrics")?;
        let named = |gpu: usize| {
            let mut lines = text.lines().filter(|line| line.starts_with("DCGM_FI_DEV_GPU_TEMP{"));
            let line = lines.find(|line| line.contains(&uuid(gpu)));
            line.map(|line| line.contains("pod=\"gpus-two\"") && line.contains("namespace=\"default\""))
        };
        Ok((0..GPUS).all(|gpu| named(gpu) == Some(gpu < 2)))
    })
}

/// Placeholder driver files: device nodes are copies of /dev/null.
fn driver(folder: &Path) -> Result<PathBuf> {
    const VERSION: &str = "580.65.06";
    let (libraries, dev) = (folder.join("usr/lib/x86_64-linux-gnu"), folder.join("dev"));
    let _ = std::fs::remove_dir_all(folder);
    for dir in [&libraries, &dev] {
        std::fs::create_dir_all(dir)?;
    }
    for name in ["libcuda", "libnvidia-ml"] {
        let file = format!("{name}.so.{VERSION}");
        std::fs::write(libraries.join(&file), "")?;
        symlink(&file, libraries.join(format!("{name}.so.1")))?;
    }
    let gpus = (0..GPUS).map(|gpu| format!("nvidia{gpu}"));
    for name in gpus.chain(["nvidiactl".to_owned(), "nvidia-uvm".to_owned()]) {
        output("mknod", &["-m", "666", &dev.join(name).display().to_string(), "c", "1", "3"])?;
    }
    Ok(folder.to_owned())
}

/// Allows the agent to label nodes; it needs no other permission.
fn rights(suite: &Suite) -> Result<()> {
    let named = json!({"name": AGENT});
    suite.apply(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": AGENT, "namespace": "default"},
    }))?;
    suite.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": named,
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}],
    }))?;
    suite.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": named,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AGENT},
        "subjects": [{"kind": "ServiceAccount", "name": AGENT, "namespace": "default"}],
    }))
}

/// Starts the agent with the host directories that it needs.
fn start(suite: &Suite, args: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    for name in ["faults", "cdi", "driver"] {
        std::fs::create_dir_all(suite.home.join(name))?;
    }
    faults(suite, "")?;
    let in_home = |name: &str| suite.home.join(name).display().to_string();
    let folders = [
        ("plugins", "/var/lib/kubelet/device-plugins".to_owned(), "/var/lib/kubelet/device-plugins"),
        ("pods", "/var/lib/kubelet/pod-resources".to_owned(), "/var/lib/kubelet/pod-resources"),
        ("faults", in_home("faults"), "/faults"),
        ("cdi", in_home("cdi"), "/var/run/cdi"),
        ("driver", in_home("driver"), "/driver-root"),
    ];
    let always = [("CAPSTAN_FAKE_FAULTS", "/faults/now"), ("NODE_NAME", NODE)];
    let env: Vec<Value> =
        always.iter().chain(variables).map(|(name, value)| json!({"name": name, "value": value})).collect();
    let mounts: Vec<Value> =
        folders.iter().map(|(name, _, inside)| json!({"name": name, "mountPath": inside})).collect();
    let volumes: Vec<Value> = folders
        .iter()
        .map(|(name, path, _)| json!({"name": name, "hostPath": {"path": path, "type": "Directory"}}))
        .collect();
    suite.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": AGENT, "namespace": "default"},
        "spec": {
            "serviceAccountName": AGENT, "terminationGracePeriodSeconds": 10,
            "containers": [{
                "name": "agent", "image": image::TAG, "imagePullPolicy": "Never", "args": args, "env": env,
                // The kubelet's sockets and directories belong to root.
                "securityContext": {"runAsUser": 0}, "volumeMounts": mounts,
            }],
            "volumes": volumes,
        },
    }))
}

/// Sets the faults of the simulated GPUs.
fn faults(suite: &Suite, text: &str) -> Result<()> {
    let folder = suite.home.join("faults");
    std::fs::write(folder.join("next"), text)?;
    Ok(std::fs::rename(folder.join("next"), folder.join("now"))?)
}

/// Number of registrations of the running agent with a kubelet.
fn registrations(suite: &Suite) -> Result<usize> {
    Ok(suite.kubectl(&["logs", AGENT])?.matches("registered with the kubelet").count())
}

/// Waits until the node has this many allocatable GPUs.
fn offers(suite: &Suite, count: usize) -> Result<()> {
    suite.wait(&format!("the node does not offer {count} GPUs"), || {
        let node = suite.json(&["get", "node", NODE])?;
        Ok(node["status"]["allocatable"][RESOURCE] == count.to_string().as_str())
    })
}

fn uuids(gpus: std::ops::Range<usize>) -> BTreeSet<String> {
    gpus.map(uuid).collect()
}

fn expect(what: &str, found: &BTreeSet<String>, wanted: &BTreeSet<String>) -> Result<()> {
    if found != wanted {
        bail!("{what}: got {found:?}, not {wanted:?}");
    }
    Ok(())
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// A container process with GPUs.
struct Holder(u32);

impl Holder {
    /// Its root directory.
    fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.0))
    }

    /// The GPUs in its environment.
    fn visible(&self) -> Result<BTreeSet<String>> {
        let text = std::fs::read(format!("/proc/{}/environ", self.0)).context("the container does not run")?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let named = text.split('\0').find_map(|line| line.strip_prefix("NVIDIA_VISIBLE_DEVICES="));
        Ok(named.context("NVIDIA_VISIBLE_DEVICES is not set")?.split(',').map(str::to_owned).collect())
    }
}

impl Suite {
    /// Starts an idle pod with GPUs, and returns its process.
    fn holder_of(&self, name: &str, gpus: usize) -> Result<Holder> {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "holder", "image": PAUSE, "imagePullPolicy": "Never",
                    "resources": {"limits": {RESOURCE: gpus.to_string()}},
                }],
            },
        }))?;
        self.wait(&format!("pod {name} does not run"), || {
            let pod = self.json(&["get", "pod", name])?;
            if pod["status"]["phase"] == "Failed" {
                bail!("pod {name} failed: {} {}", pod["status"]["reason"], pod["status"]["message"]);
            }
            Ok(!pod["status"]["containerStatuses"][0]["state"]["running"].is_null())
        })?;
        let container = self.container(name)?;
        let tasks = ctr(&["tasks", "ls"])?;
        let line = tasks.lines().find(|line| line.starts_with(&container)).context("containerd knows no such task")?;
        let pid = line.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
        Ok(Holder(pid.context("a task without a process")?))
    }

    /// The container of a single-container pod.
    fn container(&self, pod: &str) -> Result<String> {
        let pod = self.json(&["get", "pod", pod])?;
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
        Ok(id.trim_start_matches("containerd://").to_owned())
    }

    /// Deletes pods, and waits until they are gone.
    fn delete_pods(&self, pods: &[&str]) -> Result<()> {
        let args: Vec<&str> =
            ["delete", "pod", "--wait=true", "--request-timeout=60s"].iter().chain(pods).copied().collect();
        self.kubectl(&args).map(drop)
    }
}
