//! Status of a GPUCluster: a state, the conditions Ready and Error, and one per operand.

use capstan_api::gpu::gpu_cluster::{GpuClusterState, GpuClusterStatus};
use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Note, Object, Plan, Severity};

use super::{Dra, OPERANDS, Operand, is_admitted, is_served};
use crate::common_conditions;
use crate::gpu::components::Outcome;
use crate::gpu::components::progress::{Progress, judge};

/// The plan for a GPUCluster that is not active or invalid, with the reason.
pub(super) fn refused(dra: &Dra<'_>) -> Option<Plan<GpuClusterStatus>> {
    if let Some(other) = dra.cx.cluster.active() {
        let message = format!(
            "A ClusterPolicy CR {other:?} exists; a ClusterPolicy CR and GPUCluster CR may not exist at the same time"
        );
        return Some(failed(dra, "PrerequisiteNotMet", &message));
    }
    if !is_served(dra.cx.facts) {
        let message = "Error syncing state state-dra-driver: the server has no resource.k8s.io/v1: dynamic resource \
                       allocation needs Kubernetes 1.34 or newer";
        return Some(failed(dra, "ReconcileFailed", message));
    }
    // Until then the server rejects claims with admin access.
    let labelled = is_admitted(dra);
    (!labelled).then(|| waiting(dra, &format!("namespace {} is being labelled", dra.cx.cluster.namespace), &[]))
}

/// The plan while blocked.
pub(super) fn failed(dra: &Dra<'_>, reason: &str, message: &str) -> Plan<GpuClusterStatus> {
    show(dra, GpuClusterState::NotReady, Err((reason, message.into())), &[])
}

fn waiting(dra: &Dra<'_>, message: &str, progress: &[(&Operand, Progress)]) -> Plan<GpuClusterStatus> {
    show(dra, GpuClusterState::NotReady, Err(("OperandNotReady", message.into())), progress)
}

/// The plan from the live objects.
pub(super) fn observed(dra: &Dra<'_>, parts: &[(&Operand, Outcome<Vec<Object>>)]) -> Plan<GpuClusterStatus> {
    let of = |part: &Operand, objects: &Outcome<Vec<Object>>| judge(&dra.cx, part.deploy, objects);
    let progress: Vec<(&Operand, Progress)> = parts.iter().map(|(part, objects)| (*part, of(part, objects))).collect();
    let errors: Vec<String> = progress
        .iter()
        .filter_map(|(part, progress)| match progress {
            Progress::Failed(error) => Some(format!("Error syncing state {}: {error}", part.name)),
            _ => None,
        })
        .collect();
    if !errors.is_empty() {
        return show(dra, GpuClusterState::NotReady, Err(("ReconcileFailed", errors.join("; "))), &progress);
    }
    if progress.iter().any(|(_, progress)| matches!(progress, Progress::Waiting(_))) {
        return waiting(dra, "Waiting for operand pods to be ready", &progress);
    }
    if dra.cx.cluster.fleet.unlabelled > 0 {
        let message = format!("{} GPU nodes are not labelled yet", dra.cx.cluster.fleet.unlabelled);
        return waiting(dra, &message, &progress);
    }
    let ready = Ok(("Reconciled", "All resources have been successfully reconciled"));
    show(dra, GpuClusterState::Ready, ready, &progress)
}

fn show(
    dra: &Dra<'_>,
    state: GpuClusterState,
    verdict: Result<(&'static str, &str), (&str, String)>,
    progress: &[(&Operand, Progress)],
) -> Plan<GpuClusterStatus> {
    let before = dra.cluster.status.clone();
    let mut list = before.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let previous_error = list.iter().find(|one| one.type_ == "Error").map(|one| one.message.clone());
    let (generation, now) = (dra.cluster.metadata.generation, dra.cx.facts.now);
    let (ready, error) = match &verdict {
        Ok((reason, message)) => ((true, *reason, *message), (false, "Ready", "")),
        Err((reason, message)) => ((false, "Error", ""), (true, *reason, message.as_str())),
    };
    for (type_, (status, reason, message)) in [("Ready", ready), ("Error", error)] {
        conditions::set(&mut list, Wanted { type_, status, reason, message }, generation, now);
    }
    for part in OPERANDS {
        let found = progress.iter().find(|(one, _)| one.name == part.name).map(|(_, progress)| progress.condition());
        match found {
            Some((status, reason, message)) => {
                let wanted = Wanted { type_: part.condition, status, reason, message };
                conditions::set(&mut list, wanted, generation, now);
            }
            None => conditions::clear(&mut list, part.condition),
        }
    }
    common_conditions::set_common(&mut list, "GPUCluster", &dra.cluster.spec, dra.cx.facts, generation);
    let event = match &verdict {
        Ok((reason, message)) if before.is_none_or(|status| status.state != state) => {
            Some(Note { severity: Severity::Normal, reason, message: (*message).into() })
        }
        Err((reason, message)) if *reason != "OperandNotReady" && previous_error.as_deref() != Some(message) => {
            Some(Note { severity: Severity::Warning, reason: "ReconcileFailed", message: message.clone() })
        }
        _ => None,
    };
    Plan {
        objects: None,
        status: GpuClusterStatus { state, namespace: Some(dra.cx.cluster.namespace.clone()), conditions: Some(list) },
        events: event.into_iter().collect(),
        requeue: None,
        queries: Vec::new(),
        transient: false,
    }
}
