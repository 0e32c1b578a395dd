//! Containers of a pod: regular, init and ephemeral.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::resources::{self, Of};
use super::{env, mount, probe, security, text};
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use capstan_semantics::names;

/// Context from the pod.
pub(super) struct Pod<'a> {
    /// Valid volumes by name.
    pub(super) volumes: BTreeMap<&'a str, &'a Value>,
    /// Names of resource claims.
    pub(super) claims: BTreeSet<&'a str>,
    pub(super) grace: Option<i64>,
    pub(super) restart_policy: &'a str,
    pub(super) host_users: bool,
    pub(super) regular: &'a [Value],
    pub(super) init: &'a [Value],
}

const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];

/// The regular containers.
pub(super) fn regular(errors: &mut Errors, at: &At<'_>, pod: &Pod<'_>) {
    if pod.regular.is_empty() {
        return errors.required(at, "");
    }
    let mut names = BTreeSet::new();
    for (index, container) in pod.regular.iter().enumerate() {
        let at = at.index(index);
        common(errors, &at, container, pod);
        if !names.insert(container.text("name")) {
            errors.duplicate(&at.child("name"), container.text("name"));
        }
        if container.has("lifecycle") {
            probe::lifecycle(errors, &at.child("lifecycle"), &container["lifecycle"], pod.grace);
        }
        probe::probes(errors, &at, container, pod.grace);
        restart_policy(errors, &at, container);
    }
    host_ports(errors, at, pod.regular.iter().enumerate());
}

/// The init containers.
pub(super) fn init(errors: &mut Errors, at: &At<'_>, pod: &Pod<'_>) {
    let mut names: BTreeSet<&str> = pod.regular.iter().map(|container| container.text("name")).collect();
    for (index, container) in pod.init.iter().enumerate() {
        let here = at.index(index);
        common(errors, &here, container, pod);
        restart_policy(errors, &here, container);
        let name = container.text("name");
        if names.contains(name) {
            errors.duplicate(&here.child("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        host_ports(errors, at, [(0, container)].into_iter());
        let sidecar = container.text("restartPolicy") == "Always";
        if sidecar {
            if container.has("lifecycle") {
                probe::lifecycle(errors, &here.child("lifecycle"), &container["lifecycle"], pod.grace);
            }
            probe::probes(errors, &here, container, pod.grace);
        } else {
            for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(key) {
                    errors
                        .forbidden(&here.child(key), "may not be set for init containers without restartPolicy=Always");
                }
            }
            for (index, policy) in container.list("resizePolicy").iter().enumerate() {
                if policy.text("restartPolicy") == "RestartContainer" {
                    let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    let at = here.child("resizePolicy");
                    errors.invalid(&at.index(index).child("restartPolicy"), "RestartContainer", why);
                }
            }
        }
    }
}

/// The ephemeral containers.
pub(super) fn ephemeral(errors: &mut Errors, at: &At<'_>, containers: &[Value], pod: &Pod<'_>) {
    let others: BTreeSet<&str> = pod.regular.iter().chain(pod.init).map(|container| container.text("name")).collect();
    let mut names = others.clone();
    for (index, container) in containers.iter().enumerate() {
        let at = at.index(index);
        common(errors, &at, container, pod);
        image_space(errors, &at, container);
        if !names.insert(container.text("name")) {
            errors.duplicate(&at.child("name"), container.text("name"));
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&at.child("targetContainerName"), target);
        }
        let refused =
            ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy", "restartPolicy"];
        let resources = container["resources"].as_object().is_some_and(|resources| !resources.is_empty());
        let why = "cannot be set for an Ephemeral Container";
        for key in refused.into_iter().filter(|key| container.has(key)).chain(resources.then_some("resources")) {
            errors.forbidden(&at.child(key), why);
        }
        let mounts = at.child("volumeMounts");
        for (index, mount) in container.list("volumeMounts").iter().enumerate() {
            for key in ["subPath", "subPathExpr"].into_iter().filter(|key| !mount.text(key).is_empty()) {
                errors.forbidden(&mounts.index(index).child(key), why);
            }
        }
    }
}

/// Images of pods must not have leading or trailing space. Templates may, as they can be completed later.
pub(super) fn image_space(errors: &mut Errors, at: &At<'_>, container: &Value) {
    let image = container.text("image");
    if image.trim() != image {
        errors.invalid(&at.child("image"), image, "must not have leading or trailing whitespace");
    }
}

fn common(errors: &mut Errors, at: &At<'_>, container: &Value, pod: &Pod<'_>) {
    match container.text("name") {
        "" => errors.required(&at.child("name"), ""),
        name => errors.invalid_all(&at.child("name"), name, names::dns_label(name)),
    }
    if container.text("image").is_empty() {
        errors.required(&at.child("image"), "");
    }
    match container.text("terminationMessagePolicy") {
        "File" | "FallbackToLogsOnError" => {}
        "" => errors.required(&at.child("terminationMessagePolicy"), ""),
        other => errors.unsupported(&at.child("terminationMessagePolicy"), other, &["File", "FallbackToLogsOnError"]),
    }
    ports(errors, &at.child("ports"), container.list("ports"));
    env::variables(errors, &at.child("env"), container.list("env"));
    env::sources(errors, &at.child("envFrom"), container.list("envFrom"));
    mount::mounts(errors, &at.child("volumeMounts"), container, &pod.volumes);
    mount::devices(errors, &at.child("volumeDevices"), container, &pod.volumes);
    pull_policy(errors, &at.child("imagePullPolicy"), container.text("imagePullPolicy"));
    let resources = &container["resources"];
    resources::requirements(errors, &at.child("resources"), resources, &pod.claims, Of::Container);
    resize_policy(errors, &at.child("resizePolicy"), container.list("resizePolicy"), pod.restart_policy);
    security::container(errors, &at.child("securityContext"), &container["securityContext"], pod.host_users);
}

/// The image pull policy.
pub(super) fn pull_policy(errors: &mut Errors, at: &At<'_>, policy: &str) {
    match policy {
        "" => errors.required(at, ""),
        policy if !PULL_POLICIES.contains(&policy) => errors.unsupported(at, policy, PULL_POLICIES),
        _ => {}
    }
}

fn ports(errors: &mut Errors, at: &At<'_>, ports: &[Value]) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = at.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let wrong = text::port_name(name);
            if !wrong.is_empty() {
                errors.invalid_all(&at.child("name"), name, wrong);
            } else if !seen.insert(name) {
                errors.duplicate(&at.child("name"), name);
            }
        }
        match port.number("containerPort").unwrap_or(0) {
            0 => errors.required(&at.child("containerPort"), ""),
            number => errors.invalid_all(&at.child("containerPort"), &number, text::port_number(number)),
        }
        if let Some(number) = port.number("hostPort").filter(|number| *number != 0) {
            errors.invalid_all(&at.child("hostPort"), &number, text::port_number(number));
        }
        match port.text("protocol") {
            "" => errors.required(&at.child("protocol"), ""),
            "TCP" | "UDP" | "SCTP" => {}
            other => errors.unsupported(&at.child("protocol"), other, &["SCTP", "TCP", "UDP"]),
        }
    }
}

