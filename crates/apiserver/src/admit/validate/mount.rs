//! Volume mounts and devices of containers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::text;
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;

/// The `volumeMounts` of a container.
pub(super) fn mounts(errors: &mut Errors, at: &At<'_>, container: &Value, volumes: &BTreeMap<&str, &Value>) {
    let devices = container.list("volumeDevices");
    let mut paths = BTreeSet::new();
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        let here = at.index(index);
        let (name, path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            errors.required(&here.child("name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(&here.child("name"), name);
        }
        if path.is_empty() {
            errors.required(&here.child("mountPath"), "");
        }
        if !paths.insert(path) {
            errors.invalid(&here.child("mountPath"), path, "must be unique");
        }
        if devices.iter().any(|device| device.text("name") == name) {
            errors.invalid(&here.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| device.text("devicePath") == path) {
            errors.invalid(&here.child("mountPath"), path, "must not already exist as a path in volumeDevices");
        }
        below(errors, at, &here, mount);
        propagation(errors, at, mount, container);
    }
}

fn below(errors: &mut Errors, at: &At<'_>, here: &At<'_>, mount: &Value) {
    let (path, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
    if !path.is_empty() {
        text::descending(errors, &at.child("subPath"), path);
    }
    if !expression.is_empty() {
        if !path.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&here.child("subPathExpr"), expression, why);
        }
        text::descending(errors, &at.child("subPathExpr"), expression);
    }
}

fn propagation(errors: &mut Errors, at: &At<'_>, mount: &Value, container: &Value) {
    const MODES: &[&str] = &["Bidirectional", "HostToContainer", "None"];
    if let Some(mode) = mount.get("mountPropagation").and_then(Value::as_str) {
        let at = at.child("mountPropagation");
        if !MODES.contains(&mode) {
            errors.unsupported(&at, mode, MODES);
        }
        if mode == "Bidirectional" && !container["securityContext"].flag("privileged") {
            errors.forbidden(&at, "Bidirectional mount propagation is available only to privileged containers");
        }
    }
    let at = at.child("recursiveReadOnly");
    match mount.get("recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.flag("readOnly") {
                errors.forbidden(&at, "may only be specified when readOnly is true");
            }
            if !["", "None"].contains(&mount.text("mountPropagation")) {
                errors.forbidden(&at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => errors.unsupported(&at, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// The `volumeDevices` of a container.
pub(super) fn devices(errors: &mut Errors, at: &At<'_>, container: &Value, volumes: &BTreeMap<&str, &Value>) {
    let mounts = container.list("volumeMounts");
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in container.list("volumeDevices").iter().enumerate() {
        let at = at.index(index);
        let (name, path) = (device.text("name"), device.text("devicePath"));
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        }
        if names.contains(name) {
            errors.invalid(&at.child("name"), name, "must be unique");
        }
        match volumes.get(name) {
            None => errors.not_found(&at.child("name"), name),
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&at.child("name"), name, why);
            }
            Some(_) => {}
        }
        if path.is_empty() {
            errors.required(&at.child("devicePath"), "");
        }
        if paths.contains(path) {
            errors.invalid(&at.child("devicePath"), path, "must be unique");
        }
        if path.split('/').any(|part| part == "..") {
            errors.invalid(&at.child("devicePath"), path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path);
        }
        if mounts.iter().any(|mount| mount.text("name") == name) {
            errors.invalid(&at.child("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| mount.text("mountPath") == path) {
            errors.invalid(&at.child("devicePath"), path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
