//! Objects as a real server writes them back: it reads them into structs of Go, which forget nulls, empty lists and maps,
//! zero values of fields that are not pointers, and other ways to write the same amount or time.

use serde_json::{Map, Value};

use super::json::is_zero;
use super::quantity::Quantity;
use crate::clock;
use crate::schema::{Child, Schema, Type};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";

const EMBEDDED_RESOURCE: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Flags and numbers that Go holds as values: false and 0 are left out. All others are pointers, or always written.
const VALUES: &[(&str, &[&str])] = &[
    ("apiextensions.v1.CustomResourceColumnDefinition", &["priority"]),
    ("apiextensions.v1.CustomResourceDefinitionSpec", &["preserveUnknownFields"]),
    ("apiextensions.v1.CustomResourceDefinitionVersion", &["deprecated"]),
    (
        "apiextensions.v1.JSONSchemaProps",
        &["exclusiveMaximum", "exclusiveMinimum", "nullable", "uniqueItems", EMBEDDED_RESOURCE, INT_OR_STRING],
    ),
    ("apiregistration.v1.APIServiceSpec", &["insecureSkipTLSVerify"]),
    ("apps.v1.DaemonSetSpec", &["minReadySeconds"]),
    (
        "apps.v1.DaemonSetStatus",
        &["numberAvailable", "numberUnavailable", "observedGeneration", "updatedNumberScheduled"],
    ),
    ("apps.v1.DeploymentSpec", &["minReadySeconds", "paused"]),
    (
        "apps.v1.DeploymentStatus",
        &[
            "availableReplicas",
            "observedGeneration",
            "readyReplicas",
            "replicas",
            "unavailableReplicas",
            "updatedReplicas",
        ],
    ),
    ("apps.v1.ReplicaSetSpec", &["minReadySeconds"]),
    ("apps.v1.ReplicaSetStatus", &["availableReplicas", "fullyLabeledReplicas", "observedGeneration", "readyReplicas"]),
    ("apps.v1.StatefulSetSpec", &["minReadySeconds"]),
    ("apps.v1.StatefulSetStatus", &["currentReplicas", "observedGeneration", "readyReplicas", "updatedReplicas"]),
    ("autoscaling.v2.HorizontalPodAutoscalerStatus", &["currentReplicas"]),
    ("batch.v1.JobStatus", &["active", "failed", "succeeded"]),
    ("core.v1.AWSElasticBlockStoreVolumeSource", &["partition", "readOnly"]),
    ("core.v1.CSIPersistentVolumeSource", &["readOnly"]),
    ("core.v1.CephFSVolumeSource", &["readOnly"]),
    ("core.v1.CinderVolumeSource", &["readOnly"]),
    ("core.v1.Container", &["stdin", "stdinOnce", "tty"]),
    ("core.v1.ContainerImage", &["sizeBytes"]),
    ("core.v1.ContainerPort", &["hostPort"]),
    ("core.v1.ContainerStateTerminated", &["signal"]),
    ("core.v1.EphemeralContainer", &["stdin", "stdinOnce", "tty"]),
    ("core.v1.Event", &["count"]),
    ("core.v1.EventSeries", &["count"]),
    ("core.v1.FCVolumeSource", &["readOnly"]),
    ("core.v1.FlexVolumeSource", &["readOnly"]),
    ("core.v1.GCEPersistentDiskVolumeSource", &["partition", "readOnly"]),
    ("core.v1.GlusterfsVolumeSource", &["readOnly"]),
    ("core.v1.ISCSIPersistentVolumeSource", &["chapAuthDiscovery", "chapAuthSession", "readOnly"]),
    ("core.v1.ISCSIVolumeSource", &["chapAuthDiscovery", "chapAuthSession", "readOnly"]),
    ("core.v1.NFSVolumeSource", &["readOnly"]),
    ("core.v1.NodeSpec", &["unschedulable"]),
    ("core.v1.PersistentVolumeClaimVolumeSource", &["readOnly"]),
    ("core.v1.PodCondition", &["observedGeneration"]),
    ("core.v1.PodSpec", &["hostIPC", "hostNetwork", "hostPID"]),
    ("core.v1.PodStatus", &["observedGeneration"]),
    ("core.v1.Probe", &["initialDelaySeconds"]),
    ("core.v1.RBDVolumeSource", &["readOnly"]),
    ("core.v1.ReplicationControllerSpec", &["minReadySeconds"]),
    (
        "core.v1.ReplicationControllerStatus",
        &["availableReplicas", "fullyLabeledReplicas", "observedGeneration", "readyReplicas"],
    ),
    ("core.v1.ServicePort", &["nodePort"]),
    ("core.v1.ServiceSpec", &["healthCheckNodePort", "publishNotReadyAddresses"]),
    ("core.v1.VolumeMount", &["readOnly"]),
    ("meta.v1.Condition", &["observedGeneration"]),
    ("meta.v1.ObjectMeta", &["generation"]),
    ("policy.v1.PodDisruptionBudgetStatus", &["observedGeneration"]),
    ("resource.v1.DeviceSubRequest", &["count"]),
    ("resource.v1.ExactDeviceRequest", &["count"]),
    ("scheduling.v1.PriorityClass", &["globalDefault"]),
];