fn host_ports<'a>(errors: &mut Errors, at: &At<'_>, containers: impl Iterator<Item = (usize, &'a Value)>) {
    let mut seen = BTreeSet::new();
    for (index, container) in containers {
        let here = at.index(index);
        let ports = here.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let Some(number) = port.number("hostPort").filter(|number| *number != 0) else { continue };
            let key = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
            if !seen.insert(key.clone()) {
                errors.duplicate(&ports.index(index).child("hostPort"), &key);
            }
        }
    }
}

fn resize_policy(errors: &mut Errors, at: &At<'_>, policies: &[Value], restart_policy: &str) {
    let mut seen = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if !seen.insert(resource) {
            errors.duplicate(&at.index(index), resource);
        }
        match resource {
            "cpu" | "memory" => {}
            "" => errors.required(at, ""),
            other => errors.unsupported(at, other, &["cpu", "memory"]),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(at, ""),
            other => errors.unsupported(at, other, &["NotRequired", "RestartContainer"]),
        }
        if restart_policy == "Never" && restart != "NotRequired" {
            errors.invalid(at, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

fn restart_policy(errors: &mut Errors, at: &At<'_>, container: &Value) {
    let rules = container.list("restartPolicyRules");
    let path = at.child("restartPolicy");
    match container.get("restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => errors.required(&path, "must specify restartPolicy when restart rules are used"),
        Some("Always" | "Never" | "OnFailure") => {}
        Some(other) => errors.unsupported(&path, other, &["Always", "Never", "OnFailure"]),
    }
    let path = at.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.too_many(&path, rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = path.index(index);
        if !["Restart", "RestartAllContainers"].contains(&rule.text("action")) {
            errors.unsupported(&at.child("action"), rule.text("action"), &["Restart", "RestartAllContainers"]);
        }
        let codes = &rule["exitCodes"];
        if codes.is_null() {
            errors.required(&at.child("exitCodes"), "must be specified");
            continue;
        }
        let at = at.child("exitCodes");
        if !["In", "NotIn"].contains(&codes.text("operator")) {
            errors.unsupported(&at.child("operator"), codes.text("operator"), &["In", "NotIn"]);
        }
        if codes.list("values").len() > 255 {
            errors.too_many(&at.child("values"), codes.list("values").len(), 255);
        }
    }
}
