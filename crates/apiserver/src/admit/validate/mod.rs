//! Validation of built-in kinds beyond their schemas, worded as by kube-apiserver. Metadata is validated elsewhere.

mod affinity;
mod autoscaling;
mod batch;
mod config;
mod container;
mod cron;
mod diff;
mod env;
mod hooks;
mod labels;
mod mount;
mod mutations;
mod network;
mod pod;
mod pod_update;
mod policy;
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

/// Validates an object; `old` is `None` on create.
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
        (("", "ConfigMap"), _) => config::config_map(errors, object, old),
        (("", "Secret"), _) => config::secret(errors, object, old),
        (("", "Node"), _) => config::node(errors, object, old),
        (("", "ResourceQuota"), _) => config::quota(errors, object, old),
        (("", "LimitRange"), _) => config::limit_range(errors, object),
        (("policy", "PodDisruptionBudget"), _) => policy::budget(errors, object),
        (("scheduling.k8s.io", "PriorityClass"), _) => policy::priority_class(errors, object, old),
        (("coordination.k8s.io", "Lease"), _) => policy::lease(errors, object),
        (("node.k8s.io", "RuntimeClass"), _) => policy::runtime_class(errors, object, old),
        (("networking.k8s.io", "Ingress"), _) => network::ingress(errors, object),
        (("networking.k8s.io", "IngressClass"), _) => network::ingress_class(errors, object, old),
        (("networking.k8s.io", "NetworkPolicy"), _) => network::network_policy(errors, object),
        (("discovery.k8s.io", "EndpointSlice"), _) => network::endpoint_slice(errors, object, old),
        (("autoscaling", "HorizontalPodAutoscaler"), _) => autoscaling::autoscaler(errors, object),
        (("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration"), _) => {
            hooks::webhooks(errors, object)
        }
        (("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"), _) => hooks::policy(errors, object),
        (("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"), _) => hooks::binding(errors, object),
        (("admissionregistration.k8s.io", "MutatingAdmissionPolicy"), _) => mutations::policy(errors, object),
        (("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"), _) => mutations::binding(errors, object),
        (("storage.k8s.io", "StorageClass"), _) => storage::storage_class(errors, object, old),
        _ => {}
    }
}

fn sub(errors: &mut Errors, kind: (&str, &str), subresource: &str, object: &Value, old: Option<&Value>) {
    match (kind, subresource, old) {
        (("", "Pod"), "status", Some(old)) => pod_update::status(errors, object, old),
        (("", "Pod"), "ephemeralcontainers", Some(old)) => pod_update::ephemeral(errors, object, old),
        (("", "Pod"), "resize", Some(_)) => pod::pod(errors, object),
        (("", "Node"), "status", _) => config::node(errors, object, old),
        (("", "ResourceQuota"), "status", _) => config::quota_status(errors, object),
        (("policy", "PodDisruptionBudget"), "status", _) => policy::budget_status(errors, object),
        (("apps", kind), "status", _) | (("", kind @ "ReplicationController"), "status", _) => {
            workload::status(errors, kind, &object["status"]);
        }
        _ => {}
    }
}
