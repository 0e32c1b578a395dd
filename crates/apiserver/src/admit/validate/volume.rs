//! Volumes of a pod.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{container, env, labels, storage, text};
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use capstan_semantics::Quantity;
use capstan_semantics::names;

/// Volume sources, in the order of validation.
const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];
const HOST_PATHS: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Validates volumes; returns the valid ones by name. `pod` is the name of the pod, if it has one.
pub(super) fn volumes<'a>(
    errors: &mut Errors,
    at: &At<'_>,
    volumes: &'a [Value],
    pod: &str,
) -> BTreeMap<&'a str, &'a Value> {
    let mut good = BTreeMap::new();
    let created: BTreeSet<String> = volumes
        .iter()
        .filter(|volume| !pod.is_empty() && volume.has("ephemeral"))
        .map(|volume| format!("{pod}-{}", volume.text("name")))
        .collect();
    for (index, volume) in volumes.iter().enumerate() {
        let at = at.index(index);
        let before = errors.0.len();
        source(errors, &at, volume, pod);
        let name = volume.text("name");
        match name {
            "" => errors.required(&at.child("name"), ""),
            name => errors.invalid_all(&at.child("name"), name, names::dns_label(name)),
        }
        if good.contains_key(name) {
            errors.duplicate(&at.child("name"), name);
        }
        if errors.0.len() == before {
            good.insert(name, volume);
        }
        let claim = volume["persistentVolumeClaim"].text("claimName");
        if created.contains(claim) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&at.child("persistentVolumeClaim").child("claimName"), claim, why);
        }
    }
    good
}

fn source(errors: &mut Errors, at: &At<'_>, volume: &Value, pod: &str) {
    let mut count = 0;
    for key in SOURCES {
        let Some(source) = volume.get(key).filter(|source| !source.is_null()) else { continue };
        count += 1;
        let here = at.child(key);
        if count > 1 {
            errors.forbidden(&here, "may not specify more than 1 volume type");
            continue;
        }
        checked(errors, &here, key, source);
        let name = volume.text("name");
        if *key == "ephemeral" && !pod.is_empty() && !name.is_empty() {
            let claim = format!("{pod}-{name}");
            for why in names::dns_subdomain(&claim) {
                errors.invalid(&at.child("name"), name, &format!("PVC name {claim:?}: {why}"));
            }
        }
    }
    if count == 0 {
        errors.required(at, "must specify a volume type");
    }
}

