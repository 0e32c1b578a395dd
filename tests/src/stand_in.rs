//! Stand-ins on a real control plane: two GPU nodes and a volume provisioner that are only clients of the API.
//!
//! Scheduler and controllers are the real ones. What is missing without hardware is done here, once for all stories of
//! a process: nodes heartbeat, pods on them run and end, claims get volumes. Images are not looked at.

use std::sync::mpsc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};

/// Names of the nodes.
const NODES: [&str; 2] = ["gpu-0", "gpu-1"];
/// The storage class that is provisioned.
const CLASS: &str = "standard";
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// How often nodes say that they live, in looks.
const HEARTBEAT: u64 = 50;
/// How long the objects of a story may take to go.
const GOING: Duration = Duration::from_secs(30);

/// A story that is over, and whom to tell that its objects are gone.
struct Over {
    namespace: String,
    done: mpsc::Sender<()>,
}

/// The thread that does it.
pub(crate) struct StandIn {
    over: tokio::sync::mpsc::UnboundedSender<Over>,
}

impl StandIn {
    /// Starts it; nodes are there when this returns.
    pub(crate) fn start(config: Config) -> Self {
        let (over, mut stories) = tokio::sync::mpsc::unbounded_channel();
        let (ready, is_ready) = mpsc::channel();
        let work = async move {
            let client = Client::try_from(config).expect("a client");
            nodes(&client).await.expect("nodes can be made");
            let _ = ready.send(());
            let mut looks = 0;
            loop {
                tokio::select! {
                    Some(story) = stories.recv() => sweep(client.clone(), story),
                    () = tokio::time::sleep(LOOK) => {}
                }
                // A conflict or a lost connection: the next look sees what is left to do.
                let _ = look(&client).await;
                looks += 1;
                if looks % HEARTBEAT == 0 {
                    let _ = heartbeat(&client).await;
                }
            }
        };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(work);
        });
        is_ready.recv_timeout(GOING).expect("nodes can be made");
        Self { over }
    }

    /// Removes what a story left, and returns when no operator can meet it again.
    pub(crate) fn end(&self, namespace: &str) {
        let (done, is_done) = mpsc::channel();
        if self.over.send(Over { namespace: namespace.to_owned(), done }).is_ok() {
            let _ = is_done.recv_timeout(GOING);
        }
    }
}

/// Registers the nodes and keeps pods off others.
async fn nodes(client: &Client) -> kube::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for other in api.list(&ListParams::default()).await? {
        // A real node cannot pull the images that stories name.
        if !NODES.contains(&other.name_any().as_str()) {
            let cordon = json!({"spec": {"unschedulable": true}});
            api.patch(&other.name_any(), &PatchParams::default(), &Patch::Merge(cordon)).await?;
        }
    }
    for name in NODES {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        });
        api.patch(name, &PatchParams::apply("stand-in").force(), &Patch::Apply(node)).await?;
    }
    heartbeat(client).await
}

/// Says that the nodes live.
async fn heartbeat(client: &Client) -> kube::Result<()> {
    let (nodes, leases): (Api<Node>, Api<Lease>) =
        (Api::all(client.clone()), Api::namespaced(client.clone(), "kube-node-lease"));
    let params = PatchParams::apply("stand-in").force();
    let now = Timestamp::now();
    let second = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for name in NODES {
        let room = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
        let status = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "StandIn", "message": "",
                "lastHeartbeatTime": second, "lastTransitionTime": second}],
        }});
        nodes.patch_status(name, &params, &Patch::Apply(status)).await?;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()},
        });
        leases.patch(name, &params, &Patch::Apply(lease)).await?;
    }
    Ok(())
}

