//! Mutability of pods.

use serde_json::Value;

use super::{affinity, diff, labels, pod, text};
use crate::admit::field::{At, Errors};
use crate::admit::json::{Fill, Read};
use capstan_semantics::names;

const MIRROR: &str = "kubernetes.io/config.mirror";
const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                         existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                         previously negative)";

/// An update of a pod.
pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    pod::pod(errors, new);
    mirror(errors, new, old);
    let at = At::new("spec");
    let (spec, before) = (&new["spec"], &old["spec"]);
    for list in ["containers", "initContainers"] {
        let at = at.child(list);
        if spec.list(list).len() != before.list(list).len() {
            return errors.forbidden(&at, "pod updates may not add or remove containers");
        }
        for (index, container) in spec.list(list).iter().enumerate() {
            if container.text("image").is_empty() {
                errors.required(&at.index(index).child("image"), "");
            }
            super::container::image_space(errors, &at.index(index), container);
        }
    }
    if !deadline(errors, &at.child("activeDeadlineSeconds"), spec, before) {
        return;
    }
    added_tolerations(errors, &at.child("tolerations"), spec.list("tolerations"), before.list("tolerations"));
    gates(errors, &at.child("schedulingGates"), spec, before);
    if spec == before {
        return;
    }
    let mut munged = spec.clone();
    unchanged(errors, &at, &mut munged, before);
    if munged != *before {
        errors.forbidden(&at, &format!("{UPDATABLE}\n{}", diff::diff(before, &munged)));
    }
}

fn mirror(errors: &mut Errors, new: &Value, old: &Value) {
    let path = At::new("metadata.annotations");
    let at = path.key(MIRROR);
    let (new, old) = (&new["metadata"]["annotations"], &old["metadata"]["annotations"]);
    match (old.get(MIRROR), new.get(MIRROR)) {
        (Some(before), after) if after != Some(before) => {
            errors.forbidden(&at, "may not remove or update mirror pod annotation");
        }
        (None, Some(_)) => errors.forbidden(&at, "may not add mirror pod annotation"),
        _ => {}
    }
}

/// Validates `activeDeadlineSeconds`; whether to continue validation.
fn deadline(errors: &mut Errors, at: &At<'_>, spec: &Value, before: &Value) -> bool {
    match (spec.number("activeDeadlineSeconds"), before.number("activeDeadlineSeconds")) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.invalid_all(at, &new, text::between(new, 0, i64::from(i32::MAX)));
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.invalid(at, &new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(at, &Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn added_tolerations(errors: &mut Errors, at: &At<'_>, new: &[Value], old: &[Value]) {
    let plain = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.drop("tolerationSeconds");
        toleration
    };
    let kept = old.iter().all(|old| new.iter().any(|new| plain(new) == plain(old)));
    if !kept {
        return errors.forbidden(at, "existing toleration can not be modified except its tolerationSeconds");
    }
    affinity::tolerations(errors, at, new);
}

fn gates(errors: &mut Errors, at: &At<'_>, spec: &Value, before: &Value) {
    let old = before.list("schedulingGates");
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !old.iter().any(|one| one.text("name") == name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&at.index(index).child("name"), &why);
        }
    }
}

/// Restores mutable fields to their old values, so that only illegal changes remain.
fn unchanged(errors: &mut Errors, at: &At<'_>, spec: &mut Value, before: &Value) {
    for list in ["containers", "initContainers"] {
        for (container, old) in spec.items(list).zip(before.list(list)) {
            container.put("image", old["image"].clone());
        }
    }
    let keep = |spec: &mut Value, key: &str| match before.get(key) {
        Some(value) => spec.put(key, value.clone()),
        None => drop(spec.drop(key)),
    };
    ["activeDeadlineSeconds", "schedulingGates", "tolerations"].into_iter().for_each(|key| keep(spec, key));
    let grace = "terminationGracePeriodSeconds";
    if before.number(grace).is_some_and(|seconds| seconds < 0) && spec.number(grace) == Some(1) {
        keep(spec, grace);
    }
    if before.list("schedulingGates").is_empty() {
        return;
    }
    // The node affinity of a gated pod may be narrowed.
    let (new, old) = (spec["nodeSelector"].clone(), &before["nodeSelector"]);
    if new != *old {
        let kept = before.members("nodeSelector").all(|(key, value)| new.get(key) == Some(value));
        if !kept {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.invalid(&at.child("nodeSelector"), &new, why);
        }
        keep(spec, "nodeSelector");
    }
    let affinity = |spec: &Value| spec["affinity"]["nodeAffinity"].clone();
    if affinity(spec) != affinity(before) {
        node_affinity(errors, at, &affinity(spec), &affinity(before));
        let mut kept = spec["affinity"].clone();
        match affinity(before) {
            Value::Null => drop(kept.drop("nodeAffinity")),
            old => {
                if kept.is_null() {
                    kept = Value::Object(serde_json::Map::new());
                }
                kept.put("nodeAffinity", old);
            }
        }
        if kept.as_object().is_none_or(serde_json::Map::is_empty) && !before.has("affinity") {
            spec.drop("affinity");
        } else {
            spec.put("affinity", kept);
        }
    }
}

