//! What is wrong with a spec, each with field, value and fix: for the plan and for admission.

use capstan_api::nemo::NemoStatus;
use capstan_api::{Kind, Resource};
use capstan_plan::Facts;
use capstan_plan::kit::storage::claim_faults;
use jiff::Timestamp;

use super::description::{Fault, Form, Parts, Service, Settings, Weight};
use super::{Cx, claim, routes};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const SERVICE_TYPES: [&str; 3] = ["ClusterIP", "NodePort", "LoadBalancer"];

/// What admission says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What must be mended.
    pub errors: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Mistakes with which there is no plan.
pub(super) fn fatal(cx: &Cx<'_>) -> Vec<String> {
    of_weight(cx, Weight::Fatal)
}

/// Messages about fields that the plan passes over.
pub(super) fn passed_over(cx: &Cx<'_>) -> Vec<String> {
    of_weight(cx, Weight::PassedOver)
}

fn of_weight(cx: &Cx<'_>, weight: Weight) -> Vec<String> {
    faults(cx, &cx.parts()).into_iter().filter(|fault| fault.weight == weight).map(|fault| fault.message).collect()
}

/// What to say about a service before it is stored.
pub fn check<S>(object: &Resource<S>) -> Verdict
where
    S: Kind<Status = NemoStatus> + Service,
{
    let (facts, settings) = (Facts::at(Timestamp::UNIX_EPOCH), Settings::default());
    let cx = Cx::new(object, &facts, &settings);
    let parts = cx.parts();
    let errors = faults(&cx, &parts).into_iter().map(|fault| fault.message).collect();
    let mut warnings: Vec<String> = claim::is_narrow(&cx, &parts).into_iter().collect();
    let old = object.spec.server().expose.as_ref().and_then(|expose| expose.ingress.as_ref());
    if old.is_some_and(|ingress| ingress.enabled == Some(true)) {
        warnings.push("spec.expose.ingress is deprecated: use spec.expose.router.ingress".into());
    }
    if object.spec.server().pod_affinity.is_some() {
        warnings.push("spec.podAffinity is deprecated: use spec.affinity.podAffinity".into());
    }
    Verdict { errors, warnings }
}

struct List(Vec<Fault>);

impl List {
    fn add(&mut self, weight: Weight, message: impl Into<String>) {
        self.0.push(Fault { weight, message: message.into() });
    }
}

/// Every mistake, in the order of the fields.
fn faults(cx: &Cx<'_>, parts: &Parts) -> Vec<Fault> {
    let mut list = List(Vec::new());
    of_pod(cx, &mut list);
    of_exposure(cx, &mut list);
    of_scale(cx, &mut list);
    of_claim(cx, parts, &mut list);
    of_names(cx, parts, &mut list);
    list.0.extend(parts.faults.iter().cloned());
    list.0
}

fn of_pod(cx: &Cx<'_>, list: &mut List) {
    let image = &cx.service.server().image;
    for (field, value) in [("repository", &image.repository), ("tag", &image.tag)] {
        if value.is_empty() {
            list.add(Weight::Fatal, format!("spec.image.{field} is empty: name the image of the service"));
        }
    }
    if let Some(policy) = image.pull_policy.as_deref().filter(|policy| !policy.is_empty())
        && !PULL_POLICIES.contains(&policy)
    {
        let message = format!("spec.image.pullPolicy is {policy:?}: use one of {}", PULL_POLICIES.join(", "));
        list.add(Weight::Fatal, message);
    }
    if cx.name.len() > 59 {
        let message =
            format!("metadata.name has {} characters: use at most 59, names of its objects add to it", cx.name.len());
        list.add(Weight::Fatal, message);
    }
}