async fn look(client: &Client) -> kube::Result<()> {
    let pods: Api<Pod> = Api::all(client.clone());
    for pod in pods.list(&ListParams::default()).await? {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        if NODES.contains(&node) {
            let _ = advance(client, &pod).await;
        }
    }
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    for claim in claims.list(&ListParams::default()).await? {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let pending = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
        // The controller asks provisioners by an annotation.
        let asked = claim.annotations().contains_key("volume.kubernetes.io/storage-provisioner");
        if class == Some(CLASS) && pending && asked {
            let _ = provision(client, &claim).await;
        }
    }
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    for volume in volumes.list(&ListParams::default()).await? {
        if volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released") {
            volumes.delete(&volume.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

/// Lets a pod run, or end if it is to go.
async fn advance(client: &Client, pod: &Pod) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    if pod.metadata.deletion_timestamp.is_some() {
        let same = Preconditions { uid: pod.uid(), resource_version: None };
        let now = DeleteParams { grace_period_seconds: Some(0), preconditions: Some(same), ..DeleteParams::default() };
        return api.delete(&pod.name_any(), &now).await.map(drop);
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase == Some("Pending") {
        let status = json!({"apiVersion": "v1", "kind": "Pod", "status": running(pod)});
        api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(())
}

/// What a kubelet says of a pod whose containers run; those of a Job have done their work.
fn running(pod: &Pod) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let is_job = pod.owner_references().iter().any(|owner| owner.kind == "Job");
    let over = json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}});
    let state = |runs: bool| if runs { json!({"running": {"startedAt": now}}) } else { over.clone() };
    let status = |container: &k8s_openapi::api::core::v1::Container, runs: bool| {
        let image = container.image.clone().unwrap_or_default();
        json!({
            "name": container.name, "image": image, "imageID": format!("stand-in/{image}"), "restartCount": 0,
            "containerID": format!("stand-in://{}", container.name), "ready": runs, "started": runs,
            "state": state(runs),
        })
    };
    let spec = pod.spec.clone().unwrap_or_default();
    let init: Vec<Value> = spec.init_containers.iter().flatten().map(|container| status(container, false)).collect();
    let main: Vec<Value> = spec.containers.iter().map(|container| status(container, !is_job)).collect();
    let is = |kind: &str, holds: bool| json!({"type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": now});
    let conditions = json!([
        is("PodScheduled", true),
        is("Initialized", true),
        is("ContainersReady", !is_job),
        is("Ready", !is_job)
    ]);
    json!({
        "phase": if is_job { "Succeeded" } else { "Running" }, "startTime": now, "conditions": conditions,
        "podIP": "192.0.2.10", "podIPs": [{"ip": "192.0.2.10"}],
        "initContainerStatuses": init, "containerStatuses": main,
    })
}

/// Makes the volume that a claim waits for.
async fn provision(client: &Client, claim: &PersistentVolumeClaim) -> kube::Result<()> {
    let spec = claim.spec.clone().unwrap_or_default();
    let size = spec.resources.and_then(|resources| resources.requests).and_then(|mut all| all.remove("storage"));
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("pvc-{}", claim.uid().unwrap_or_default())},
        "spec": {
            "capacity": {"storage": size}, "accessModes": spec.access_modes, "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": claim.uid(),
                "namespace": claim.namespace(), "name": claim.name_any()},
        },
    });
    let volume = serde_json::from_value(volume).expect("a volume");
    Api::<PersistentVolume>::all(client.clone()).create(&PostParams::default(), &volume).await.map(drop)
}

/// Removes a story's custom resources, tells so, and lets the namespace go with the rest.
fn sweep(client: Client, story: Over) {
    tokio::spawn(async move {
        for kind in capstan_api::kinds() {
            let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &story.namespace, &resource);
            // Not served if no story needs the kind.
            for object in api.list(&ListParams::default()).await.into_iter().flatten() {
                // Its operator is gone.
                let free = json!({"metadata": {"finalizers": null}});
                let _ = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(free)).await;
                let _ = api.delete(&object.name_any(), &DeleteParams::default()).await;
            }
        }
        let _ = Api::<Namespace>::all(client).delete(&story.namespace, &DeleteParams::default()).await;
        let _ = story.done.send(());
    });
}
