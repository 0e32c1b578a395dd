//! Printers of volumes, StorageClasses and devices.

use jiff::Timestamp;
use serde_json::Value;

use super::format::{NONE, UNSET, access_modes, count, list, since, text, text_or};
use super::{AGE, Cells, Column, NAME, Printer, age, name};

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let (columns, cells): (&'static [Column], Cells) = match (group, kind) {
        ("", "PersistentVolume") => (VOLUME, volume),
        ("", "PersistentVolumeClaim") => (CLAIM, claim),
        ("storage.k8s.io", "StorageClass") => (CLASS, class),
        ("storage.k8s.io", "VolumeAttributesClass") => {
            (ATTRIBUTES, |object, now| vec![name(object), text(object, "/driverName").into(), age(object, now)])
        }
        ("storage.k8s.io", "VolumeAttachment") => (ATTACHMENT, attachment),
        ("storage.k8s.io", "CSINode") => {
            (CSI_NODE, |object, now| vec![name(object), count(object, "/spec/drivers").into(), age(object, now)])
        }
        ("storage.k8s.io", "CSIDriver") => (CSI_DRIVER, driver),
        ("resource.k8s.io", "ResourceClaim") => (RESOURCE_CLAIM, resource_claim),
        ("resource.k8s.io", "ResourceClaimTemplate" | "DeviceClass") => {
            (&[NAME, AGE], |object, now| vec![name(object), age(object, now)])
        }
        ("resource.k8s.io", "ResourceSlice") => (SLICE, slice),
        ("resource.k8s.io", "DeviceTaintRule") => (TAINT_RULE, taint_rule),
        _ => return None,
    };
    Some(Printer { columns, cells })
}

const VOLUME: &[Column] = &[
    NAME,
    Column::of("Capacity", "string", "core.v1.PersistentVolumeSpec", "capacity"),
    Column::of("Access Modes", "string", "core.v1.PersistentVolumeSpec", "accessModes"),
    Column::of("Reclaim Policy", "string", "core.v1.PersistentVolumeSpec", "persistentVolumeReclaimPolicy"),
    Column::of("Status", "string", "core.v1.PersistentVolumeStatus", "phase"),
    Column::of("Claim", "string", "core.v1.PersistentVolumeSpec", "claimRef"),
    Column::own("StorageClass", "string", "StorageClass of the pv"),
    Column::own("VolumeAttributesClass", "string", "VolumeAttributesClass of the pv"),
    Column::of("Reason", "string", "core.v1.PersistentVolumeStatus", "reason"),
    AGE,
    Column::of("VolumeMode", "string", "core.v1.PersistentVolumeSpec", "volumeMode").wide(),
];

/// The phase, or `Terminating`.
fn phase(object: &Value) -> Value {
    let deleting = !object["metadata"]["deletionTimestamp"].is_null();
    if deleting { "Terminating".into() } else { text(object, "/status/phase").into() }
}

/// The class, formerly an annotation.
fn class_of(object: &Value) -> Value {
    let old = object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class").and_then(Value::as_str));
    old.unwrap_or_else(|| text(object, "/spec/storageClassName")).into()
}

fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = &object["spec"]["claimRef"];
    let claim = if claim.is_object() {
        format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
    } else {
        String::new()
    };
    vec![
        name(object),
        text(object, "/spec/capacity/storage").into(),
        access_modes(list(object, "/spec/accessModes")).into(),
        text(object, "/spec/persistentVolumeReclaimPolicy").into(),
        phase(object),
        claim.into(),
        class_of(object),
        text_or(object, "/spec/volumeAttributesClassName", UNSET).into(),
        text(object, "/status/reason").into(),
        age(object, now),
        text_or(object, "/spec/volumeMode", UNSET).into(),
    ]
}