fn checked(errors: &mut Errors, at: &At<'_>, key: &str, source: &Value) {
    let need = |errors: &mut Errors, fields: &[&str]| {
        for field in fields.iter().filter(|field| source.text(field).is_empty()) {
            errors.required(&at.child(field), "");
        }
    };
    match key {
        "emptyDir" if Quantity::from_json(&source["sizeLimit"]).is_ok_and(|size| size < Quantity::ZERO) => {
            errors.forbidden(&at.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
        "hostPath" => host_path(errors, at, source),
        "gitRepo" => need(errors, &["repository"]),
        "secret" => {
            need(errors, &["secretName"]);
            keys(errors, at, source);
        }
        "configMap" => {
            need(errors, &["name"]);
            keys(errors, at, source);
        }
        "nfs" => {
            need(errors, &["server", "path"]);
            if !source.text("path").starts_with('/') {
                errors.invalid(&at.child("path"), source.text("path"), "must be an absolute path");
            }
        }
        "persistentVolumeClaim" => need(errors, &["claimName"]),
        "gcePersistentDisk" => need(errors, &["pdName"]),
        "awsElasticBlockStore" => need(errors, &["volumeID"]),
        "iscsi" => need(errors, &["targetPortal", "iqn"]),
        "glusterfs" => need(errors, &["endpoints", "path"]),
        "cinder" => need(errors, &["volumeID"]),
        "flexVolume" => need(errors, &["driver"]),
        "azureFile" => need(errors, &["secretName", "shareName"]),
        "vsphereVolume" => need(errors, &["volumePath"]),
        "photonPersistentDisk" => need(errors, &["pdID"]),
        "portworxVolume" => need(errors, &["volumeID"]),
        "scaleIO" => need(errors, &["gateway", "system", "volumeName"]),
        "downwardAPI" => {
            text::mode(errors, &at.child("defaultMode"), source.number("defaultMode"));
            source.list("items").iter().for_each(|item| downward_file(errors, at, item));
        }
        "projected" => projected(errors, at, source),
        "csi" => storage::driver_name(errors, &at.child("driver"), source.text("driver")),
        "ephemeral" => ephemeral(errors, at, source),
        "image" => {
            need(errors, &["reference"]);
            container::pull_policy(errors, &at.child("pullPolicy"), source.text("pullPolicy"));
        }
        _ => {}
    }
}

/// A `hostPath`.
pub(super) fn host_path(errors: &mut Errors, at: &At<'_>, source: &Value) {
    let path = source.text("path");
    if path.is_empty() {
        return errors.required(&at.child("path"), "");
    }
    text::no_backsteps(errors, &at.child("path"), path);
    if let Some(kind) = source.get("type").and_then(Value::as_str).filter(|kind| !HOST_PATHS.contains(kind)) {
        errors.unsupported(&at.child("type"), kind, HOST_PATHS);
    }
}

/// Modes and items of a ConfigMap or Secret source.
fn keys(errors: &mut Errors, at: &At<'_>, source: &Value) {
    text::mode(errors, &at.child("defaultMode"), source.number("defaultMode"));
    let items = at.child("items");
    for (index, item) in source.list("items").iter().enumerate() {
        key_to_path(errors, &items.index(index), item);
    }
}

fn key_to_path(errors: &mut Errors, at: &At<'_>, item: &Value) {
    for field in ["key", "path"].into_iter().filter(|field| item.text(field).is_empty()) {
        errors.required(&at.child(field), "");
    }
    text::local_path(errors, &at.child("path"), item.text("path"));
    text::mode(errors, &at.child("mode"), item.number("mode"));
}

fn downward_file(errors: &mut Errors, at: &At<'_>, file: &Value) {
    if file.text("path").is_empty() {
        errors.required(&at.child("path"), "");
    }
    text::local_path(errors, &at.child("path"), file.text("path"));
    if file.has("fieldRef") {
        env::field_reference(errors, &at.child("fieldRef"), &file["fieldRef"], env::VOLUME_FIELDS);
        if file.has("resourceFieldRef") {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.invalid(at, "resource", why);
        }
    } else if file.has("resourceFieldRef") {
        env::resource_reference(errors, &at.child("resourceFieldRef"), &file["resourceFieldRef"], true);
    } else {
        errors.required(at, "one of fieldRef and resourceFieldRef is required");
    }
    text::mode(errors, &at.child("mode"), file.number("mode"));
}

fn projected(errors: &mut Errors, at: &At<'_>, source: &Value) {
    text::mode(errors, &at.child("defaultMode"), source.number("defaultMode"));
    let mut paths = BTreeSet::new();
    let sources = at.child("sources");
    for (index, projection) in source.list("sources").iter().enumerate() {
        let here = sources.index(index);
        let mut count = 0;
        for key in ["secret", "configMap"] {
            let Some(source) = projection.get(key).filter(|source| !source.is_null()) else { continue };
            count += 1;
            let here = here.child(key);
            if source.text("name").is_empty() {
                errors.required(&here.child("name"), "");
            }
            let items = here.child("items");
            for (index, item) in source.list("items").iter().enumerate() {
                key_to_path(errors, &items.index(index), item);
                let path = item.text("path");
                if !path.is_empty() && !paths.insert(path) {
                    errors.invalid(at, source.text("name"), "conflicting duplicate paths");
                }
            }
        }
        if projection.has("downwardAPI") {
            count += 1;
            for item in projection["downwardAPI"].list("items") {
                downward_file(errors, &here.child("downwardAPI"), item);
                let path = item.text("path");
                if !path.is_empty() && !paths.insert(path) {
                    errors.invalid(at, path, "conflicting duplicate paths");
                }
            }
        }
        if projection.has("serviceAccountToken") {
            count += 1;
            token(errors, at, &here.child("serviceAccountToken"), &projection["serviceAccountToken"]);
        }
        count += ["clusterTrustBundle", "podCertificate"].iter().filter(|key| projection.has(key)).count();
        if count > 1 {
            errors.forbidden(&here, "may not specify more than 1 volume type per source");
        }
    }
}

fn token(errors: &mut Errors, volume: &At<'_>, at: &At<'_>, token: &Value) {
    let expiration = at.child("expirationSeconds");
    match token.number("expirationSeconds") {
        None => errors.required(&expiration, ""),
        Some(seconds) if seconds < 600 => {
            errors.invalid(&expiration, &seconds, "may not specify a duration less than 10 minutes");
        }
        Some(seconds) if seconds > 1 << 32 => {
            errors.invalid(&expiration, &seconds, "may not specify a duration larger than 2^32 seconds");
        }
        Some(_) => {}
    }
    match token.text("path") {
        "" => errors.required(&volume.child("path"), ""),
        path => text::local_path(errors, &volume.child("path"), path),
    }
}

fn ephemeral(errors: &mut Errors, at: &At<'_>, source: &Value) {
    let template = &source["volumeClaimTemplate"];
    let at = at.child("volumeClaimTemplate");
    if template.is_null() {
        return errors.required(&at, "");
    }
    let meta = at.child("metadata");
    labels::annotations(errors, &meta.child("annotations"), &template["metadata"]["annotations"]);
    labels::labels(errors, &meta.child("labels"), &template["metadata"]["labels"]);
    for (key, _) in template.members("metadata").filter(|(key, _)| !["annotations", "labels"].contains(&key.as_str())) {
        errors.forbidden(&meta.child(key), "cannot be set");
    }
    storage::claim_spec(errors, &at.child("spec"), &template["spec"]);
}