/// Texts that Go holds as pointers: empty is not the same as absent.
const POINTERS: &[(&str, &[&str])] = &[
    ("batch.v1.CronJobSpec", &["timeZone"]),
    ("batch.v1.JobSpec", &["managedBy"]),
    ("batch.v1.PodFailurePolicyOnExitCodesRequirement", &["containerName"]),
    ("coordination.v1.LeaseSpec", &["holderIdentity", "preferredHolder", "strategy"]),
    ("core.v1.ClusterTrustBundleProjection", &["name", "signerName"]),
    ("core.v1.EndpointAddress", &["nodeName"]),
    ("core.v1.EndpointPort", &["appProtocol"]),
    ("core.v1.Event", &["reportingComponent", "reportingInstance"]),
    ("core.v1.GRPCAction", &["service"]),
    ("core.v1.HostPathVolumeSource", &["type"]),
    ("core.v1.ISCSIVolumeSource", &["initiatorName"]),
    ("core.v1.PersistentVolumeClaimSpec", &["storageClassName", "volumeAttributesClassName"]),
    ("core.v1.PersistentVolumeSpec", &["volumeAttributesClassName"]),
    ("core.v1.PodDNSConfigOption", &["value"]),
    ("core.v1.PodResourceClaim", &["resourceClaimName", "resourceClaimTemplateName"]),
    ("core.v1.PodSpec", &["hostnameOverride", "runtimeClassName"]),
    ("core.v1.SeccompProfile", &["localhostProfile"]),
    ("core.v1.ServicePort", &["appProtocol"]),
    ("core.v1.ServiceSpec", &["loadBalancerClass", "trafficDistribution"]),
    ("core.v1.TypedLocalObjectReference", &["apiGroup"]),
    ("core.v1.TypedObjectReference", &["apiGroup", "namespace"]),
    ("discovery.v1.Endpoint", &["hostname", "nodeName", "zone"]),
    ("discovery.v1.EndpointPort", &["appProtocol", "name", "protocol"]),
    ("networking.v1.IngressClassParametersReference", &["apiGroup", "namespace", "scope"]),
    ("networking.v1.IngressSpec", &["ingressClassName"]),
    ("resource.v1.DeviceAttribute", &["string", "version"]),
    ("storage.v1.VolumeAttachmentSource", &["persistentVolumeName"]),
];

/// Brings an object of a built-in kind into the form in which a real server writes it.
pub(super) fn tidy(shape: &Child, object: &mut Value) {
    node(shape, object);
}

fn node(child: &Child, value: &mut Value) {
    let name = match child {
        Child::Named(name) => &**name,
        Child::Inline(_) => "",
    };
    match name {
        QUANTITY => return quantity(value, false),
        TIME => return time(value, clock::seconds),
        MICRO_TIME => return time(value, |time| time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()),
        _ => {}
    }
    let schema = child.schema();
    match value {
        Value::Object(members) if !schema.properties.is_empty() => structure(name, schema, members),
        Value::Object(members) => {
            let Some(values) = &schema.additional else { return };
            let amounts = matches!(values, Child::Named(name) if &**name == QUANTITY);
            for value in members.values_mut() {
                if amounts { quantity(value, true) } else { node(values, value) }
            }
        }
        Value::Array(items) => {
            if let Some(item) = &schema.items {
                items.iter_mut().for_each(|value| node(item, value));
            }
        }
        _ => {}
    }
}

fn structure(name: &str, schema: &Schema, members: &mut Map<String, Value>) {
    let short = short_name(name);
    let values = fields(VALUES, short);
    let pointers = fields(POINTERS, short);
    members.retain(|key, value| {
        let Some(child) = schema.properties.get(key.as_str()) else { return true };
        if value.is_null() {
            return false;
        }
        if !is_zero(value) {
            node(child, value);
            return true;
        }
        let key = key.as_str();
        let kept = match value {
            Value::Bool(_) | Value::Number(_) => !values.contains(&key),
            // A value of any type, such as a default in a CRD, is nobody's zero value.
            Value::String(_) => child.schema().type_ != Type::String || pointers.contains(&key),
            Value::Array(_) => child.schema().type_ != Type::Array,
            _ => {
                let field = child.schema();
                !(field.type_ == Type::Object && field.properties.is_empty() && field.additional.is_some())
            }
        };
        kept || schema.required.iter().any(|field| field == key)
    });
}

