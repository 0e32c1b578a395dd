//! What becomes of an object of a built-in kind just before it is checked and written: values that only the server can
//! choose, and first statuses.

mod pod;
mod service;

use serde_json::{Map, Value, json};

use super::allocate::Allocator;
use super::json::{Fill, Read};
use crate::error::Result;
use crate::ops::Request;

/// Prepares an object for a write; `old` is nothing on create.
pub(super) fn prepare(allocator: &Allocator, request: &Request, object: &mut Value, old: Option<&Value>) -> Result<()> {
    let resource = &request.target.resource;
    let subresource = request.target.subresource.as_deref().unwrap_or_default();
    let kind = (&*resource.group, &*resource.kind);
    match (kind, subresource, old) {
        (("", "Pod"), "", None) => pod::create(request, object),
        (("", "Pod"), "", Some(_)) => pod::update(object),
        (("", "Service"), "", _) => service::prepare(allocator, request, object, old)?,
        (("", "PersistentVolume"), _, _) => persistent_volume(request, object, old),
        (("batch", "Job"), "", None) => job(object),
        (("certificates.k8s.io", "CertificateSigningRequest"), "", None) => signing_request(request, object),
        (("certificates.k8s.io", "CertificateSigningRequest"), "", Some(old)) => {
            object.put("spec", old["spec"].clone())
        }
        _ => {}
    }
    if old.is_none()
        && let Some(status) = object.inner("status")
    {
        first_status(kind, status);
    }
    Ok(())
}

/// Numbers that a real server writes into a status even when they are 0.
fn first_status(kind: (&str, &str), status: &mut Value) {
    let zeros: &[&str] = match kind {
        ("apps", "DaemonSet") => {
            &["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"]
        }
        ("apps", "ReplicaSet") | ("", "ReplicationController") => &["replicas"],
        ("apps", "StatefulSet") => &["availableReplicas", "replicas"],
        ("policy", "PodDisruptionBudget") => {
            &["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"]
        }
        ("autoscaling", "HorizontalPodAutoscaler") => &["currentReplicas", "desiredReplicas"],
        _ => &[],
    };
    zeros.iter().for_each(|key| status.fill(key, 0));
    if [("", "Service"), ("networking.k8s.io", "Ingress")].contains(&kind) {
        status.fill("loadBalancer", Map::new());
    }
}

fn persistent_volume(request: &Request, volume: &mut Value, old: Option<&Value>) {
    let before = old.map(|old| old["status"].text("phase").to_owned());
    let Some(status) = volume.inner("status") else { return };
    if before.as_deref() != Some(status.text("phase")) && !old.is_some_and(|old| has_changed_time(old, status)) {
        status.put("lastPhaseTransitionTime", request.server.clock().rfc3339());
    }
}

/// Whether the writer said itself when the phase changed.
fn has_changed_time(old: &Value, status: &Value) -> bool {
    status.has("lastPhaseTransitionTime")
        && old["status"]["lastPhaseTransitionTime"] != status["lastPhaseTransitionTime"]
}

/// A job selects the pods that carry its UID, unless its author selects by hand.
fn job(job: &mut Value) {
    if job["spec"].flag("manualSelector") {
        return;
    }
    let (uid, name) = (job["metadata"].text("uid").to_owned(), job["metadata"].text("name").to_owned());
    let Some(spec) = job.inner_or_new("spec") else { return };
    let meta = spec.inner_or_new("template").and_then(|template| template.inner_or_new("metadata"));
    if let Some(labels) = meta.and_then(|meta| meta.inner_or_new("labels")) {
        for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            labels.put(key, uid.as_str());
        }
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            labels.put(key, name.as_str());
        }
    }
    let selector = spec.inner_or_new("selector").and_then(|selector| selector.inner_or_new("matchLabels"));
    if let Some(labels) = selector {
        labels.fill("batch.kubernetes.io/controller-uid", uid);
    }
}

/// A signing request says who made it.
fn signing_request(request: &Request, object: &mut Value) {
    let user = &request.caller.user;
    let Some(spec) = object.inner_or_new("spec") else { return };
    for key in ["username", "uid", "groups", "extra"] {
        spec.drop(key);
    }
    let filled = [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", json!(user.extra)),
    ];
    filled.into_iter().for_each(|(key, value)| {
        if !super::json::is_zero(&value) {
            spec.put(key, value);
        }
    });
}
