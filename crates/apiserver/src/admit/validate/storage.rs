//! PersistentVolumeClaims, PersistentVolumes and StorageClasses.

use serde_json::Value;

use super::{affinity, diff, labels, text, volume};
use crate::admit::field::{At, Errors};
use crate::admit::json::{Fill, Read};
use capstan_semantics::Quantity;
use capstan_semantics::names;

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const RECLAIM: &[&str] = &["Delete", "Recycle", "Retain"];
const CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";
/// Fields of a PersistentVolume spec that are no volume source.
const NO_SOURCE: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn access_modes(errors: &mut Errors, at: &At<'_>, spec: &Value, why: &str) {
    let at = at.child("accessModes");
    let modes = spec.list("accessModes");
    if modes.is_empty() {
        errors.required(&at, why);
    }
    for mode in modes.iter().filter_map(Value::as_str).filter(|mode| !MODES.contains(mode)) {
        errors.unsupported(&at, mode, MODES);
    }
    let known = || modes.iter().filter_map(Value::as_str).filter(|mode| MODES.contains(mode));
    if known().any(|mode| mode == "ReadWriteOncePod") && known().any(|mode| mode != "ReadWriteOncePod") {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

/// The spec of a PersistentVolumeClaim, standalone or in a template.
pub(super) fn claim_spec(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    if spec.list("accessModes").is_empty() {
        errors.required(&at.child("accessModes"), "at least 1 access mode is required");
    }
    labels::selector(errors, &at.child("selector"), &spec["selector"]);
    if !spec.list("accessModes").is_empty() {
        access_modes(errors, at, spec, "");
    }
    let path = at.child("resources");
    let path = path.key("storage");
    match Quantity::from_json(&spec["resources"]["requests"]["storage"]) {
        Err(_) => errors.required(&path, ""),
        Ok(size) if size <= Quantity::ZERO => errors.invalid(&path, &size.to_string(), "must be greater than zero"),
        Ok(_) => {}
    }
    class_name(errors, &at.child("storageClassName"), spec.text("storageClassName"));
    volume_mode(errors, &at.child("volumeMode"), spec);
    for key in ["dataSource", "dataSourceRef"].into_iter().filter(|key| spec.has(key)) {
        data_source(errors, &at.child(key), &spec[key]);
    }
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    if source.is_object() && reference.is_object() {
        let same = ["apiGroup", "kind", "name"].iter().all(|key| source[key] == reference[key]);
        if !reference.text("namespace").is_empty() {
            let why = "may not be specified when dataSourceRef.namespace is specified";
            errors.invalid(at, &format!("{}", at.child("dataSource")), why);
        } else if !same {
            errors.invalid(at, &format!("{}", at.child("dataSource")), "must match dataSourceRef");
        }
    }
    class_name(errors, &at.child("volumeAttributesClassName"), spec.text("volumeAttributesClassName"));
}

fn class_name(errors: &mut Errors, at: &At<'_>, name: &str) {
    if !name.is_empty() {
        errors.invalid_all(at, name, names::dns_subdomain(name));
    }
}

fn volume_mode(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str).filter(|mode| !VOLUME_MODES.contains(mode)) {
        errors.unsupported(at, mode, VOLUME_MODES);
    }
}

fn data_source(errors: &mut Errors, at: &At<'_>, source: &Value) {
    for key in ["name", "kind"].into_iter().filter(|key| source.text(key).is_empty()) {
        errors.required(&at.child(key), "");
    }
    let (group, kind) = (source.text("apiGroup"), source.text("kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(
            &at.child("apiGroup"),
            kind,
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
    if !group.is_empty() {
        errors.invalid_all(&at.child("apiGroup"), group, names::dns_subdomain(group));
    }
}

/// A PersistentVolumeClaim.
pub(super) fn claim(errors: &mut Errors, claim: &Value, old: Option<&Value>) {
    let at = At::new("spec");
    claim_spec(errors, &at, &claim["spec"]);
    let Some(old) = old else { return };
    let annotation = |claim: &Value| claim["metadata"]["annotations"].text(CLASS_BETA).to_owned();
    if annotation(claim) != annotation(old) {
        let at = At::new("metadata.annotations");
        errors.invalid(&at.child(CLASS_BETA), &annotation(claim), "field is immutable");
    }
    let (mut spec, mut before) = (claim["spec"].clone(), old["spec"].clone());
    if before.text("volumeName").is_empty() && spec.has("volumeName") {
        let name = spec["volumeName"].clone();
        before.put("volumeName", name);
    }
    if !before.has("storageClassName") {
        spec.drop("storageClassName");
    }
    let size = |spec: &Value| Quantity::from_json(&spec["resources"]["requests"]["storage"]).unwrap_or(Quantity::ZERO);
    let (now, was) = (size(&spec), size(&before));
    if claim["status"].text("phase") == "Bound" {
        let storage = before["resources"]["requests"]["storage"].clone();
        if let Some(requests) = spec.inner("resources").and_then(|resources| resources.inner("requests")) {
            requests.put("storage", storage);
        }
        match before.get("volumeAttributesClassName").cloned() {
            Some(class) => spec.put("volumeAttributesClassName", class),
            None => drop(spec.drop("volumeAttributesClassName")),
        }
    }
    if spec != before {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&at, &format!("{why}\n{}", diff::diff(&before, &spec)));
    }
    let capacity = Quantity::from_json(&old["status"]["capacity"]["storage"]).unwrap_or(Quantity::ZERO);
    if now < was && now <= capacity {
        let at = At::new("spec.resources.requests.storage");
        errors.forbidden(&at, "field can not be less than status.capacity");
    }
    errors.immutable(&At::new("volumeMode"), &claim["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
}

/// The name of a CSI driver.
pub(super) fn driver_name(errors: &mut Errors, at: &At<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(at, "");
    }
    if name.len() > 63 {
        errors.too_long(at, 63);
    }
    errors.invalid_all(at, name, names::dns_subdomain(&name.to_lowercase()));
}

/// A PersistentVolume.
pub(super) fn persistent_volume(errors: &mut Errors, volume_: &Value, old: Option<&Value>) {
    let (at, spec) = (At::new("spec"), &volume_["spec"]);
    access_modes(errors, &at, spec, "");
    let capacity = at.child("capacity");
    let amounts = spec["capacity"].as_object();
    if amounts.is_none_or(serde_json::Map::is_empty) {
        errors.required(&capacity, "");
    }
    if !spec["capacity"].has("storage") || amounts.is_some_and(|amounts| amounts.len() > 1) {
        errors.unsupported_value(&capacity, &spec["capacity"], &["storage"]);
    }
    for (name, amount) in spec.members("capacity") {
        if let Ok(amount) = Quantity::from_json(amount).map_err(drop)
            && amount <= Quantity::ZERO
        {
            errors.invalid(&capacity.key(name), &amount.to_string(), "must be greater than zero");
        }
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !RECLAIM.contains(&policy) {
        errors.unsupported(&at.child("persistentVolumeReclaimPolicy"), policy, RECLAIM);
    }
    if spec.has("nodeAffinity") {
        let at = at.child("nodeAffinity");
        match &spec["nodeAffinity"]["required"] {
            Value::Null => errors.required(&at.child("required"), "must specify required node constraints"),
            required => affinity::node_selector(errors, &at.child("required"), required),
        }
    }
    volume_source(errors, &at, spec);
    class_name(errors, &at.child("storageClassName"), spec.text("storageClassName"));
    volume_mode(errors, &at.child("volumeMode"), spec);
    let Some(old) = old else { return };
    let source = |spec: &Value| {
        let mut spec = spec.clone();
        NO_SOURCE.iter().for_each(|key| drop(spec.drop(key)));
        spec
    };
    let (now, was) = (source(spec), source(&old["spec"]));
    if now != was {
        let why = format!("spec.persistentvolumesource is immutable after creation\n{}", diff::diff(&was, &now));
        errors.forbidden(&At::new("spec.persistentvolumesource"), &why);
    }
    errors.immutable(&At::new("volumeMode"), &spec["volumeMode"], &old["spec"]["volumeMode"]);
}

fn volume_source(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let members = spec.as_object().into_iter().flatten();
    let sources: Vec<&String> = members
        .filter(|(key, value)| !NO_SOURCE.contains(&key.as_str()) && !value.is_null())
        .map(|(key, _)| key)
        .collect();
    for (index, key) in sources.iter().enumerate() {
        let (here, source) = (at.child(key), &spec[key.as_str()]);
        if index > 0 {
            errors.forbidden(&here, "may not specify more than 1 volume type");
            continue;
        }
        match key.as_str() {
            "hostPath" => volume::host_path(errors, &here, source),
            "local" => {
                match source.text("path") {
                    "" => errors.required(&here.child("path"), ""),
                    path => text::no_backsteps(errors, &here.child("path"), path),
                }
                if !spec.has("nodeAffinity") {
                    errors.required(&at.child("nodeAffinity"), "Local volume requires node affinity");
                }
            }
            "nfs" => {
                for key in ["server", "path"].into_iter().filter(|key| source.text(key).is_empty()) {
                    errors.required(&here.child(key), "");
                }
                if !source.text("path").starts_with('/') {
                    errors.invalid(&here.child("path"), source.text("path"), "must be an absolute path");
                }
            }
            "csi" => {
                driver_name(errors, &here.child("driver"), source.text("driver"));
                if source.text("volumeHandle").is_empty() {
                    errors.required(&here.child("volumeHandle"), "");
                }
            }
            _ => {}
        }
    }
    if sources.is_empty() {
        errors.required(at, "must specify a volume type");
    }
}

/// A StorageClass.
pub(super) fn storage_class(errors: &mut Errors, class: &Value, old: Option<&Value>) {
    let at = At::new("provisioner");
    match class.text("provisioner") {
        "" => errors.required(&at, class.text("provisioner")),
        name => errors.invalid_all(&at, name, names::qualified_name(&name.to_lowercase())),
    }
    let policy = class.text("reclaimPolicy");
    if !policy.is_empty() && !["Delete", "Retain"].contains(&policy) {
        errors.unsupported(&At::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    match class.text("volumeBindingMode") {
        "" => errors.required(&At::new("volumeBindingMode"), ""),
        "Immediate" | "WaitForFirstConsumer" => {}
        other => errors.unsupported(&At::new("volumeBindingMode"), other, &["Immediate", "WaitForFirstConsumer"]),
    }
    let Some(old) = old else { return };
    for key in ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"] {
        errors.declared_immutable(&At::new(key), &class[key], &old[key]);
    }
}
