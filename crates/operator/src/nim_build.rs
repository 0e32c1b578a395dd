//! The controller of NIMBuilds.

use capstan_api::nim::{NimBuild, NimCache};
use capstan_operands::nim::nim_build::{self, Seen};
use capstan_plan::{Gvk, Ref};
use capstan_runtime::read::Part;
use capstan_runtime::{Action, Change, Error, Key, Runtime};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;

use crate::Cx;
use crate::settle::settle;

/// Finalizer that the NIM Operator leaves on builds: pods are owned, so it only has to go.
const FINALIZER: &str = "finalizer.nimbuild.apps.nvidia.com";

/// No manifest is longer.
const MANIFEST: u32 = 16 << 20;

/// Makes one build what its spec says, and says how it is doing.
pub(crate) async fn reconcile(cx: Cx, key: Key) -> Result<Action, Error> {
    let runtime = &cx.runtime;
    let Some(build) = runtime.cache.typed::<NimBuild>(&key)? else { return Ok(Action::Wait) };
    let uid = build.uid().unwrap_or_default();
    let reference = Ref::of::<NimBuild>(&key.namespace, &key.name);
    if build.metadata.deletion_timestamp.is_some() {
        runtime.writer.remove_finalizer(&reference, FINALIZER).await?;
        return Ok(Action::Wait);
    }
    let cache = &build.spec.nim_cache.name;
    let view = runtime.cache.view().owned_by(&uid).object(&Ref::of::<NimCache>(&key.namespace, cache));
    let view = view.object(&Ref::of::<ConfigMap>(&key.namespace, &format!("{cache}-manifest")));
    let mut facts = view.facts(runtime.clock.now());
    facts.skew = cx.schemas.skew(&reference);
    facts.orchestrator = cx.nodes.orchestrator();
    let manifest = match nim_build::manifest_pod(&build, &facts.live) {
        Some(pod) => Some(runtime.pod_log(&key.namespace, &pod, Part::Head(MANIFEST)).await?),
        None => None,
    };
    let seen = Seen { manifest };
    let plan = nim_build::plan(&build, &facts, &seen);
    let blocked = |reason: &str, message: &str| nim_build::blocked(&build, &facts, &seen, reason, message);
    settle(runtime, &reference, &uid, &facts, plan, blocked).await
}

/// Which builds a change concerns besides its owner: those of a cache.
pub(crate) fn concerned(runtime: &Runtime) -> impl Fn(&Change<'_>) -> Vec<Key> + Send + Sync + 'static {
    let cache = runtime.cache.clone();
    move |change| {
        if change.kind.kind != "NIMCache" {
            return Vec::new();
        }
        let all = cache.in_namespace(&Gvk::of::<NimBuild>(), &change.key.namespace);
        let of = |live: &&capstan_plan::Live| live["spec"]["nimCache"]["name"].as_str() == Some(&*change.key.name);
        all.iter().filter(of).map(|live| Key::of(live)).collect()
    }
}
