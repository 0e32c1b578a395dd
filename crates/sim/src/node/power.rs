//! Node faults: stopped kubelets, and nodes that are powered off and on.

use super::kubelet;
use super::nodes::{NodeHandle, lock};
use super::template::uuid;
use capstan_apiserver::error::Result;
use serde_json::json;

/// Power state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Power {
    /// It runs.
    #[default]
    Up,
    /// Containers run, but the kubelet is stopped.
    Unwatched,
    /// Powered off.
    Down,
}

impl NodeHandle {
    /// Whether the node and its kubelet run.
    pub fn is_up(&self) -> bool {
        self.node.is_up()
    }

    /// Stops the kubelet: containers keep running, but the node sends no heartbeats, and nothing starts, stops or is
    /// reported.
    pub fn stop_kubelet(&self) {
        let mut power = lock(&self.node.power);
        if *power == Power::Up {
            *power = Power::Unwatched;
            self.stop_service();
        }
    }

    /// Powers the node off: it sends no heartbeats, and nothing on it runs.
    pub fn down(&self) {
        *lock(&self.node.power) = Power::Down;
        self.stop_service();
        kubelet::abort_bodies(&self.nodes, &self.node.name);
    }

    /// Starts the kubelet, or powers the node on. After power-off, containers restart, and `bootID` changes.
    pub async fn up(&self) -> Result<()> {
        let before = std::mem::take(&mut *lock(&self.node.power));
        let inner = &self.nodes.inner;
        if before == Power::Down {
            kubelet::reboot(&self.nodes, &self.node.name);
            self.boot().await?;
        }
        if before != Power::Up {
            self.start_service();
            inner.lease_renewals.add(self.node.name.clone());
            for pod in inner.context.caches.pods.on_node(&self.node.name) {
                inner.queue.add(crate::informer::key_of(&pod.metadata));
            }
        }
        Ok(())
    }

    /// Reports the new `bootID`.
    pub(super) async fn boot(&self) -> Result<()> {
        let now = self.nodes.inner.context.clock().now().to_string();
        let body = json!({"status": {"nodeInfo": {"bootID": uuid(&[&self.node.name, "boot", &now])}}});
        self.patch_status(body).await
    }
}
