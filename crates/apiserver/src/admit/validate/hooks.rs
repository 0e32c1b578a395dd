//! Webhook configurations and validating admission policies.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{labels, text};
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use crate::admit::policy;
use crate::schema::cel::{Env, ResultType};
use capstan_semantics::names;

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

pub(super) fn choice(errors: &mut Errors, at: &At<'_>, holder: &Value, key: &str, known: &[&str]) {
    if let Some(value) = holder.get(key).and_then(Value::as_str).filter(|value| !known.contains(value)) {
        errors.unsupported(&at.child(key), value, known);
    }
}

/// A MutatingWebhookConfiguration or ValidatingWebhookConfiguration.
pub(super) fn webhooks(errors: &mut Errors, configuration: &Value) {
    let at = At::new("webhooks");
    let mut seen = BTreeSet::new();
    for (index, hook) in configuration.list("webhooks").iter().enumerate() {
        let at = at.index(index);
        webhook(errors, &at, hook);
        review_versions(errors, &at.child("admissionReviewVersions"), hook);
        let name = hook.text("name");
        if !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&at.child("name"), name);
        }
    }
}

fn webhook(errors: &mut Errors, at: &At<'_>, hook: &Value) {
    full_name(errors, &at.child("name"), hook.text("name"));
    let path = at.child("rules");
    for (index, one) in hook.list("rules").iter().enumerate() {
        rule(errors, &path.index(index), one);
    }
    choice(errors, at, hook, "failurePolicy", &["Fail", "Ignore"]);
    choice(errors, at, hook, "matchPolicy", &["Equivalent", "Exact"]);
    if !hook.has("sideEffects") {
        errors.required(&at.child("sideEffects"), "must specify one of None, NoneOnDryRun");
    }
    choice(errors, at, hook, "sideEffects", &["None", "NoneOnDryRun"]);
    if let Some(seconds) = hook.number("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&at.child("timeoutSeconds"), &seconds, why);
    }
    for key in ["namespaceSelector", "objectSelector"] {
        labels::selector(errors, &at.child(key), &hook[key]);
    }
    choice(errors, at, hook, "reinvocationPolicy", &["IfNeeded", "Never"]);
    client(errors, &at.child("clientConfig"), &hook["clientConfig"]);
    let at = at.child("matchConditions");
    conditions(errors, &at, hook.list("matchConditions"));
    let env = Env::request(false);
    for (index, condition) in hook.list("matchConditions").iter().enumerate() {
        let text = condition.text("expression");
        if let Some(why) =
            Some(text).filter(|it| !it.trim().is_empty()).and_then(|it| env.type_error(it, ResultType::Bool))
        {
            errors.invalid(&at.index(index).child("expression"), text, &why);
        }
    }
}

fn full_name(errors: &mut Errors, at: &At<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(at, "");
    }
    let wrong = names::dns_subdomain(name);
    if !wrong.is_empty() {
        errors.invalid(at, name, &wrong.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(at, name, "should be a domain with at least three segments separated by dots");
    }
}

fn rule(errors: &mut Errors, at: &At<'_>, rule: &Value) {
    let (operations, path) = (rule.list("operations"), at.child("operations"));
    if operations.is_empty() {
        errors.required(&path, "");
    }
    if operations.len() > 1 && operations.iter().any(|one| one == "*") {
        errors.invalid(&path, &rule["operations"], "if '*' is present, must not specify other operations");
    }
    for (index, operation) in operations.iter().filter_map(Value::as_str).enumerate() {
        if !OPERATIONS.contains(&operation) {
            errors.unsupported(&path.index(index), operation, OPERATIONS);
        }
    }
    for (key, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let (values, path) = (rule.list(key), at.child(key));
        if values.is_empty() {
            errors.required(&path, "");
        }
        if values.len() > 1 && values.iter().any(|one| one == "*") {
            errors.invalid(&path, &rule[key], &format!("if '*' is present, must not specify other {what}"));
        }
        for (index, _) in values.iter().enumerate().filter(|(_, one)| key == "apiVersions" && *one == "") {
            errors.required(&path.index(index), "");
        }
    }
    resources(errors, &at.child("resources"), rule);
    choice(errors, at, rule, "scope", &["*", "Cluster", "Namespaced"]);
}

