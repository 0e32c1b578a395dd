//! The controller of NIMServices.

use capstan_api::nim::NimService;
use capstan_api::nim::service::InferencePlatform;
use capstan_operands::nim::nim_service;
use capstan_plan::kit::INSTANCE;
use capstan_plan::{Facts, Gvk, Live, Ref};
use capstan_runtime::ask::Asker;
use capstan_runtime::{Action, Cache, Change, Controller, Error, Key, Runtime};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::orchestrator::Nodes;
use crate::schemas::Schemas;
use crate::settle::settle;
use crate::{Asking, Options};

/// Finalizer that the NIM Operator leaves on services: theirs is nothing to clean up here, so it only has to go.
const FINALIZER: &str = "finalizer.nimservice.apps.nvidia.com";

/// KServe's settings.
const KSERVE: &str = "inferenceservice-config";

/// What a reconcile works with.
#[derive(Clone)]
struct Cx {
    runtime: Runtime,
    schemas: Schemas,
    nodes: Nodes,
    asker: Asker,
    registries: bool,
    kserve: Option<String>,
}

/// Runs the controller until `stop`.
pub(crate) fn start(
    tasks: &mut JoinSet<()>,
    runtime: &Runtime,
    schemas: &Schemas,
    nodes: Nodes,
    asking: &Asking,
    options: &Options,
    stop: &CancellationToken,
) {
    let cache = runtime.cache.clone();
    let watching = move |change: &Change<'_>| affected(&cache, change);
    let controller = Controller::of::<NimService>("nimservice", runtime).gathering(watching);
    let queue = controller.queue();
    schemas.wake::<NimService>(queue.clone(), &runtime.cache);
    let cx = Cx {
        runtime: runtime.clone(),
        schemas: schemas.clone(),
        nodes,
        asker: asking.asker(queue.clone()),
        registries: asking.registries,
        kserve: options.kserve_namespace.clone(),
    };
    let (cache, ending) = (runtime.cache.clone(), stop.clone());
    tasks.spawn(async move {
        // A kind that comes or goes may be what a service waits for.
        let follow = async {
            cache.synced().await;
            let mut known = cache.served();
            loop {
                known = cache.served_other_than(&known).await;
                cache.keys(&Gvk::of::<NimService>()).into_iter().for_each(|key| queue.add(key));
            }
        };
        ending.run_until_cancelled(follow).await;
    });
    tasks.spawn(controller.run(stop.clone(), move |key| reconcile(cx.clone(), key)));
}

/// Makes one service what its spec says, and says how it is doing.
async fn reconcile(cx: Cx, key: Key) -> Result<Action, Error> {
    let runtime = &cx.runtime;
    let Some(service) = runtime.cache.typed::<NimService>(&key)? else {
        cx.asker.ask(&key, &[]);
        return Ok(Action::Wait);
    };
    let uid = service.uid().unwrap_or_default();
    let reference = Ref::of::<NimService>(&key.namespace, &key.name);
    if service.metadata.deletion_timestamp.is_some() {
        cx.asker.ask(&key, &[]);
        runtime.writer.remove_finalizer(&reference, FINALIZER).await?;
        return Ok(Action::Wait);
    }
    let mut facts = facts(runtime, cx.kserve.as_deref(), &service);
    facts.skew = cx.schemas.skew(&reference);
    facts.answers = cx.asker.answers(&key);
    facts.registries = cx.registries;
    facts.orchestrator = cx.nodes.orchestrator();
    let mut plan = nim_service::plan(&service, &facts);
    while cx.asker.ask(&key, &plan.questions) {
        facts.answers = cx.asker.answers(&key);
        plan = nim_service::plan(&service, &facts);
    }
    let blocked = |reason: &str, message: &str| nim_service::blocked(&service, &facts, reason, message);
    settle(runtime, &reference, &uid, &facts, plan, blocked).await
}

/// What may be known about a service: what it owns, what it names, its pods and its claims. No requests.
pub(crate) fn facts(runtime: &Runtime, kserve: Option<&str>, service: &NimService) -> Facts {
    let namespace = service.namespace().unwrap_or_default();
    let mut view = runtime.cache.view().owned_by(&service.uid().unwrap_or_default());
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
    view.facts(runtime.clock.now())
}

/// Services for which a change of something else matters.
fn affected(cache: &Cache, change: &Change<'_>) -> Vec<Key> {
    // Every service is looked at when the cache is complete.
    let Some(object) = change.new.or(change.old).filter(|_| cache.is_synced()) else { return Vec::new() };
    let (kind, namespace) = (change.kind.kind, &change.key.namespace);
    let mentioning = |services: Vec<Live>, quick: &dyn Fn(&Value) -> bool| {
        let gvk = change.kind.gvk();
        let read = |live: &Value| NimService::deserialize(live).ok();
        let hit = |live: &Value| {
            quick(&live["spec"]) && read(live).is_some_and(|one| nim_service::mentions(&one, &gvk, object))
        };
        services.iter().filter(|live| hit(live)).map(|live| Key::of(live)).collect()
    };
    let services = Gvk::of::<NimService>();
    match kind {
        "Pod" => {
            let labels = &object["metadata"]["labels"];
            let ours = labels["app.kubernetes.io/part-of"] == "nim-service";
            let name = labels[INSTANCE].as_str().filter(|_| ours);
            name.map(|name| Key::new(namespace, name)).into_iter().collect()
        }
        "ConfigMap" if &*change.key.name == KSERVE => {
            let all = cache.all(&Gvk::of::<NimService>());
            let kserve = all.iter().filter(|live| live["spec"]["inferencePlatform"] == "kserve");
            kserve.map(|live| Key::of(live)).collect()
        }
        "Secret" | "ConfigMap" | "PersistentVolumeClaim" | "NIMCache" | "ComputeDomain" => {
            let named = cache.mentioning(&services, namespace, &change.key.name);
            mentioning(named, &|spec| has_text(spec, &change.key.name))
        }
        "ResourceClaim" => {
            let all = cache.in_namespace(&services, namespace);
            mentioning(all, &|spec| !spec["draResources"].is_null() || !spec["multiNode"].is_null())
        }
        _ => Vec::new(),
    }
}

/// Whether any text in `value` is `text`. A claim whose name we make is our own child, of whose changes we are told.
fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(one) => one == text,
        Value::Array(items) => items.iter().any(|item| has_text(item, text)),
        Value::Object(fields) => fields.values().any(|field| has_text(field, text)),
        _ => false,
    }
}
