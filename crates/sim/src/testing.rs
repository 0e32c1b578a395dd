//! Shared parts of this crate's stories: a cluster, objects from JSON, and waiting for conditions.

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::ops::UserInfo;
use k8s_openapi::api::core::v1::{Event, Node};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Pod;
use crate::informer::Kind;
use crate::{Builder, Cluster, Writer};

/// A cluster for a story.
pub(crate) struct Story {
    pub(crate) cluster: Cluster,
    pub(crate) admin: Writer,
}

impl Story {
    /// Starts a cluster with schedulable nodes.
    pub(crate) async fn start(builder: Builder) -> Self {
        let start = "2025-01-01T00:00:00Z".parse().expect("a time");
        let cluster = builder.start_time(start).seed(7).start().await.expect("the cluster starts");
        let admin = cluster.context().writer(UserInfo::new("admin", &["system:masters"]), "story");
        let story = Self { cluster, admin };
        story.settled().await;
        story
    }

    /// Waits until all nodes are schedulable, and pods can be created.
    pub(crate) async fn settled(&self) {
        let caches = &self.cluster.context().caches;
        let is_new = |node: &Arc<Node>| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
            taints.into_iter().flatten().any(|taint| taint.key == "node.kubernetes.io/not-ready")
        };
        for _ in 0..600 {
            let account = caches.service_accounts.find("default", "default");
            if account.is_some() && !caches.nodes.list().iter().any(is_new) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the cluster does not settle");
    }

    /// Creates an object.
    pub(crate) async fn create<K: Kind>(&self, value: Value) -> Arc<K> {
        let object: K = serde_json::from_value(value).expect("an object of the kind");
        self.admin.create(&object).await.expect("the object is accepted")
    }

    /// Creates a pod.
    pub(crate) async fn pod(&self, name: &str, spec: Value) -> Arc<Pod> {
        self.create(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})).await
    }

    /// The current version of a pod.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Pod>> {
        self.cluster.context().caches.pods.find("default", name)
    }

    /// Waits until a pod meets a condition, at most an hour.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(Option<&Pod>) -> bool) {
        let (changes, mut changed) = watch::channel(0);
        self.cluster.context().caches.pods.subscribe(move |_| changes.send_modify(|count| *count += 1));
        let done = async {
            while !wanted(self.get(name).as_deref()) {
                changed.changed().await.expect("the cache is there");
            }
        };
        if tokio::time::timeout(Duration::from_secs(3600), done).await.is_err() {
            panic!("pod {name} is {:#?}", self.get(name).map(|pod| pod.status.clone()));
        }
    }

    /// The messages of the events of a reason about an object.
    pub(crate) fn events(&self, name: &str, reason: &str) -> Vec<String> {
        let table = capstan_apiserver::store::TableKey::new("", "events");
        let all = self.cluster.server.store().select(&table, &capstan_apiserver::store::Selection::default());
        let events = all.iter().filter_map(|object| object.parse::<Event>().ok());
        let about = events.filter(|event| event.involved_object.name.as_deref() == Some(name));
        let of_reason = about.filter(|event| event.reason.as_deref() == Some(reason));
        of_reason.filter_map(|event| event.message).collect()
    }

    /// Seconds since the start.
    pub(crate) fn elapsed(&self) -> i64 {
        let start: jiff::Timestamp = "2025-01-01T00:00:00Z".parse().expect("a time");
        self.cluster.context().clock().now().duration_since(start).as_secs()
    }
}

/// Advances virtual time.
pub(crate) async fn wait(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Whether a pod is ready.
pub(crate) fn ready(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Whether a pod is in a phase.
pub(crate) fn phase(wanted: &'static str) -> impl Fn(Option<&Pod>) -> bool {
    move |pod| pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some(wanted)
}

/// Whether the pod is deleted.
pub(crate) fn gone(pod: Option<&Pod>) -> bool {
    pod.is_none()
}
