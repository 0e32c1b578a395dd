//! A workload pod that checks GPUs from the outside: containers on this node get GPUs that compute.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use super::World;
use crate::own_node::{NodeFacts, OwnNode};
use crate::{Error, Result};

/// Timeout of the pod.
const POD_TIMEOUT: Duration = Duration::from_secs(300);
/// Our DaemonSet: the pod gets its owner and tolerations.
const OURS: &str = "nvidia-operator-validator";

/// What the pod checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A container with all GPUs can compute.
    Cuda,
    /// A container that requests one GPU gets it.
    Plugin,
}

impl Kind {
    fn app(self) -> &'static str {
        match self {
            Self::Cuda => "nvidia-cuda-validator",
            Self::Plugin => "nvidia-device-plugin-validator",
        }
    }
}

/// Result of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PodResult {
    Succeeded,
    /// All GPUs are allocated to other pods, which proves that they can be allocated.
    AllInUse,
    Failed(String),
    Running,
}

pub(super) async fn run(world: &World, kind: Kind) -> Result<()> {
    let node = world.node.as_ref().ok_or_else(|| Error::Config("a check with a pod needs NODE_NAME".into()))?;
    let namespace = &world.options.namespace;
    if namespace.is_empty() {
        return Err(Error::Config("a check with a pod needs --namespace (OPERATOR_NAMESPACE)".into()));
    }
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), namespace);
    let sets: Api<DaemonSet> = Api::namespaced(node.client.clone(), namespace);
    let failed = |what: &str, error: kube::Error| Error::External(format!("{what}: {error}"));
    let ours = sets.get(OURS).await.map_err(|error| failed("DaemonSet nvidia-operator-validator", error))?;
    clear(&pods, node, kind).await.map_err(|error| failed("old pods of this check", error))?;
    let resource = match kind {
        Kind::Cuda => None,
        Kind::Plugin => Some(resource(&world.facts().await?)?),
    };
    let pod: Pod = serde_json::from_value(pod(world, node, kind, resource.as_deref(), &ours)).expect("a pod of ours");
    let made = pods.create(&PostParams::default(), &pod).await.map_err(|error| failed("pod of this check", error))?;
    let name = made.metadata.name.unwrap_or_default();
    match tokio::time::timeout(POD_TIMEOUT, wait_for_end(&pods, &name)).await {
        Ok(Ok(PodResult::Failed(why))) => Err(Error::Check(format!("pod {name} failed: {why}"))),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed("pod of this check", error)),
        Err(_) => Err(Error::Check(format!("pod {name} did not end in {} s", POD_TIMEOUT.as_secs()))),
    }
}

async fn clear(pods: &Api<Pod>, node: &OwnNode, kind: Kind) -> kube::Result<()> {
    let mine =
        ListParams::default().labels(&format!("app={}", kind.app())).fields(&format!("spec.nodeName={}", node.name));
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::background() };
    pods.delete_collection(&now, &mine).await.map(|_| ())
}

async fn wait_for_end(pods: &Api<Pod>, name: &str) -> kube::Result<PodResult> {
    let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut pods = watcher(pods.clone(), one).default_backoff().applied_objects().boxed();
    while let Some(pod) = pods.try_next().await.ok().flatten() {
        match pod_result(&pod) {
            PodResult::Running => {}
            ended => return Ok(ended),
        }
    }
    Ok(PodResult::Failed("it was deleted by someone".into()))
}

