//! Pods and pod templates.

use std::collections::BTreeSet;

use serde_json::Value;

use super::container::{self, Pod};
use super::resources::{self, Of};
use super::{affinity, labels, security, text, volume};
use crate::admit::field::{At, Errors, GoStruct};
use crate::admit::json::Read;
use capstan_semantics::names;

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Whether a spec is that of a pod or of a template, which may be completed later.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form<'a> {
    /// A pod of that name.
    Pod(&'a str),
    Template,
}

/// A pod: metadata and spec.
pub(super) fn pod(errors: &mut Errors, pod: &Value) {
    let (meta, at) = (&pod["metadata"], At::new("spec"));
    let spec_ = &pod["spec"];
    annotations(errors, &At::new("metadata.annotations"), &meta["annotations"], spec_);
    spec(errors, &at, spec_, Form::Pod(meta.text("name")));
    if spec_.text("serviceAccountName").is_empty() {
        tokens_without_account(errors, &at.child("volumes"), spec_.list("volumes"));
    }
    text::nonnegative(
        errors,
        &at.child("terminationGracePeriodSeconds"),
        spec_.number("terminationGracePeriodSeconds"),
    );
    for list in ["containers", "initContainers"] {
        let at = at.child(list);
        for (index, container) in spec_.list(list).iter().enumerate() {
            container::image_space(errors, &at.index(index), container);
        }
    }
}

/// A new pod.
pub(super) fn create(errors: &mut Errors, pod: &Value) {
    self::pod(errors, pod);
    let (at, spec) = (At::new("spec"), &pod["spec"]);
    if !spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(&at.child("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
        errors.forbidden(&at.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

fn annotations(errors: &mut Errors, at: &At<'_>, annotations: &Value, spec: &Value) {
    if annotations.has(MIRROR) && spec.text("nodeName").is_empty() {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&at.key(MIRROR), annotations.text(MIRROR), why);
    }
    if let Some(cost) = annotations.get(DELETION_COST).and_then(Value::as_str) {
        let good = cost.parse::<i32>().is_ok() && (cost == "0" || !cost.starts_with(['+', '0']));
        if !good {
            errors.invalid(&at.key(DELETION_COST), cost, "must be a 32bit integer");
        }
    }
}

fn tokens_without_account(errors: &mut Errors, at: &At<'_>, volumes: &[Value]) {
    for (index, volume) in volumes.iter().enumerate() {
        let at = at.index(index);
        let (projected, at) = (&volume["projected"], at.child("projected"));
        let at = at.child("sources");
        for (index, source) in projected.list("sources").iter().enumerate() {
            if source.has("serviceAccountToken") {
                let why = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&at.index(index).child("serviceAccountToken"), why);
            }
        }
    }
}

/// The pod template of a controller.
pub(super) fn template(errors: &mut Errors, at: &At<'_>, template: &Value) {
    let meta = &template["metadata"];
    labels::labels(errors, &at.child("labels"), &meta["labels"]);
    labels::annotations(errors, &at.child("annotations"), &meta["annotations"]);
    annotations(errors, &at.child("annotations"), &meta["annotations"], &template["spec"]);
    spec(errors, &at.child("spec"), &template["spec"], Form::Template);
    if !template["spec"].list("ephemeralContainers").is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        errors.forbidden(&at.child("spec").child("ephemeralContainers"), why);
    }
}

/// The spec of a pod or template.
pub(super) fn spec(errors: &mut Errors, at: &At<'_>, spec: &Value, form: Form<'_>) {
    let grace = spec.number("terminationGracePeriodSeconds");
    if grace.is_none() {
        errors.required(&at.child("terminationGracePeriodSeconds"), "");
    }
    let name = match form {
        Form::Pod(name) => name,
        Form::Template => "",
    };
    let pod = Pod {
        volumes: volume::volumes(errors, &at.child("volumes"), spec.list("volumes"), name),
        claims: claims(errors, &at.child("resourceClaims"), spec.list("resourceClaims")),
        grace,
        restart_policy: spec.text("restartPolicy"),
        host_users: spec.get("hostUsers").is_none_or(|users| users != false),
        regular: spec.list("containers"),
        init: spec.list("initContainers"),
    };
    container::regular(errors, &at.child("containers"), &pod);
    container::init(errors, &at.child("initContainers"), &pod);
    container::ephemeral(errors, &at.child("ephemeralContainers"), spec.list("ephemeralContainers"), &pod);
    if spec.has("resources") {
        pod_resources(errors, at, spec, &pod.claims);
    }
    host_network(errors, at, spec, form);
    policies(errors, at, spec);
    labels::labels(errors, &at.child("nodeSelector"), &spec["nodeSelector"]);
    security::pod(errors, &at.child("securityContext"), spec);
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&at.child("shareProcessNamespace"), &true, why);
    }
    affinity::affinity(errors, &at.child("affinity"), &spec["affinity"]);
    dns(errors, &at.child("dnsConfig"), spec);
    gates(errors, at, spec);
    let constraints = spec.list("topologySpreadConstraints");
    affinity::spread(errors, &at.child("topologySpreadConstraints"), constraints);
    host_users(errors, at, spec);
    rest(errors, at, spec);
    file_keys(errors, at, spec);
}