fn resources(errors: &mut Errors, at: &At<'_>, rule: &Value) {
    let all: Vec<&str> = rule.list("resources").iter().filter_map(Value::as_str).collect();
    if all.is_empty() {
        errors.required(at, "");
    }
    let (mut subs, mut mains) = (BTreeSet::new(), BTreeSet::new());
    let mut plain = false;
    for (index, resource) in all.iter().enumerate() {
        if resource.is_empty() {
            errors.required(&at.index(index), "");
            continue;
        }
        let Some((main, sub)) = resource.split_once('/') else {
            plain = *resource != "*";
            continue;
        };
        if mains.contains(main) {
            let why = format!("if '{main}/*' is present, must not specify {resource}");
            errors.invalid(&at.index(index), *resource, &why);
        }
        if subs.contains(sub) {
            let why = format!("if '*/{sub}' is present, must not specify {resource}");
            errors.invalid(&at.index(index), *resource, &why);
        }
        if sub == "*" {
            mains.insert(main);
        }
        if main == "*" {
            subs.insert(sub);
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        errors.invalid(at, &rule["resources"], "if '*/*' is present, must not specify other resources");
    }
    if all.contains(&"*") && plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(at, &rule["resources"], why);
    }
}

fn client(errors: &mut Errors, at: &At<'_>, config: &Value) {
    match (config.get("url").and_then(Value::as_str), config.has("service")) {
        (None, false) | (Some(_), true) => errors.required(at, "exactly one of url or service is required"),
        (Some(address), false) => url(errors, &at.child("url"), address),
        (None, true) => service(errors, &at.child("service"), &config["service"]),
    }
}

fn url(errors: &mut Errors, at: &At<'_>, text: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        errors.invalid(at, scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errors.invalid(at, "", &format!("host must be specified{FORM}"));
    }
    for (part, what) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.invalid(at, part, what);
        }
    }
}

fn service(errors: &mut Errors, at: &At<'_>, service: &Value) {
    if service.text("name").is_empty() {
        errors.required(&at.child("name"), "");
    }
    if service.text("namespace").is_empty() {
        errors.required(&at.child("namespace"), "");
    }
    if let Some(port) = service.number("port").filter(|port| !text::port_number(*port).is_empty()) {
        let why = format!("port is not valid: {}", text::port_number(port).join(","));
        errors.invalid(&at.child("port"), &port, &why);
    }
    let Some(path) = service.get("path").and_then(Value::as_str).filter(|path| *path != "/") else { return };
    let at = at.child("path");
    if !path.starts_with('/') {
        errors.invalid(&at, path, "must start with a '/'");
    }
    // The first character is skipped, whatever it is.
    let steps = path.get(1..).unwrap_or_default();
    let steps: Vec<&str> = steps.strip_suffix('/').unwrap_or(steps).split('/').collect();
    for (index, step) in steps.iter().enumerate() {
        if step.is_empty() {
            return errors.invalid(&at, path, &format!("segment[{index}] may not be empty"));
        }
        for why in names::dns_subdomain(step) {
            errors.invalid(&at, path, &format!("segment[{index}]: {why}"));
        }
    }
}

fn review_versions(errors: &mut Errors, at: &At<'_>, hook: &Value) {
    let versions: Vec<&str> = hook.list("admissionReviewVersions").iter().filter_map(Value::as_str).collect();
    if versions.is_empty() {
        return errors.required(at, "must specify one of v1, v1beta1");
    }
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            errors.invalid(&at.index(index), *version, "duplicate version");
        } else {
            errors.invalid_all(&at.index(index), *version, names::dns_1035_label(version));
        }
    }
    if !versions.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
        errors.invalid(at, &hook["admissionReviewVersions"], "must include at least one of v1, v1beta1");
    }
}

fn conditions(errors: &mut Errors, at: &At<'_>, conditions: &[Value]) {
    if conditions.len() > 64 {
        errors.too_many(at, conditions.len(), 64);
    }
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = at.index(index);
        if condition.text("expression").trim().is_empty() {
            errors.required(&at.child("expression"), "");
        }
        match condition.text("name") {
            "" => errors.required(&at.child("name"), ""),
            name => {
                labels::key(errors, &at.child("name"), name);
                if !seen.insert(name) {
                    errors.duplicate(&at.child("name"), name);
                }
            }
        }
    }
}

fn match_resources(errors: &mut Errors, at: &At<'_>, resources: &Value) {
    choice(errors, at, resources, "matchPolicy", &["Equivalent", "Exact"]);
    for key in ["namespaceSelector", "objectSelector"] {
        labels::selector(errors, &at.child(key), &resources[key]);
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        let path = at.child(key);
        for (index, one) in resources.list(key).iter().enumerate() {
            rule(errors, &path.index(index), one);
        }
    }
}

