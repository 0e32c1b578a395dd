//! Fault injection: failures of a cluster with the symptoms of the real ones. Each has the name of the `capstan doctor`
//! rule that finds it.

use std::time::Duration;

use capstan_node::{labels, validation};
use capstan_sim::NodeTemplate;
use capstan_sim::node::{Behaviour, Body, ContainerContext, ExitCode, Match, NodeHandle, PullFailure, StartFailure};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::HARDWARE;
use crate::imitation::{PLUGIN, file, owner, withdraw};
use crate::machine::Machine;
use crate::workloads;

/// Poll interval for listeners of GPU events.
const LISTENERS_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Scope of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One node, or all nodes.
    Node,
    /// The whole cluster.
    Cluster,
}

/// A class of faults.
#[derive(Debug)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// Its scope.
    pub scope: Scope,
    /// A short description.
    pub about: &'static str,
}

const fn node(name: &'static str, about: &'static str) -> Class {
    Class { name, scope: Scope::Node, about }
}

const fn cluster(name: &'static str, about: &'static str) -> Class {
    Class { name, scope: Scope::Cluster, about }
}

/// All classes.
pub const CLASSES: &[Class] = &[
    cluster("helm-values", "a file of values has mistakes"),
    node("kubernetes-version", "a kubelet is too old for the API server"),
    node("feature-discovery", "feature discovery has not run"),
    node("node-not-ready", "the node is not Ready"),
    node("runtime-broken", "the container runtime is down"),
    node("runtime-handler", "the container runtime has no handler for GPUs"),
    cluster("runtime-class", "a workload names a RuntimeClass that is not there"),
    node("driver-headers-missing", "the driver cannot be built without kernel headers"),
    node("driver-nouveau-loaded", "nouveau holds the GPUs"),
    node("driver-secure-boot", "Secure Boot rejects the driver"),
    node("driver-kernel-unsupported", "the driver does not support the kernel"),
    node("driver-in-use", "an old driver is in use and cannot be unloaded"),
    node("driver-not-loaded", "the driver is installed and not loaded"),
    node("fabric-manager", "fabric manager does not run"),
    node("init-barrier", "a validation never ends"),
    node("plugin-not-running", "the device plugin fails"),
    node("gpus-missing", "a GPU of the PCI bus does not come up"),
    node("xid", "a GPU reports an XID"),
    node("image-pull", "the image of the toolkit is not there"),
    cluster("registry-secret", "the registry refuses the image of a model server"),
    cluster("volume-pending", "a claim names a StorageClass that is not there"),
    cluster("volume-full", "a volume is full"),
    cluster("cache-profile", "a model has no profile that fits"),
    node("gpu-taint", "a taint keeps pods away"),
    cluster("gpu-quota", "a quota allows no GPUs"),
    node("mig-layout", "a MIG layout could not be applied"),
    cluster("gpus-insufficient", "a pod asks for more GPUs than a node has"),
    cluster("rdma-missing", "a pod asks for an RDMA resource that no node offers"),
    cluster("vfs-missing", "a policy for virtual functions matches no node"),
    node("vfs-over-limit", "a policy asks for more virtual functions than the firmware allows"),
    cluster("crd-outdated", "a CRD is older than the operator"),
    cluster("webhook-unreachable", "a webhook has no server"),
];

/// A fault to inject.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its class.
    pub class: &'static Class,
    /// Its node; all nodes if `None`.
    pub node: Option<String>,
}

