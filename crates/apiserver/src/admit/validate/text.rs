//! Validation of strings and numbers: ports, variable names, paths, addresses; worded as by kube-apiserver.

use std::net::IpAddr;

use serde_json::Value;

use crate::admit::field::{At, Errors};
use capstan_semantics::names::ValidationErrors;

/// `must be between A and B, inclusive`.
pub(super) fn between(value: i64, least: i64, most: i64) -> ValidationErrors {
    if (least..=most).contains(&value) {
        Vec::new()
    } else {
        vec![format!("must be between {least} and {most}, inclusive")]
    }
}

/// A port number.
pub(super) fn port_number(port: i64) -> ValidationErrors {
    between(port, 1, 65535)
}

/// A port name.
pub(super) fn port_name(port: &str) -> ValidationErrors {
    let mut wrong = Vec::new();
    if port.len() > 15 {
        wrong.push("must be no more than 15 characters".into());
    }
    if port.is_empty() || !port.bytes().all(|b| b == b'-' || b.is_ascii_lowercase() || b.is_ascii_digit()) {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !port.bytes().any(|b| b.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".into());
    }
    if port.contains("--") {
        wrong.push("must not contain consecutive hyphens".into());
    }
    if port.starts_with('-') || port.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".into());
    }
    wrong
}

/// A port number or name.
pub(super) fn port(errors: &mut Errors, at: &At<'_>, port: &Value) {
    match port {
        Value::String(name) => errors.invalid_all(at, name, port_name(name)),
        _ => {
            let number = port.as_i64().unwrap_or(0);
            errors.invalid_all(at, &number, port_number(number));
        }
    }
}

/// The name of an environment variable.
pub(super) fn variable(name: &str) -> ValidationErrors {
    let mut wrong = Vec::new();
    if name.is_empty() {
        wrong.push("environment variable name must be non-empty".into());
    }
    if !name.chars().all(|c| (c.is_ascii_graphic() || c == ' ') && c != '=') {
        wrong.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='".into(),
        );
    }
    wrong
}

/// A key of a ConfigMap or Secret.
pub(super) fn config_key(key: &str) -> ValidationErrors {
    let mut wrong = Vec::new();
    if key.len() > 253 {
        wrong.push("must be no more than 253 characters".into());
    }
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        wrong.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .into(),
        );
    }
    match key {
        "." | ".." => wrong.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => wrong.push("must not start with '..'".into()),
        _ => {}
    }
    wrong
}

/// The name of an HTTP header.
pub(super) fn header(name: &str) -> ValidationErrors {
    let good = !name.is_empty() && name.bytes().all(|b| b == b'-' || b.is_ascii_alphanumeric());
    let why = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
               validation is '[-A-Za-z0-9]+')";
    if good { Vec::new() } else { vec![why.into()] }
}

/// A percentage, such as `25%`.
pub(super) fn percent(text: &str) -> ValidationErrors {
    let digits = text.strip_suffix('%').unwrap_or_default();
    let good = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
               used for validation is '[0-9]+%')";
    if good { Vec::new() } else { vec![why.into()] }
}

/// A path without `..`.
pub(super) fn no_backsteps(errors: &mut Errors, at: &At<'_>, path: &str) {
    if path.split('/').any(|part| part == "..") {
        errors.invalid(at, path, "must not contain '..'");
    }
}

/// A relative path without `..`.
pub(super) fn descending(errors: &mut Errors, at: &At<'_>, path: &str) {
    if path.starts_with('/') {
        errors.invalid(at, path, "must be a relative path");
    }
    no_backsteps(errors, at, path);
}

/// A relative path without `..` that is not reserved.
pub(super) fn local_path(errors: &mut Errors, at: &At<'_>, path: &str) {
    descending(errors, at, path);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.invalid(at, path, "must not start with '..'");
    }
}

/// An IP address.
pub(super) fn address(errors: &mut Errors, at: &At<'_>, text: &str) -> Option<IpAddr> {
    let parsed = text.parse().ok();
    if parsed.is_none() {
        errors.invalid(at, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
    parsed
}

/// A CIDR.
pub(super) fn cidr(errors: &mut Errors, at: &At<'_>, text: &str) {
    let good = text.split_once('/').is_some_and(|(ip, bits)| {
        let most = match ip.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    });
    if !good {
        errors.invalid(at, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    }
}

/// A non-negative number.
pub(super) fn nonnegative(errors: &mut Errors, at: &At<'_>, value: Option<i64>) {
    if let Some(value) = value.filter(|value| *value < 0) {
        errors.invalid(at, &value, "must be greater than or equal to 0");
    }
}

/// A file mode.
pub(super) fn mode(errors: &mut Errors, at: &At<'_>, value: Option<i64>) {
    if let Some(value) = value.filter(|value| !(0..=0o777).contains(value)) {
        errors.invalid(at, &value, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// A non-negative number or a percentage.
pub(super) fn number_or_percent(errors: &mut Errors, at: &At<'_>, value: &Value) {
    match value {
        Value::String(text) => errors.invalid_all(at, text, percent(text)),
        _ => nonnegative(errors, at, value.as_i64()),
    }
}

/// The number of a percentage.
pub(super) fn share(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}
