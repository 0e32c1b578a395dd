//! What a service refers to by name: whether it is there, and which changes of it are changes for the service.

use capstan_api::common::Image;
use capstan_api::nemo::NemoStatus;
use capstan_api::{Kind, Resource};
use capstan_plan::{Facts, Gvk, Ref};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, EnvVar, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::description::{Parts, Reference, Service, Settings, Stop, Waits};
use super::{Cx, claim, dependencies};

/// Everything that a plan for `object` looks at, besides what the object owns.
pub fn references<S>(object: &Resource<S>) -> Vec<Ref>
where
    S: Kind<Status = NemoStatus> + Service,
{
    let (facts, settings) = (Facts::at(Timestamp::UNIX_EPOCH), Settings::default());
    let cx = Cx::new(object, &facts, &settings);
    let parts = cx.parts();
    let mut list: Vec<Ref> = all(&cx, &parts).into_iter().map(|one| one.what).collect();
    list.extend(parts.apis.iter().map(|api| Ref::of::<CustomResourceDefinition>("", api.crd)));
    list.extend(parts.endpoints.iter().filter_map(|endpoint| dependencies::candidate(&cx, endpoint)));
    if let Some(own) = &parts.claim {
        list.push(Ref::of::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(&cx.namespace, &claim::name(&cx, own)));
    }
    list
}

/// Whether a change of the object of that kind and name is a change for `object`.
pub fn mentions<S>(object: &Resource<S>, gvk: &Gvk, namespace: &str, name: &str) -> bool
where
    S: Kind<Status = NemoStatus> + Service,
{
    references(object).iter().any(|one| one.gvk == *gvk && one.namespace == namespace && one.name == name)
}

/// What the spec names: what the kind refers to, what variables are read from, and secrets of registries.
fn all(cx: &Cx<'_>, parts: &Parts) -> Vec<Reference> {
    let mut list = parts.references.clone();
    let server = cx.service.server();
    list.extend(server.env.iter().flatten().filter_map(|one| of_variable(cx, one)));
    list.extend(of_image(cx, &server.image));
    if let Some(own) = parts.claim.as_ref().filter(|own| own.spec.create != Some(true)) {
        list.push(Reference::claim(own.field, &cx.place(super::Form::Own), &claim::name(cx, own)));
    }
    list
}

fn of_image<'a>(cx: &'a Cx<'_>, image: &'a Image) -> impl Iterator<Item = Reference> + 'a {
    let secrets = image.pull_secrets.iter().flatten().filter(|name| !name.is_empty());
    secrets.map(|name| {
        let place = cx.place(super::Form::Own);
        // A registry may need none: the kubelet only warns.
        Reference::secret("spec.image.pullSecrets", &place, name, &[]).optional().not_at_start()
    })
}

/// What an environment variable of the user is read from, where it must be there.
fn of_variable(cx: &Cx<'_>, variable: &EnvVar) -> Option<Reference> {
    let source = variable.value_from.as_ref()?;
    let place = cx.place(super::Form::Own);
    let secret = source.secret_key_ref.as_ref().filter(|one| one.optional != Some(true));
    let config = source.config_map_key_ref.as_ref().filter(|one| one.optional != Some(true));
    let secret = secret.map(|one| Reference::secret("spec.env", &place, &one.name, &[&one.key]));
    secret.or_else(|| {
        config.map(|one| Reference {
            keys: vec![one.key.clone()],
            ..Reference::config_map("spec.env", &place, &one.name)
        })
    })
}

/// What pods read at their start.
pub(super) fn read_at_start(cx: &Cx<'_>, parts: &Parts) -> Vec<Ref> {
    all(cx, parts).into_iter().filter(|one| one.read_at_start).map(|one| one.what).collect()
}

/// What is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// What waits for it.
    pub(super) waits: Waits,
    /// Stable reason.
    pub(super) reason: &'static str,
    /// Object, key, field and fix.
    pub(super) message: String,
}

/// Everything that is not there and that something waits for.
pub(super) fn missing(cx: &Cx<'_>, parts: &Parts) -> Vec<Missing> {
    let mut list: Vec<Missing> = Vec::new();
    for one in all(cx, parts).iter().filter(|one| one.waits != Waits::Nothing && !one.what.name.is_empty()) {
        if let Some(missing) = fault(cx, one).filter(|missing| !list.iter().any(|old| old.message == missing.message)) {
            list.push(missing);
        }
    }
    list
}

/// Why the Deployment cannot be decided on.
pub(super) fn blocking(cx: &Cx<'_>, parts: &Parts) -> Option<Stop> {
    let missing: Vec<Missing> =
        missing(cx, parts).into_iter().filter(|missing| missing.waits == Waits::Deployment).collect();
    let first = missing.first()?;
    let messages: Vec<&str> = missing.iter().map(|one| one.message.as_str()).collect();
    Some(Stop::wait(first.reason, messages.join("; ")))
}

fn fault(cx: &Cx<'_>, one: &Reference) -> Option<Missing> {
    let Reference { field, what, keys, waits, .. } = one;
    let (absent, keyless) = reasons(&what.gvk);
    let Some(live) = cx.live().get(what) else {
        let keys = if keys.is_empty() { String::new() } else { format!(" with key {}", keys.join(", ")) };
        let fix = match what.gvk.kind.as_ref() {
            "PersistentVolumeClaim" => "create it, or set create: true with a size".to_owned(),
            _ => format!("create it{keys}, and the service goes on by itself"),
        };
        let message = format!("{what}, which {field} names, does not exist: {fix}");
        return Some(Missing { waits: *waits, reason: absent, message });
    };
    let has = |key: &&String| !live["data"][key.as_str()].is_null() || !live["binaryData"][key.as_str()].is_null();
    let lacking: Vec<&str> = keys.iter().filter(|key| !has(key)).map(String::as_str).collect();
    (!lacking.is_empty()).then(|| {
        let message = format!(
            "{what}, which {field} names, has no key {}: add it, and the service goes on by itself",
            lacking.join(", ")
        );
        Missing { waits: *waits, reason: keyless, message }
    })
}

fn reasons(gvk: &Gvk) -> (&'static str, &'static str) {
    if *gvk == Gvk::of::<Secret>() {
        ("SecretNotFound", "SecretKeyNotFound")
    } else if *gvk == Gvk::of::<ConfigMap>() {
        ("ConfigMapNotFound", "ConfigMapKeyNotFound")
    } else {
        ("PVCNotFound", "PVCNotFound")
    }
}
