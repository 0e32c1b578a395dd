//! A cluster in virtual time whose kubelets act by image name.
//!
//! | image | pod |
//! |---|---|
//! | `never` | runs and is never ready |
//! | `done` | succeeds after ten seconds |
//! | `fail` | fails after ten seconds |
//! | anything else | is ready after two seconds |

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::Status;
use capstan_apiserver::ops::{DeleteOptions, PatchKind, UserInfo};
use capstan_sim::Pod;
use capstan_sim::controllers::Settings;
use capstan_sim::informer::Kind;
use capstan_sim::{Caches, Cluster, Context, Writer};
use capstan_workqueue::Queue;
use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) user: Writer,
}

impl World {
    /// A cluster with this many nodes.
    pub(crate) async fn new(nodes: usize) -> Self {
        Self::with(settings(), nodes).await
    }

    /// A cluster with these controllers and this many nodes.
    pub(crate) async fn with(settings: Settings, nodes: usize) -> Self {
        crate::log::show();
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let builder = Cluster::builder().start_time(start).seed(7).controller_settings(settings);
        let cluster = builder.start().await.unwrap();
        let user = cluster.context().writer(UserInfo::admin(), "kubectl");
        let world = Self { cluster, user };
        for index in 0..nodes {
            world.add_node(&format!("node-{index}"), json!({})).await;
        }
        kubelets(world.cluster.context());
        world
    }