/// Fields without cross-field rules.
fn rest(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let subdomain = |errors: &mut Errors, key: &str| {
        let name = spec.text(key);
        if !name.is_empty() {
            errors.invalid_all(&at.child(key), name, names::dns_subdomain(name));
        }
    };
    let label = |errors: &mut Errors, key: &str| {
        let name = spec.text(key);
        if !name.is_empty() {
            errors.invalid_all(&at.child(key), name, names::dns_label(name));
        }
    };
    subdomain(errors, "hostnameOverride");
    subdomain(errors, "serviceAccountName");
    subdomain(errors, "nodeName");
    if let Some(seconds) = spec.number("activeDeadlineSeconds") {
        let wrong = text::between(seconds, 1, i64::from(i32::MAX));
        errors.invalid_all(&at.child("activeDeadlineSeconds"), &seconds, wrong);
    }
    label(errors, "hostname");
    label(errors, "subdomain");
    affinity::tolerations(errors, &at.child("tolerations"), spec.list("tolerations"));
    let aliases = at.child("hostAliases");
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        let at = aliases.index(index);
        text::address(errors, &at.child("ip"), alias.text("ip"));
        let at = at.child("hostnames");
        for (index, name) in alias.list("hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.invalid_all(&at.index(index), name, names::dns_subdomain(name));
        }
    }
    subdomain(errors, "priorityClassName");
    if let Some(name) = spec.get("runtimeClassName").and_then(Value::as_str) {
        errors.invalid_all(&at.child("runtimeClassName"), name, names::dns_subdomain(name));
    }
    if let Some(policy) = spec.get("preemptionPolicy").and_then(Value::as_str) {
        choice(errors, &at.child("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
    if spec.has("overhead") {
        let limits = serde_json::json!({"limits": spec["overhead"]});
        resources::requirements(errors, &at.child("overhead"), &limits, &BTreeSet::new(), Of::Container);
    }
    if spec.has("os") {
        let at = at.child("os");
        match spec["os"].text("name") {
            "" => errors.required(&at.child("name"), ""),
            "linux" | "windows" => {}
            other => errors.unsupported(&at, other, &["linux", "windows"]),
        }
    }
}

fn choice(errors: &mut Errors, at: &At<'_>, value: &str, values: &[&str]) {
    match value {
        "" => errors.required(at, ""),
        value if !values.contains(&value) => errors.unsupported(at, value, values),
        _ => {}
    }
}

fn policies(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let restart = &["Always", "OnFailure", "Never"];
    choice(errors, &at.child("restartPolicy"), spec.text("restartPolicy"), restart);
    let dns = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    choice(errors, &at.child("dnsPolicy"), spec.text("dnsPolicy"), dns);
}

fn claims<'a>(errors: &mut Errors, at: &At<'_>, claims: &'a [Value]) -> BTreeSet<&'a str> {
    let mut known = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let at = at.index(index);
        match claim.text("name") {
            "" => errors.required(&at.child("name"), ""),
            name if known.contains(name) => errors.duplicate(&at.child("name"), name),
            name => {
                errors.invalid_all(&at.child("name"), name, names::dns_label(name));
                known.insert(name);
            }
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        match sources.iter().filter(|key| claim.has(key)).count() {
            0 => {
                let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.invalid(&at, &shown(claim), why);
            }
            1 => {}
            _ => {
                let why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.invalid(&at, &shown(claim), why);
            }
        }
        for key in sources {
            if let Some(name) = claim.get(key).and_then(Value::as_str) {
                errors.invalid_all(&at.child(key), name, names::dns_subdomain(name));
            }
        }
    }
    known
}

fn shown(claim: &Value) -> GoStruct {
    GoStruct::new(claim, &["name", "resourceClaimName", "resourceClaimTemplateName"])
}

fn pod_resources(errors: &mut Errors, at: &At<'_>, spec: &Value, claims: &BTreeSet<&str>) {
    let (at, wanted) = (at.child("resources"), &spec["resources"]);
    if wanted.has("claims") {
        errors.forbidden(&at.child("claims"), "claims may not be set for Resources at pod-level");
    }
    resources::requirements(errors, &at, wanted, claims, Of::Pod);
    resources::consistent(errors, &at, spec);
}

fn host_network(errors: &mut Errors, at: &At<'_>, spec: &Value, form: Form<'_>) {
    if !spec.flag("hostNetwork") {
        return;
    }
    let at = at.child("containers");
    for (index, container) in spec.list("containers").iter().enumerate() {
        let at = at.index(index);
        let at = at.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let host = port.number("hostPort").unwrap_or(0);
            if (form != Form::Template || host != 0) && host != port.number("containerPort").unwrap_or(0) {
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&at.index(index).child("hostPort"), &host, why);
            }
        }
    }
}

