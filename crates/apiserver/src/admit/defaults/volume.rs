//! Defaults of volumes, PersistentVolumeClaims and StorageClasses.

use serde_json::{Map, Value, json};

use crate::admit::json::{Fill, Read};

const MODE: i64 = 0o644;

/// A volume of a pod.
pub(super) fn volume(volume: &mut Value) {
    let sources = volume
        .as_object()
        .map_or(0, |members| members.iter().filter(|(key, value)| *key != "name" && !value.is_null()).count());
    if sources == 0 {
        volume.put("emptyDir", Map::new());
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.inner(key) {
            source.fill("defaultMode", MODE);
        }
    }
    if let Some(source) = volume.inner("downwardAPI") {
        source.items("items").for_each(downward_item);
    }
    if let Some(projected) = volume.inner("projected") {
        projected.items("sources").for_each(projection);
    }
    let template = volume.inner("ephemeral").and_then(|source| source.inner("volumeClaimTemplate"));
    if let Some(spec) = template.and_then(|template| template.inner("spec")) {
        claim_spec(spec);
    }
    if let Some(image) = volume.inner("image") {
        let policy = super::pull_policy(image.text("reference"));
        image.fill_zero("pullPolicy", policy);
    }
    source(volume);
}

fn downward_item(item: &mut Value) {
    if let Some(field) = item.inner("fieldRef") {
        field.fill_zero("apiVersion", "v1");
    }
}

fn projection(source: &mut Value) {
    if let Some(downward) = source.inner("downwardAPI") {
        downward.items("items").for_each(downward_item);
    }
    if let Some(token) = source.inner("serviceAccountToken") {
        token.fill("expirationSeconds", 3600);
    }
}

/// Sources that both pods and PersistentVolumes have.
fn source(holder: &mut Value) {
    if let Some(host) = holder.inner("hostPath") {
        host.fill("type", "");
    }
    if let Some(iscsi) = holder.inner("iscsi") {
        iscsi.fill_zero("iscsiInterface", "default");
    }
    if let Some(rbd) = holder.inner("rbd") {
        rbd.fill_zero("pool", "rbd");
        rbd.fill_zero("user", "admin");
        rbd.fill_zero("keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = holder.inner("azureDisk") {
        disk.fill("cachingMode", "ReadWrite");
        disk.fill("kind", "Shared");
        disk.fill("fsType", "ext4");
        disk.fill("readOnly", false);
    }
    if let Some(scale_io) = holder.inner("scaleIO") {
        scale_io.fill_zero("storageMode", "ThinProvisioned");
        scale_io.fill_zero("fsType", "xfs");
    }
}

/// The spec of a PersistentVolumeClaim, standalone or in a template.
pub(super) fn claim_spec(spec: &mut Value) {
    spec.fill("volumeMode", "Filesystem");
    spec.fill("resources", Map::new());
}

/// A PersistentVolumeClaim.
pub(super) fn claim(claim: &mut Value) {
    if let Some(spec) = claim.inner_or_new("spec") {
        claim_spec(spec);
    }
    if let Some(status) = claim.inner_or_new("status") {
        status.fill_zero("phase", "Pending");
    }
}

/// A PersistentVolume.
pub(super) fn persistent_volume(volume: &mut Value) {
    if let Some(spec) = volume.inner_or_new("spec") {
        spec.fill_zero("persistentVolumeReclaimPolicy", "Retain");
        spec.fill("volumeMode", "Filesystem");
        source(spec);
    }
    if let Some(status) = volume.inner_or_new("status") {
        status.fill_zero("phase", "Pending");
    }
}

/// A StorageClass.
pub(super) fn storage_class(class: &mut Value) {
    class.fill("reclaimPolicy", "Delete");
    class.fill("volumeBindingMode", "Immediate");
}

/// A CSIDriver.
pub(super) fn csi_driver(driver: &mut Value) {
    let Some(spec) = driver.inner_or_new("spec") else { return };
    spec.fill("attachRequired", true);
    spec.fill("podInfoOnMount", false);
    spec.fill("storageCapacity", false);
    spec.fill("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.fill_zero("volumeLifecycleModes", json!(["Persistent"]));
    spec.fill("requiresRepublish", false);
    spec.fill("seLinuxMount", false);
    spec.fill("preventPodSchedulingIfMissing", false);
}