fn node_affinity(errors: &mut Errors, at: &At<'_>, new: &Value, old: &Value) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let (before, after) = (old[required].list("nodeSelectorTerms"), new[required].list("nodeSelectorTerms"));
    let path = format!("{at}.affinity.nodeAffinity.{required}.nodeSelectorTerms");
    let at = At::new(&path);
    if !before.is_empty() && before.len() != after.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid(&at, &new[required]["nodeSelectorTerms"], why);
    }
    for (index, (old, new)) in before.iter().zip(after).enumerate() {
        let grown = ["matchExpressions", "matchFields"].iter().all(|key| new.list(key).starts_with(old.list(key)));
        let empty = old.list("matchExpressions").is_empty() && old.list("matchFields").is_empty();
        if !grown || (empty && new != old) {
            errors.invalid(&at.index(index), new, "only additions are allowed (no mutations or deletions)");
        }
    }
}

/// An update of the ephemeral containers of a pod.
pub(super) fn ephemeral(errors: &mut Errors, new: &Value, old: &Value) {
    pod::pod(errors, new);
    let at = At::new("spec.ephemeralContainers");
    for container in old["spec"].list("ephemeralContainers") {
        let name = container.text("name");
        match new["spec"].list("ephemeralContainers").iter().find(|new| new.text("name") == name) {
            None => errors.forbidden(&at, &format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(new) if new != container => {
                let diff = diff::diff(container, new);
                errors.forbidden(&at, &format!("existing ephemeral containers {name:?} may not be changed\n{diff}"));
            }
            Some(_) => {}
        }
    }
}

/// An update of the status of a pod.
pub(super) fn status(errors: &mut Errors, new: &Value, old: &Value) {
    mirror(errors, new, old);
    let at = At::new("status");
    let (status, before, spec) = (&new["status"], &old["status"], &old["spec"]);
    let conditions = at.child("conditions");
    for (index, condition) in status.list("conditions").iter().enumerate() {
        let at = conditions.index(index);
        if let Some(generation) = condition.number("observedGeneration").filter(|generation| *generation < 0) {
            errors.invalid(&at.child("observedGeneration"), &generation, "must be a non-negative integer");
        }
        let kind = condition.text("type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            labels::key(errors, &at.child("Type"), kind);
        }
    }
    let (nominated, was) = (status.text("nominatedNodeName"), before.text("nominatedNodeName"));
    if nominated != was && !nominated.is_empty() {
        let at = at.child("nominatedNodeName");
        errors.invalid_all(&at, nominated, names::dns_subdomain(nominated));
        if !spec.text("nodeName").is_empty() {
            errors.forbidden(&at, "may not be set on pods that are already bound to a node");
        }
    }
    errors.immutable(&at.child("qosClass"), &status["qosClass"], &before["qosClass"]);
    for (list, containers) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        restarts(errors, &at.child(list), status.list(list), before.list(list), spec, containers);
    }
    for (one, many) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        addresses(errors, &at.child(many), status, one, many);
    }
}

/// A terminated container may not run again, unless its restart policy allows it.
fn restarts(errors: &mut Errors, at: &At<'_>, new: &[Value], old: &[Value], spec: &Value, containers: &str) {
    for (index, before) in old.iter().enumerate() {
        let ended = &before["state"]["terminated"];
        if ended.is_null() {
            continue;
        }
        let name = before.text("name");
        let Some(now) = new.iter().find(|status| status.text("name") == name) else { continue };
        if !now["state"]["terminated"].is_null() {
            continue;
        }
        let container = spec.list(containers).iter().find(|container| container.text("name") == name);
        let own = container.map(|container| container.text("restartPolicy")).filter(|policy| !policy.is_empty());
        let ruled = container.is_some_and(|container| !container.list("restartPolicyRules").is_empty());
        let failed = ended.number("exitCode").unwrap_or(0) != 0;
        let may = match own.unwrap_or(spec.text("restartPolicy")) {
            "Always" => true,
            "OnFailure" => failed,
            _ => ruled,
        };
        // An init container that succeeded stays terminated, whatever the pod's restart policy.
        let done = containers == "initContainers"
            && own != Some("Always")
            && !failed
            && spec.text("restartPolicy") != "Always";
        if !may || done {
            errors.forbidden(&at.index(index).child("state"), "may not be transitioned to non-terminated state");
        }
    }
}

fn addresses(errors: &mut Errors, at: &At<'_>, status: &Value, one: &str, many: &str) {
    let all = status.list(many);
    let mut families = Vec::new();
    for (index, address) in all.iter().enumerate() {
        if let Some(ip) = text::address(errors, &at.index(index), address.text("ip")) {
            families.push(ip.is_ipv4());
        }
    }
    if all.len() > 2 || (all.len() == 2 && families.len() == 2 && families[0] == families[1]) {
        errors.invalid(at, &status[many], "may specify no more than one IP for each IP family");
    }
    if let Some(first) = all.first().map(|first| first.text("ip")).filter(|first| *first != status.text(one)) {
        let why = format!("must be equal to `{one}`");
        errors.invalid(&at.index(0).child("ip"), first, &why);
    }
}