/// The result, from the pod's status.
pub(super) fn pod_result(pod: &Pod) -> PodResult {
    let Some(status) = &pod.status else { return PodResult::Running };
    match status.phase.as_deref() {
        Some("Succeeded") => return PodResult::Succeeded,
        Some("Failed") => {
            let message = status.message.clone().or_else(|| status.reason.clone());
            return PodResult::Failed(message.unwrap_or_else(|| "see its logs".into()));
        }
        _ => {}
    }
    let unschedulable =
        status.conditions.iter().flatten().find(|condition| {
            condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
        });
    if let Some(message) = unschedulable.and_then(|condition| condition.message.as_deref()) {
        return match message.contains("Insufficient nvidia.com/") {
            true => PodResult::AllInUse,
            false => PodResult::Running,
        };
    }
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    for container in containers {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
        if matches!(
            reason,
            "ImagePullBackOff"
                | "ErrImagePull"
                | "InvalidImageName"
                | "CreateContainerConfigError"
                | "CrashLoopBackOff"
        ) {
            let message = waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or_default();
            return PodResult::Failed(format!("container {}: {reason}: {message}", container.name));
        }
    }
    PodResult::Running
}

/// The resource to request: MIG devices before whole GPUs, then the one with the highest count.
pub(super) fn resource(facts: &NodeFacts) -> Result<String> {
    let rank = |(name, count): &(&str, u64)| {
        (name.starts_with("nvidia.com/mig-"), *count, std::cmp::Reverse((*name).to_owned()))
    };
    let best = NodeFacts::gpus(&facts.allocatable).max_by_key(rank);
    best.map(|(name, _)| name.to_owned()).ok_or_else(|| Error::Check("the node has no GPU that pods may have".into()))
}

fn pod(world: &World, node: &OwnNode, kind: Kind, resource: Option<&str>, ours: &DaemonSet) -> Value {
    let options = &world.options;
    let policy = match options.validator_image_pull_policy.as_str() {
        "" => "IfNotPresent",
        set => set,
    };
    let secrets: Vec<Value> = options
        .validator_image_pull_secrets
        .iter()
        .filter(|name| !name.is_empty())
        .map(|name| json!({"name": name}))
        .collect();
    let command = [
        "capstan",
        "agent",
        capstan_node::VALIDATOR.name,
        "--component=cuda",
        "--with-workload=false",
        "--output-dir=/tmp/validations",
    ];
    let (privileged, init) = match kind {
        Kind::Cuda => (json!({"privileged": true}), "cuda-validation"),
        Kind::Plugin => (json!({"allowPrivilegeEscalation": false}), "plugin-validation"),
    };
    let env = match kind {
        Kind::Cuda => json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
        Kind::Plugin => json!([]),
    };
    let resources = resource.map_or(json!({}), |name| json!({"requests": {name: "1"}, "limits": {name: "1"}}));
    let mut closed = privileged.clone();
    closed["readOnlyRootFilesystem"] = true.into();
    let annotations = match kind {
        Kind::Cuda => json!({"nvidia.cdi.k8s.io/container.cuda-validation": "management.nvidia.com/gpu=all"}),
        Kind::Plugin => json!({}),
    };
    let runtime_class = Some(options.validator_runtime_class.as_str()).filter(|class| !class.is_empty());
    json!({
        "metadata": {
            "generateName": format!("{}-", kind.app()),
            "labels": {"app": kind.app(), "app.kubernetes.io/managed-by": "capstan"},
            "annotations": annotations,
            "ownerReferences": ours.metadata.owner_references,
        },
        "spec": {
            "serviceAccountName": OURS,
            "restartPolicy": "OnFailure",
            "runtimeClassName": runtime_class,
            "imagePullSecrets": secrets,
            "tolerations": ours.spec.template.spec.as_ref().and_then(|spec| spec.tolerations.clone()),
            // By node affinity, so that the scheduler decides: a pod bound to a full node is rejected there.
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]},
            ]}}},
            "initContainers": [{
                "name": init, "image": options.validator_image, "imagePullPolicy": policy, "command": command,
                "securityContext": privileged, "env": env, "resources": resources,
                "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
            }],
            "containers": [{
                "name": kind.app(), "image": options.validator_image, "imagePullPolicy": policy,
                "command": ["capstan", "--version"], "securityContext": closed,
            }],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    })
}