impl Fault {
    /// Parses `CLASS` or `CLASS@NODE`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, node) = text.split_once('@').map_or((text, None), |(name, node)| (name, Some(node)));
        let class = CLASSES.iter().find(|class| class.name == name).ok_or_else(|| {
            let known: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
            format!("there is no fault {name:?}: choose one of {}", known.join(", "))
        })?;
        match (class.scope, node) {
            (Scope::Cluster, Some(_)) => {
                Err(format!("the fault {name} is one of the whole cluster: leave the node out"))
            }
            (_, Some("")) => Err(format!("{text:?} names no node after the @")),
            _ => Ok(Self { class, node: node.map(str::to_owned) }),
        }
    }

    /// The namespace of the fault's objects.
    pub fn namespace(&self) -> String {
        format!("fault-{}", self.class.name)
    }

    /// A short description with the node.
    pub fn about(&self) -> String {
        match (self.class.scope, &self.node) {
            (Scope::Cluster, _) => self.class.about.to_owned(),
            (Scope::Node, Some(node)) => format!("{}, on {node}", self.class.about),
            (Scope::Node, None) => format!("{}, on every node", self.class.about),
        }
    }

    /// Whether it affects this node.
    pub(crate) fn affects(&self, node: &str) -> bool {
        self.node.as_deref().is_none_or(|mine| mine == node)
    }

    /// Modifies the template of a node.
    pub fn edit(&self, node: &mut NodeTemplate) {
        if !self.affects(&node.name) {
            return;
        }
        match self.class.name {
            "feature-discovery" => node.labels.retain(|key, _| !key.starts_with("feature.node.kubernetes.io/")),
            "gpu-taint" => *node = std::mem::take(node).taint("dedicated", "research", "NoSchedule"),
            "mig-layout" => {
                node.labels.insert(labels::MIG_CONFIG.into(), "all-9g.999gb".into());
                node.labels.insert(labels::MIG_CONFIG_STATE.into(), "failed".into());
            }
            _ => {}
        }
    }

    /// Behaviour of containers.
    pub fn rules(&self) -> Vec<(Match, Behaviour)> {
        let on = |container: &str| Match::container(container).on_node(self.node.as_deref().unwrap_or("*"));
        let body = |body: Body| Behaviour { body: Some(body), ..Behaviour::default() };
        let logs_and_fails =
            |container: &str, lines: &'static [&'static str]| vec![(on(container), body(failing_body(lines)))];
        let plugin = |gpu_fault: GpuFault| {
            let containers = ["nvidia-device-plugin", "capstan-node-agent"];
            containers.map(|name| (on(name), body(Body::new(move |cx| plugin(cx, gpu_fault))))).to_vec()
        };
        let pods = |pattern: &str| Match::pod(&self.namespace(), pattern);
        let unpulled = |message: &str| Behaviour {
            pull_failure: Some(PullFailure { message: message.into(), times: None }),
            ..Behaviour::default()
        };
        match self.class.name {
            "driver-headers-missing" => logs_and_fails(
                "nvidia-driver-ctr",
                &["Resolving Linux kernel version...", "Could not resolve Linux kernel version"],
            ),
            "driver-nouveau-loaded" => logs_and_fails(
                "nvidia-driver-ctr",
                &["ERROR: The Nouveau kernel driver is currently in use by your system."],
            ),
            "driver-secure-boot" => logs_and_fails(
                "nvidia-driver-ctr",
                &[
                    "Loading NVIDIA driver kernel modules...",
                    "modprobe: ERROR: could not insert 'nvidia': Required key not available",
                ],
            ),
            "driver-kernel-unsupported" => {
                logs_and_fails("nvidia-driver-ctr", &["ERROR: Unable to build the NVIDIA kernel module."])
            }
            "driver-in-use" => logs_and_fails(
                "k8s-driver-manager",
                &["Could not unload NVIDIA driver kernel modules, driver is in use"],
            ),
            "driver-not-loaded" => logs_and_fails(
                "driver-validation",
                &["NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."],
            ),
            "fabric-manager" => logs_and_fails(
                "cuda-validation",
                &["Failed to allocate device vector A (error code system not yet initialized)!"],
            ),
            "init-barrier" => vec![(on("driver-validation"), body(Body::new(waits)))],
            "plugin-not-running" => {
                let lines: &[&str] =
                    &["listen unix /var/lib/kubelet/device-plugins/nvidia-gpu.sock: permission denied"];
                [logs_and_fails("nvidia-device-plugin", lines), logs_and_fails("capstan-node-agent", lines)].concat()
            }
            "gpus-missing" => plugin(GpuFault::Absent),
            "xid" => plugin(GpuFault::Unhealthy),
            "runtime-handler" => vec![(
                on("toolkit-validation"),
                Behaviour {
                    start_failure: Some(StartFailure {
                        reason: "CreateContainerError".into(),
                        message: "failed to get sandbox runtime: no runtime for \"nvidia\" is configured".into(),
                        times: None,
                    }),
                    ..Behaviour::default()
                },
            )],
            "image-pull" => vec![(on("nvidia-container-toolkit-ctr"), unpulled(""))],
            "registry-secret" => {
                let message = "failed to authorize: failed to fetch oauth token: unexpected status from GET request: 401 Unauthorized";
                vec![(pods("*"), unpulled(message))]
            }
            "volume-full" => {
                let lines = failing_body(&["OSError: [Errno 28] No space left on device: '/model-store/ngc/hub'"]);
                vec![(pods("*"), body(lines))]
            }
            "cache-profile" => vec![(pods("*-pod"), body(Body::new(manifest)))],
            _ => Vec::new(),
        }
    }

    /// Whether it is a hardware fault, injected into the machine.
    pub fn is_hardware_fault(&self) -> bool {
        matches!(self.class.name, "gpus-missing" | "xid")
    }

    /// Injects a fault into a machine before anything runs on it.
    pub(crate) fn inject_before_start(&self, machine: &Machine) {
        if self.class.name == "gpus-missing" {
            machine.gpus().edit(|recording| drop(recording.inventory.gpus.pop()));
        }
    }

    /// Injects a fault into a machine once its GPUs are allocatable.
    pub(crate) async fn inject_when_allocatable(&self, machine: &Machine, node: &NodeHandle) {
        if self.class.name != "xid" {
            return;
        }
        let offers = |node: &Node| {
            let offered = node.status.as_ref().and_then(|status| status.allocatable.as_ref()?.get("nvidia.com/gpu"));
            offered.is_some_and(|count| count.0 != "0")
        };
        node.until(offers).await;
        while machine.gpus().listeners() == 0 {
            tokio::time::sleep(LISTENERS_POLL_INTERVAL).await;
        }
        if let Some(gpu) = machine.uuids().last() {
            machine.gpus().lose(gpu);
        }
    }

    /// Objects to create once the operator runs. The status of an object is written after it.
    pub fn objects(&self) -> Vec<Value> {
        let node = self.node.as_deref();
        let within = |objects: Vec<Value>| {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace()}});
            std::iter::once(namespace).chain(objects).collect()
        };
        let name = self.namespace();
        match self.class.name {
            "runtime-class" => {
                within(vec![workloads::deployment(&name, json!({"runtimeClassName": "nvidia-experimental"}), &[])])
            }
            "registry-secret" | "volume-full" => within(workloads::service(&name, None)),
            "volume-pending" => within(workloads::service(&name, Some("fast-nvme"))),
            "cache-profile" => within(workloads::cache(&name)),
            "gpu-taint" => {
                let spec = node.map_or(json!({}), |node| json!({"nodeSelector": {"kubernetes.io/hostname": node}}));
                within(vec![workloads::deployment(&name, spec, &[("nvidia.com/gpu", 1)])])
            }
            "gpu-quota" => {
                within(vec![workloads::quota(&name), workloads::deployment(&name, json!({}), &[("nvidia.com/gpu", 1)])])
            }
            "gpus-insufficient" => within(vec![workloads::deployment(&name, json!({}), &[("nvidia.com/gpu", 64)])]),
            "rdma-missing" => {
                within(vec![workloads::deployment(&name, json!({}), &[("rdma/rdma_shared_device_a", 1)])])
            }
            "vfs-missing" => within(vec![workloads::functions(&name, json!({"rail": "optimized"}))]),
            "vfs-over-limit" => {
                let node = node.unwrap_or("gpu-0");
                within(vec![
                    workloads::functions(&name, json!({"kubernetes.io/hostname": node})),
                    workloads::function_state(&name, node),
                ])
            }
            "gpus-missing" => within(vec![workloads::features(&name, node.unwrap_or("gpu-0"))]),
            "webhook-unreachable" => within(workloads::webhook(&name)),
            _ => Vec::new(),
        }
    }

    /// A strategic merge patch of the node status.
    pub fn node_status(&self) -> Option<Value> {
        let not_ready = |message: &str| json!({"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": message}]});
        match self.class.name {
            "kubernetes-version" => Some(json!({"nodeInfo": {"kubeletVersion": "v1.31.9"}})),
            "node-not-ready" => Some(not_ready("node is shutting down")),
            "runtime-broken" => {
                Some(not_ready("[container runtime is down, PLEG is not healthy: pleg was last seen active 4m0s ago]"))
            }
            _ => None,
        }
    }
}

