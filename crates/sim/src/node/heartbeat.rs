//! Node heartbeats: every node renews its lease. One task serves all of them, each at its own time.

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::PatchKind;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;

use super::nodes::{Inner, Nodes, VirtualNode};
use super::template::{LEASES, conditions, lease};
use crate::informer::Kind;
use crate::writer::{is_already_exists, is_not_found};

/// Leases renewed before the task yields. A node with a late lease counts as unreachable, so other work must not delay
/// thousands of renewals.
const RENEWALS_PER_YIELD: u64 = 16;

impl Kind for Lease {}

pub(super) fn start(nodes: &Nodes) {
    let inner = nodes.inner.clone();
    nodes.inner.context.spawn(async move {
        for count in 1_u64.. {
            if count % RENEWALS_PER_YIELD == 0 {
                tokio::task::yield_now().await;
            }
            let name = inner.lease_renewals.next().await;
            if let Some(node) = inner.node(&name).filter(|node| node.is_up()) {
                if let Err(error) = inner.renew_lease(&node).await {
                    tracing::debug!(node = %name, %error, "lease renewal failed");
                }
                inner.lease_renewals.add_after(name.clone(), inner.settings.heartbeat);
            }
            inner.lease_renewals.done(&name);
        }
    });
}

impl Inner {
    /// Time of the first heartbeat: nodes that start together do not renew together.
    pub(super) fn first_renewal(&self, index: u32) -> Duration {
        let spread = u64::from(index.wrapping_mul(0x9e37_79b9) >> 16);
        self.settings.heartbeat.mul_f64(spread as f64 / 65_536.0)
    }

    async fn renew_lease(&self, node: &VirtualNode) -> Result<()> {
        let object = self.context.caches.nodes.get(&node.name);
        // A deleted Node object is not registered again by a heartbeat.
        let Some(object) = object else { return Ok(()) };
        self.reset_unknown_conditions(node, &object).await?;
        let now = self.context.clock().now();
        let body = json!({"spec": {"renewTime": MicroTime(now)}});
        let renewed = node.writer.patch::<Lease>(Some(LEASES), &node.name, None, PatchKind::Merge, body).await;
        match renewed {
            Err(error) if is_not_found(&error) => {
                let seconds = i32::try_from(self.settings.lease.as_secs()).unwrap_or(i32::MAX);
                match node.writer.create(&lease(&object, seconds, now)).await {
                    Err(error) if !is_already_exists(&error) => Err(error),
                    _ => Ok(()),
                }
            }
            other => other.map(drop),
        }
    }

    /// Resets conditions that became `Unknown` while the node was unreachable.
    async fn reset_unknown_conditions(&self, node: &VirtualNode, object: &Arc<Node>) -> Result<()> {
        let before = object.status.as_ref().and_then(|status| status.conditions.as_ref());
        let unknown = |condition: &NodeCondition| condition.status == "Unknown";
        if !before.is_some_and(|conditions| conditions.iter().any(unknown)) {
            return Ok(());
        }
        let now = self.context.clock().now();
        let is_unknown = |kind: &str| before.into_iter().flatten().any(|c| c.type_ == kind && unknown(c));
        let healthy: Vec<NodeCondition> = conditions(now).into_iter().filter(|c| is_unknown(&c.type_)).collect();
        let body = json!({"status": {"conditions": healthy}});
        node.writer.patch::<Node>(None, &node.name, Some("status"), PatchKind::Strategic, body).await.map(drop)
    }
}