    pub(crate) async fn add_node(&self, name: &str, labels: Value) {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
            },
        }))
        .unwrap();
        self.user.create(&node).await.unwrap();
    }

    /// Adds the default StorageClass.
    pub(crate) async fn add_storage_class(&self, mode: &str) {
        let class = json!({
            "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "disks.example.com",
            "volumeBindingMode": mode,
            "allowVolumeExpansion": true,
        });
        self.create::<StorageClass>(class).await;
    }

    pub(crate) fn caches(&self) -> &Caches {
        &self.cluster.context().caches
    }

    /// Creates an object from JSON, in the namespace `default` unless it names another.
    pub(crate) async fn create<K: Kind>(&self, mut value: Value) -> Arc<K> {
        let namespaced = self.cluster.server.registry().lookup(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT);
        if namespaced.unwrap().namespaced && value["metadata"]["namespace"].is_null() {
            value["metadata"]["namespace"] = json!("default");
        }
        let object: K = serde_json::from_value(value).unwrap();
        self.user.create(&object).await.unwrap()
    }

    /// Merge-patches an object in the namespace `default`.
    pub(crate) async fn patch<K: Kind>(&self, name: &str, body: Value) -> Arc<K> {
        self.user.patch(Some("default"), name, None, PatchKind::Merge, body).await.unwrap()
    }

    pub(crate) async fn delete<K: Kind>(&self, object: &K) -> Result<(), Status> {
        self.user.delete(object, DeleteOptions::default()).await
    }

    /// Advances virtual time.
    pub(crate) async fn wait(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Waits for a condition, at most an hour.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Caches) -> bool) {
        for _ in 0..36_000 {
            if holds(self.caches()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("after an hour still not: {what}");
    }

    /// Asserts that nothing is written any more.
    pub(crate) async fn assert_settled(&self) {
        self.wait(60).await;
        let before = self.cluster.server.store().revision();
        self.wait(1500).await;
        assert_eq!(self.cluster.server.store().revision(), before, "something still writes");
    }

    /// `reason: message` of all events about objects of a name, in order.
    pub(crate) async fn events(&self, about: &str) -> Vec<String> {
        let resource = self.cluster.server.registry().lookup("", "v1", "events").unwrap();
        let target = capstan_apiserver::ops::Target::all(resource, None);
        let listing = self.cluster.server.list(self.user.caller(), &target, &Default::default()).await.unwrap();
        let mut events: Vec<Event> = listing.items.iter().map(|item| item.parse().unwrap()).collect();
        events.retain(|event| event.involved_object.name.as_deref() == Some(about));
        events.sort_by_key(|event| event.metadata.name.clone());
        let text = |text: Option<String>| text.unwrap_or_default();
        events.into_iter().map(|event| format!("{}: {}", text(event.reason), text(event.message))).collect()
    }

    /// The active pods with a label.
    pub(crate) fn pods(&self, label: &str, value: &str) -> Vec<Arc<Pod>> {
        pods(self.caches(), label, value)
    }
}

/// Controllers of most stories: no lease grace period, and events do not expire, so that remaining writes are visible.
pub(crate) fn settings() -> Settings {
    Settings { node_grace: None, event_ttl: Duration::from_secs(30 * 24 * 3600), ..Settings::default() }
}

/// The active pods with a label.
pub(crate) fn pods(caches: &Caches, label: &str, value: &str) -> Vec<Arc<Pod>> {
    let mut pods = caches.pods.in_namespace("default");
    pods.retain(|pod| {
        let labels = pod.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(label)).is_some_and(|mine| mine == value)
            && pod.metadata.deletion_timestamp.is_none()
            && !matches!(phase(pod), "Failed" | "Succeeded")
    });
    pods
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

/// Simulates kubelets.
fn kubelets(context: &Context) {
    let queue: Queue = Queue::default();
    let writer = context.writer(UserInfo::admin(), "kubelet");
    let keys = queue.clone();
    context.caches.pods.subscribe(move |change| keys.add(change.key.clone()));
    let caches = context.caches.clone();
    context.spawn(async move {
        loop {
            let key = queue.next().await;
            let pod = caches.pods.get(&key);
            if let Some(delay) = match pod {
                Some(pod) => play(&writer, &pod).await,
                None => None,
            } {
                queue.add_after(key.clone(), delay);
            }
            queue.done(&key);
        }
    });
}

async fn play(writer: &Writer, pod: &Arc<Pod>) -> Option<Duration> {
    let now = writer.server().clock().now();
    let spec = pod.spec.as_ref()?;
    let (namespace, name) = (pod.metadata.namespace.as_deref()?, pod.metadata.name.as_deref()?);
    let image = spec.containers[0].image.as_deref().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        return end(writer, pod, now).await;
    }
    spec.node_name.as_ref()?;
    let age = now.as_second() - pod.metadata.creation_timestamp.as_ref()?.0.as_second();
    let (due, phase_then) = match image {
        "done" => (10, "Succeeded"),
        "fail" => (10, "Failed"),
        _ => (2, "Running"),
    };
    if phase(pod) == phase_then || matches!(phase(pod), "Succeeded" | "Failed") {
        return None;
    }
    if age < due {
        return Some(Duration::from_secs(u64::try_from(due - age).unwrap()));
    }
    let ready = if phase_then == "Running" && image != "never" { "True" } else { "False" };
    let at = capstan_apiserver::clock::seconds(now);
    let state = match phase_then {
        "Running" => json!({"running": {"startedAt": at}}),
        other => json!({"terminated": {"exitCode": i32::from(other == "Failed"), "finishedAt": at}}),
    };
    let body = json!({"status": {
        "phase": phase_then,
        "podIP": address(name),
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at}],
        "containerStatuses": [{
            "name": "main", "image": image, "imageID": "", "ready": ready == "True", "restartCount": 0, "state": state,
        }],
    }});
    let _ = writer.patch::<Pod>(Some(namespace), name, Some("status"), PatchKind::Merge, body).await;
    None
}

/// An address derived from a name, with few collisions.
fn address(name: &str) -> String {
    let hash = name.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte));
    let [_, a, b, c] = hash.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}

/// A deleted pod takes a second to terminate, then its object is removed.
async fn end(writer: &Writer, pod: &Arc<Pod>, now: jiff::Timestamp) -> Option<Duration> {
    let deadline = pod.metadata.deletion_timestamp.as_ref()?.0.as_second();
    let since = deadline - pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    if now.as_second() <= since && deadline > since {
        return Some(Duration::from_secs(1));
    }
    let (namespace, name) = (pod.metadata.namespace.as_deref()?, pod.metadata.name.as_deref()?);
    if !matches!(phase(pod), "Succeeded" | "Failed") {
        let body = json!({"status": {"phase": "Failed"}});
        let _ = writer.patch::<Pod>(Some(namespace), name, Some("status"), PatchKind::Merge, body).await;
    }
    let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    let _ = writer.delete(&**pod, options).await;
    None
}