fn dns(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let config = &spec["dnsConfig"];
    let servers = config.list("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if config.is_null() {
            return errors.required(at, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&at.child("nameservers"), why);
        }
    }
    let path = at.child("nameservers");
    if servers.len() > 3 {
        errors.invalid(&path, &config["nameservers"], "must not have more than 3 nameservers");
    }
    for (index, server) in servers.iter().enumerate() {
        text::address(errors, &path.index(index), server.as_str().unwrap_or_default());
    }
    let (searches, path) = (config.list("searches"), at.child("searches"));
    if searches.len() > 32 {
        errors.invalid(&path, &config["searches"], "must not have more than 32 search paths");
    }
    for (index, search) in searches.iter().filter_map(Value::as_str).enumerate().filter(|(_, search)| *search != ".") {
        let name = search.strip_suffix('.').unwrap_or(search);
        // Underscores are valid only here.
        if !names::dns_subdomain(&name.replace('_', "a")).is_empty() {
            let label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
            let why = format!(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
                 must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '{label}(\\.{label})*')"
            );
            errors.invalid(&path.index(index), name, &why);
        }
    }
    let path = at.child("options");
    for (index, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&path.index(index), "must not be empty");
        }
    }
}

fn gates(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let path = at.child("readinessGates");
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        labels::key(errors, &path.index(index).child("conditionType"), gate.text("conditionType"));
    }
    let path = at.child("schedulingGates");
    let mut seen = BTreeSet::new();
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        labels::key(errors, &path.index(index), name);
        if !seen.insert(name) {
            errors.duplicate(&path.index(index), name);
        }
    }
}

fn host_users(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    if spec.get("hostUsers") != Some(&Value::Bool(false)) {
        return;
    }
    for (key, name) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(key) {
            errors.forbidden(&at.child(name), "when `hostUsers` is false");
        }
    }
    for list in ["containers", "initContainers"] {
        let at = at.child(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            if !container.list("volumeDevices").is_empty() {
                errors.forbidden(&at.index(index).child("volumeDevices"), "when `hostUsers` is false");
            }
        }
    }
}

/// Environment variables from files need an `emptyDir` volume.
fn file_keys(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let at = at.child(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            let at = at.index(index);
            let at = at.child("env");
            for (index, variable) in container.list("env").iter().enumerate() {
                let file = &variable["valueFrom"]["fileKeyRef"];
                if file.is_null() {
                    continue;
                }
                let at = at.index(index);
                let at = at.child("valueFrom").child("fileKeyRef").child("volumeName").to_string();
                let (at, name) = (At::new(&at), file.text("volumeName"));
                match spec.list("volumes").iter().find(|volume| volume.text("name") == name) {
                    None => errors.not_found(&at, name),
                    Some(volume) if !volume.has("emptyDir") => {
                        errors.invalid(&at, name, "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
