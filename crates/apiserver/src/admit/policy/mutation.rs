//! MutatingAdmissionPolicy and its bindings: CEL expressions that change the object of a request.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::config::{Binding, Cache, Change, Policy};
use super::{BUDGET, CallerAuthorizer, Case, attached, failure, is_policy_or_review, parameters};
use crate::admit::matching::{Attributes, converted, converted_back};
use crate::admit::webhook::Invocation;
use crate::apply::overlay;
use crate::auth::Auth;
use crate::error::{Result, Status};
use crate::ops::{Admission, Request};
use crate::schema::cel::Failure;

const POLICIES: &str = "mutatingadmissionpolicies";
const BINDINGS: &str = "mutatingadmissionpolicybindings";

/// MutatingAdmissionPolicy plugin.
#[derive(Default)]
pub struct Mutations {
    policies: Cache<Policy>,
    bindings: Cache<Binding>,
    auth: OnceLock<Arc<Auth>>,
}

impl Mutations {
    /// Applies all policies in order; reinvokes those that request it if later ones changed the object.
    fn apply_policies(&self, request: &Request, mut object: Value) -> Result<Value> {
        let policies = self.policies.all(request, POLICIES);
        let mut seen = vec![Value::Null; policies.len()];
        for (policy, seen) in policies.iter().zip(&mut seen) {
            object = self.apply(request, policy, object)?;
            *seen = object.clone();
        }
        for (policy, seen) in policies.iter().zip(&seen).filter(|(policy, _)| policy.reinvocable) {
            if *seen != object {
                object = self.apply(request, policy, object)?;
            }
        }
        Ok(object)
    }

    fn apply(&self, request: &Request, policy: &Policy, mut object: Value) -> Result<Value> {
        for binding in self.bindings.all(request, BINDINGS).iter().filter(|binding| binding.policy == policy.name) {
            let attributes = Attributes::of(request, Some(&object));
            let Some(chosen) = policy.matcher.chosen(request, &attributes, Some(&object))? else { continue };
            if binding.matcher.chosen(request, &attributes, Some(&object))?.is_none() {
                continue;
            }
            let invocation = Invocation { own: attributes, chosen };
            let parameters = match parameters::find(request, policy, binding) {
                Ok(parameters) => parameters,
                Err(_) if policy.fails_open => continue,
                Err(parameters::Missing::Kind(why)) => {
                    let why = format!("policy '{}' denied request: failed to configure policy: {why}", policy.name);
                    return Err(denied(why, "Forbidden"));
                }
                Err(parameters::Missing::Object(why)) => {
                    return Err(denial(policy, binding, &format!("failed to configure binding: {why}"), "Forbidden"));
                }
            };
            for parameter in &parameters {
                object = match self.changed(request, policy, &invocation, &object, parameter) {
                    Ok(changed) => changed,
                    Err(_) if policy.fails_open => object,
                    Err(why) => return Err(denial(policy, binding, &why, "Invalid")),
                };
            }
        }
        Ok(object)
    }

    /// The object after all mutations of a policy, or the error.
    fn changed(
        &self,
        request: &Request,
        policy: &Policy,
        invocation: &Invocation,
        object: &Value,
        parameter: &Value,
    ) -> Result<Value, String> {
        let auth = self.auth.get_or_init(|| attached(request));
        if !case(request, object, invocation, auth).match_conditions_hold(policy, parameter)? {
            return Ok(object.clone());
        }
        let mut object = object.clone();
        for change in &policy.changes {
            let made = {
                let case = case(request, &object, invocation, auth);
                let mut run = case.run(policy, parameter, BUDGET);
                let (Change::Apply(program) | Change::Patch(program)) = change;
                run.evaluate_object(program).map_err(|why: Failure| failure(program, &why))??
            };
            let version = converted(&object, &invocation.own, &invocation.chosen);
            let after = match change {
                Change::Apply(_) => self.applied(invocation, &version, made)?,
                Change::Patch(_) => overlay::patched(&version, made.as_array().map(Vec::as_slice).unwrap_or_default())?,
            };
            if after != version {
                object = converted_back(after, &invocation.own, &invocation.chosen);
                request.server.kinds().default(&request.target.resource, &mut object);
            }
        }
        Ok(object)
    }

    fn applied(&self, invocation: &Invocation, object: &Value, mut config: Value) -> Result<Value, String> {
        for key in ["apiVersion", "kind"] {
            config[key] = object[key].clone();
        }
        let schema = invocation.chosen.resource.schema();
        overlay::lay_over(schema, object, &config).map_err(|why| format!("error applying patch: {why}"))
    }
}

fn case<'a>(request: &'a Request, object: &'a Value, invocation: &Invocation, auth: &Arc<Auth>) -> Case<'a> {
    let authorizer = CallerAuthorizer { request, auth: OnceLock::from(auth.clone()) };
    Case { request, object: Some(object), invocation: invocation.clone(), authorizer }
}

fn denied(why: String, reason: &'static str) -> Status {
    let causes = json!({"causes": [{"message": why}]});
    Status::new(403, reason, why).with_details(causes)
}

fn denial(policy: &Policy, binding: &Binding, why: &str, reason: &'static str) -> Status {
    denied(format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name), reason)
}

impl Admission for Mutations {
    fn handles(&self, request: &Request) -> bool {
        !is_policy_or_review(request) && self.bindings.any(request, BINDINGS)
    }

    fn mutate<'a>(&'a self, request: &'a Request, object: Value) -> BoxFuture<'a, Result<Value>> {
        Box::pin(std::future::ready(self.apply_policies(request, object)))
    }
}
