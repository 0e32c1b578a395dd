//! ConfigMaps, Secrets, Nodes, LimitRanges, ResourceQuotas.

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::{affinity, labels, resources, text};
use crate::admit::field::{At, Errors, GoStruct};
use crate::admit::json::Read;
use capstan_semantics::Quantity;
use capstan_semantics::names;

const MAX_SIZE: usize = 1024 * 1024;

fn fixed(errors: &mut Errors, new: &Value, old: Option<&Value>, keys: &[&str]) {
    let Some(old) = old.filter(|old| old.flag("immutable")) else { return };
    let why = "field is immutable when `immutable` is set";
    if !new.flag("immutable") {
        errors.forbidden(&At::new("immutable"), why);
    }
    for key in keys.iter().filter(|key| new[**key] != old[**key]) {
        errors.forbidden(&At::new(key), why);
    }
}

/// A ConfigMap.
pub(super) fn config_map(errors: &mut Errors, map: &Value, old: Option<&Value>) {
    fixed(errors, map, old, &["data", "binaryData"]);
    let mut size = 0;
    for list in ["data", "binaryData"] {
        let at = At::new(list);
        for (key, value) in map.members(list) {
            errors.invalid_all(&at.key(key), key, text::config_key(key));
            if list == "data" && map["binaryData"].has(key) {
                errors.invalid(&at.key(key), key, "duplicate of key present in binaryData");
            }
            let length = value.as_str().unwrap_or_default().len();
            size += if list == "data" { length } else { length / 4 * 3 };
        }
    }
    if size > MAX_SIZE {
        errors.too_long(&At::new(""), MAX_SIZE);
    }
}

/// A Secret.
pub(super) fn secret(errors: &mut Errors, secret: &Value, old: Option<&Value>) {
    if let Some(old) = old {
        errors.immutable(&At::new("type"), &secret["type"], &old["type"]);
    }
    fixed(errors, secret, old, &["data"]);
    let (at, data) = (At::new("data"), &secret["data"]);
    let mut size = 0;
    for (key, value) in secret.members("data") {
        errors.invalid_all(&at.key(key), key, text::config_key(key));
        size += value.as_str().unwrap_or_default().len() / 4 * 3;
    }
    if size > MAX_SIZE {
        errors.too_long(&at, MAX_SIZE);
    }
    let need = |errors: &mut Errors, key: &str| {
        if data.get(key).is_none() {
            errors.required(&at.key(key), "");
        }
    };
    match secret.text("type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if secret["metadata"]["annotations"].text(key).is_empty() {
                errors.required(&At::new("metadata.annotations").key(key), "");
            }
        }
        "kubernetes.io/dockercfg" => docker(errors, &at, data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker(errors, &at, data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            errors.required(&at.key("username"), "");
            errors.required(&at.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if data.text("ssh-privatekey").is_empty() => {
            errors.required(&at.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            need(errors, "tls.crt");
            need(errors, "tls.key");
        }
        _ => {}
    }
}

fn docker(errors: &mut Errors, at: &At<'_>, data: &Value, key: &str) {
    let at = at.key(key);
    let Some(text) = data.get(key).and_then(Value::as_str) else { return errors.required(&at, "") };
    let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
    let why = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(Value::Array(_)) => "json: cannot unmarshal array into Go value of type map[string]interface {}".to_owned(),
        Ok(_) => "json: cannot unmarshal string into Go value of type map[string]interface {}".to_owned(),
        Err(_) => match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => "unexpected end of JSON input".to_owned(),
            Some(first) if b"{[\"".contains(first) => "unexpected end of JSON input".to_owned(),
            Some(first) => format!("invalid character {:?} looking for beginning of value", char::from(*first)),
        },
    };
    errors.invalid(&at, "<secret contents redacted>", &why);
}

/// A Node.
pub(super) fn node(errors: &mut Errors, node: &Value, old: Option<&Value>) {
    let spec = &node["spec"];
    taints(errors, &At::new("metadata.taints"), spec.list("taints"));
    for list in ["capacity", "allocatable"] {
        for (name, amount) in node["status"].members(list) {
            if let Ok(amount) = Quantity::from_json(amount) {
                resources::amount(errors, &At::new("status").child(list).child(name), name, amount);
            }
        }
    }
    let at = At::new("spec.podCIDRs");
    let ranges = spec.list("podCIDRs");
    match old {
        None => {
            for (index, range) in ranges.iter().enumerate() {
                text::cidr(errors, &at.index(index), range.as_str().unwrap_or_default());
            }
        }
        Some(old) => {
            let before = old["spec"].list("podCIDRs");
            if !before.is_empty() && before != ranges {
                errors.forbidden(&at, "node updates may not change podCIDR except from \"\" to valid");
            }
            let (now, was) = (spec.text("providerID"), old["spec"].text("providerID"));
            let at = At::new("spec.providerID");
            if !was.is_empty() && now.is_empty() {
                errors.invalid(&at, &Value::Null, "field cannot be cleared once set");
            } else if !was.is_empty() && now != was {
                errors.invalid(&at, &Value::Null, "field cannot be modified once set");
            }
        }
    }
    if old.is_some() {
        addresses(errors, node);
    }
}

fn addresses(errors: &mut Errors, node: &Value) {
    let at = At::new("status.addresses");
    let addresses = node["status"].list("addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            errors.duplicate(&at.index(index), &GoStruct::new(address, &["type", "address"]));
        }
    }
}