/// `core.v1.Pod` of `io.k8s.api.core.v1.Pod`.
fn short_name(name: &str) -> &str {
    let parts = name.rmatch_indices('.').nth(2).map_or(0, |(at, _)| at + 1);
    &name[parts..]
}

fn fields(table: &'static [(&str, &[&str])], name: &str) -> &'static [&'static str] {
    table.binary_search_by_key(&name, |(row, _)| row).map_or(&[], |at| table[at].1)
}

fn quantity(value: &mut Value, in_list: bool) {
    if let Ok(parsed) = Quantity::from_json(value) {
        let parsed = if in_list { parsed.rounded() } else { parsed };
        *value = parsed.to_string().into();
    }
}

fn time(value: &mut Value, write: impl Fn(jiff::Timestamp) -> String) {
    if let Some(time) = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()) {
        *value = write(time).into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    fn tidied(api: &str, kind: &str, mut object: Value) -> Value {
        let (group, version) = crate::registry::group_version(api);
        let resource = Registry::builtin().by_kind(group, version, kind).expect(kind);
        tidy(&resource.shape, &mut object);
        object
    }

    #[test]
    fn rows_are_ordered_and_about_fields_that_exist() {
        for table in [VALUES, POINTERS] {
            assert!(table.is_sorted_by_key(|(name, _)| name));
            for (name, fields) in table {
                let definitions = capstan_schema::definitions();
                let full =
                    definitions.keys().find(|full| short_name(full) == *name).unwrap_or_else(|| panic!("{name}"));
                for field in *fields {
                    assert!(definitions[full]["properties"].get(field).is_some(), "{name} has no {field}");
                }
            }
        }
    }

    #[test]
    fn zero_values_go_and_pointers_stay() {
        let spec = json!({
            "hostNetwork": false, "automountServiceAccountToken": false, "nodeSelector": {}, "volumes": [], "nodeName": "",
            "securityContext": {}, "terminationGracePeriodSeconds": 0, "affinity": null,
            "containers": [{
                "name": "a", "stdin": false, "env": [{"name": "A", "value": ""}], "command": ["", "x"],
                "resources": {"limits": {}}, "securityContext": {"privileged": false},
            }],
        });
        let pod = json!({"metadata": {"name": "p", "labels": {"a": ""}, "annotations": {}}, "spec": spec});
        let expected = json!({"metadata": {"name": "p", "labels": {"a": ""}}, "spec": {
            "automountServiceAccountToken": false, "securityContext": {}, "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "a", "env": [{"name": "A"}], "command": ["", "x"], "resources": {},
                "securityContext": {"privileged": false},
            }],
        }});
        assert_eq!(tidied("v1", "Pod", pod), expected);
        let claim = json!({"spec": {"storageClassName": "", "volumeName": ""}});
        assert_eq!(tidied("v1", "PersistentVolumeClaim", claim), json!({"spec": {"storageClassName": ""}}));
        let schema = json!({"properties": {"a": {"type": "string", "default": "", "nullable": false, "enum": []}}});
        let schema = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        let definition = tidied("apiextensions.k8s.io/v1", "CustomResourceDefinition", schema);
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(schema["properties"]["a"], json!({"type": "string", "default": ""}));
        let lease = json!({"spec": {"holderIdentity": ""}});
        assert_eq!(tidied("coordination.k8s.io/v1", "Lease", lease.clone()), lease);
    }

    #[test]
    fn amounts_and_times_are_canonical() {
        let limits = json!({"cpu": 0.5, "memory": "1024Mi", "x.io/y": "0.1m"});
        let pod = json!({
            "metadata": {"creationTimestamp": "2026-01-01T01:00:00.5+01:00"},
            "spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]},
        });
        let pod = tidied("v1", "Pod", pod);
        let limits = json!({"cpu": "500m", "memory": "1Gi", "x.io/y": "1m"});
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], limits);
        assert_eq!(pod["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
        let lease = json!({"spec": {"renewTime": "2026-01-01T00:00:00Z"}});
        let lease = tidied("coordination.k8s.io/v1", "Lease", lease);
        assert_eq!(lease["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
    }
}
