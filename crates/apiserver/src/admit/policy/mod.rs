//! Admission policies and their bindings: CEL expressions that reject or warn about a request
//! (ValidatingAdmissionPolicy), or change its object (MutatingAdmissionPolicy).
//!
//! Policies and bindings are read from the store on every request and compiled once per version. Audit actions are
//! accepted and ignored: there is no audit log.

mod config;
mod mutation;
mod parameters;

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::matching::{Attributes, converted, namespace_object};
use super::plugins::forbidden;
use super::webhook::{Invocation, described};
use crate::auth::{Attributes as Access, Auth, Decision, UserInfo};
use crate::error::{Result, Status};
use crate::ops::{Admission, Request};
use crate::schema::cel::{Authorize, Failure, Program, Run};
pub(super) use config::invalid_expressions;
use config::{Binding, Cache, Policy, Validation};
pub use mutation::Mutations;

/// Cost limit of the expressions of one policy and binding.
const BUDGET: u64 = 10_000_000;
/// Cost limit of match conditions.
pub(super) const CONDITIONS_BUDGET: u64 = 2_500_000;
/// Maximum length of a message expression's result.
const LONGEST_MESSAGE: usize = 5 * 1024;
const EXHAUSTED: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

/// ValidatingAdmissionPolicy plugin.
#[derive(Default)]
pub struct Policies {
    policies: Cache<Policy>,
    bindings: Cache<Binding>,
    /// Authorizer for expressions.
    auth: OnceLock<Arc<Auth>>,
}

/// A request as a policy sees it.
struct Case<'a> {
    request: &'a Request,
    object: Option<&'a Value>,
    invocation: Invocation,
    authorizer: CallerAuthorizer<'a>,
}

/// A failed validation.
struct FailedValidation {
    message: String,
    reason: &'static str,
}

impl FailedValidation {
    fn fault(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: "Invalid" }
    }
}

/// The authorizer for the caller of a request.
pub(super) struct CallerAuthorizer<'a> {
    request: &'a Request,
    auth: OnceLock<Arc<Auth>>,
}

impl<'a> CallerAuthorizer<'a> {
    pub(super) fn new(request: &'a Request) -> Self {
        Self { request, auth: OnceLock::new() }
    }
}

fn attached(request: &Request) -> Arc<Auth> {
    let auth = Auth::new();
    auth.attach(&request.server);
    auth
}

impl Authorize for CallerAuthorizer<'_> {
    fn decide(&self, account: Option<(&str, &str)>, attributes: &Access) -> Decision {
        let auth = self.auth.get_or_init(|| attached(self.request));
        match account {
            None => auth.decide(&self.request.caller.user, attributes),
            Some((namespace, name)) => auth.decide(&UserInfo::service_account(namespace, name, ""), attributes),
        }
    }
}

/// The authorization attributes of a request.
pub(super) fn access(own: &Attributes) -> Access {
    Access {
        is_resource: true,
        group: own.resource.group.to_string(),
        version: own.resource.version.to_string(),
        resource: own.resource.plural.to_string(),
        subresource: own.subresource.clone(),
        namespace: own.namespace.clone(),
        name: own.name.clone(),
        ..Access::default()
    }
}

/// The error of an expression that failed to evaluate.
pub(super) fn failure(program: &Program, why: &Failure) -> String {
    match why {
        Failure::Exhausted => EXHAUSTED.to_owned(),
        Failure::Fault(why) => format!("expression '{}' resulted in error: {why}", program.text()),
    }
}

impl Policies {
    fn judge(&self, request: &Request, object: Option<&Value>) -> Result<()> {
        let attributes = Attributes::of(request, object);
        let bindings = self.bindings.all(request, "validatingadmissionpolicybindings");
        for policy in self.policies.all(request, "validatingadmissionpolicies") {
            let mut bound = bindings.iter().filter(|binding| binding.policy == policy.name).peekable();
            if bound.peek().is_none() {
                continue;
            }
            let Some(chosen) = policy.matcher.chosen(request, &attributes, object)? else { continue };
            for binding in bound {
                if binding.matcher.chosen(request, &attributes, object)?.is_none() {
                    continue;
                }
                let invocation = Invocation { own: attributes.clone(), chosen: chosen.clone() };
                let authorizer = CallerAuthorizer { request, auth: OnceLock::from(self.auth(request)) };
                let case = Case { request, object, invocation, authorizer };
                case.apply(&policy, binding)?;
            }
        }
        Ok(())
    }

    fn auth(&self, request: &Request) -> Arc<Auth> {
        self.auth.get_or_init(|| attached(request)).clone()
    }
}

