//! Security contexts of pods and containers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::text;
use crate::admit::field::{At, Errors, GoStruct};
use crate::admit::json::Read;

const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
const MAX_ID: i64 = 0x7fff_ffff;
/// Fields of a security context, in the order of Go's struct.
const CONTEXT: &[&str] = &[
    "capabilities",
    "privileged",
    "SELinuxOptions",
    "windowsOptions",
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "procMount",
    "seccompProfile",
    "appArmorProfile",
];

fn id(errors: &mut Errors, at: &At<'_>, id: Option<i64>) {
    if let Some(id) = id {
        errors.invalid_all(at, &id, text::between(id, 0, MAX_ID));
    }
}

/// The security context of a container.
pub(super) fn container(errors: &mut Errors, at: &At<'_>, context: &Value, host_users: bool) {
    if context.is_null() {
        return;
    }
    id(errors, &at.child("runAsUser"), context.number("runAsUser"));
    id(errors, &at.child("runAsGroup"), context.number("runAsGroup"));
    if let Some(mount) = context.get("procMount").and_then(Value::as_str) {
        let at = at.child("procMount");
        if !["Default", "Unmasked"].contains(&mount) {
            errors.unsupported(&at, mount, &["Default", "Unmasked"]);
        }
        if host_users && mount == "Unmasked" {
            errors.invalid(&at, mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(errors, &at.child("seccompProfile"), &context["seccompProfile"]);
    if context.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        if context.flag("privileged") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(at, &GoStruct::new(context, CONTEXT), why);
        }
        if context["capabilities"].list("add").iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(at, &GoStruct::new(context, CONTEXT), why);
        }
    }
    app_armor(errors, &at.child("appArmorProfile"), &context["appArmorProfile"]);
}

/// The security context of a pod.
pub(super) fn pod(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let context = &spec["securityContext"];
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(errors, &at.child(key), context.number(key));
    }
    let groups = at.child("supplementalGroups");
    for (index, group) in context.list("supplementalGroups").iter().enumerate() {
        id(errors, &groups.index(index), group.as_i64());
    }
    sysctls(errors, &at.child("sysctls"), context.list("sysctls"), spec);
    let choice = |errors: &mut Errors, key: &str, values: &[&str]| {
        if let Some(value) = context.get(key).and_then(Value::as_str).filter(|value| !values.contains(value)) {
            errors.unsupported(&at.child(key), value, values);
        }
    };
    choice(errors, "fsGroupChangePolicy", &["Always", "OnRootMismatch"]);
    seccomp(errors, &at.child("seccompProfile"), &context["seccompProfile"]);
    app_armor(errors, &at.child("appArmorProfile"), &context["appArmorProfile"]);
    choice(errors, "supplementalGroupsPolicy", &["Merge", "Strict"]);
    choice(errors, "seLinuxChangePolicy", &["MountOption", "Recursive"]);
}

fn is_sysctl(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let segment = |part: &str| {
        let bytes = part.as_bytes();
        matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if inner(*first) && inner(*last))
            && bytes.iter().all(|b| inner(*b) || b"-_".contains(b))
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

fn sysctls(errors: &mut Errors, at: &At<'_>, sysctls: &[Value], spec: &Value) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let at = at.index(index);
        let at = at.child("name");
        let name = sysctl.text("name");
        if name.is_empty() {
            errors.required(&at, "");
        } else if !is_sysctl(name) {
            let segment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
            let why = format!("must have at most 253 characters and match regex ^({segment}[\\./])*{segment}$");
            errors.invalid(&at, name, &why);
        } else if seen.contains(name) {
            errors.duplicate(&at, name);
        }
        let dotted = name.replace('/', ".");
        let shared = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];
        if spec.flag("hostNetwork") && dotted.starts_with("net.") {
            errors.invalid(&at, name, "may not be specified when 'hostNetwork' is true");
        } else if spec.flag("hostIPC") && shared.iter().any(|prefix| dotted.starts_with(prefix)) {
            errors.invalid(&at, name, "may not be specified when 'hostIPC' is true");
        }
        seen.insert(name);
    }
}

fn seccomp(errors: &mut Errors, at: &At<'_>, profile: &Value) {
    if profile.is_null() {
        return;
    }
    let kind = profile.text("type");
    match kind {
        "" => errors.required(&at.child("type"), "type is required when seccompProfile is set"),
        kind if !PROFILES.contains(&kind) => errors.unsupported(&at.child("type"), kind, PROFILES),
        _ => {}
    }
    let at = at.child("localhostProfile");
    match (kind, profile.get("localhostProfile").and_then(Value::as_str)) {
        ("Localhost", None) => errors.required(&at, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(path)) => text::descending(errors, &at, path),
        (_, Some(_)) => {
            let shown = GoStruct::new(profile, &["type", "localhostProfile"]);
            errors.invalid(&at, &shown, "can only be set when seccomp type is Localhost");
        }
        _ => {}
    }
}

fn app_armor(errors: &mut Errors, at: &At<'_>, profile: &Value) {
    if profile.is_null() {
        return;
    }
    let local = profile.get("localhostProfile").and_then(Value::as_str);
    let path = at.child("localhostProfile");
    match (profile.text("type"), local) {
        ("Localhost", None | Some("")) => errors.required(&path, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(name)) if name.trim() != name => {
            errors.invalid(&path, name, "must not be padded with whitespace");
        }
        ("Localhost", Some(name)) if name.len() > 4095 => errors.too_long(&path, 4095),
        ("Localhost", _) => {}
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            errors.invalid(&path, name, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => errors.required(&at.child("type"), "type is required when appArmorProfile is set"),
        (other, _) => errors.unsupported(&at.child("type"), other, PROFILES),
    }
}
