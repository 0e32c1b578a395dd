//! Admission webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.
//!
//! Configurations are read from the store on every request and parsed once per version. Webhooks with a URL or a
//! Service reference are called over TLS; a [`Resolver`] may direct them to an in-process handler instead.

mod call;
mod client;
mod config;
mod resolve;
mod review;
mod trust;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use serde_json::Value;

use super::matching::Attributes;
use crate::error::{Result, Status};
use crate::ops::{Admission, Operation, Request};
pub(super) use config::Invocation;
use config::{Hook, Hooks, Kind};

/// An in-process webhook: takes path and body of a request, and returns a status code and body.
pub type Handler = Arc<dyn Fn(String, Bytes) -> BoxFuture<'static, (u16, Bytes)> + Send + Sync>;

/// The endpoint of a webhook.
#[derive(Clone)]
pub enum Endpoint {
    /// An address, over TLS.
    Address(SocketAddr),
    /// A function, with neither socket nor TLS: also works in virtual time.
    Local(Handler),
}

/// A webhook's reference to a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReference {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub name: String,
    /// Port of the service.
    pub port: u16,
}

/// Resolves Service references of webhook configurations.
pub trait Resolver: Send + Sync + 'static {
    /// The endpoint of the service, or why there is none.
    fn resolve(&self, service: &ServiceReference) -> Result<Endpoint, String>;
}

/// Calls the configured webhooks.
pub struct Webhooks {
    mutating: Hooks,
    validating: Hooks,
    resolver: Option<Arc<dyn Resolver>>,
    /// Plugins to reinvoke on an object that a webhook changed.
    reinvoked: Vec<Arc<dyn Admission>>,
}

/// Why a webhook call failed.
enum Failure {
    /// The call failed: the failure policy applies.
    Call(String),
    /// The webhook, or the server on its behalf, denied the request.
    Denied(Status),
}

impl Webhooks {
    /// Services are resolved by `resolver`, or else by their endpoints in the store. `reinvoked` are the plugins to
    /// reinvoke on an object that a webhook changed.
    pub fn new(resolver: Option<Arc<dyn Resolver>>, reinvoked: Vec<Arc<dyn Admission>>) -> Self {
        Self { mutating: Hooks::new(Kind::Mutating), validating: Hooks::new(Kind::Validating), resolver, reinvoked }
    }

    /// One pass over the mutating webhooks. A second pass calls only those in `again`.
    async fn pass(
        &self,
        request: &Request,
        mut object: Value,
        again: Option<&HashSet<String>>,
    ) -> Result<(Value, Outcome)> {
        let mut outcome = Outcome::default();
        for hook in self.mutating.all(request) {
            let attributes = Attributes::of(request, Some(&object));
            let Some(invocation) = hook.concerns(request, &attributes, Some(&object))? else { continue };
            if again.is_some_and(|again| !again.contains(&hook.id)) {
                continue;
            }
            let called = call::mutate(self.resolver.as_deref(), request, &hook, &invocation, &object).await;
            match apply_failure_policy(&hook, called)? {
                Some(changed) if changed != object => {
                    object = changed;
                    outcome.changed = true;
                    outcome.again.extend(outcome.called.drain());
                }
                _ => {}
            }
            if hook.reinvocable {
                outcome.called.insert(hook.id.clone());
            }
        }
        Ok((object, outcome))
    }

    async fn mutate_all(&self, request: &Request, object: Value) -> Result<Value> {
        let (mut object, outcome) = self.pass(request, object, None).await?;
        if !outcome.changed {
            return Ok(object);
        }
        let before = object.clone();
        for plugin in self.reinvoked.iter().filter(|plugin| plugin.handles(request)) {
            object = plugin.mutate(request, object).await?;
        }
        let mut again = outcome.again;
        if object != before {
            again.extend(outcome.called);
        }
        if again.is_empty() {
            return Ok(object);
        }
        self.pass(request, object, Some(&again)).await.map(|(object, _)| object)
    }

    async fn validate_all(&self, request: &Request, object: Option<&Value>) -> Result<()> {
        let attributes = Attributes::of(request, object);
        if request.operation == Operation::Delete {
            for hook in self.mutating.all(request) {
                if let Some(invocation) = hook.concerns(request, &attributes, object)? {
                    let called =
                        call::mutate(self.resolver.as_deref(), request, &hook, &invocation, &Value::Null).await;
                    apply_failure_policy(&hook, called)?;
                }
            }
        }
        let mut calls = Vec::new();
        for hook in self.validating.all(request) {
            if let Some(invocation) = hook.concerns(request, &attributes, object)? {
                calls.push(async move {
                    let called = call::validate(self.resolver.as_deref(), request, &hook, &invocation, object).await;
                    apply_failure_policy(&hook, called.map(|()| None)).map(drop)
                });
            }
        }
        join_all(calls).await.into_iter().collect()
    }
}

/// The request as expressions see it.
pub(super) fn described(request: &Request, invocation: &Invocation) -> Value {
    review::request(request, invocation, "")
}

/// The result of a pass.
#[derive(Default)]
struct Outcome {
    changed: bool,
    /// Webhooks with `reinvocationPolicy: IfNeeded`.
    called: HashSet<String>,
    /// Those after which the object has changed.
    again: HashSet<String>,
}

/// Applies the failure policy.
fn apply_failure_policy(hook: &Hook, called: Result<Option<Value>, Failure>) -> Result<Option<Value>> {
    match called {
        Ok(object) => Ok(object),
        Err(Failure::Denied(status)) => Err(status),
        Err(Failure::Call(why)) if hook.fails_open => {
            tracing::warn!(webhook = hook.name, why, "webhook call failed; failing open");
            Ok(None)
        }
        Err(Failure::Call(why)) => Err(call::internal(&format!("failed calling webhook {:?}: {why}", hook.name))),
    }
}

impl Admission for Webhooks {
    fn handles(&self, request: &Request) -> bool {
        let resource = &request.target.resource;
        let reviews = ["authentication.k8s.io", "authorization.k8s.io"].contains(&&*resource.group);
        // Webhooks are not called for webhook configurations, so that these can be repaired.
        &*resource.group != "admissionregistration.k8s.io"
            && !reviews
            && (self.mutating.any(request) || self.validating.any(request))
    }

    fn mutate<'a>(&'a self, request: &'a Request, object: Value) -> BoxFuture<'a, Result<Value>> {
        Box::pin(self.mutate_all(request, object))
    }

    fn validate<'a>(&'a self, request: &'a Request, object: Option<&'a Value>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.validate_all(request, object))
    }
}

#[cfg(test)]
mod tests;
