//! The controller of NIMServices.

use capstan_api::nim::{NimService, NimServiceStatus};
use capstan_operands::inference::nim_service;
use capstan_plan::{Plan, Ref, diff};
use capstan_runtime::{Action, Error, Key, Runtime, writer};
use kube::ResourceExt;

use crate::schemas::Schemas;

/// Finalizer that the NIM Operator leaves on services: theirs is nothing to clean up here, so it only has to go.
const FINALIZER: &str = "finalizer.nimservice.apps.nvidia.com";

/// Makes one service what its spec says, and says how it is doing.
pub async fn reconcile(runtime: Runtime, schemas: Schemas, key: Key) -> Result<Action, Error> {
    let Some(service) = runtime.cache.typed::<NimService>(&key)? else { return Ok(Action::Wait) };
    let uid = service.uid().unwrap_or_default();
    let reference = Ref::of::<NimService>(&key.namespace, &key.name);
    if service.metadata.deletion_timestamp.is_some() {
        runtime.writer.remove_finalizer(&reference, FINALIZER).await?;
        return Ok(Action::Wait);
    }
    let mut facts = runtime.cache.view().owned_by(&uid).facts(runtime.clock.now());
    facts.skew = schemas.skew("NIMService");
    let mut plan = nim_service::plan(&service, &facts);
    let mut failed = None;
    if let Some(wanted) = &plan.objects {
        let outcome = runtime.writer.apply(diff(&uid, wanted, &facts.live)).await;
        let refused: Vec<String> = outcome.conflicts.iter().map(writer::refusal).collect();
        if !refused.is_empty() {
            plan = nim_service::blocked(&service, &facts, "NameConflict", &refused.join("; "));
        }
        failed = outcome.result().err();
    }
    report(&runtime, &reference, &service, &plan).await?;
    match failed {
        Some(error) => Err(error),
        None => Ok(plan.requeue.map_or(Action::Wait, Action::Again)),
    }
}

async fn report(
    runtime: &Runtime,
    reference: &Ref,
    service: &NimService,
    plan: &Plan<NimServiceStatus>,
) -> Result<(), Error> {
    runtime.writer.status(reference, &plan.status).await?;
    runtime.events.record_all(reference, &service.uid().unwrap_or_default(), &plan.events);
    Ok(())
}