fn of_exposure(cx: &Cx<'_>, list: &mut List) {
    let service = routes::exposure(cx);
    if let Some(kind) = service.and_then(|service| service.type_.as_deref()).filter(|kind| !kind.is_empty())
        && !SERVICE_TYPES.contains(&kind)
    {
        let message = format!("spec.expose.service.type is {kind:?}: use one of {}", SERVICE_TYPES.join(", "));
        list.add(Weight::Fatal, message);
    }
    let further = cx.service.about().ports.iter().skip(1);
    for (name, number) in further.filter(|(_, number)| *number == routes::port(cx)) {
        let message = format!("spec.expose.service.port is {number}, which is the port {name:?} already: use another");
        list.add(Weight::Fatal, message);
    }
    for (set, field) in [
        (service.is_some_and(|service| service.grpc_port.is_some()), "grpcPort"),
        (service.is_some_and(|service| service.metrics_port.is_some()), "metricsPort"),
    ] {
        if set {
            list.add(Weight::Refused, format!("spec.expose.service.{field} is set: NeMo servers have none, remove it"));
        }
    }
    of_ways_in(cx, list);
}

fn of_ways_in(cx: &Cx<'_>, list: &mut List) {
    let old = cx.service.server().expose.as_ref().and_then(|expose| expose.ingress.as_ref());
    let old = old.filter(|ingress| ingress.enabled == Some(true));
    if old.is_some_and(|ingress| ingress.spec.is_none()) {
        let message = "spec.expose.ingress is enabled without spec: set ingressClassName and host";
        list.add(Weight::PassedOver, message);
    }
    let Some(router) = routes::router(cx) else { return };
    for (set, field) in [(router.ingress.is_some(), "ingress"), (router.gateway.is_some(), "gateway")] {
        if set && routes::host(cx).is_none() {
            let fix = "set it to the domain under which clients reach the cluster";
            let message = format!("spec.expose.router.hostDomainName is not set, but {field} needs it: {fix}");
            list.add(Weight::PassedOver, message);
        }
    }
    if router.ingress.is_some() && router.gateway.is_some() {
        list.add(Weight::Refused, "spec.expose.router has both ingress and gateway: remove one of them");
    }
    if old.is_some() && router.ingress.is_some() {
        let message = "spec.expose.ingress is enabled beside spec.expose.router.ingress: keep the latter";
        list.add(Weight::Refused, message);
    }
    if router.gateway.as_ref().is_some_and(|gateway| gateway.grpc_routes_enabled == Some(true)) {
        let message = "spec.expose.router.gateway.grpcRoutesEnabled is true: NeMo servers do not speak gRPC, remove it";
        list.add(Weight::Refused, message);
    }
}

fn of_scale(cx: &Cx<'_>, list: &mut List) {
    if !cx.autoscaled() {
        return;
    }
    let server = cx.service.server();
    let limits = server.scale.as_ref().and_then(|scale| scale.hpa.as_ref());
    if limits.is_none_or(|limits| limits.max_replicas < 1) {
        let message = "spec.scale.hpa.maxReplicas is not set, but autoscaling is enabled: set the most replicas to run";
        list.add(Weight::Fatal, message);
    }
    if let Some(replicas) = server.replicas {
        let fix = "remove replicas or switch autoscaling off";
        list.add(Weight::Refused, format!("spec.replicas is {replicas}, but spec.scale.enabled is true: {fix}"));
    }
}

/// A claim that is there is used as it is, whatever the spec says of it.
fn of_claim(cx: &Cx<'_>, parts: &Parts, list: &mut List) {
    let Some(own) = &parts.claim else { return };
    let absent = claim::live(cx, own).is_none() && own.spec.create == Some(true);
    let weight = if absent { Weight::Fatal } else { Weight::Refused };
    for message in claim_faults(&own.spec, own.field) {
        list.add(weight, message);
    }
}

/// What the service makes has its own name: nothing of the user may have it.
fn of_names(cx: &Cx<'_>, parts: &Parts, list: &mut List) {
    let config = cx.service.config(&cx.place(Form::Own), cx.live()).is_some();
    let made = |kind: &str| match kind {
        "Secret" => parts.connection.is_some(),
        "ConfigMap" => config,
        _ => false,
    };
    let taken = parts.references.iter().filter(|one| one.what.name == cx.name && made(&one.what.gvk.kind));
    for one in taken {
        let kind = &one.what.gvk.kind;
        let message = format!(
            "{} is {:?}, the name of the {kind} that is made for this object: give one of them another name",
            one.field, cx.name
        );
        list.add(Weight::Fatal, message);
    }
}
