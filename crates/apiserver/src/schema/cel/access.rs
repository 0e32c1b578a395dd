//! The CEL authorizer library: `authorizer.group('').resource('pods').check('get').allowed()`.

use std::rc::Rc;

use super::value::{Fault, Outcome, Val};
use crate::auth::{Attributes, Decision};

/// Authorizes requests for CEL expressions.
pub trait Authorize {
    /// Authorizes the caller, or this service account (namespace and name).
    fn decide(&self, account: Option<(&str, &str)>, attributes: &Attributes) -> Decision;
}

/// An authorization check under construction, or its decision.
#[derive(Clone)]
pub(super) struct Access<'a> {
    authorizer: &'a dyn Authorize,
    account: Option<(String, String)>,
    step: Step,
}

impl std::fmt::Debug for Access<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("step", &self.step).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Authorizer,
    Path(Attributes),
    Group(Attributes),
    Resource(Attributes),
    Decision(Decision),
}

impl<'a> Access<'a> {
    /// The variable `authorizer`.
    pub(super) fn root(authorizer: &'a dyn Authorize) -> Val<'a> {
        Val::Access(Rc::new(Self { authorizer, account: None, step: Step::Authorizer }))
    }

    /// The variable `authorizer.requestResource`.
    pub(super) fn about(authorizer: &'a dyn Authorize, request: Attributes) -> Val<'a> {
        Val::Access(Rc::new(Self { authorizer, account: None, step: Step::Resource(request) }))
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self.step {
            Step::Authorizer => "kubernetes.authorization.Authorizer",
            Step::Path(_) => "kubernetes.authorization.PathCheck",
            Step::Group(_) => "kubernetes.authorization.GroupCheck",
            Step::Resource(_) => "kubernetes.authorization.ResourceCheck",
            Step::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    fn then(&self, step: Step) -> Outcome<'a> {
        Ok(Val::Access(Rc::new(Self { step, ..self.clone() })))
    }

    /// Calls a method.
    pub(super) fn call(&self, name: &str, args: &[Val<'a>]) -> Outcome<'a> {
        let mut texts = Vec::with_capacity(args.len());
        for arg in args {
            let Val::Text(text) = arg else { return Err(Fault::Overload) };
            texts.push(text.to_string());
        }
        match (&self.step, name, texts.as_slice()) {
            (Step::Authorizer, "path", [path]) => match path.is_empty() {
                true => Fault::other("path must not be empty"),
                false => self.then(Step::Path(Attributes { path: path.clone(), ..Attributes::default() })),
            },
            (Step::Authorizer, "group", [group]) => {
                let attributes = Attributes { is_resource: true, group: group.clone(), ..Attributes::default() };
                self.then(Step::Group(Attributes { version: "*".to_owned(), ..attributes }))
            }
            (Step::Authorizer, "serviceAccount", [namespace, account]) => {
                let account = Some((namespace.clone(), account.clone()));
                Ok(Val::Access(Rc::new(Self { account, ..self.clone() })))
            }
            (Step::Group(so_far), "resource", [resource]) => match resource.is_empty() {
                true => Fault::other("resource must not be empty"),
                false => self.then(Step::Resource(Attributes { resource: resource.clone(), ..so_far.clone() })),
            },
            (Step::Resource(so_far), "subresource" | "namespace" | "name", [text]) => {
                let mut attributes = so_far.clone();
                *match name {
                    "subresource" => &mut attributes.subresource,
                    "namespace" => &mut attributes.namespace,
                    _ => &mut attributes.name,
                } = text.clone();
                self.then(Step::Resource(attributes))
            }
            // Selectors narrow a check for authorizers that support them; RBAC does not.
            (Step::Resource(so_far), "fieldSelector" | "labelSelector", [_]) => {
                self.then(Step::Resource(so_far.clone()))
            }
            (Step::Resource(so_far) | Step::Path(so_far), "check", [verb]) => {
                let attributes = Attributes { verb: verb.clone(), ..so_far.clone() };
                let account = self.account.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
                self.then(Step::Decision(self.authorizer.decide(account, &attributes)))
            }
            (Step::Decision(decision), "allowed", []) => Ok(Val::Bool(decision.allowed())),
            (Step::Decision(Decision::Allow(why) | Decision::Deny(why)), "reason", []) => Ok(Val::text(why)),
            (Step::Decision(_), "errored", []) => Ok(Val::Bool(false)),
            (Step::Decision(_), "error", []) => Ok(Val::text("")),
            _ => Err(Fault::Overload),
        }
    }
}