const CLAIM: &[Column] = &[
    NAME,
    Column::of("Status", "string", "core.v1.PersistentVolumeClaimStatus", "phase"),
    Column::of("Volume", "string", "core.v1.PersistentVolumeClaimSpec", "volumeName"),
    Column::of("Capacity", "string", "core.v1.PersistentVolumeClaimStatus", "capacity"),
    Column::of("Access Modes", "string", "core.v1.PersistentVolumeClaimStatus", "accessModes"),
    Column::own("StorageClass", "string", "StorageClass of the pvc"),
    Column::own("VolumeAttributesClass", "string", "VolumeAttributesClass of the pvc"),
    AGE,
    Column::of("VolumeMode", "string", "core.v1.PersistentVolumeClaimSpec", "volumeMode").wide(),
];

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = !text(object, "/spec/volumeName").is_empty();
    let (size, modes) = if bound {
        (text(object, "/status/capacity/storage"), access_modes(list(object, "/status/accessModes")))
    } else {
        ("", String::new())
    };
    vec![
        name(object),
        phase(object),
        text(object, "/spec/volumeName").into(),
        size.into(),
        modes.into(),
        class_of(object),
        text_or(object, "/spec/volumeAttributesClassName", UNSET).into(),
        age(object, now),
        text_or(object, "/spec/volumeMode", UNSET).into(),
    ]
}

const CLASS: &[Column] = &[
    NAME,
    Column::of("Provisioner", "string", "storage.v1.StorageClass", "provisioner"),
    Column::of("ReclaimPolicy", "string", "storage.v1.StorageClass", "reclaimPolicy"),
    Column::of("VolumeBindingMode", "string", "storage.v1.StorageClass", "volumeBindingMode"),
    Column::of("AllowVolumeExpansion", "string", "storage.v1.StorageClass", "allowVolumeExpansion"),
    AGE,
];

/// The default StorageClass: the newest of those marked as default.
pub(super) fn default_class(classes: &[Value]) -> Option<usize> {
    let says_so = |class: &Value| {
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| class["metadata"]["annotations"][*key] == "true")
    };
    let candidates = classes.iter().enumerate().filter(|(_, class)| says_so(class));
    // Kubernetes timestamps sort as text; of equal ones, the first in the list wins.
    candidates
        .max_by_key(|(index, class)| (text(class, "/metadata/creationTimestamp"), std::cmp::Reverse(*index)))
        .map(|(index, _)| index)
}

fn class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(object, "/provisioner").into(),
        text_or(object, "/reclaimPolicy", "Delete").into(),
        text_or(object, "/volumeBindingMode", "Immediate").into(),
        object["allowVolumeExpansion"].as_bool().unwrap_or(false).into(),
        age(object, now),
    ]
}

const ATTRIBUTES: &[Column] =
    &[NAME, Column::of("DriverName", "string", "storage.v1.VolumeAttributesClass", "driverName"), AGE];

const ATTACHMENT: &[Column] = &[
    NAME,
    Column { format: "name", ..Column::of("Attacher", "string", "storage.v1.VolumeAttachmentSpec", "attacher") },
    Column::of("PV", "string", "storage.v1.VolumeAttachmentSource", "persistentVolumeName"),
    Column::of("Node", "string", "storage.v1.VolumeAttachmentSpec", "nodeName"),
    Column::of("Attached", "boolean", "storage.v1.VolumeAttachmentStatus", "attached"),
    AGE,
];

fn attachment(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(object, "/spec/attacher").into(),
        text(object, "/spec/source/persistentVolumeName").into(),
        text(object, "/spec/nodeName").into(),
        object["status"]["attached"].as_bool().unwrap_or(false).into(),
        age(object, now),
    ]
}

const CSI_NODE: &[Column] = &[
    NAME,
    Column::own("Drivers", "integer", "Drivers indicates the number of CSI drivers registered on the node"),
    AGE,
];

