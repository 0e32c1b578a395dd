//! Spec validation, each error with field, value and fix: for plans and admission.

use std::collections::BTreeSet;

use capstan_api::nim::NimService;
use capstan_api::nim::dra::{ClaimCreation, DraResource};
use capstan_api::nim::service::InferencePlatform;
use capstan_plan::kit::proxy;
use capstan_plan::kit::quantity;
use capstan_plan::kit::storage::claim_faults;
use capstan_plan::{Facts, ServerVersion};

use super::storage::{Storage, sources};
use super::{Cx, kserve, routes, selectors, service};

/// A validation error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Its effect on the plan.
    weight: Weight,
    /// Stable reason of the condition.
    pub(super) reason: &'static str,
    /// Field, value and fix.
    pub(super) message: String,
}

/// Effect of an error on a service that is already stored with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// The spec cannot be acted on; live objects are left unchanged.
    Fatal,
    /// The field is ignored with a condition.
    Ignored,
    /// Only rejected at admission.
    Refused,
}

/// The admission result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Errors.
    pub errors: Vec<String>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// Errors that prevent a plan.
pub(super) fn fatal(cx: &Cx<'_>) -> Vec<Fault> {
    faults(cx).into_iter().filter(|fault| fault.weight == Weight::Fatal).collect()
}

/// Messages about ignored fields.
pub(super) fn ignored(cx: &Cx<'_>) -> Vec<String> {
    let faults = faults(cx).into_iter().filter(|fault| fault.weight == Weight::Ignored);
    faults.map(|fault| fault.message).collect()
}

/// Validates a service for admission; `old` is the stored one.
pub fn check(service: &NimService, old: Option<&NimService>, facts: &Facts) -> Verdict {
    let cx = Cx::new(service, facts);
    let mut errors: Vec<String> = faults(&cx).into_iter().map(|fault| fault.message).collect();
    if cx.platform() == InferencePlatform::KServe
        && let Err(message) = kserve::mode(&cx)
    {
        errors.push(message);
    }
    errors.extend(old.map(|old| changes(service, old)).unwrap_or_default());
    Verdict { errors, warnings: warnings(&cx) }
}

struct List(Vec<Fault>);

impl List {
    fn add(&mut self, weight: Weight, message: impl Into<String>) {
        self.0.push(Fault { weight, reason: "InvalidSpec", message: message.into() });
    }
}

/// All errors, in field order.
fn faults(cx: &Cx<'_>) -> Vec<Fault> {
    let mut list = List(Vec::new());
    of_pod(cx, &mut list);
    of_storage(cx, &mut list);
    of_exposure(cx, &mut list);
    of_scale(cx, &mut list);
    of_platform(cx, &mut list);
    of_devices(cx, &mut list);
    list.0
}

fn of_pod(cx: &Cx<'_>, list: &mut List) {
    let spec = cx.spec();
    for (field, value) in [("repository", &spec.image.repository), ("tag", &spec.image.tag)] {
        if value.is_empty() {
            let fix = "name the image to serve, such as nvcr.io/nim/meta/llama3 and 1.0";
            list.add(Weight::Fatal, format!("spec.image.{field} is empty: {fix}"));
        }
    }
    let claims = spec.resources.as_ref().and_then(|resources| resources.claims.as_ref()).map_or(0, Vec::len);
    if claims > 0 {
        let message = format!("spec.resources.claims has {claims} entries: list them in spec.draResources instead");
        list.add(Weight::Fatal, message);
    }
    if cx.name.len() > 59 {
        let message =
            format!("metadata.name has {} characters: use at most 59, names of its objects add to it", cx.name.len());
        list.add(Weight::Fatal, message);
    }
    for message in spec.proxy.iter().flat_map(|proxy| proxy::faults(proxy, "spec.proxy")) {
        list.add(Weight::Refused, message);
    }
}

