//! Review APIs (SubjectAccessReview, TokenReview, …): created, answered and never stored.

use std::collections::BTreeMap;

use http::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Call, Inner};
use super::body::Body;
use super::media::{self, Media};
use super::{options, respond};
use crate::auth::{Attributes, Auth, Decision, MASTERS, Rule, UserInfo};
use crate::error::{Cause, Result, Status};
use crate::ops::{Caller, Target};
use crate::registry::Resource;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// Whether a resource is a review.
pub(super) fn is_review(resource: &Resource) -> bool {
    matches!(&*resource.group, AUTHENTICATION | AUTHORIZATION) && resource.custom().is_none()
}

/// Handles the creation of a review.
pub(super) fn create(inner: &Inner, call: &Call, target: &Target, media: Media) -> Result<Response<Body>> {
    let options = options::write(&call.query, "CreateOptions")?;
    let body = media::json_body(&call.headers, call.body.clone(), true)?;
    let mut review: Value = serde_json::from_slice(&body).map_err(|error| {
        let why = media::json_error(&body, &error);
        Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    let kind = &*target.resource.kind;
    let posted = review["kind"].as_str().unwrap_or(kind);
    if posted != kind {
        let message = format!(
            "{posted} in version {:?} cannot be handled as a {kind}",
            review["apiVersion"].as_str().unwrap_or_default()
        );
        return Err(Status::bad_request(message));
    }
    review["kind"] = kind.into();
    review["apiVersion"] = target.resource.api_version().into();
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    if let Some(namespace) = &target.namespace {
        review["metadata"]["namespace"] = namespace.as_str().into();
    }
    let status = status(&inner.auth, &call.caller, kind, target, &review["spec"])?;
    match kind {
        "SelfSubjectRulesReview" => {}
        "SelfSubjectReview" => review["metadata"]["creationTimestamp"] = inner.server.clock().rfc3339().into(),
        _ => review = inner.server.note_writer(&call.caller, &options.field_manager, "", review),
    }
    review["status"] = status;
    if kind == "SelfSubjectRulesReview" {
        review["spec"] = json!({});
    }
    Ok(respond::value(201, media.plain(), &review))
}

fn status(auth: &Auth, caller: &Caller, kind: &str, target: &Target, spec: &Value) -> Result<Value> {
    match kind {
        "TokenReview" => token(auth, spec),
        "SelfSubjectReview" => Ok(json!({"userInfo": caller.user})),
        "SelfSubjectRulesReview" => rules(auth, &caller.user, spec),
        "SelfSubjectAccessReview" => access(auth, &caller.user, &attributes(spec)?),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let user = subject(spec)?;
            let request = attributes(spec)?;
            if let Some(namespace) = target.namespace.as_deref().filter(|_| kind.starts_with("Local")) {
                local(namespace, &request)?;
            }
            access(auth, &user, &request)
        }
        _ => Err(Status::no_such_resource()),
    }
}

fn token(auth: &Auth, spec: &Value) -> Result<Value> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences: Vec<String> =
        spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(match auth.identify(token, &audiences) {
        Some(identity) => {
            json!({"authenticated": true, "user": identity.user, "audiences": identity.audiences})
        }
        None => {
            let mut error = "invalid bearer token".to_owned();
            if let Some(offered) = auth.audiences(token) {
                let list = |list: &[String]| json!(list).to_string().replace(',', " ");
                let (offered, wanted) = (list(&offered), list(&audiences));
                error = format!("[{error}, token audiences {offered} is invalid for the target audiences {wanted}]");
            }
            json!({"user": {}, "error": error})
        }
    })
}

fn access(auth: &Auth, user: &UserInfo, request: &Attributes) -> Result<Value> {
    let (allowed, why) = match auth.decide(user, request) {
        Decision::Allow(why) => (true, why),
        Decision::Deny(why) => (false, why),
    };
    let mut status = json!({"allowed": allowed});
    if !why.is_empty() {
        status["reason"] = why.into();
    }
    Ok(status)
}

fn rules(auth: &Auth, user: &UserInfo, spec: &Value) -> Result<Value> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (mut rules, errors) = auth.policy().rules_for(user, namespace);
    if user.is_in(MASTERS) && rules.is_empty() {
        rules = everything();
    }
    let (mut resources, mut urls) = (Vec::new(), Vec::new());
    for rule in &rules {
        if !rule.resources.is_empty() {
            let mut shown = json!({
                "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
            });
            if !rule.resource_names.is_empty() {
                shown["resourceNames"] = json!(rule.resource_names);
            }
            resources.push(shown);
        }
        if !rule.non_resource_urls.is_empty() {
            urls.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    let mut status = json!({
        "resourceRules": resources, "nonResourceRules": urls, "incomplete": !errors.is_empty(),
    });
    if !errors.is_empty() {
        status["evaluationError"] = errors.join(", ").into();
    }
    Ok(status)
}

/// The rules of `system:masters`, which has all permissions without a role.
fn everything() -> Vec<Rule> {
    let all = || vec!["*".to_owned()];
    vec![
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

/// The user of a SubjectAccessReview.
fn subject(spec: &Value) -> Result<UserInfo> {
    let strings = |value: &Value| Vec::<String>::deserialize(value).unwrap_or_default();
    let user = UserInfo {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: strings(&spec["groups"]),
        extra: BTreeMap::deserialize(&spec["extra"]).unwrap_or_default(),
    };
    if user.name.is_empty() && user.groups.is_empty() {
        let message = "Invalid value: \"\": at least one of user or group must be specified";
        return Err(invalid("spec.user", message));
    }
    Ok(user)
}

/// The authorization attributes in a review.
fn attributes(spec: &Value) -> Result<Attributes> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    match (resource.is_object(), path.is_object()) {
        (true, false) => Ok(Attributes {
            verb: text(resource, "verb"),
            is_resource: true,
            group: text(resource, "group"),
            version: text(resource, "version"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
            path: String::new(),
        }),
        (false, true) => Ok(Attributes { verb: text(path, "verb"), path: text(path, "path"), ..Attributes::default() }),
        (both, _) => {
            let shown = if both { non_resource(path) } else { "null".to_owned() };
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Err(invalid("spec", &format!("Invalid value: {shown}: {why}")))
        }
    }
}

fn local(namespace: &str, request: &Attributes) -> Result<()> {
    if !request.is_resource {
        let shown = json!({"Path": request.path, "Verb": request.verb});
        let message = format!("Invalid value: {shown}: disallowed on this kind of request");
        return Err(invalid("spec.nonResourceAttributes", &message));
    }
    if request.namespace != namespace {
        let message = format!("Invalid value: {:?}: must match metadata.namespace", request.namespace);
        return Err(invalid("spec.resourceAttributes.namespace", &message));
    }
    Ok(())
}

/// Non-resource attributes as kube-apiserver's Go type prints them.
fn non_resource(path: &Value) -> String {
    json!({"Path": path["path"], "Verb": path["verb"]}).to_string()
}

/// 422. kube-apiserver omits the kind here, too.
fn invalid(field: &str, message: &str) -> Status {
    let cause = Cause { reason: "FieldValueInvalid", message: message.to_owned(), field: field.to_owned() };
    let mut status = Status::invalid("", AUTHORIZATION, "", vec![cause]);
    if let Some(details) = status.details.as_object_mut() {
        details.retain(|key, _| !matches!(key.as_str(), "kind" | "name"));
    }
    status
}
