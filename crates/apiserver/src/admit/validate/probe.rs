//! Probes and lifecycle hooks.

use serde_json::Value;

use super::text;
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;

/// The probes of a container.
pub(super) fn probes(errors: &mut Errors, at: &At<'_>, container: &Value, grace: Option<i64>) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(it) = container.get(key).filter(|probe| !probe.is_null()) else { continue };
        let at = at.child(key);
        probe(errors, &at, it, grace);
        if key == "readinessProbe" {
            if let Some(seconds) = it.number("terminationGracePeriodSeconds") {
                let why = "must not be set for readinessProbes";
                errors.invalid(&at.child("terminationGracePeriodSeconds"), &seconds, why);
            }
        } else if let Some(threshold) = it.number("successThreshold").filter(|threshold| *threshold != 1) {
            errors.invalid(&at.child("successThreshold"), &threshold, "must be 1");
        }
    }
}

fn probe(errors: &mut Errors, at: &At<'_>, probe: &Value, grace: Option<i64>) {
    handler(errors, at, probe, grace);
    for key in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        text::nonnegative(errors, &at.child(key), probe.number(key));
    }
    if let Some(seconds) = probe.number("terminationGracePeriodSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&at.child("terminationGracePeriodSeconds"), &seconds, "must be greater than 0");
    }
}

/// `postStart` and `preStop` hooks.
pub(super) fn lifecycle(errors: &mut Errors, at: &At<'_>, lifecycle: &Value, grace: Option<i64>) {
    for key in ["postStart", "preStop"] {
        if lifecycle.has(key) {
            handler(errors, &at.child(key), &lifecycle[key], grace);
        }
    }
}

fn handler(errors: &mut Errors, at: &At<'_>, holder: &Value, grace: Option<i64>) {
    let mut count = 0;
    for key in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = holder.get(key).filter(|action| !action.is_null()) else { continue };
        count += 1;
        let at = at.child(key);
        if count > 1 {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        match key {
            "exec" if action.list("command").is_empty() => errors.required(&at.child("command"), ""),
            "httpGet" => http_get(errors, &at, action),
            "tcpSocket" | "grpc" => text::port(errors, &at.child("port"), &action["port"]),
            "sleep" => sleep(errors, &at, action, grace),
            _ => {}
        }
    }
    if count == 0 {
        errors.required(at, "must specify a handler type");
    }
}

fn sleep(errors: &mut Errors, at: &At<'_>, action: &Value, grace: Option<i64>) {
    let seconds = action.number("seconds").unwrap_or(0);
    if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
        let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(at, &seconds, &why);
    }
}

fn http_get(errors: &mut Errors, at: &At<'_>, get: &Value) {
    if get.text("path").is_empty() {
        errors.required(&at.child("path"), "");
    }
    text::port(errors, &at.child("port"), &get["port"]);
    let scheme = get.text("scheme");
    if !["HTTP", "HTTPS"].contains(&scheme) {
        errors.unsupported(&at.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in get.list("httpHeaders") {
        let name = header.text("name");
        errors.invalid_all(&at.child("httpHeaders"), name, text::header(name));
    }
}