fn of_storage(cx: &Cx<'_>, list: &mut List) {
    let cache = cx.spec().storage.as_ref().and_then(|storage| storage.nim_cache.clone()).unwrap_or_default();
    let some = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let nameless = some(&cache.profile) && !some(&cache.name);
    let sources = sources(cx.spec());
    if nameless {
        let message = "spec.storage.nimCache.profile is set without name: name the NIMCache that has the profile";
        list.add(if sources.is_empty() { Weight::Fatal } else { Weight::Ignored }, message);
    }
    match sources.as_slice() {
        // Reported above.
        [] if nameless => {}
        [] => {
            let message = "spec.storage names no place for the model: set nimCache, pvc, emptyDir or hostPath";
            list.add(Weight::Fatal, message);
        }
        [Storage::Claim(own)] => {
            claim_faults(own, "spec.storage.pvc").into_iter().for_each(|message| list.add(Weight::Fatal, message));
        }
        [_] => {}
        many => list.add(Weight::Fatal, format!("spec.storage names {} places for the model: keep one", many.len())),
    }
    let limit = cx.spec().storage.as_ref().and_then(|storage| storage.shared_memory_size_limit.as_ref());
    if let Some(limit) = limit
        && quantity::is_positive(limit) != Some(true)
    {
        let message = format!("spec.storage.sharedMemorySizeLimit is {:?}: give a size such as 16Gi", limit.0);
        list.add(Weight::Fatal, message);
    }
}

fn of_exposure(cx: &Cx<'_>, list: &mut List) {
    let Some(router) = routes::router(cx) else { return };
    for (set, field) in [(router.ingress.is_some(), "ingress"), (router.gateway.is_some(), "gateway")] {
        if set && routes::host(cx).is_none() {
            let fix = "set it to the domain under which clients reach the cluster";
            let message = format!("spec.expose.router.hostDomainName is not set, but {field} needs it: {fix}");
            list.add(Weight::Ignored, message);
        }
    }
    if router.ingress.is_some() && router.gateway.is_some() {
        list.add(Weight::Refused, "spec.expose.router has both ingress and gateway: remove one of them");
    }
    let raw = cx.spec().expose.as_ref().and_then(|expose| expose.ingress.as_ref());
    if raw.is_some_and(|raw| raw.enabled == Some(true)) && router.ingress.is_some() {
        let message = "spec.expose.ingress is enabled beside spec.expose.router.ingress: keep the latter";
        list.add(Weight::Refused, message);
    }
    let grpc = router.gateway.as_ref().is_some_and(|gateway| gateway.grpc_routes_enabled == Some(true));
    if grpc && service::exposure(cx).is_none_or(|service| service.grpc_port.is_none()) {
        let message = "spec.expose.service.grpcPort is not set, but gateway.grpcRoutesEnabled needs it: set the port of the gRPC API";
        list.add(Weight::Ignored, message);
    }
    let Some(epp) = &router.epp_config else { return };
    match (&epp.config, &epp.config_map_ref) {
        (None, None) => {
            let message = "spec.expose.router.eppConfig has no configuration: set config, or configMapRef";
            list.add(Weight::Fatal, message);
        }
        (Some(_), Some(_)) => {
            let message = "spec.expose.router.eppConfig has both config and configMapRef: remove one of them";
            list.add(Weight::Refused, message);
        }
        _ => {}
    }
}

fn of_scale(cx: &Cx<'_>, list: &mut List) {
    let spec = cx.spec();
    let metrics = spec.metrics.as_ref().filter(|metrics| metrics.enabled == Some(true));
    if metrics.is_some_and(|metrics| metrics.service_monitor.clone().unwrap_or_default() == Default::default()) {
        let fix = "give it the labels that your Prometheus selects by, or an interval";
        list.add(Weight::Refused, format!("spec.metrics.serviceMonitor is empty, but metrics are enabled: {fix}"));
    }
    if !cx.autoscaled() {
        return;
    }
    let limits = spec.scale.as_ref().and_then(|scale| scale.hpa.as_ref());
    if limits.is_none_or(|limits| limits.max_replicas < 1) {
        let message = "spec.scale.hpa.maxReplicas is not set, but autoscaling is enabled: set the most replicas to run";
        list.add(Weight::Fatal, message);
    }
    if let Some(replicas) = spec.replicas {
        let fix = "remove replicas or switch autoscaling off";
        list.add(Weight::Refused, format!("spec.replicas is {replicas}, but spec.scale.enabled is true: {fix}"));
    }
}

