//! The controller of NIMCaches.

use capstan_api::nim::{NimBuild, NimCache};
use capstan_operands::nim::nim_cache::{self, Seen};
use capstan_plan::{Gvk, LiveObjects, Ref};
use capstan_runtime::read::Part;
use capstan_runtime::{Action, Change, Error, Key, Runtime};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::ResourceExt;

use crate::settle::settle;
use crate::{Cx, progress};

/// Finalizer that the NIM Operator leaves on caches: all that is to clean up is owned, so it only has to go.
const FINALIZER: &str = "finalizer.nimcache.apps.nvidia.com";

/// No manifest is longer: the largest that are known have a few hundred profiles.
const MANIFEST: u32 = 16 << 20;

/// Makes one cache what its spec says, and says how it is doing.
pub(crate) async fn reconcile(cx: Cx, key: Key) -> Result<Action, Error> {
    let runtime = &cx.runtime;
    let Some(cache) = runtime.cache.typed::<NimCache>(&key)? else {
        cx.asker.ask(&key, &[]);
        return Ok(Action::Wait);
    };
    let uid = cache.uid().unwrap_or_default();
    let reference = Ref::of::<NimCache>(&key.namespace, &key.name);
    if cache.metadata.deletion_timestamp.is_some() {
        cx.asker.ask(&key, &[]);
        runtime.writer.remove_finalizer(&reference, FINALIZER).await?;
        return Ok(Action::Wait);
    }
    let job = runtime.cache.get(&Ref::of::<Job>(&key.namespace, &format!("{}-job", key.name)));
    let job = job.and_then(|job| job["metadata"]["uid"].as_str().map(str::to_owned)).unwrap_or_default();
    let view = runtime
        .cache
        .view()
        .owned_by(&uid)
        .owned_by(&job)
        .in_namespace(&Gvk::of::<NimCache>(), &key.namespace)
        .in_namespace(&Gvk::of::<NimBuild>(), &key.namespace)
        .object(&Ref::of::<PersistentVolumeClaim>(&key.namespace, &nim_cache::claim_name(&cache)));
    let shared = [
        Ref::of::<k8s_openapi::api::core::v1::ServiceAccount>(&key.namespace, "nim-cache-sa"),
        Ref::of::<k8s_openapi::api::rbac::v1::Role>(&key.namespace, "nim-cache-role"),
        Ref::of::<k8s_openapi::api::rbac::v1::RoleBinding>(&key.namespace, "nim-cache-rolebinding"),
    ];
    let mut facts = shared.iter().fold(view, |view, one| view.object(one)).facts(runtime.clock.now());
    facts.skew = cx.schemas.skew(&reference);
    facts.orchestrator = cx.nodes.orchestrator();
    facts.answers = cx.asker.answers(&key);
    facts.registries = cx.registries;
    let seen = look(&cx, &cache, &facts.live).await?;
    let mut plan = nim_cache::plan(&cache, &facts, &seen);
    while cx.asker.ask(&key, &plan.questions) {
        facts.answers = cx.asker.answers(&key);
        plan = nim_cache::plan(&cache, &facts, &seen);
    }
    let blocked = |reason: &str, message: &str| nim_cache::blocked(&cache, &facts, &seen, reason, message);
    settle(runtime, &reference, &uid, &facts, plan, blocked).await
}

/// What only pods and nodes know.
async fn look(cx: &Cx, cache: &NimCache, live: &LiveObjects) -> Result<Seen, Error> {
    let runtime = &cx.runtime;
    let namespace = cache.namespace().unwrap_or_default();
    let kept = live.get(&Ref::of::<ConfigMap>(&namespace, &format!("{}-manifest", cache.name_any()))).is_some();
    let printed = nim_cache::manifest_pod(cache, live).filter(|_| !kept);
    let manifest = match printed {
        Some(pod) => Some(runtime.pod_log(&namespace, &pod, Part::Head(MANIFEST)).await?),
        None => None,
    };
    let progress = match nim_cache::running_pod(cache, live) {
        // Progress is a courtesy: a download goes on though its log cannot be read.
        Some(pod) => runtime.pod_log(&namespace, &pod, Part::Tail(20)).await.ok().and_then(|log| progress::last(&log)),
        None => None,
    };
    Ok(Seen { manifest, products: cx.nodes.products(), progress })
}

/// Which caches a change concerns besides its owner: pods of their Jobs, their claims, builds that add to them.
pub(crate) fn concerned(runtime: &Runtime) -> impl Fn(&Change<'_>) -> Vec<Key> + Send + Sync + 'static {
    let cache = runtime.cache.clone();
    move |change| {
        let namespace = &change.key.namespace;
        match change.kind.kind {
            "Pod" => {
                let labels = &change.last()["metadata"]["labels"];
                let job = labels["batch.kubernetes.io/job-name"].as_str().and_then(|job| job.strip_suffix("-job"));
                job.map(|name| Key::new(namespace, name)).into_iter().collect()
            }
            "PersistentVolumeClaim" => {
                let all = cache.in_namespace(&Gvk::of::<NimCache>(), namespace);
                let uses = |live: &&capstan_plan::Live| {
                    let claim = live["spec"]["storage"]["pvc"]["name"].as_str().filter(|name| !name.is_empty());
                    claim == Some(&*change.key.name)
                };
                all.iter().filter(uses).map(|live| Key::of(live)).collect()
            }
            "NIMBuild" => {
                let name = change.last()["spec"]["nimCache"]["name"].as_str();
                name.map(|name| Key::new(namespace, name)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}