fn taints(errors: &mut Errors, at: &At<'_>, taints: &[Value]) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let at = at.index(index);
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        labels::key(errors, &at.child("key"), key);
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&at.child("value"), value, &wrong.join(";"));
        }
        affinity::effect(errors, &at.child("effect"), effect);
        if !seen.insert((key, effect)) {
            let shown = Taint { key, value, effect };
            errors.duplicate_because(&at, &shown, "taints must be unique by key and effect pair");
        }
    }
}

/// A taint as Go prints it.
struct Taint<'a> {
    key: &'a str,
    value: &'a str,
    effect: &'a str,
}

impl crate::admit::field::Show for Taint<'_> {
    fn show(&self) -> String {
        let Self { key, value, effect } = self;
        format!(r#"{{"Key":"{key}","Value":"{value}","Effect":"{effect}","TimeAdded":null}}"#)
    }
}

/// A ResourceQuota.
pub(super) fn quota(errors: &mut Errors, quota: &Value, old: Option<&Value>) {
    let at = At::new("spec");
    amounts(errors, &at.child("hard"), &quota["spec"]["hard"]);
    let scopes = quota["spec"].list("scopes");
    let path = at.child("scopes");
    let known = [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "VolumeAttributesClass",
        "CrossNamespacePodAffinity",
    ];
    for _ in scopes.iter().filter(|scope| !known.contains(&scope.as_str().unwrap_or_default())) {
        errors.invalid(&path, &quota["spec"]["scopes"], "unsupported scope");
    }
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.iter().any(|one| one == scope)) {
            errors.invalid(&path, &quota["spec"]["scopes"], "conflicting scopes");
        }
    }
    if let Some(old) = old {
        let set = |quota: &Value| -> BTreeSet<String> {
            quota["spec"].list("scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        if set(quota) != set(old) {
            errors.invalid(&path, &quota["spec"]["scopes"], "field is immutable");
        }
    }
}

/// The status of a ResourceQuota.
pub(super) fn quota_status(errors: &mut Errors, quota: &Value) {
    for list in ["hard", "used"] {
        amounts(errors, &At::new("status").child(list), &quota["status"][list]);
    }
}

fn amounts(errors: &mut Errors, at: &At<'_>, amounts: &Value) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let at = at.key(name);
        resources::name(errors, &at, name);
        if !name.contains('/') && !resources::is_quota(name) {
            errors.invalid(&at, name, "must be a standard resource for quota");
        }
        if let Ok(amount) = Quantity::from_json(amount) {
            resources::amount(errors, &at, name, amount);
        }
    }
}

/// A LimitRange.
pub(super) fn limit_range(errors: &mut Errors, range: &Value) {
    let at = At::new("spec.limits");
    let mut seen = BTreeSet::new();
    for (index, item) in range["spec"].list("limits").iter().enumerate() {
        let at = at.index(index);
        let kind = item.text("type");
        let wrong = names::qualified_name(kind);
        let known = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) || kind.contains('/');
        if wrong.is_empty() && !known {
            errors.invalid(&at.child("type"), kind, "must be a standard limit type or fully qualified");
        }
        errors.invalid_all(&at.child("type"), kind, wrong);
        if !seen.insert(kind) {
            errors.duplicate(&at.child("type"), kind);
        }
        let mut names = BTreeSet::new();
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            if kind == "Pod" && list.starts_with("default") {
                if item.members(list).next().is_some() {
                    errors.forbidden(&at.child(list), "may not be specified when `type` is 'Pod'");
                }
                continue;
            }
            let path = at.child(list);
            for (name, _) in item.members(list) {
                match kind {
                    "Pod" | "Container" => resources::container_name(errors, &path.key(name), name),
                    _ => drop(resources::name(errors, &path.key(name), name)),
                }
                names.insert(name);
            }
        }
        if kind == "PersistentVolumeClaim" && !item["min"].has("storage") && !item["max"].has("storage") {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.required(&at.child("limits"), why);
        }
        names.into_iter().for_each(|name| limits(errors, &at, item, name));
    }
}

/// The limits of one resource, which must be consistent.
fn limits(errors: &mut Errors, at: &At<'_>, item: &Value, name: &str) {
    let amount = |list: &str| Quantity::from_json(&item[list][name]).ok();
    let (min, max, default, request) = (amount("min"), amount("max"), amount("default"), amount("defaultRequest"));
    let mut above =
        |list: &str, shown: Option<Quantity>, low: (&str, Option<Quantity>), high: (&str, Option<Quantity>)| {
            if let (Some(shown), (what, Some(low)), (than, Some(high))) = (shown, low, high)
                && low > high
            {
                let why = format!("{what} value {low} is greater than {than} value {high}");
                errors.invalid(&at.child(list).key(name), &shown.to_string(), &why);
            }
        };
    above("min", min, ("min", min), ("max", max));
    above("defaultRequest", request, ("min", min), ("default request", request));
    above("defaultRequest", request, ("default request", request), ("max", max));
    above("defaultRequest", request, ("default request", request), ("default limit", default));
    above("default", min, ("min", min), ("default", default));
    above("default", max, ("default", default), ("max", max));
    let ratio = amount("maxLimitRequestRatio");
    if let Some(ratio) = ratio.filter(|ratio| *ratio < Quantity::of(1)) {
        let path = at.child("maxLimitRequestRatio");
        errors.invalid(&path.key(name), &ratio.to_string(), &format!("ratio {ratio} is less than 1"));
    }
    if let (Some(ratio), Some(min), Some(max)) = (ratio, min, max) {
        let limit = max.milli() as f64 / min.milli() as f64;
        if ratio.milli() as f64 / 1000.0 > limit {
            let path = at.child("maxLimitRequestRatio");
            let why = format!("ratio {ratio} is greater than max/min = {limit:.6}");
            errors.invalid(&path.key(name), &ratio.to_string(), &why);
        }
    }
}
