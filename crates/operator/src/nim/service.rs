//! The controller of NIMServices.

use capstan_api::compute_domain::ComputeDomain;
use capstan_api::nim::service::InferencePlatform;
use capstan_api::nim::{NimCache, NimService, NimServiceStatus};
use capstan_operands::nim::nim_service;
use capstan_plan::kit::INSTANCE;
use capstan_plan::{Facts, Gvk, Live, Plan, Ref};
use capstan_runtime::cache::View;
use capstan_runtime::controller::DEBOUNCE;
use capstan_runtime::{Cache, Change, Key, Requeue, Runtime};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::Value;

use crate::controller::{Controller, Finalizer};
use crate::states::StateMetric;

/// KServe's ConfigMap.
const KSERVE: &str = "inferenceservice-config";

pub(super) struct NimServices {
    /// Namespace of KServe; detected by its ConfigMap when unset.
    pub(super) kserve: Option<String>,
}

impl Controller for NimServices {
    type Object = NimService;
    type Status = NimServiceStatus;
    type Context = ();

    const NAME: &'static str = "nimservice";
    const FINALIZER: Finalizer = Finalizer::Inherited("finalizer.nimservice.apps.nvidia.com");
    const STATE_METRIC: Option<StateMetric> =
        Some(StateMetric { name: "nimService_status_total", states: &["Failed", "NotReady", "Pending", "Ready"] });

    fn select<'a>(&self, service: &NimService, view: View<'a>) -> View<'a> {
        select(self.kserve.as_deref(), service, view)
    }

    fn context(&self, _: &NimService) {}

    fn plan(&self, service: &NimService, facts: &Facts, (): &()) -> Plan<NimServiceStatus> {
        nim_service::plan(service, facts)
    }

    fn blocked(
        &self,
        service: &NimService,
        facts: &Facts,
        (): &(),
        reason: &str,
        message: &str,
    ) -> Plan<NimServiceStatus> {
        nim_service::blocked(service, facts, reason, message)
    }

    /// Changes of pods, which come in bursts, and of referenced objects affect services.
    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        Requeue::all(affected(cache, change), DEBOUNCE)
    }
}

/// Facts for the review of a service. No requests.
pub(super) fn facts(runtime: &Runtime, kserve: Option<&str>, service: &NimService) -> Facts {
    let view = runtime.cache.view().owned_by(&service.uid().unwrap_or_default());
    select(kserve, service, view).facts(runtime.clock.now())
}

/// Adds the objects that a service references, its pods and its claims.
fn select<'a>(kserve: Option<&str>, service: &NimService, mut view: View<'a>) -> View<'a> {
    let namespace = service.namespace().unwrap_or_default();
    for reference in nim_service::references(service) {
        view = view.object(&reference);
    }
    view = view.pods_of(&namespace, &service.name_any());
    if service.spec.dra_resources.is_some() || service.spec.multi_node.is_some() {
        view = view.in_namespace(&Gvk::of::<ResourceClaim>(), &namespace);
    }
    if service.spec.inference_platform == Some(InferencePlatform::KServe) {
        view = match kserve {
            Some(namespace) => view.object(&Ref::of::<ConfigMap>(namespace, KSERVE)),
            None => view.named(&Gvk::of::<ConfigMap>(), KSERVE),
        };
    }
    view
}

/// The services that a change of another object affects.
fn affected(cache: &Cache, change: &Change<'_>) -> Vec<Key> {
    let (object, namespace) = (change.last(), &change.key.namespace);
    let services = Gvk::of::<NimService>();
    let mentioning = |services: Vec<Live>, quick: &dyn Fn(&Value) -> bool| {
        let gvk = change.kind.gvk();
        let read = |live: &Value| NimService::deserialize(live).ok();
        let hit = |live: &Value| {
            quick(&live["spec"]) && read(live).is_some_and(|one| nim_service::mentions(&one, &gvk, object))
        };
        services.iter().filter(|live| hit(live)).map(|live| Key::of(live)).collect()
    };
    if change.is::<Pod>() {
        let labels = &object["metadata"]["labels"];
        let ours = labels["app.kubernetes.io/part-of"] == "nim-service";
        let name = labels[INSTANCE].as_str().filter(|_| ours);
        return name.map(|name| Key::new(namespace, name)).into_iter().collect();
    }
    if change.is::<ConfigMap>() && &*change.key.name == KSERVE {
        let all = cache.all(&services);
        let kserve = all.iter().filter(|live| live["spec"]["inferencePlatform"] == "kserve");
        return kserve.map(|live| Key::of(live)).collect();
    }
    if change.is::<ResourceClaim>() {
        let all = cache.in_namespace(&services, namespace);
        return mentioning(all, &|spec| !spec["draResources"].is_null() || !spec["multiNode"].is_null());
    }
    let named = change.is::<Secret>()
        || change.is::<ConfigMap>()
        || change.is::<PersistentVolumeClaim>()
        || change.is::<NimCache>()
        || change.is::<ComputeDomain>();
    if !named {
        return Vec::new();
    }
    let candidates = cache.mentioning(&services, namespace, &change.key.name);
    mentioning(candidates, &|spec| has_text(spec, &change.key.name))
}

/// Whether any string in `value` is `text`. Claims that we name are owned, so their changes requeue the service anyway.
fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(one) => one == text,
        Value::Array(items) => items.iter().any(|item| has_text(item, text)),
        Value::Object(fields) => fields.values().any(|field| has_text(field, text)),
        _ => false,
    }
}
