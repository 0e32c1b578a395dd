//! The parts of a plan, and why it stops.

use capstan_plan::{Gvk, Object, Query, Ref};
use serde::Serialize;

use super::{Cx, names};

/// The parts of a plan.
#[derive(Default)]
pub(super) struct Parts {
    /// Desired objects.
    pub(super) objects: Vec<Object>,
    /// Kinds that the spec needs and the cluster does not serve, each with a fix.
    pub(super) missing: Vec<String>,
    /// Ignored fields, each with a fix.
    pub(super) ignored: Vec<String>,
    /// Why the workload cannot be planned.
    pub(super) stop: Option<Stop>,
    /// External queries.
    pub(super) queries: Vec<Query>,
}

/// Why a workload cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// Whether the user has to act; otherwise it resolves itself.
    pub(super) failed: bool,
    /// Stable reason of the condition.
    pub(super) reason: &'static str,
    /// What it waits for, and the fix.
    pub(super) message: String,
}

impl Stop {
    /// An error.
    pub(super) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self { failed: true, reason, message: message.into() }
    }

    /// Something does not exist yet.
    pub(super) fn wait(reason: &'static str, message: impl Into<String>) -> Self {
        Self { failed: false, reason, message: message.into() }
    }
}

impl Parts {
    /// Adds an object of a kind that every cluster serves.
    pub(super) fn add<K: kube::Resource<DynamicType = ()> + Serialize>(&mut self, object: &K) {
        self.objects.push(Object::new(object));
    }

    /// Adds an object of an optional kind that `field` needs, if it is served.
    pub(super) fn add_if_served<K>(&mut self, cx: &Cx<'_>, field: &str, object: &K)
    where
        K: kube::Resource<DynamicType = ()> + Serialize,
    {
        match lacking::<K>(cx, field) {
            Some(message) => self.missing.push(message),
            None => self.add(object),
        }
    }

    /// Stops before the workload: a live one is left unchanged.
    pub(super) fn stop(&mut self, cx: &Cx<'_>, stop: Stop) {
        let workload = cx.facts.live.iter().map(|(reference, _)| reference).filter(|one| is_workload(cx, one));
        let left: Vec<Ref> =
            workload.filter(|one| !self.objects.iter().any(|o| o.reference == **one)).cloned().collect();
        self.objects.extend(left.into_iter().map(Object::unmanaged));
        self.stop = Some(stop);
    }
}

/// The message for a missing kind that `field` needs.
pub(super) fn lacking<K: kube::Resource<DynamicType = ()>>(cx: &Cx<'_>, field: &str) -> Option<String> {
    let gvk = Gvk::of::<K>();
    (!cx.facts.served.contains(&gvk)).then(|| {
        let (kind, version, source) = (&gvk.kind, gvk.api_version(), source(&gvk.group));
        format!(
            "{field} needs {kind} ({version}), which this cluster does not serve: install {source}, or remove the field"
        )
    })
}

/// Where to get the kinds of a group.
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

/// Whether a live object is the workload, or needed by it.
fn is_workload(cx: &Cx<'_>, reference: &Ref) -> bool {
    match &*reference.gvk.kind {
        "Deployment" => reference.name == cx.name,
        "ConfigMap" | "Secret" => names::of_mpi(cx).contains(&reference.name),
        "LeaderWorkerSet" | "InferenceService" | "ResourceClaimTemplate" | "ComputeDomain" | "PodGroup" => true,
        _ => false,
    }
}
