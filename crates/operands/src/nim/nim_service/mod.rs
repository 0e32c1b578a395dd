//! NIMService: the objects that serve one model, and its status.
//!
//! [`plan`] reads top to bottom: [`standalone`] or [`kserve`] assembles the [`parts`], [`status`] reports on them.
//! Fields without effect are listed in `capstan_api::ignored`.

mod access;
mod autoscaler;
mod containers;
mod deployment;
mod devices;
pub mod discovery;
mod endpoints;
mod env;
mod epp;
mod image;
mod invalid;
mod kserve;
mod model;
mod monitor;
mod mpi;
mod multi_node;
mod names;
mod parts;
mod pod;
mod reasons;
mod references;
mod rolling;
mod routes;
mod selectors;
mod service;
mod standalone;
mod status;
mod storage;

use capstan_api::nim::multi_node::MultiNode;
use capstan_api::nim::service::InferencePlatform;
use capstan_api::nim::{NimCache, NimService, NimServiceSpec, NimServiceStatus};
use capstan_plan::{Facts, Object, Plan, conditions};
use kube::{Resource, ResourceExt};

pub use invalid::{Verdict, check};
pub use names::MANAGED_BY;
pub use references::{mentions, references};

use parts::Parts;

/// Context of a plan.
struct Cx<'a> {
    service: &'a NimService,
    facts: &'a Facts,
    name: String,
    namespace: String,
    /// The referenced NIMCache, if it exists.
    cache: Option<NimCache>,
}

impl<'a> Cx<'a> {
    fn new(service: &'a NimService, facts: &'a Facts) -> Self {
        let namespace = service.namespace().unwrap_or_default();
        let cache = storage::cache_name(&service.spec).and_then(|name| facts.live.typed(&namespace, name));
        Self { service, facts, name: service.name_any(), namespace, cache }
    }

    fn spec(&self) -> &'a NimServiceSpec {
        &self.service.spec
    }

    fn platform(&self) -> InferencePlatform {
        self.spec().inference_platform.unwrap_or_default()
    }

    /// Multi-node settings, if the model spans nodes. On one node `multiNode` has no effect.
    fn multi_node(&self) -> Option<&'a MultiNode> {
        let spread = self.spec().multi_node.as_ref();
        spread.filter(|spread| {
            self.platform() == InferencePlatform::Standalone
                && spread.parallelism.pipeline.is_some_and(|nodes| nodes > 1)
        })
    }

    /// Whether an autoscaler sets the number of replicas.
    fn autoscaled(&self) -> bool {
        self.spec().scale.as_ref().is_some_and(|scale| scale.enabled == Some(true))
    }

    /// The message of a condition of the service, unless it is for an older generation.
    fn condition_message(&self, type_: &str) -> Option<String> {
        let list = self.service.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions::current_message(list, type_, self.service.metadata.generation)
    }

    /// `object` owned by the NIMService.
    fn child(&self, object: Object) -> Object {
        match self.service.controller_owner_ref(&()) {
            Some(owner) => object.owned_by(&owner),
            None => object,
        }
    }
}

/// Plans a service. A user error is part of the plan, never an `Err`.
pub fn plan(service: &NimService, facts: &Facts) -> Plan<NimServiceStatus> {
    let cx = Cx::new(service, facts);
    let faults = invalid::fatal(&cx);
    if !faults.is_empty() {
        return status::invalid(&cx, &faults);
    }
    let mut parts = Parts::default();
    match cx.platform() {
        InferencePlatform::Standalone => standalone::add(&cx, &mut parts),
        InferencePlatform::KServe => kserve::add(&cx, &mut parts),
    }
    let objects: Vec<Object> = std::mem::take(&mut parts.objects).into_iter().map(|object| cx.child(object)).collect();
    let observed = status::observed(&cx, &objects, parts);
    Plan { objects: Some(objects), ..observed }
}

/// The plan while blocked from outside: no objects are written.
pub fn blocked(service: &NimService, facts: &Facts, reason: &str, message: &str) -> Plan<NimServiceStatus> {
    status::failed(&Cx::new(service, facts), reason, message)
}

#[cfg(test)]
mod tests;
