//! RBAC of the operator and its use: its roles, and a client service that records every request.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use capstan_apiserver::auth::{Attributes, Rule};
use capstan_apiserver::serve::{Api, Body};
use capstan_operator::rights::{Place, Release, Right, rights};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

/// Names of a release called `capstan`.
pub fn release() -> Release {
    Release {
        webhook_configuration: "capstan-validating-webhook-configuration".into(),
        namespace: crate::real::HOME.into(),
    }
}

/// The roles of the chart, bound to a ServiceAccount in the operator's namespace.
pub fn roles(rights: &[Right], home: &str, account: &str) -> Vec<Value> {
    let api = "rbac.authorization.k8s.io";
    let mut objects = Vec::new();
    for (place, kind) in [(Place::Cluster, "ClusterRole"), (Place::Own, "Role")] {
        let rules: Vec<PolicyRule> = rights.iter().filter(|right| right.place == place).map(PolicyRule::from).collect();
        let mut meta = json!({"name": home});
        if place == Place::Own {
            meta["namespace"] = home.into();
        }
        objects.push(json!({"apiVersion": format!("{api}/v1"), "kind": kind, "metadata": meta, "rules": rules}));
        objects.push(json!({
            "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"), "metadata": meta,
            "roleRef": {"apiGroup": api, "kind": kind, "name": home},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
        }));
    }
    objects
}

/// All permissions of the operator.
pub fn all() -> Vec<Right> {
    rights(&release())
}

/// One verb on one resource, optionally on one object: the smallest unit of permission.
#[derive(Clone, Debug)]
pub struct Atom {
    place: Place,
    rule: Rule,
}

impl std::fmt::Display for Atom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Rule { verbs, api_groups, resources, resource_names, .. } = &self.rule;
        write!(f, "{} {}/{} {}", verbs.join(""), api_groups.join(""), resources.join(""), resource_names.join(""))
    }
}

impl Atom {
    /// Whether this alone allows a request of an operator in `home`.
    pub fn allows(&self, request: &Attributes, home: &str) -> bool {
        (self.place == Place::Cluster || request.namespace == home) && self.rule.allows(request)
    }
}

/// Splits permissions.
pub fn atoms(rights: &[Right]) -> Vec<Atom> {
    let mut atoms = Vec::new();
    for right in rights {
        let names: Vec<Vec<String>> = match right.names.as_slice() {
            [] => vec![Vec::new()],
            names => names.iter().map(|name| vec![name.clone()]).collect(),
        };
        for resource in &right.resources {
            for verb in &right.verbs {
                atoms.extend(names.iter().map(|name| Atom {
                    place: right.place,
                    rule: Rule {
                        verbs: vec![verb.clone()],
                        api_groups: vec![right.group.clone()],
                        resources: vec![resource.clone()],
                        resource_names: name.clone(),
                        ..Rule::default()
                    },
                }));
            }
        }
    }
    atoms
}

/// A service for `kube::Client` that records requests. Clones share one state.
#[derive(Clone)]
pub struct Recorder {
    api: Api,
    streams: Streams,
    state: Arc<Mutex<State>>,
}

/// Whether the server supports streaming lists, as Kubernetes 1.34 and newer do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// It does.
    Yes,
    /// It does not: a list precedes every watch.
    No,
}

#[derive(Default)]
struct State {
    asked: Vec<Attributes>,
    refused: BTreeSet<String>,
    /// The last failed request, with the response.
    failed: String,
}

impl Recorder {
    /// A recorder in front of `api`.
    pub fn new(api: Api, streams: Streams) -> Self {
        Self { api, streams, state: Arc::default() }
    }

    /// Another recorder with the same state.
    pub fn beside(&self, streams: Streams) -> Self {
        Self { streams, ..self.clone() }
    }

