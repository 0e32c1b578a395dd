//! NIMService on plain Kubernetes: the objects that serve one model, and how it is doing.
//!
//! [`plan`] reads top to bottom. What it does not act on yet is listed in `capstan_api::ignored`.

mod access;
mod containers;
mod deployment;
mod env;
mod invalid;
mod names;
mod service;
mod status;
mod storage;

use capstan_api::nim::{NimService, NimServiceStatus};
use capstan_plan::{Facts, Object, Plan};
use kube::{Resource, ResourceExt};

pub use names::MANAGED_BY;

/// What every part of the plan needs.
struct Cx<'a> {
    service: &'a NimService,
    facts: &'a Facts,
    name: String,
    namespace: String,
}

impl<'a> Cx<'a> {
    fn new(service: &'a NimService, facts: &'a Facts) -> Self {
        let namespace = service.namespace().unwrap_or_default();
        Self { service, facts, name: service.name_any(), namespace }
    }

    fn spec(&self) -> &'a capstan_api::nim::NimServiceSpec {
        &self.service.spec
    }

    /// `object` as a child of the NIMService.
    fn child(&self, object: Object) -> Object {
        match self.service.controller_owner_ref(&()) {
            Some(owner) => object.owned_by(&owner),
            None => object,
        }
    }
}

/// What this service should look like. A mistake of the user is part of the answer, never an error.
pub fn plan(service: &NimService, facts: &Facts) -> Plan<NimServiceStatus> {
    let cx = Cx::new(service, facts);
    let faults = invalid::faults(&cx);
    if !faults.is_empty() {
        return Plan { objects: None, ..status::invalid(&cx, &faults) };
    }
    let mut objects = access::objects(&cx);
    objects.push(service::object(&cx));
    objects.extend(storage::claim(&cx));
    objects.push(deployment::object(&cx));
    let objects: Vec<Object> = objects.into_iter().map(|object| cx.child(object)).collect();
    let observed = status::observed(&cx, &objects);
    Plan { objects: Some(objects), ..observed }
}

/// The answer when something outside the spec is in the way: nothing more is written until it is gone.
pub fn blocked(service: &NimService, facts: &Facts, reason: &'static str, message: &str) -> Plan<NimServiceStatus> {
    status::failed(&Cx::new(service, facts), reason, message)
}

/// What is wrong with a service before it is stored: what must be mended, and what only has no effect yet.
pub fn check(service: &NimService) -> (Vec<String>, Vec<String>) {
    let facts = Facts {
        now: jiff::Timestamp::UNIX_EPOCH,
        server: capstan_plan::ServerVersion::default(),
        served: std::collections::BTreeSet::new(),
        live: capstan_plan::LiveObjects::default(),
        skew: None,
    };
    let (later, now): (Vec<_>, Vec<_>) =
        invalid::faults(&Cx::new(service, &facts)).into_iter().partition(|fault| fault.reason == invalid::LATER);
    let messages = |faults: Vec<invalid::Fault>| faults.into_iter().map(|fault| fault.message).collect();
    (messages(now), messages(later))
}

#[cfg(test)]
mod tests;
