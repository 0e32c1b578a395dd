//! A service that runs as a Deployment, or as a LeaderWorkerSet where the model spans nodes.

use super::parts::Parts;
use super::{Cx, access, autoscaler, deployment, devices, epp, image, monitor, multi_node, routes, service, storage};

/// Adds all objects: first those that do not depend on the model, then the workload.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    parts.objects.extend(access::objects(cx));
    parts.add(&service::object(cx));
    routes::add(cx, parts);
    autoscaler::add(cx, parts);
    monitor::add(cx, parts);
    epp::add(cx, parts);
    if let Some(claim) = storage::claim(cx) {
        parts.objects.push(claim);
    }
    parts.queries.extend(image::query(cx));
    if let Some(stop) = storage::blocked_by(cx).or_else(|| devices::blocked_by(cx)).or_else(|| image::blocked_by(cx)) {
        return parts.stop(cx, stop);
    }
    devices::add(cx, parts);
    match cx.multi_node() {
        Some(spread) => multi_node::add(cx, spread, parts),
        None => parts.objects.push(deployment::object(cx)),
    }
}
