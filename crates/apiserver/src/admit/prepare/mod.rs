//! Preparation of built-in objects before validation and write: server-chosen values and initial statuses.

mod pod;
mod service;

pub(super) use pod::{container_limits, container_requests, qos_class};

use serde_json::{Value, json};

use super::allocate::Allocator;
use super::json::{Fill, Read};
use crate::error::Result;
use crate::ops::Request;

/// Prepares an object for a write; `old` is `None` on create.
pub(super) fn prepare(allocator: &Allocator, request: &Request, object: &mut Value, old: Option<&Value>) -> Result<()> {
    let resource = &request.target.resource;
    let subresource = request.target.subresource.as_deref().unwrap_or_default();
    let kind = (&*resource.group, &*resource.kind);
    match (kind, subresource, old) {
        (("", "Pod"), "", None) => pod::create(request, object),
        (("", "Service"), "", _) => service::prepare(allocator, request, object, old)?,
        (("", "PersistentVolumeClaim"), "", _) => claim(object, old),
        (("", "PersistentVolume"), _, _) => persistent_volume(request, object, old),
        (("apps", "DaemonSet"), "", _) => daemon_set(object, old),
        (("batch", "Job"), "", None) => job(object),
        (("", "Endpoints"), "", _) => {
            request.warn("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice");
        }
        (("certificates.k8s.io", "CertificateSigningRequest"), "", None) => signing_request(request, object),
        (("certificates.k8s.io", "CertificateSigningRequest"), "", Some(old)) => {
            object.put("spec", old["spec"].clone())
        }
        _ => {}
    }
    if old.is_none() && object.get("status").is_some() {
        // The initial status was set after normalization.
        super::normalize::normalize(resource.schema(), object);
    }
    Ok(())
}

/// Drops an unsupported `dataSource`; otherwise `dataSource` and `dataSourceRef` default each other.
fn claim(claim: &mut Value, old: Option<&Value>) {
    let Some(spec) = claim.inner("spec") else { return };
    let source = &spec["dataSource"];
    let group = source.text("apiGroup");
    let known = match source.text("kind") {
        "PersistentVolumeClaim" => group.is_empty(),
        "VolumeSnapshot" => group == "snapshot.storage.k8s.io",
        _ => false,
    };
    if !known && !old.is_some_and(|old| old["spec"].has("dataSource")) {
        spec.drop("dataSource");
    }
    if spec.has("dataSource") && !spec.has("dataSourceRef") {
        let source = spec["dataSource"].clone();
        spec.put("dataSourceRef", source);
    } else if spec.has("dataSourceRef") && !spec.has("dataSource") && !spec["dataSourceRef"].has("namespace") {
        let source = spec["dataSourceRef"].clone();
        spec.put("dataSource", source);
    }
}

fn persistent_volume(request: &Request, volume: &mut Value, old: Option<&Value>) {
    let before = old.map(|old| old["status"].text("phase").to_owned());
    let Some(status) = volume.inner("status") else { return };
    if before.as_deref() != Some(status.text("phase")) && !old.is_some_and(|old| has_changed_time(old, status)) {
        status.put("lastPhaseTransitionTime", request.server.clock().rfc3339());
    }
}

/// Whether the client set `lastPhaseTransitionTime` itself.
fn has_changed_time(old: &Value, status: &Value) -> bool {
    status.has("lastPhaseTransitionTime")
        && old["status"]["lastPhaseTransitionTime"] != status["lastPhaseTransitionTime"]
}

pub(super) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// An annotation counts the template generations of a DaemonSet.
fn daemon_set(set: &mut Value, old: Option<&Value>) {
    let generation = match old {
        None => 1,
        Some(old) => {
            let before = old["metadata"]["annotations"].text(TEMPLATE_GENERATION).parse().unwrap_or(0);
            before + i64::from(old["spec"]["template"] != set["spec"]["template"])
        }
    };
    if let Some(annotations) = set.inner("metadata").and_then(|meta| meta.inner_or_new("annotations")) {
        annotations.put(TEMPLATE_GENERATION, generation.to_string());
    }
}

/// A Job selects pods by its UID, unless `manualSelector` is set.
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
    // kube-apiserver does this by defaulting when it next reads the Job.
    let labels = spec["template"]["metadata"]["labels"].clone();
    if let Some(meta) = job.inner("metadata") {
        meta.fill_zero("labels", labels);
    }
}

/// Records the requesting user of a CertificateSigningRequest.
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