const CSI_DRIVER: &[Column] = &[
    NAME,
    Column::of("AttachRequired", "boolean", "storage.v1.CSIDriverSpec", "attachRequired"),
    Column::of("PodInfoOnMount", "boolean", "storage.v1.CSIDriverSpec", "podInfoOnMount"),
    Column::of("StorageCapacity", "boolean", "storage.v1.CSIDriverSpec", "storageCapacity"),
    Column::of("TokenRequests", "string", "storage.v1.CSIDriverSpec", "tokenRequests"),
    Column::of("RequiresRepublish", "boolean", "storage.v1.CSIDriverSpec", "requiresRepublish"),
    Column::of("Modes", "string", "storage.v1.CSIDriverSpec", "volumeLifecycleModes"),
    AGE,
];

fn driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let flag = |field: &str, otherwise: bool| Value::from(object["spec"][field].as_bool().unwrap_or(otherwise));
    let modes: Vec<&str> = list(object, "/spec/volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    let modes = if modes.is_empty() { NONE.to_owned() } else { modes.join(",") };
    let audiences: Vec<&str> =
        list(object, "/spec/tokenRequests").iter().map(|request| text(request, "/audience")).collect();
    let tokens = if audiences.is_empty() { UNSET.to_owned() } else { audiences.join(",") };
    vec![
        name(object),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        tokens.into(),
        flag("requiresRepublish", false),
        modes.into(),
        age(object, now),
    ]
}

const RESOURCE_CLAIM: &[Column] = &[
    NAME,
    Column::own("State", "string", "A summary of the current state (allocated, pending, reserved, etc.)."),
    AGE,
];

fn resource_claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut states = Vec::new();
    if !object["metadata"]["deletionTimestamp"].is_null() {
        states.push("deleted");
    }
    if object["status"]["allocation"].is_null() {
        if object["metadata"]["deletionTimestamp"].is_null() {
            states.push("pending");
        }
    } else {
        states.push("allocated");
        if count(object, "/status/reservedFor") > 0 {
            states.push("reserved");
        }
    }
    vec![name(object), states.join(",").into(), age(object, now)]
}

const TAINT_RULE: &[Column] = &[
    NAME,
    Column::of("Key", "string", "resource.v1.DeviceTaint", "key"),
    Column::of("Value", "string", "resource.v1.DeviceTaint", "value"),
    Column::of("Effect", "string", "resource.v1.DeviceTaint", "effect"),
    Column::of("TimeAdded", "string", "resource.v1.DeviceTaint", "timeAdded"),
    AGE,
];

fn taint_rule(object: &Value, now: Timestamp) -> Vec<Value> {
    let taint = &object["spec"]["taint"];
    let added = if taint["timeAdded"].is_null() { String::new() } else { since(&taint["timeAdded"], now) };
    vec![
        name(object),
        text(taint, "/key").into(),
        text(taint, "/value").into(),
        text(taint, "/effect").into(),
        added.into(),
        age(object, now),
    ]
}

const SLICE: &[Column] = &[
    NAME,
    Column::of("Node", "string", "resource.v1.ResourceSliceSpec", "nodeName"),
    Column::of("Driver", "string", "resource.v1.ResourceSliceSpec", "driver"),
    Column::of("Pool", "string", "resource.v1.ResourcePool", "name"),
    AGE,
];

fn slice(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(object, "/spec/nodeName").into(),
        text(object, "/spec/driver").into(),
        text(object, "/spec/pool/name").into(),
        age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_has_a_size_once_it_is_bound() {
        let status = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]});
        let open = json!({"metadata": {"name": "c"}, "spec": {}, "status": status});
        let bound = json!({"metadata": {"name": "c"}, "spec": {"volumeName": "v"}, "status": status});
        assert_eq!(claim(&open, Timestamp::UNIX_EPOCH)[3..5], [json!(""), json!("")]);
        assert_eq!(claim(&bound, Timestamp::UNIX_EPOCH)[3..5], [json!("1Gi"), json!("RWO,RWX")]);
    }
}