fn of_platform(cx: &Cx<'_>, list: &mut List) {
    let spec = cx.spec();
    if let Some(spread) = cx.multi_node() {
        if spread.parallelism.tensor.is_none() {
            let fix = "set the number of GPUs to use on each node";
            list.add(Weight::Fatal, format!("spec.multiNode.parallelism.tensor is not set: {fix}"));
        }
        if cx.autoscaled() {
            let fix = "switch autoscaling off or remove multiNode";
            list.add(Weight::Fatal, format!("spec.scale.enabled cannot be true with spec.multiNode: {fix}"));
        }
        if let Some(domain) = &spread.compute_domain {
            let named = domain.name.as_deref().is_some_and(|name| !name.is_empty());
            let fault = match (domain.create == Some(true), named) {
                (true, true) => Some("has both create: true and name: remove one of them"),
                (false, false) => Some("names no ComputeDomain: set name to an existing one, or create: true"),
                _ => None,
            };
            if let Some(fault) = fault {
                list.add(Weight::Fatal, format!("spec.multiNode.computeDomain {fault}"));
            }
        }
    }
    if cx.platform() != InferencePlatform::KServe {
        return;
    }
    if spec.multi_node.is_some() {
        let fix = "remove multiNode, or use inferencePlatform: standalone";
        list.add(Weight::Fatal, format!("spec.multiNode does not go with inferencePlatform: kserve: {fix}"));
    }
    let Ok(mode) = kserve::mode(cx) else { return };
    if kserve::is_standard(&mode) {
        return;
    }
    let expose = spec.expose.as_ref();
    let router = routes::router(cx);
    let fields = [
        (cx.autoscaled(), "spec.scale.enabled"),
        (
            expose.and_then(|one| one.ingress.as_ref()).is_some_and(|raw| raw.enabled == Some(true)),
            "spec.expose.ingress.enabled",
        ),
        (router.is_some_and(|router| router.ingress.is_some()), "spec.expose.router.ingress"),
        (router.is_some_and(|router| router.gateway.is_some()), "spec.expose.router.gateway"),
        (spec.metrics.as_ref().is_some_and(|metrics| metrics.enabled == Some(true)), "spec.metrics.enabled"),
    ];
    for (_, field) in fields.into_iter().filter(|(set, _)| *set) {
        let message =
            format!("{field} has no effect in KServe's mode {mode}: remove it, and use annotations of Knative");
        list.add(Weight::Ignored, message);
    }
}

/// Minimum server version for DRA.
const DRA_SINCE: ServerVersion = ServerVersion { major: 1, minor: 34, patch: 0 };

fn of_devices(cx: &Cx<'_>, list: &mut List) {
    let resources = cx.spec().dra_resources.as_deref().unwrap_or_default();
    if resources.is_empty() {
        return;
    }
    let before = list.0.len();
    if cx.facts.server < DRA_SINCE {
        let ServerVersion { major, minor, patch } = cx.facts.server;
        let fix = "upgrade it, or ask for GPUs in spec.resources.limits";
        let message =
            format!("spec.draResources needs Kubernetes v1.34.0, and this one is v{major}.{minor}.{patch}: {fix}");
        list.add(Weight::Fatal, message);
    }
    let mut seen = BTreeSet::new();
    let many = cx.spec().replicas.is_some_and(|replicas| replicas > 1) || cx.autoscaled();
    for (index, one) in resources.iter().enumerate() {
        let path = format!("spec.draResources[{index}]");
        of_source(one, &path, list);
        if let Some(name) = &one.resource_claim_name {
            if !seen.insert(name) {
                list.add(Weight::Fatal, format!("{path}.resourceClaimName is {name:?} a second time: name it once"));
            }
            if many {
                let fix = "use resourceClaimTemplateName, so that each replica gets devices of its own";
                list.add(Weight::Refused, format!("{path}.resourceClaimName is shared by all replicas: {fix}"));
            }
        }
        if let Some(creation) = &one.claim_creation_spec {
            of_creation(creation, &format!("{path}.claimCreationSpec"), list);
        }
    }
    for fault in &mut list.0[before..] {
        fault.reason = "DRAResourcesUnsupported";
    }
}

