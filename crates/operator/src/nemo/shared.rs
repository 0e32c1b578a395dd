//! What the controllers of all NeMo services have in common: what a plan looks at, and which changes affect it.

use capstan_api::nemo::{NemoDatastore, NemoEntitystore, NemoStatus};
use capstan_api::nim::NimService;
use capstan_api::{Kind, Resource};
use capstan_operands::nemo::{self, Service};
use capstan_plan::kit::INSTANCE;
use capstan_plan::{Gvk, Live};
use capstan_runtime::cache::View;
use capstan_runtime::controller::DEBOUNCE;
use capstan_runtime::{Cache, Change, Key, Requeue};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::Value;

/// States that are shown even when nothing is in them.
pub(super) const STATES: &[&str] = &["Failed", "NotReady", "Ready"];

/// Adds what a service names, and its pods.
pub(super) fn select<'a, S>(object: &Resource<S>, mut view: View<'a>) -> View<'a>
where
    S: Kind<Status = NemoStatus> + Service,
{
    for reference in nemo::references(object) {
        view = view.object(&reference);
    }
    view.pods_of(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// Services follow their pods, which change in bursts, and what they mention.
pub(super) fn affected<S>(cache: &Cache, change: &Change<'_>) -> Vec<Requeue>
where
    S: Kind<Status = NemoStatus> + Service,
{
    Requeue::all(keys::<S>(cache, change), DEBOUNCE)
}

fn keys<S>(cache: &Cache, change: &Change<'_>) -> Vec<Key>
where
    S: Kind<Status = NemoStatus> + Service,
{
    let (own, namespace, name) = (Gvk::of::<Resource<S>>(), &change.key.namespace, &change.key.name);
    if change.is::<Pod>() {
        let labels = &change.last()["metadata"]["labels"];
        let ours = labels["app.kubernetes.io/part-of"] == nemo::part_of::<S>();
        let name = labels[INSTANCE].as_str().filter(|_| ours);
        return name.map(|name| Key::new(namespace, name)).into_iter().collect();
    }
    let candidates = if change.is::<Secret>() || change.is::<ConfigMap>() {
        cache.mentioning(&own, namespace, name)
    } else if change.is::<PersistentVolumeClaim>() {
        // The name of a claim may follow from that of the service.
        cache.in_namespace(&own, namespace)
    } else if change.is::<CustomResourceDefinition>() && has_come_or_gone(change) {
        cache.all(&own)
    } else if is_dependency(change) && has_another_state(change) {
        cache.all(&own).into_iter().filter(|live| holds_text(&live["spec"], name)).collect()
    } else {
        Vec::new()
    };
    let gvk = change.kind.gvk();
    let read = |live: &Value| Resource::<S>::deserialize(live).ok();
    let hit = |live: &Value| read(live).is_some_and(|one| nemo::mentions(&one, &gvk, namespace, name));
    candidates.iter().filter(|live| hit(live)).map(|live| Key::of(live)).collect()
}

/// Other services that a service may call.
fn is_dependency(change: &Change<'_>) -> bool {
    change.is::<NemoDatastore>() || change.is::<NemoEntitystore>() || change.is::<NimService>()
}

fn has_come_or_gone(change: &Change<'_>) -> bool {
    change.old.is_none() || change.new.is_none()
}

fn has_another_state(change: &Change<'_>) -> bool {
    change.old.map(state) != change.new.map(state)
}

fn state(live: &Live) -> &Value {
    &live["status"]["state"]
}

/// Whether any text in `value` contains `text`, as a URL contains the name of a host.
fn holds_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(one) => one.contains(text),
        Value::Array(items) => items.iter().any(|item| holds_text(item, text)),
        Value::Object(fields) => fields.values().any(|field| holds_text(field, text)),
        _ => false,
    }
}