/// A body that logs lines and fails.
fn failing_body(lines: &'static [&'static str]) -> Body {
    Body::new(move |cx: ContainerContext| async move {
        cx.set_ready(false);
        tokio::time::sleep(Duration::from_millis(30)).await;
        for line in lines {
            cx.log.line(line);
        }
        ExitCode::FAILURE
    })
}

async fn waits(cx: ContainerContext) {
    cx.log.line("waits for /run/nvidia/validations/.driver-ctr-ready");
    cx.stopped().await;
}

/// State of the faulty GPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GpuFault {
    /// The driver does not list it.
    Absent,
    /// The device plugin reports it as unhealthy.
    Unhealthy,
}

/// A device plugin that offers one GPU less.
async fn plugin(cx: ContainerContext, gpu_fault: GpuFault) -> ExitCode {
    cx.node.host().wait_for(&file(validation::DRIVER)).await;
    let node = cx.node.object();
    let label = node.as_ref().and_then(|node| node.metadata.labels.as_ref()?.get(HARDWARE)?.parse::<u16>().ok());
    let all = label.unwrap_or(1);
    let fewer = all.saturating_sub(1).to_string();
    let offered = match gpu_fault {
        GpuFault::Absent => cx.node.set_capacity("nvidia.com/gpu", Some(&fewer)).await,
        GpuFault::Unhealthy => match cx.node.set_capacity("nvidia.com/gpu", Some(&all.to_string())).await {
            Ok(()) => cx.node.set_allocatable("nvidia.com/gpu", &fewer).await,
            failed => failed,
        },
    };
    if offered.is_err() {
        return ExitCode::FAILURE;
    }
    if gpu_fault == GpuFault::Unhealthy {
        cx.log.line("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
    }
    cx.node.host().write(PLUGIN, owner(&cx));
    cx.stopped().await;
    withdraw(&cx).await
}

/// A model manifest without a matching profile.
async fn manifest(cx: ContainerContext) {
    cx.log.line("0f3de1afe11d355e01657424a267fbaad19bfea3143a9879307c49aed8299db0:");
    cx.log.line("  model: meta/llama");
    cx.log.line("  release: '1.8.0'");
    cx.log.line("  tags: {llm_engine: vllm, precision: bf16, tp: '1', feat_lora: 'false'}");
    cx.log.line("  container_url: nvcr.io/nim/meta/llama:1.8");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_with_their_node() {
        let fault = Fault::parse("driver-headers-missing@gpu-1").unwrap();
        assert_eq!((fault.class.name, fault.node.as_deref()), ("driver-headers-missing", Some("gpu-1")));
        assert_eq!(fault.about(), "the driver cannot be built without kernel headers, on gpu-1");
        assert_eq!(Fault::parse("xid").unwrap().about(), "a GPU reports an XID, on every node");
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        let known = Fault::parse("driver").unwrap_err();
        assert!(known.starts_with("there is no fault \"driver\": choose one of helm-values, "), "{known}");
        let cluster = Fault::parse("gpu-quota@gpu-1").unwrap_err();
        assert_eq!(cluster, "the fault gpu-quota is one of the whole cluster: leave the node out");
        assert!(Fault::parse("xid@").is_err());
    }
}
