//! Rules of built-in kinds beyond their schemas, in the words of a real server. Metadata is checked elsewhere.

mod affinity;
mod batch;
mod container;
mod cron;
mod diff;
mod env;
mod labels;
mod mount;
mod pod;
mod pod_update;
mod probe;
mod resources;
mod security;
pub(super) mod service;
mod storage;
mod text;
mod volume;
mod workload;

use serde_json::Value;

use super::field::{At, Errors};
use crate::error::Cause;
use crate::ops::Request;

/// What is wrong with an object; `old` is nothing on create.
pub(super) fn validate(request: &Request, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let resource = &request.target.resource;
    let subresource = request.target.subresource.as_deref().unwrap_or_default();
    let mut errors = Errors::default();
    let kind = (&*resource.group, &*resource.kind);
    match subresource {
        "" => main(&mut errors, kind, object, old),
        _ => sub(&mut errors, kind, subresource, object, old),
    }
    errors.0
}

fn main(errors: &mut Errors, kind: (&str, &str), object: &Value, old: Option<&Value>) {
    match (kind, old) {
        (("", "Pod"), None) => pod::create(errors, object),
        (("", "Pod"), Some(old)) => pod_update::update(errors, object, old),
        (("", "Service"), _) => service::service(errors, object, old),
        (("", "Endpoints"), _) => service::endpoints(errors, object),
        (("", "PodTemplate"), _) => pod::template(errors, &At::new("template"), &object["template"]),
        (("", "ReplicationController"), _) => workload::replication_controller(errors, object),
        (("apps", "Deployment"), _) => workload::deployment(errors, object, old),
        (("apps", "ReplicaSet"), _) => workload::replica_set(errors, object, old),
        (("apps", "DaemonSet"), _) => workload::daemon_set(errors, object, old),
        (("apps", "StatefulSet"), _) => workload::stateful_set(errors, object, old),
        (("batch", "Job"), _) => batch::job(errors, object, old),
        (("batch", "CronJob"), _) => batch::cron_job(errors, object, old),
        (("", "PersistentVolumeClaim"), _) => storage::claim(errors, object, old),
        (("", "PersistentVolume"), _) => storage::persistent_volume(errors, object, old),
        (("storage.k8s.io", "StorageClass"), _) => storage::storage_class(errors, object, old),
        _ => {}
    }
}

fn sub(errors: &mut Errors, kind: (&str, &str), subresource: &str, object: &Value, old: Option<&Value>) {
    match (kind, subresource, old) {
        (("", "Pod"), "status", Some(old)) => pod_update::status(errors, object, old),
        (("", "Pod"), "ephemeralcontainers", Some(old)) => pod_update::ephemeral(errors, object, old),
        (("", "Pod"), "resize", Some(_)) => pod::pod(errors, object),
        (("apps", kind), "status", _) | (("", kind @ "ReplicationController"), "status", _) => {
            workload::status(errors, kind, &object["status"]);
        }
        _ => {}
    }
}