impl Case<'_> {
    fn apply(&self, policy: &Policy, binding: &Binding) -> Result<()> {
        let parameters = match parameters::find(self.request, policy, binding) {
            Ok(parameters) => parameters,
            Err(_) if policy.fails_open => return Ok(()),
            Err(parameters::Missing::Kind(why)) => {
                let why = format!(
                    "ValidatingAdmissionPolicy '{}' denied request: failed to configure policy: {why}",
                    policy.name
                );
                return Err(self.denied(&why, "Invalid"));
            }
            Err(parameters::Missing::Object(why)) => {
                let why = format!("failed to configure binding: {why}");
                return Err(self.denied(&denial(policy, binding, &why), "Invalid"));
            }
        };
        for parameter in parameters {
            let failed_validations = self.failed_validations(policy, &parameter);
            if binding.warns {
                for FailedValidation { message, .. } in &failed_validations {
                    self.request.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        policy.name, binding.name
                    ));
                }
            }
            if let Some(FailedValidation { message, reason }) = failed_validations.first().filter(|_| binding.denies) {
                return Err(self.denied(&denial(policy, binding, message), reason));
            }
        }
        Ok(())
    }

    fn denied(&self, why: &str, reason: &'static str) -> Status {
        let mut status = forbidden(self.request, self.object.unwrap_or(&Value::Null), why);
        status.details["causes"] = json!([{"message": why}]);
        status.reason = reason;
        status.code = match reason {
            "Forbidden" => 403,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        status
    }

    /// Failed validations for one parameter.
    fn failed_validations(&self, policy: &Policy, parameter: &Value) -> Vec<FailedValidation> {
        match self.match_conditions_hold(policy, parameter) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(_) if policy.fails_open => return Vec::new(),
            Err(why) => return vec![FailedValidation::fault(why)],
        }
        let mut run = self.run(policy, parameter, BUDGET);
        let mut failed_validations = Vec::new();
        for validation in &policy.validations {
            match run.evaluate_bool(&validation.expression) {
                Ok(true) => {}
                Ok(false) => {
                    let message = message(&mut run, validation);
                    failed_validations.push(FailedValidation { message, reason: validation.reason });
                }
                Err(_) if policy.fails_open => {}
                Err(why) => {
                    failed_validations.push(FailedValidation::fault(failure(&validation.expression, &why)));
                    if why == Failure::Exhausted {
                        break;
                    }
                }
            }
        }
        failed_validations
    }

    /// Whether all match conditions are true.
    fn match_conditions_hold(&self, policy: &Policy, parameter: &Value) -> Result<bool, String> {
        let mut run = self.run(policy, parameter, CONDITIONS_BUDGET);
        let mut faults = Vec::new();
        for condition in &policy.conditions {
            match run.evaluate_bool(condition) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => faults.push(failure(condition, &why)),
            }
        }
        match faults.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    fn run<'a>(&'a self, policy: &'a Policy, parameter: &Value, budget: u64) -> Run<'a> {
        let Self { request, invocation, .. } = self;
        let version = |object: &Value| converted(object, &invocation.own, &invocation.chosen);
        let mut run = Run::new(budget);
        run.set("object", &self.object.map_or(Value::Null, version));
        run.set("oldObject", &request.old.as_deref().map_or(Value::Null, version));
        run.set("request", &described(request, invocation));
        let namespace = &invocation.own.namespace;
        let namespace = if namespace.is_empty() { None } else { namespace_object(request, namespace) };
        run.set("namespaceObject", &namespace.unwrap_or_default());
        if policy.takes_parameters() {
            run.set("params", parameter);
        }
        run.authorize(&self.authorizer, access(&invocation.own));
        run.variables(policy.variables.iter().map(|(name, program)| (name.as_str(), program)));
        run
    }
}

fn denial(policy: &Policy, binding: &Binding, why: &str) -> String {
    format!("ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {why}", policy.name, binding.name)
}

/// The message of a failed validation.
fn message(run: &mut Run<'_>, validation: &Validation) -> String {
    let made = validation.message_expression.as_ref().and_then(|program| run.text(program).ok().flatten());
    let made = made.map(|text| text.trim().to_owned());
    let usable = |text: &String| !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
    match (made.filter(usable), validation.message.trim()) {
        (Some(made), _) => made,
        (None, "") => format!("failed expression: {}", validation.expression.text().trim()),
        (None, message) => message.to_owned(),
    }
}

/// Policies do not apply to policies, so that they can be repaired, nor to reviews.
fn is_policy_or_review(request: &Request) -> bool {
    let resource = &request.target.resource;
    let own = &*resource.group == "admissionregistration.k8s.io" && resource.plural.contains("admissionpolic");
    own || ["authentication.k8s.io", "authorization.k8s.io"].contains(&&*resource.group)
}

impl Admission for Policies {
    fn handles(&self, request: &Request) -> bool {
        !is_policy_or_review(request) && self.bindings.any(request, "validatingadmissionpolicybindings")
    }

    fn validate<'a>(&'a self, request: &'a Request, object: Option<&'a Value>) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(self.judge(request, object)))
    }
}

impl Policy {
    fn takes_parameters(&self) -> bool {
        self.parameter_kind.is_some()
    }
}
