//! The controller of NIMPipelines.

use capstan_api::nim::NimPipeline;
use capstan_operands::nim::nim_pipeline;
use capstan_plan::Ref;
use capstan_runtime::{Action, Error, Key};
use kube::ResourceExt;

use crate::Cx;
use crate::settle::settle;

/// Finalizer that the NIM Operator leaves on pipelines: there is nothing to clean up, so it only has to go.
const FINALIZER: &str = "finalizer.nimpipeline.apps.nvidia.com";

/// Makes one pipeline what its spec says, and says how it is doing.
pub(crate) async fn reconcile(cx: Cx, key: Key) -> Result<Action, Error> {
    let runtime = &cx.runtime;
    let Some(pipeline) = runtime.cache.typed::<NimPipeline>(&key)? else { return Ok(Action::Wait) };
    let uid = pipeline.uid().unwrap_or_default();
    let reference = Ref::of::<NimPipeline>(&key.namespace, &key.name);
    if pipeline.metadata.deletion_timestamp.is_some() {
        runtime.writer.remove_finalizer(&reference, FINALIZER).await?;
        return Ok(Action::Wait);
    }
    let mut facts = runtime.cache.view().owned_by(&uid).facts(runtime.clock.now());
    facts.skew = cx.schemas.skew(&reference);
    facts.orchestrator = cx.nodes.orchestrator();
    let plan = nim_pipeline::plan(&pipeline, &facts);
    let blocked = |reason: &str, message: &str| nim_pipeline::blocked(&pipeline, &facts, reason, message);
    settle(runtime, &reference, &uid, &facts, plan, blocked).await
}
