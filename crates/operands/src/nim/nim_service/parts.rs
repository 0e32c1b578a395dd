//! What a plan has put together so far, and what keeps it from going on.

use capstan_plan::{Gvk, Object, Question, Ref};
use serde::Serialize;

use super::{Cx, names};

/// The parts of a plan.
#[derive(Default)]
pub(super) struct Parts {
    /// What should exist.
    pub(super) objects: Vec<Object>,
    /// Kinds that the spec needs and the cluster lacks, each with a fix.
    pub(super) missing: Vec<String>,
    /// Fields that are passed over, each with a fix.
    pub(super) passed_over: Vec<String>,
    /// Why the workload cannot be decided on.
    pub(super) stop: Option<Stop>,
    /// What to find out.
    pub(super) questions: Vec<Question>,
}

/// Why a workload cannot be decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// Whether somebody has to act; otherwise it is a matter of time.
    pub(super) failed: bool,
    /// Stable reason of the condition.
    pub(super) reason: &'static str,
    /// What it waits for, and the fix.
    pub(super) message: String,
}

impl Stop {
    /// Something is wrong.
    pub(super) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self { failed: true, reason, message: message.into() }
    }

    /// Something is not there yet.
    pub(super) fn wait(reason: &'static str, message: impl Into<String>) -> Self {
        Self { failed: false, reason, message: message.into() }
    }
}

impl Parts {
    /// Adds an object of a kind that every cluster has.
    pub(super) fn add<K: kube::Resource<DynamicType = ()> + Serialize>(&mut self, object: &K) {
        self.objects.push(Object::new(object));
    }

    /// Adds an object of a kind that a cluster may lack; `field` wants it. Without it the rest goes on.
    pub(super) fn add_if_served<K>(&mut self, cx: &Cx<'_>, field: &str, object: &K)
    where
        K: kube::Resource<DynamicType = ()> + Serialize,
    {
        match lacking::<K>(cx, field) {
            Some(message) => self.missing.push(message),
            None => self.add(object),
        }
    }

    /// Ends the plan before the workload: what runs stays as it is.
    pub(super) fn stop(&mut self, cx: &Cx<'_>, stop: Stop) {
        let workload = cx.facts.live.iter().map(|(reference, _)| reference).filter(|one| is_workload(cx, one));
        let left: Vec<Ref> =
            workload.filter(|one| !self.objects.iter().any(|o| o.reference == **one)).cloned().collect();
        self.objects.extend(left.into_iter().map(Object::left));
        self.stop = Some(stop);
    }
}

/// What to tell when the cluster lacks the kind of `K`, which `field` needs.
pub(super) fn lacking<K: kube::Resource<DynamicType = ()>>(cx: &Cx<'_>, field: &str) -> Option<String> {
    let gvk = Gvk::of::<K>();
    (!cx.facts.served.contains(&gvk)).then(|| {
        let (kind, version, source) = (&gvk.kind, gvk.api_version(), source(&gvk.group));
        format!(
            "{field} needs {kind} ({version}), which this cluster does not serve: install {source}, or remove the field"
        )
    })
}

/// Where the kinds of a group come from.
fn source(group: &str) -> &'static str {
    match group {
        "gateway.networking.k8s.io" => "the CRDs of the Gateway API",
        "inference.networking.k8s.io" => "the CRDs of the Gateway API inference extension",
        "monitoring.coreos.com" => "the CRDs of the Prometheus operator",
        "leaderworkerset.x-k8s.io" => "LeaderWorkerSet",
        "serving.kserve.io" => "KServe",
        "resource.k8s.io" => "Kubernetes 1.34 or newer",
        "resource.nvidia.com" => "the CRDs of compute domains (`capstan crds --apply`)",
        "scheduling.volcano.sh" => "Volcano",
        _ => "its CRD",
    }
}

/// Whether a live object is what serves, or what that needs to keep running.
fn is_workload(cx: &Cx<'_>, reference: &Ref) -> bool {
    match &*reference.gvk.kind {
        "Deployment" => reference.name == cx.name,
        "ConfigMap" | "Secret" => names::of_mpi(cx).contains(&reference.name),
        "LeaderWorkerSet" | "InferenceService" | "ResourceClaimTemplate" | "ComputeDomain" | "PodGroup" => true,
        _ => false,
    }
}