    /// The requests, with the implied authorization checks of the server: create for a patch, and escalation checks for
    /// roles.
    pub fn asked(&self) -> Vec<Attributes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }

    /// Rejected requests.
    pub fn refused(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).refused.iter().cloned().collect()
    }

    /// Rejected and last requests, for assertion messages.
    pub fn last(&self) -> String {
        let asked: Vec<_> = self.asked();
        let shown = |request: &Attributes| format!("{} {}", request.verb, request.path);
        let last: Vec<_> = asked.iter().rev().take(20).map(shown).collect();
        let failed = self.state.lock().unwrap_or_else(PoisonError::into_inner).failed.clone();
        format!("refused: {:?}; failed: {failed}; {} requests, the last: {last:#?}", self.refused(), asked.len())
    }

    async fn pass(self, request: Request<kube::client::Body>) -> Result<Response<Body>, std::convert::Infallible> {
        let (head, body) = request.into_parts();
        let query = head.uri.query().unwrap_or_default().to_owned();
        if self.streams == Streams::No && query.contains("sendInitialEvents") {
            let mut answer = Response::new(Body::from(bytes(&json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
                "message": "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            }))));
            *answer.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
            return Ok(answer);
        }
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let wanted = attributes(&head.method, head.uri.path(), &query);
        let content: Value = serde_json::from_slice(&body).unwrap_or_default();
        let answer = self.api.answer(Request::from_parts(head, kube::client::Body::from(body))).await;
        let answer = if answer.status().is_client_error() {
            let (head, body) = answer.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let text = String::from_utf8_lossy(&body).chars().take(400).collect::<String>();
            let failure = format!("{} {}: {text}", wanted.verb, wanted.path);
            self.state.lock().unwrap_or_else(PoisonError::into_inner).failed = failure;
            Response::from_parts(head, Body::from(body))
        } else {
            answer
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if answer.status() == StatusCode::FORBIDDEN {
            state.refused.insert(format!("{} {}/{} {:?}", wanted.verb, wanted.group, wanted.qualified(), wanted.name));
        }
        if answer.status().is_success() {
            if wanted.verb == "patch" && answer.status() == StatusCode::CREATED {
                state.asked.push(Attributes { verb: "create".into(), ..wanted.clone() });
            }
            state.asked.extend(granted(&wanted, &content));
        }
        state.asked.push(wanted);
        drop(state);
        Ok(answer)
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// Permissions that the writer of a role must have: all that it grants.
fn granted(wanted: &Attributes, content: &Value) -> Vec<Attributes> {
    let rules = content["rules"].as_array().filter(|_| ["roles", "clusterroles"].contains(&wanted.resource.as_str()));
    let wide = wanted.resource == "clusterroles";
    let namespace = if wide { String::new() } else { wanted.namespace.clone() };
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let items = rule[field].as_array().into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let mut granted = Vec::new();
    for rule in rules.into_iter().flatten() {
        let mut names = texts(rule, "resourceNames");
        if names.is_empty() {
            names.push(String::new());
        }
        for (verb, group) in product(&texts(rule, "verbs"), &texts(rule, "apiGroups")) {
            for (resource, name) in product(&texts(rule, "resources"), &names) {
                let (verb, group) = (verb.clone(), group.clone());
                let namespace = namespace.clone();
                granted.push(Attributes { verb, group, resource, name, namespace, ..wanted.clone() });
            }
        }
    }
    granted
}

fn product(left: &[String], right: &[String]) -> Vec<(String, String)> {
    left.iter().flat_map(|left| right.iter().map(|right| (left.clone(), right.clone()))).collect()
}

/// A request as authorizer attributes.
fn attributes(method: &Method, path: &str, query: &str) -> Attributes {
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["api", version, _, ..] => ("", *version),
        ["apis", group, version, _, ..] => (*group, *version),
        _ => return Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() },
    };
    parts.drain(..if group.is_empty() { 2 } else { 3 });
    let mut namespace = "";
    if let ["namespaces", inside, _, ..] = parts.as_slice() {
        namespace = inside;
        parts.drain(..2);
    }
    let at = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
    let named = !at(1).is_empty();
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ if query.contains("watch=true") => "watch",
        _ if named => "get",
        _ => "list",
    };
    Attributes {
        verb: verb.into(),
        is_resource: true,
        group: group.into(),
        version: version.into(),
        resource: at(0),
        subresource: at(2),
        namespace: namespace.into(),
        name: at(1),
        path: path.into(),
    }
}

impl tower::Service<Request<kube::client::Body>> for Recorder {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().pass(request))
    }
}
