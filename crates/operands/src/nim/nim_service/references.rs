//! Objects that a service references: they must exist, and their changes requeue it.

use capstan_api::compute_domain::ComputeDomain;
use capstan_api::nim::{NimCache, NimService};
use capstan_plan::kit::proxy;
use capstan_plan::kit::rolling::{Contents, contents};
use capstan_plan::kit::storage::claim_name;
use capstan_plan::{Facts, Gvk, Ref};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, EnvVar, PersistentVolumeClaim, Secret};
use kube::ResourceExt;
use serde_json::Value;

use super::storage::{Storage, sources};
use super::{Cx, devices, env, storage};

/// All referenced objects, in its namespace.
pub fn references(service: &NimService) -> Vec<Ref> {
    let (spec, namespace) = (&service.spec, service.namespace().unwrap_or_default());
    let facts = Facts::at(Timestamp::UNIX_EPOCH);
    let cx = Cx::new(service, &facts);
    let mut list = needed(&cx);
    let pull = [&spec.init_containers, &spec.sidecar_containers].into_iter().flatten().flatten();
    let images = std::iter::once(&spec.image).chain(pull.map(|container| &container.image));
    let secrets = images.flat_map(|image| image.pull_secrets.iter().flatten());
    list.extend(secrets.map(|name| Ref::of::<Secret>(&namespace, name)));
    list.extend(storage::cache_name(spec).map(|name| Ref::of::<NimCache>(&namespace, name)));
    if let Some(Storage::Claim(own)) = sources(spec).first() {
        list.push(Ref::of::<PersistentVolumeClaim>(&namespace, &claim_name(own, &cx.name)));
    }
    let domain = spec.multi_node.as_ref().and_then(|spread| spread.compute_domain.as_ref());
    let named = domain.and_then(|domain| domain.name.as_deref());
    list.extend(named.map(|name| Ref::of::<ComputeDomain>(&namespace, name)));
    list
}

/// Whether `service` depends on `object`.
pub fn mentions(service: &NimService, gvk: &Gvk, object: &Value) -> bool {
    let named = |one: &Ref| one.gvk == *gvk && one.name == object["metadata"]["name"].as_str().unwrap_or_default();
    if gvk.kind == "ResourceClaim" {
        let facts = Facts::at(Timestamp::UNIX_EPOCH);
        return devices::is_ours(&Cx::new(service, &facts), object);
    }
    references(service).iter().any(named)
}

/// Required references of all pods.
fn needed(cx: &Cx<'_>) -> Vec<Ref> {
    [by_server(cx), by_picker(cx)].concat()
}

/// Required references of the endpoint picker.
fn by_picker(cx: &Cx<'_>) -> Vec<Ref> {
    let Some(epp) = super::routes::router(cx).and_then(|router| router.epp_config.as_ref()) else { return Vec::new() };
    let config = epp.config_map_ref.as_ref().filter(|one| one.optional != Some(true));
    let mut list: Vec<Ref> = config.map(|one| Ref::of::<ConfigMap>(&cx.namespace, &one.name)).into_iter().collect();
    list.extend(epp.container_spec.env.iter().flatten().filter_map(|one| of_variable(&cx.namespace, one)));
    list
}

/// Required references of the model server.
fn by_server(cx: &Cx<'_>) -> Vec<Ref> {
    let (spec, namespace) = (cx.spec(), &cx.namespace);
    let mut list: Vec<Ref> = env::auth_secret(cx).map(|name| Ref::of::<Secret>(namespace, name)).into_iter().collect();
    let others = [&spec.init_containers, &spec.sidecar_containers].into_iter().flatten().flatten();
    let variables = others.flat_map(|container| container.env.iter().flatten()).chain(spec.env.iter().flatten());
    list.extend(variables.filter_map(|one| of_variable(namespace, one)));
    list.extend(proxy::certificates(spec.proxy.as_ref()).map(|name| Ref::of::<ConfigMap>(namespace, name)));
    if let Some(Storage::Claim(own)) = sources(spec).first()
        && own.create != Some(true)
    {
        list.push(Ref::of::<PersistentVolumeClaim>(namespace, &claim_name(own, &cx.name)));
    }
    list
}

/// The required reference of an environment variable.
fn of_variable(namespace: &str, variable: &EnvVar) -> Option<Ref> {
    let source = variable.value_from.as_ref()?;
    let secret = source.secret_key_ref.as_ref().filter(|one| one.optional != Some(true));
    let config = source.config_map_key_ref.as_ref().filter(|one| one.optional != Some(true));
    let secret = secret.map(|one| Ref::of::<Secret>(namespace, &one.name));
    secret.or_else(|| config.map(|one| Ref::of::<ConfigMap>(namespace, &one.name)))
}

/// References of the model server.
pub(super) fn of_server(cx: &Cx<'_>) -> Contents {
    contents(&cx.facts.live, by_server(cx))
}

/// References of the endpoint picker.
pub(super) fn of_picker(cx: &Cx<'_>) -> Contents {
    contents(&cx.facts.live, by_picker(cx))
}

/// Missing references, each with a fix.
pub(super) fn missing(cx: &Cx<'_>) -> Vec<String> {
    let known = |one: &Ref| cx.facts.served.contains(&one.gvk);
    let mut list: Vec<String> = needed(cx)
        .into_iter()
        .filter(|one| known(one) && cx.facts.live.get(one).is_none())
        .map(|one| format!("{one} does not exist: create it, and the service goes on by itself"))
        .collect();
    list.dedup();
    list
}
