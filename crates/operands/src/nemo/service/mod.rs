//! One model of a NeMo service: a server behind a Service, with an account, ways in, an autoscaler, a monitor, perhaps a
//! claim, a connection Secret and a configuration, and the Deployment that runs it.
//!
//! [`plan`] reads top to bottom: faults of the spec, what needs nothing else, what the pods need, the Deployment, the
//! status. A kind is a [`Service`]: everything that differs from the others, as data.

mod access;
mod claim;
mod config;
mod connection;
mod dependencies;
mod deployment;
mod description;
mod invalid;
mod names;
mod pods;
mod references;
mod routes;
mod status;

use capstan_api::nemo::NemoStatus;
use capstan_api::{Kind, Resource};
use capstan_plan::{Facts, LiveObjects, Object, Plan, Query, Ref};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource as _, ResourceExt};
use serde::Serialize;

pub use access::granted;
pub(crate) use config::FILE;
pub(crate) use deployment::{host_ip, pull_policy, reference as image, security};
pub(crate) use description::{About, Api, Claim, Endpoint, Fault, Form, Health, Parts, Place, Reference, Stop, Weight};
pub use description::{Service, Settings};
pub use invalid::{Verdict, check};
pub use names::MANAGED_BY;
pub use references::{mentions, references};

/// Value of `app.kubernetes.io/part-of` on everything that belongs to services of a kind.
pub fn part_of<S: Service + Default>() -> &'static str {
    S::default().about().part_of
}

/// What every part of a plan needs.
pub(crate) struct Cx<'a> {
    service: &'a dyn Service,
    meta: &'a ObjectMeta,
    owner: Option<OwnerReference>,
    before: Option<&'a NemoStatus>,
    facts: &'a Facts,
    settings: &'a Settings,
    name: String,
    namespace: String,
}

impl<'a> Cx<'a> {
    fn new<S>(object: &'a Resource<S>, facts: &'a Facts, settings: &'a Settings) -> Self
    where
        S: Kind<Status = NemoStatus> + Service,
    {
        Self {
            service: &object.spec,
            meta: &object.metadata,
            owner: object.controller_owner_ref(&()),
            before: object.status.as_ref(),
            facts,
            settings,
            name: object.name_any(),
            namespace: object.namespace().unwrap_or_default(),
        }
    }

    fn live(&self) -> &'a LiveObjects {
        &self.facts.live
    }

    fn place(&self, form: Form) -> Place<'_> {
        Place { name: &self.name, namespace: &self.namespace, form, settings: self.settings }
    }

    /// What the kind adds, in the form of new Deployments.
    fn parts(&self) -> Parts {
        self.service.parts(&self.place(Form::Own))
    }

    /// Whether an autoscaler sets the number of replicas.
    fn autoscaled(&self) -> bool {
        self.service.server().scale.as_ref().is_some_and(|scale| scale.enabled == Some(true))
    }

    /// A live object, if this custom resource controls it.
    fn own(&self, reference: &Ref) -> Option<&'a serde_json::Value> {
        let live = self.live().get(reference)?;
        let uid = self.meta.uid.as_deref().unwrap_or_default();
        let owners = live["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.into_iter().any(|one| one["controller"] == true && one["uid"] == uid).then_some(&**live)
    }

    /// `object` as a child of the custom resource.
    fn child(&self, object: Object) -> Object {
        match &self.owner {
            Some(owner) => object.owned_by(owner),
            None => object,
        }
    }
}

/// What a plan has put together so far.
#[derive(Default)]
struct Built {
    /// What should exist.
    objects: Vec<Object>,
    /// Kinds that the spec needs and the cluster lacks, each with a fix.
    missing_apis: Vec<String>,
    /// Why the workload cannot be decided on.
    stop: Option<Stop>,
    /// What to find out.
    queries: Vec<Query>,
}

impl Built {
    /// Adds an object of a kind that every cluster has.
    fn add<K: kube::Resource<DynamicType = ()> + Serialize>(&mut self, object: &K) {
        self.objects.push(Object::new(object));
    }

    /// Ends the plan before the workload: what runs stays as it is, with what it needs.
    fn stop(&mut self, cx: &Cx<'_>, stop: Stop) {
        let workload = |one: &Ref| ["Deployment", "Secret", "ConfigMap"].contains(&&*one.gvk.kind);
        let left = cx.live().iter().map(|(reference, _)| reference).filter(|one| workload(one) && one.name == cx.name);
        self.objects.extend(left.cloned().map(Object::unmanaged));
        self.stop = Some(stop);
    }
}

/// What this service should look like. A mistake of the user is part of the answer, never an error.
pub(crate) fn plan<S>(object: &Resource<S>, facts: &Facts, settings: &Settings) -> Plan<NemoStatus>
where
    S: Kind<Status = NemoStatus> + Service,
{
    let cx = Cx::new(object, facts, settings);
    let faults = invalid::fatal(&cx);
    if !faults.is_empty() {
        return status::invalid(&cx, &faults);
    }
    let (parts, mut built) = (cx.parts(), Built::default());
    built.objects.extend(access::objects(&cx, &parts));
    routes::add(&cx, &mut built);
    built.objects.extend(claim::object(&cx, &parts));
    if let Err(stop) = workload(&cx, &parts, &mut built) {
        built.stop(&cx, stop);
    }
    built.missing_apis.extend(dependencies::missing_apis(&cx, &parts));
    let objects: Vec<Object> = std::mem::take(&mut built.objects).into_iter().map(|one| cx.child(one)).collect();
    let objects = claim::kept(&cx, objects);
    let observed = status::observed(&cx, &parts, &objects, built);
    Plan { objects: Some(objects), ..observed }
}

/// The Deployment, and what its pods cannot start without.
fn workload(cx: &Cx<'_>, parts: &Parts, built: &mut Built) -> Result<(), Stop> {
    if let Some(stop) = references::blocking(cx, parts) {
        return Err(stop);
    }
    let config = config::made(cx)?;
    built.objects.extend(config.iter().map(|config| config.object.clone()));
    if let Some(key) = parts.connection {
        let (secret, questions) = connection::secret(cx, key);
        built.queries.extend(questions);
        built.objects.push(secret?);
    }
    built.objects.push(deployment::object(cx, parts, config.as_ref()));
    Ok(())
}

/// The answer when something outside the spec is in the way: nothing more is written until it is gone.
pub(crate) fn blocked<S>(
    object: &Resource<S>,
    facts: &Facts,
    settings: &Settings,
    reason: &str,
    message: &str,
) -> Plan<NemoStatus>
where
    S: Kind<Status = NemoStatus> + Service,
{
    status::failed(&Cx::new(object, facts, settings), reason, message)
}