/// Match constraints, parameters and variables of policies.
pub(super) fn policy_scope(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    choice(errors, at, spec, "failurePolicy", &["Fail", "Ignore"]);
    let kind = &spec["paramKind"];
    if kind.is_object() {
        let at = at.child("paramKind");
        for key in ["apiVersion", "kind"].into_iter().filter(|key| kind.text(key).is_empty()) {
            errors.required(&at.child(key), "");
        }
    }
    if !spec.has("matchConstraints") {
        errors.required(&at.child("matchConstraints"), "");
    } else {
        let path = at.child("matchConstraints");
        match_resources(errors, &path, &spec["matchConstraints"]);
        if spec["matchConstraints"].list("resourceRules").is_empty() {
            errors.required(&path.child("resourceRules"), "");
        }
    }
    conditions(errors, &at.child("matchConditions"), spec.list("matchConditions"));
    let path = at.child("variables");
    for (index, variable) in spec.list("variables").iter().enumerate() {
        let at = path.index(index);
        let name = variable.text("name");
        let identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() {
            errors.required(&at.child("name"), "name is not specified");
        } else if !identifier {
            errors.invalid(&at.child("name"), name, "must be a valid CEL identifier");
        }
        if variable.text("expression").trim().is_empty() {
            errors.required(&at.child("expression"), "expression is not specified");
        }
    }
}

/// A ValidatingAdmissionPolicy.
pub(super) fn policy(errors: &mut Errors, object: &Value) {
    let (at, spec) = (At::new("spec"), &object["spec"]);
    policy_scope(errors, &at, spec);
    let (validations, annotations) = (spec.list("validations"), spec.list("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.required(&at.child("validations"), why);
        errors.required(&at.child("auditAnnotations"), why);
    }
    for (index, validation) in validations.iter().enumerate() {
        self::validation(errors, &at.child("validations").index(index), validation);
    }
    let mut seen = BTreeSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let at = at.child("auditAnnotations");
        let at = at.index(index);
        let key = annotation.text("key");
        labels::key(errors, &at.child("key"), &format!("{}/{key}", object["metadata"].text("name")));
        if !seen.insert(key) {
            errors.duplicate(&at.child("key"), key);
        }
        if annotation.text("valueExpression").trim().is_empty() {
            errors.required(&at.child("valueExpression"), "valueExpression is not specified");
        }
    }
    expressions(errors, &at, spec);
}

/// Type-checks the expressions of a policy.
pub(super) fn expressions(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    for invalid in policy::invalid_expressions(spec) {
        let path = at.child(invalid.list);
        errors.invalid(&path.index(invalid.index).child(invalid.field), &invalid.text, &invalid.why);
    }
}

fn validation(errors: &mut Errors, at: &At<'_>, validation: &Value) {
    if validation.text("expression").trim().is_empty() {
        errors.required(&at.child("expression"), "expression is not specified");
    }
    let message = validation.text("message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&at.child("message"), message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(&at.child("message"), message, "must not contain line breaks");
    }
    let expression = validation.text("messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        errors.invalid(&at.child("messageExpression"), expression, "must be non-empty if specified");
    }
    choice(errors, at, validation, "reason", &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
}

/// Policy reference, parameters and match resources of a binding.
pub(super) fn bound(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    match spec.text("policyName") {
        "" => errors.required(&at.child("policyName"), ""),
        name => errors.invalid_all(&at.child("policyName"), name, names::dns_subdomain(name)),
    }
    let parameters = &spec["paramRef"];
    if parameters.is_object() {
        let at = at.child("paramRef");
        let (named, selected) = (!parameters.text("name").is_empty(), parameters.has("selector"));
        if named == selected {
            let why = if named {
                "name and selector are mutually exclusive"
            } else {
                "one of name or selector must be specified"
            };
            if named {
                errors.forbidden(&at.child("name"), why);
                errors.forbidden(&at.child("selector"), why);
            } else {
                errors.required(&at, why);
            }
        }
        match parameters.get("parameterNotFoundAction").and_then(Value::as_str) {
            None => errors.required(&at.child("parameterNotFoundAction"), ""),
            Some("Allow" | "Deny") => {}
            Some(other) => errors.unsupported(&at.child("parameterNotFoundAction"), other, &["Deny", "Allow"]),
        }
    }
    match_resources(errors, &at.child("matchResources"), &spec["matchResources"]);
}

/// A ValidatingAdmissionPolicyBinding.
pub(super) fn binding(errors: &mut Errors, binding: &Value) {
    let (at, spec) = (At::new("spec"), &binding["spec"]);
    bound(errors, &at, spec);
    let (actions, path) = (spec.list("validationActions"), at.child("validationActions"));
    if actions.is_empty() {
        errors.required(&path, "");
    }
    for (index, action) in actions.iter().filter_map(Value::as_str).enumerate() {
        if !["Audit", "Deny", "Warn"].contains(&action) {
            errors.unsupported(&path.index(index), action, &["Audit", "Deny", "Warn"]);
        }
        if actions[..index].iter().any(|one| one == action) {
            errors.duplicate(&path.index(index), action);
        }
    }
    if ["Deny", "Warn"].iter().all(|action| actions.iter().any(|one| one == action)) {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.invalid(&path, &spec["validationActions"], why);
    }
}
