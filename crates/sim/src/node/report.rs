//! Pod status updates by nodes.

use std::sync::Mutex;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::PatchKind;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};

use super::Reports;
use super::backoff::after;
use super::kubelet::Tracked;
use super::nodes::{Nodes, VirtualNode, lock};
use crate::Pod;

impl Nodes {
    /// Writes the changed status. Returns when to write it, if not now.
    pub(super) async fn report_status(
        &self,
        node: &VirtualNode,
        pod: &Pod,
        tracked: &Mutex<Tracked>,
        status: &PodStatus,
    ) -> Result<Option<Timestamp>> {
        let before = pod.status.as_ref();
        if before == Some(status) {
            return Ok(None);
        }
        let Reports::Brief(every) = self.inner.settings.reports else {
            return write_status(node, pod, status).await.map(|()| None);
        };
        let now = self.inner.context.clock().now();
        let due = lock(tracked).reported.map(|reported| after(reported, every));
        if let (Some(before), Some(due)) = (before, due)
            && due > now
            && !is_urgent(before, status)
        {
            return Ok(Some(due));
        }
        node.writer.write_pod_status(pod, status).await?;
        lock(tracked).reported = Some(now);
        Ok(None)
    }
}

/// Whether a change must be reported at once: phase, readiness, failed containers and containers that cannot start.
fn is_urgent(before: &PodStatus, now: &PodStatus) -> bool {
    let ready = |status: &PodStatus| {
        let conditions = status.conditions.iter().flatten();
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let restarts = |status: &PodStatus| -> i32 {
        let lists = [&status.init_container_statuses, &status.container_statuses];
        lists.into_iter().flatten().flatten().map(|container| container.restart_count).sum()
    };
    before.phase != now.phase
        || ready(before) != ready(now)
        || restarts(before) != restarts(now)
        || !waiting_reasons(before).eq(waiting_reasons(now))
}

/// Waiting reasons of containers other than waiting for their turn.
fn waiting_reasons(status: &PodStatus) -> impl Iterator<Item = (&str, &str)> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten().filter_map(|container| {
        let reason = container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
        (!matches!(reason, "PodInitializing" | "ContainerCreating")).then_some((container.name.as_str(), reason))
    })
}

/// Writes the status of a pod, with its resource version as precondition.
async fn write_status(node: &VirtualNode, pod: &Pod, status: &PodStatus) -> Result<()> {
    let to_value = |status: &PodStatus| serde_json::to_value(status).expect("a status is plain data");
    let mut patch = to_value(status);
    let before = pod.status.as_ref().map(to_value).unwrap_or_default();
    if let (Value::Object(before), Value::Object(patch)) = (before, &mut patch) {
        for key in before.keys() {
            patch.entry(key.clone()).or_insert(Value::Null);
        }
    }
    let meta = &pod.metadata;
    let body = json!({
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": patch,
    });
    let name = meta.name.as_deref().unwrap_or_default();
    let namespace = meta.namespace.as_deref();
    node.writer.patch::<Pod>(namespace, name, Some("status"), PatchKind::Merge, body).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ready: &str, restarts: i32, waiting: &str) -> PodStatus {
        let status = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": restarts,
                "state": {"waiting": {"reason": waiting}},
            }],
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn what_somebody_may_wait_for_is_news() {
        let before = status("False", 0, "PodInitializing");
        for (now, news) in [
            (status("False", 0, "PodInitializing"), false),
            (status("False", 0, "ContainerCreating"), false),
            (status("True", 0, "PodInitializing"), true),
            (status("False", 1, "PodInitializing"), true),
            (status("False", 0, "ImagePullBackOff"), true),
        ] {
            assert_eq!(is_urgent(&before, &now), news, "{now:?}");
        }
    }
}
