//! Zero values of built-in objects.
//!
//! kube-apiserver holds built-in objects in Go structs, and a nested struct always exists, even if it was never set:
//! every Deployment has `spec.strategy` and `status`, possibly empty. So setting a field inside does not make a manager
//! their owner. The table is the JSON of Go's zero value of each kind, without metadata.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

#[rustfmt::skip]
const SKELETONS: &[(&str, &str, &str)] = &[
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", r#"{"spec":{}}"#),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", r#"{"spec":{}}"#),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", r#"{"spec":{},"status":{}}"#),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", r#"{"spec":{}}"#),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", r#"{"spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}"#),
    ("apiregistration.k8s.io/v1", "APIService", r#"{"spec":{"groupPriorityMinimum":0,"versionPriority":0},"status":{}}"#),
    ("apps/v1", "ControllerRevision", r#"{"data":null,"revision":0}"#),
    ("apps/v1", "DaemonSet", r#"{"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"updateStrategy":{}},"status":{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}}"#),
    ("apps/v1", "Deployment", r#"{"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}}"#),
    ("apps/v1", "ReplicaSet", r#"{"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}}},"status":{"replicas":0}}"#),
    ("apps/v1", "StatefulSet", r#"{"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"serviceName":"","updateStrategy":{}},"status":{"replicas":0,"availableReplicas":0}}"#),
    ("authentication.k8s.io/v1", "TokenRequest", r#"{"spec":{"audiences":null,"expirationSeconds":null},"status":{"token":"","expirationTimestamp":null}}"#),
    ("authentication.k8s.io/v1", "TokenReview", r#"{"spec":{},"status":{"user":{}}}"#),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview", r#"{"spec":{},"status":{"allowed":false}}"#),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", r#"{"spec":{},"status":{"allowed":false}}"#),
    ("authorization.k8s.io/v1", "SubjectAccessReview", r#"{"spec":{},"status":{"allowed":false}}"#),
    ("autoscaling/v1", "HorizontalPodAutoscaler", r#"{"spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},"status":{"currentReplicas":0,"desiredReplicas":0}}"#),
    ("autoscaling/v1", "Scale", r#"{"spec":{},"status":{"replicas":0}}"#),
    ("autoscaling/v2", "HorizontalPodAutoscaler", r#"{"spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},"status":{"desiredReplicas":0,"currentMetrics":null}}"#),
    ("batch/v1", "CronJob", r#"{"spec":{"schedule":"","jobTemplate":{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}}}},"status":{}}"#),
    ("batch/v1", "Job", r#"{"spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", r#"{"spec":{"request":null,"signerName":""},"status":{}}"#),
    ("certificates.k8s.io/v1", "ClusterTrustBundle", r#"{"spec":{"trustBundle":""}}"#),
    ("certificates.k8s.io/v1", "PodCertificateRequest", r#"{"spec":{"signerName":"","podName":"","podUID":"","serviceAccountName":"","serviceAccountUID":"","nodeName":"","nodeUID":"","stubPKCS10Request":null},"status":{}}"#),
    ("coordination.k8s.io/v1", "Lease", r#"{"spec":{}}"#),
    ("discovery.k8s.io/v1", "EndpointSlice", r#"{"addressType":"","endpoints":null,"ports":null}"#),
    ("events.k8s.io/v1", "Event", r#"{"eventTime":null,"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null}"#),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", r#"{"spec":{"priorityLevelConfiguration":{"name":""},"matchingPrecedence":0},"status":{}}"#),
    ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", r#"{"spec":{"type":""},"status":{}}"#),
    ("networking.k8s.io/v1", "IPAddress", r#"{"spec":{}}"#),
    ("networking.k8s.io/v1", "Ingress", r#"{"spec":{},"status":{"loadBalancer":{}}}"#),
    ("networking.k8s.io/v1", "IngressClass", r#"{"spec":{}}"#),
    ("networking.k8s.io/v1", "NetworkPolicy", r#"{"spec":{"podSelector":{}}}"#),
    ("networking.k8s.io/v1", "ServiceCIDR", r#"{"spec":{},"status":{}}"#),
    ("node.k8s.io/v1", "RuntimeClass", r#"{"handler":""}"#),
    ("policy/v1", "PodDisruptionBudget", r#"{"spec":{},"status":{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}}"#),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", r#"{"rules":null}"#),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", r#"{"roleRef":{"apiGroup":"","kind":"","name":""}}"#),
    ("rbac.authorization.k8s.io/v1", "Role", r#"{"rules":null}"#),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", r#"{"roleRef":{"apiGroup":"","kind":"","name":""}}"#),
    ("resource.k8s.io/v1", "DeviceClass", r#"{"spec":{}}"#),
    ("resource.k8s.io/v1", "DeviceTaintRule", r#"{"spec":{"taint":{"key":"","effect":""}},"status":{}}"#),
    ("resource.k8s.io/v1", "ResourceClaim", r#"{"spec":{"devices":{"requests":null}},"status":{}}"#),
    ("resource.k8s.io/v1", "ResourceClaimTemplate", r#"{"spec":{"metadata":{},"spec":{"devices":{"requests":null}}}}"#),
    ("resource.k8s.io/v1", "ResourceSlice", r#"{"spec":{"driver":"","pool":{"name":"","generation":0,"resourceSliceCount":0}}}"#),
    ("scheduling.k8s.io/v1", "PriorityClass", r#"{"value":0}"#),
    ("storage.k8s.io/v1", "CSIDriver", r#"{"spec":{}}"#),
    ("storage.k8s.io/v1", "CSINode", r#"{"spec":{"drivers":null},"status":{}}"#),
    ("storage.k8s.io/v1", "CSIStorageCapacity", r#"{"storageClassName":""}"#),
    ("storage.k8s.io/v1", "StorageClass", r#"{"provisioner":""}"#),
    ("storage.k8s.io/v1", "VolumeAttachment", r#"{"spec":{"attacher":"","source":{},"nodeName":""},"status":{"attached":false}}"#),
    ("storage.k8s.io/v1", "VolumeAttributesClass", r#"{"driverName":""}"#),
    ("storagemigration.k8s.io/v1", "StorageVersionMigration", r#"{"spec":{"resource":{}},"status":{}}"#),
    ("v1", "Event", r#"{"involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":""}"#),
    ("v1", "LimitRange", r#"{"spec":{"limits":null}}"#),
    ("v1", "Namespace", r#"{"spec":{},"status":{}}"#),
    ("v1", "Node", r#"{"spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}}"#),
    ("v1", "PersistentVolume", r#"{"spec":{},"status":{}}"#),
    ("v1", "PersistentVolumeClaim", r#"{"spec":{"resources":{}},"status":{}}"#),
    ("v1", "Pod", r#"{"spec":{"containers":null},"status":{}}"#),
    ("v1", "PodTemplate", r#"{"template":{"metadata":{},"spec":{"containers":null}}}"#),
    ("v1", "ReplicationController", r#"{"spec":{},"status":{"replicas":0}}"#),
    ("v1", "ResourceQuota", r#"{"spec":{},"status":{}}"#),
    ("v1", "Service", r#"{"spec":{},"status":{"loadBalancer":{}}}"#),
];

type Kinds = BTreeMap<&'static str, Value>;

static BY_VERSION: LazyLock<BTreeMap<&'static str, Kinds>> = LazyLock::new(|| {
    let mut versions: BTreeMap<&str, Kinds> = BTreeMap::new();
    for (version, kind, json) in SKELETONS {
        versions.entry(version).or_default().insert(kind, serde_json::from_str(json).expect("the table is JSON"));
    }
    versions
});

/// The zero value of a built-in kind without metadata; `None` for other kinds, and if it is empty.
pub fn skeleton(api_version: &str, kind: &str) -> Option<&'static Value> {
    BY_VERSION.get(api_version)?.get(kind)
}

/// `value` with the members of `skeleton` that it lacks.
pub(crate) fn filled<'v>(value: &'v Value, skeleton: Option<&Value>) -> Cow<'v, Value> {
    match skeleton {
        Some(skeleton) if !covers(value, skeleton) => {
            let mut value = value.clone();
            fill(&mut value, skeleton);
            Cow::Owned(value)
        }
        _ => Cow::Borrowed(value),
    }
}

fn covers(value: &Value, skeleton: &Value) -> bool {
    match (value, skeleton) {
        (Value::Object(value), Value::Object(skeleton)) => {
            skeleton.iter().all(|(name, part)| value.get(name).is_some_and(|value| covers(value, part)))
        }
        _ => true,
    }
}

/// Adds the members of `skeleton` that `value` lacks.
pub fn fill(value: &mut Value, skeleton: &Value) {
    if let (Value::Object(value), Value::Object(skeleton)) = (value, skeleton) {
        for (name, part) in skeleton {
            match value.get_mut(name) {
                Some(value) => fill(value, part),
                None => {
                    value.insert(name.clone(), part.clone());
                }
            }
        }
    }
}