fn of_source(one: &DraResource, path: &str, list: &mut List) {
    let set = [
        one.resource_claim_name.is_some(),
        one.resource_claim_template_name.is_some(),
        one.claim_creation_spec.is_some(),
    ];
    let count = set.into_iter().filter(|set| *set).count();
    if count != 1 {
        let fix = "set exactly one of resourceClaimName, resourceClaimTemplateName and claimCreationSpec";
        list.add(Weight::Fatal, format!("{path} has {count} sources of devices: {fix}"));
    }
}

fn of_creation(creation: &ClaimCreation, path: &str, list: &mut List) {
    if creation.devices.is_empty() {
        list.add(Weight::Fatal, format!("{path}.devices is empty: say which devices to ask for"));
    }
    for (index, device) in creation.devices.iter().enumerate() {
        let path = format!("{path}.devices[{index}]");
        for (field, value) in [("name", &device.name), ("deviceClassName", &device.device_class_name)] {
            if value.is_empty() {
                list.add(Weight::Fatal, format!("{path}.{field} is empty: set it"));
            }
        }
        if device.driver_name.as_deref() == Some("") {
            list.add(Weight::Refused, format!("{path}.driverName is empty: set it, or remove it for gpu.nvidia.com"));
        }
        if device.count < 1 {
            list.add(Weight::Fatal, format!("{path}.count is {}: ask for at least 1 device", device.count));
        }
        let some = |set: bool| usize::from(set);
        let own = device.cel_expressions.as_ref().is_some_and(|list| !list.is_empty());
        let made = device.attribute_selectors.is_some() || device.capacity_selectors.is_some();
        if some(own) + some(made) == 2 {
            let fix = "use one way to select";
            list.add(Weight::Fatal, format!("{path}.celExpressions is set beside other selectors: {fix}"));
        }
        let keys = device.attribute_selectors.iter().flatten().map(|one| ("attributeSelectors", &one.key));
        let keys = keys.chain(device.capacity_selectors.iter().flatten().map(|one| ("capacitySelectors", &one.key)));
        let mut seen = BTreeSet::new();
        for (field, key) in keys {
            if !seen.insert(selectors::qualified(device, key)) {
                list.add(Weight::Refused, format!("{path}.{field} has the key {key:?} a second time: keep one"));
            }
        }
        if let Err(fault) = selectors::expressions(device) {
            list.add(Weight::Fatal, format!("{path}.{fault}"));
        }
    }
}

/// Immutable fields.
fn changes(new: &NimService, old: &NimService) -> Vec<String> {
    let mut errors = Vec::new();
    let fix = "create a new NIMService instead";
    if new.spec.multi_node != old.spec.multi_node {
        errors.push(format!("spec.multiNode cannot change after creation: {fix}"));
    }
    let claim = |service: &NimService| service.spec.storage.as_ref().and_then(|storage| storage.pvc.clone());
    if claim(old).is_some_and(|claim| claim.create == Some(true)) && claim(new) != claim(old) {
        errors.push(format!("spec.storage.pvc cannot change once it was created for the service: {fix}"));
    }
    let devices = old.spec.dra_resources.as_ref().is_some_and(|list| !list.is_empty());
    if devices && new.spec.dra_resources != old.spec.dra_resources {
        errors.push(format!("spec.draResources cannot change after creation: {fix}"));
    }
    errors
}

fn warnings(cx: &Cx<'_>) -> Vec<String> {
    let (spec, mut list) = (cx.spec(), Vec::new());
    if spec.auth_secret.as_deref().unwrap_or_default().is_empty() {
        list.push(
            "spec.authSecret is not set: no key is injected, which only works where nothing has to be fetched".into(),
        );
    }
    let raw = spec.expose.as_ref().and_then(|expose| expose.ingress.as_ref());
    if raw.is_some_and(|raw| raw.enabled == Some(true)) {
        list.push("spec.expose.ingress is deprecated: use spec.expose.router.ingress".into());
    }
    let balanced = service::exposure(cx).is_some_and(|service| service.type_.as_deref() == Some("LoadBalancer"));
    if balanced && routes::router(cx).is_some_and(|router| router.ingress.is_some() || router.gateway.is_some()) {
        list.push("spec.expose.service.type is LoadBalancer beside a router: clients get two ways in".into());
    }
    list
}
