//! Admission webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.
//!
//! Configurations are read from the store with every request and parsed once per version. Webhooks that are named by a
//! URL or a service are called over TLS; a [`Resolver`] may have them answered inside the process instead.

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

/// A webhook inside this process: takes the body of a request to a path, and answers with a status code and a body.
pub type Handler = Arc<dyn Fn(String, Bytes) -> BoxFuture<'static, (u16, Bytes)> + Send + Sync>;

/// Where a webhook is reached.
#[derive(Clone)]
pub enum Endpoint {
    /// An address, over TLS.
    Address(SocketAddr),
    /// A function, with neither socket nor TLS: works in virtual time too.
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

/// Finds the endpoints of services that webhook configurations name.
pub trait Resolver: Send + Sync + 'static {
    /// Where the service is reached, or why it is not.
    fn resolve(&self, service: &ServiceReference) -> Result<Endpoint, String>;
}

/// Calls the webhooks that are configured.
pub struct Webhooks {
    mutating: Hooks,
    validating: Hooks,
    resolver: Option<Arc<dyn Resolver>>,
    /// Plugins that look again at an object that a webhook changed.
    reinvoked: Vec<Arc<dyn Admission>>,
}

/// What came of calling a webhook.
enum Failure {
    /// The webhook could not be asked: its failure policy says what that means.
    Call(String),
    /// The webhook, or the server on its behalf, says no.
    Denied(Status),
}

impl Webhooks {
    /// Webhooks; services are found by `resolver`, or else by their endpoints in the store. `reinvoked` are the plugins
    /// that look again at an object that a webhook changed.
    pub fn new(resolver: Option<Arc<dyn Resolver>>, reinvoked: Vec<Arc<dyn Admission>>) -> Self {
        Self { mutating: Hooks::new(Kind::Mutating), validating: Hooks::new(Kind::Validating), resolver, reinvoked }
    }

    /// One round over mutating webhooks. Only those in `again` are called in a second round.
    async fn round(
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
            match judged(&hook, called)? {
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
        let (mut object, outcome) = self.round(request, object, None).await?;
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
        self.round(request, object, Some(&again)).await.map(|(object, _)| object)
    }

    async fn validate_all(&self, request: &Request, object: Option<&Value>) -> Result<()> {
        let attributes = Attributes::of(request, object);
        if request.operation == Operation::Delete {
            for hook in self.mutating.all(request) {
                if let Some(invocation) = hook.concerns(request, &attributes, object)? {
                    let called =
                        call::mutate(self.resolver.as_deref(), request, &hook, &invocation, &Value::Null).await;
                    judged(&hook, called)?;
                }
            }
        }
        let mut calls = Vec::new();
        for hook in self.validating.all(request) {
            if let Some(invocation) = hook.concerns(request, &attributes, object)? {
                calls.push(async move {
                    let called = call::validate(self.resolver.as_deref(), request, &hook, &invocation, object).await;
                    judged(&hook, called.map(|()| None)).map(drop)
                });
            }
        }
        join_all(calls).await.into_iter().collect()
    }
}

/// A request as expressions see it.
pub(super) fn described(request: &Request, invocation: &Invocation) -> Value {
    review::request(request, invocation, "")
}

/// What came of a round.
#[derive(Default)]
struct Outcome {
    changed: bool,
    /// Webhooks that want to be called again if the object changes after them.
    called: HashSet<String>,
    /// Those after which it has changed.
    again: HashSet<String>,
}

/// Applies the failure policy.
fn judged(hook: &Hook, called: Result<Option<Value>, Failure>) -> Result<Option<Value>> {
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
        // Webhooks may not keep anybody from repairing what configures them.
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
