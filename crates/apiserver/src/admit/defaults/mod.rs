//! Defaulting of built-in kinds, as kube-apiserver does it when it decodes an object: one function per kind.
//!
//! Defaults depend only on the object, so that defaulting may be repeated after every change.

mod batch;
mod cluster;
mod extension;
mod pod;
mod service;
mod volume;
mod workload;

pub(super) use pod::pull_policy;

use serde_json::Value;

use super::json::Fill;
use crate::registry::Resource;

/// Sets the defaults of an object of a built-in kind.
pub(super) fn apply(resource: &Resource, object: &mut Value) {
    match (&*resource.group, &*resource.kind) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => template(object, "template"),
        ("", "ReplicationController") => workload::replication_controller(object),
        ("", "Service") => service::service(object),
        ("", "Endpoints") => service::endpoints(object),
        ("", "Secret") => cluster::secret(object),
        ("", "Namespace") => cluster::namespace(object),
        ("", "Node") => cluster::node(object),
        ("", "LimitRange") => cluster::limit_range(object),
        ("", "PersistentVolume") => volume::persistent_volume(object),
        ("", "PersistentVolumeClaim") => volume::claim(object),
        ("apps", "DaemonSet") => workload::daemon_set(object),
        ("apps", "Deployment") => workload::deployment(object),
        ("apps", "ReplicaSet") => workload::replica_set(object),
        ("apps", "StatefulSet") => workload::stateful_set(object),
        ("batch", "Job") => batch::job(object),
        ("batch", "CronJob") => batch::cron_job(object),
        ("autoscaling", "HorizontalPodAutoscaler") => workload::autoscaler(object, &resource.version),
        ("networking.k8s.io", "NetworkPolicy") => service::network_policy(object),
        ("networking.k8s.io", "IngressClass") => service::ingress_class(object),
        ("discovery.k8s.io", "EndpointSlice") => service::endpoint_slice(object),
        ("storage.k8s.io", "StorageClass") => volume::storage_class(object),
        ("storage.k8s.io", "CSIDriver") => volume::csi_driver(object),
        ("scheduling.k8s.io", "PriorityClass") => object.fill("preemptionPolicy", "PreemptLowerPriority"),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => cluster::role_binding(object),
        ("resource.k8s.io", "ResourceClaim") => extension::device_claim(object.get_mut("spec")),
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            extension::device_claim(object.get_mut("spec").and_then(|spec| spec.get_mut("spec")));
        }
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            if let Some(spec) = object.inner("spec") {
                spec.fill_zero("matchingPrecedence", 1000);
            }
        }
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => extension::priority_level(object),
        ("admissionregistration.k8s.io", kind) => extension::admission(kind, object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => extension::definition(object),
        ("apiregistration.k8s.io", "APIService") => {
            if let Some(service) = object.inner("spec").and_then(|spec| spec.inner("service")) {
                service.fill("port", 443);
            }
        }
        _ => {}
    }
}

/// Sets the defaults of the pod template in `holder[key]`.
fn template(holder: &mut Value, key: &str) {
    if let Some(template) = holder.inner(key)
        && let Some(spec) = template.inner_or_new("spec")
    {
        pod::spec(spec);
    }
}

#[cfg(test)]
mod tests;
