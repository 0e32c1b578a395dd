//! Node heartbeats: lease renewals and status updates.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::{Caller, ListOptions, Server, Target, WatchEvent};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use tokio::time::Instant;

use super::super::common::{Controller, Outcome, Reconciled, ignore_not_found, name_of, uid_of};
use super::super::pods;
use super::zones::Zones;
use super::{NodeGracePeriods, taints};
use crate::Pod;
use crate::context::Context;
use crate::events::Severity;

const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// State of the node controller.
pub(super) struct HeartbeatTracker {
    grace: Option<NodeGracePeriods>,
    /// Last heartbeat of each node.
    heartbeats: Mutex<HashMap<String, Instant>>,
    pub(super) zones: Zones,
}

impl HeartbeatTracker {
    fn record_heartbeat(&self, node: &str) {
        let mut heartbeats = self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
        match heartbeats.get_mut(node) {
            Some(heartbeat) => *heartbeat = Instant::now(),
            None => {
                heartbeats.insert(node.to_owned(), Instant::now());
            }
        }
    }

    fn forget(&self, node: &str) {
        self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
    }

    /// Remaining grace period of a node; `None` if it never expires.
    fn remaining_grace(&self, node: &Node) -> Option<Duration> {
        let NodeGracePeriods { heartbeat: usual, startup } = self.grace?;
        let heartbeats = self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
        let heartbeat = heartbeats.get(name_of(node)).copied().unwrap_or_else(Instant::now);
        let grace = if condition(node, "Ready").is_some() { usual } else { startup };
        Some((heartbeat + grace).saturating_duration_since(Instant::now()))
    }
}

pub(super) fn start(context: &Context, grace: Option<NodeGracePeriods>) {
    let controller = Controller::new(context, "node-controller", "node-controller");
    let tracker = Arc::new(HeartbeatTracker { grace, heartbeats: Mutex::default(), zones: Zones::default() });
    let (queue, recorded, nodes) = (controller.queue.clone(), tracker.clone(), context.caches.nodes.clone());
    context.caches.nodes.subscribe(move |change| {
        let heartbeat = |node: &Arc<Node>| {
            condition(node, "Ready").map(|one| (one.last_heartbeat_time.clone(), one.status.clone()))
        };
        if change.new.is_some() && change.old.map(heartbeat) != change.new.map(heartbeat) && !is_unknown(change.last())
        {
            recorded.record_heartbeat(change.key);
        }
        let (old, new) = (change.old.map(|node| &**node), change.new.map(|node| &**node));
        if recorded.zones.count(old, new) {
            nodes.list().iter().for_each(|node| queue.add(name_of(&**node).into()));
        }
        if change.new.is_none() {
            recorded.forget(change.key);
        }
        queue.add(change.key.clone());
    });
    if grace.is_some() {
        context.spawn(watch_leases(context.server.clone(), tracker.clone(), controller.queue.clone()));
    }
    controller.run(2, move |this, key| {
        let tracker = tracker.clone();
        async move { reconcile(&this, &tracker, &key).await }
    });
}

/// Watches leases without reading them: a renewal is all that matters.
async fn watch_leases(server: Server, tracker: Arc<HeartbeatTracker>, queue: capstan_workqueue::Queue) {
    let caller = Caller::system("kube-controller-manager");
    let Some(resource) = server.registry().lookup("coordination.k8s.io", "v1", "leases") else { return };
    let target = Target::all(resource, Some("kube-node-lease"));
    let options = ListOptions { resource_version: "0".to_owned(), ..ListOptions::default() };
    loop {
        if let Ok(mut events) = server.watch(&caller, &target, &options).await {
            while let Some(event) = events.next().await {
                match event {
                    WatchEvent::Added(lease) => {
                        tracker.record_heartbeat(lease.name());
                        queue.add(lease.name().into());
                    }
                    WatchEvent::Modified(lease) => tracker.record_heartbeat(lease.name()),
                    WatchEvent::Error(_) => break,
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark { .. } => {}
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn reconcile(this: &Controller, tracker: &HeartbeatTracker, key: &str) -> Reconciled {
    let Some(node) = this.context.caches.nodes.get(key) else { return Ok(Outcome::Done) };
    let left = tracker.remaining_grace(&node);
    let node = match left {
        Some(Duration::ZERO) => {
            let was_ready = ready_status(&node) == "True";
            let node = mark_unknown(this, node).await?;
            if was_ready {
                let message = format!("Node {key} status is now: NodeNotReady");
                this.normal(&*node, "NodeNotReady", message);
            }
            node
        }
        _ => node,
    };
    if ready_status(&node) != "True" && condition(&node, "Ready").is_some() {
        mark_pods(this, key).await?;
    }
    let wait = taints::sync(this, tracker, node).await?;
    // An unreachable node needs no requeue: its next heartbeat changes its status.
    let left = left.filter(|left| !left.is_zero());
    Ok(Outcome::requeue_after([wait, left].into_iter().flatten().min()))
}

/// The condition of that type.
pub(super) fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// Status of the condition `Ready`, or empty.
pub(super) fn ready_status(node: &Node) -> &str {
    condition(node, "Ready").map_or("", |condition| condition.status.as_str())
}

fn is_unknown(node: &Node) -> bool {
    ready_status(node) == "Unknown"
}

async fn mark_unknown(this: &Controller, node: Arc<Node>) -> Result<Arc<Node>> {
    let now = this.now();
    let mut next = Node::clone(&node);
    let conditions = next.status.get_or_insert_default().conditions.get_or_insert_default();
    for kind in CONDITIONS {
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(condition) if condition.status != "Unknown" => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(now.clone());
            }
            Some(_) => {}
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(now.clone()),
            }),
        }
    }
    this.writer.update_status(&node, &next).await
}

/// Marks the pods of a node that is not ready as not ready.
async fn mark_pods(this: &Controller, node: &str) -> Result<()> {
    for pod in this.context.caches.pods.on_node(node) {
        if !pods::is_ready(&pod) || uid_of(&*pod).is_empty() {
            continue;
        }
        let mut next = Pod::clone(&pod);
        let conditions = next.status.get_or_insert_default().conditions.get_or_insert_default();
        if let Some(ready) = conditions.iter_mut().find(|condition| condition.type_ == "Ready") {
            ready.status = "False".to_owned();
            ready.last_transition_time = Some(this.now());
        }
        ignore_not_found(this.writer.update_status(&pod, &next).await.map(drop))?;
        this.recorder.event(&*pod, Severity::Warning, "NodeNotReady", "Node is not ready");
    }
    Ok(())
}
