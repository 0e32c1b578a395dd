//! Status of the operator: its pods and its leader.

use capstan_runtime::leader;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::tree::text;
use crate::snapshot::Snapshot;

/// Label and value of the chart's objects.
pub(crate) const NAME: (&str, &str) = ("app.kubernetes.io/name", "capstan");

/// The operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operator {
    /// Its namespace; empty if it does not run in this cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Version, by the chart's label.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Ready replicas.
    pub ready: i64,
    /// Desired replicas.
    pub wanted: i64,
    /// The leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Why no operator is active, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

pub(super) fn of(snapshot: &Snapshot) -> Operator {
    let deployment = deployment(snapshot);
    let lease = lease(snapshot, deployment);
    let holder = lease.map(|lease| text(&lease["spec"]["holderIdentity"])).filter(|holder| !holder.is_empty());
    let late = lease.and_then(|lease| seconds_expired(lease, snapshot.taken?));
    let Some(deployment) = deployment else {
        // It may run outside the cluster, as with `capstan up`; only an expired lease proves that it does not.
        let trouble = late.map(|seconds| format!("no operator leads: its lease was renewed {seconds} s ago"));
        return Operator { leader: holder, trouble, ..Operator::default() };
    };
    let (namespace, name) = crate::snapshot::named(deployment);
    let ready = deployment["status"]["readyReplicas"].as_i64().unwrap_or(0);
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let trouble = match (ready, late) {
        (0, _) => Some(format!("the operator does not run: Deployment {namespace}/{name} has no ready pod")),
        (_, Some(seconds)) => Some(format!("no operator leads: its lease was renewed {seconds} s ago")),
        _ => None,
    };
    let version = text(&deployment["metadata"]["labels"]["app.kubernetes.io/version"]);
    Operator { namespace: namespace.into(), version, ready, wanted, leader: holder, trouble }
}

/// The Deployment of the operator.
pub(crate) fn deployment(snapshot: &Snapshot) -> Option<&Value> {
    let all = snapshot.of("apps", "Deployment").iter();
    all.filter(|one| one["metadata"]["labels"][NAME.0] == NAME.1).find(|one| {
        let containers = one["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten();
        containers.into_iter().any(|container| container["name"] == "operator")
    })
}

/// The leader lease: of several, that in the Deployment's namespace.
fn lease<'a>(snapshot: &'a Snapshot, deployment: Option<&Value>) -> Option<&'a Value> {
    let namespace = deployment.map(|one| &one["metadata"]["namespace"]);
    let mut all = snapshot.of("coordination.k8s.io", "Lease").iter();
    all.find(|one| {
        one["metadata"]["name"] == leader::LEASE_NAME
            && namespace.is_none_or(|here| one["metadata"]["namespace"] == *here)
    })
}

/// Seconds since the last renewal of an expired lease.
fn seconds_expired(lease: &Value, now: Timestamp) -> Option<i64> {
    let spec = &lease["spec"];
    let renewed: Timestamp = spec["renewTime"].as_str()?.parse().ok()?;
    let most = 2 * spec["leaseDurationSeconds"].as_i64().unwrap_or(15);
    Some(now.as_second() - renewed.as_second()).filter(|seconds| *seconds > most)
}
