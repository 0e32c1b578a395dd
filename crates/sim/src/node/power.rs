//! Nodes that fail: kubelets that stop, and machines that are switched off and on.

use super::kubelet;
use super::nodes::{NodeHandle, lock};
use super::template::uuid;
use capstan_apiserver::error::Result;
use serde_json::json;

/// Whether a node is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Power {
    /// It runs.
    #[default]
    Up,
    /// Its containers run, but nobody watches over them or says so.
    Unwatched,
    /// Nothing runs.
    Down,
}

impl NodeHandle {
    /// Whether the node runs and says so.
    pub fn is_up(&self) -> bool {
        self.node.is_up()
    }

    /// Stops the kubelet: containers go on, but the node shows no sign of life, and nothing starts, ends or is reported.
    pub fn stop_kubelet(&self) {
        let mut power = lock(&self.node.power);
        if *power == Power::Up {
            *power = Power::Unwatched;
            self.stop_service();
        }
    }

    /// Switches the node off: it shows no sign of life, and nothing on it runs.
    pub fn down(&self) {
        *lock(&self.node.power) = Power::Down;
        self.stop_service();
        kubelet::cut_off(&self.nodes, &self.node.name);
    }

    /// Starts the kubelet, or switches the node on. After it was off, containers are started again, and `bootID` is a new
    /// one.
    pub async fn up(&self) -> Result<()> {
        let before = std::mem::take(&mut *lock(&self.node.power));
        let inner = &self.nodes.inner;
        if before == Power::Down {
            kubelet::reboot(&self.nodes, &self.node.name);
            self.boot().await?;
        }
        if before != Power::Up {
            self.start_service();
            inner.beats.add(self.node.name.clone());
            for pod in inner.context.caches.pods.on_node(&self.node.name) {
                inner.queue.add(crate::informer::key_of(&pod.metadata));
            }
        }
        Ok(())
    }

    /// Says that the machine was switched on.
    pub(super) async fn boot(&self) -> Result<()> {
        let now = self.nodes.inner.context.clock().now().to_string();
        let body = json!({"status": {"nodeInfo": {"bootID": uuid(&[&self.node.name, "boot", &now])}}});
        self.patch_status(body).await
    }
}
