//! Metric values of a policy, under the names of the upstream GPU operator.

use capstan_api::gpu::ClusterPolicy;
use capstan_api::gpu::cluster_policy::{ClusterPolicyState, ClusterPolicyStatus};

use crate::gpu::Cluster;

/// Metric values, by metric name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// Nodes with GPUs.
    pub gpu_nodes_total: i64,
    /// 1 ready, 0 not ready, -1 blocked.
    pub reconciliation_status: i64,
    /// Whether feature discovery has labelled any node.
    pub reconciliation_has_nfd_labels: i64,
    /// 1 the OpenShift driver toolkit is used, 0 not requested, -1 not possible.
    pub openshift_driver_toolkit_enabled: i64,
    /// Whether nodes lack the RHCOS version label.
    pub openshift_driver_toolkit_nfd_too_old: i64,
    /// Whether the image stream of the toolkit is missing.
    pub openshift_driver_toolkit_imagestream_missing: i64,
    /// Whether the ImageStream lacks an RHCOS version of a node.
    pub openshift_driver_toolkit_rhcos_tags_missing: i64,
    /// Whether it has a tag without a name.
    pub openshift_driver_toolkit_imagestream_broken: i64,
}

impl Measures {
    /// The values without a policy.
    pub fn without_policy(cluster: &Cluster) -> Self {
        Self {
            gpu_nodes_total: cluster.fleet.gpu_nodes as i64,
            reconciliation_status: -1,
            reconciliation_has_nfd_labels: cluster.fleet.discovered.into(),
            ..Self::default()
        }
    }
}

/// The values of the active policy with this status.
pub fn measures(policy: &ClusterPolicy, status: &ClusterPolicyStatus, cluster: &Cluster) -> Measures {
    let (spec, fleet) = (&policy.spec, &cluster.fleet);
    let error = status.conditions.iter().flatten().find(|one| one.type_ == "Error").map(|one| one.reason.as_str());
    let decided = status.conditions.iter().flatten().any(|one| !["Ready", "Error"].contains(&one.type_.as_str()));
    let reconciliation_status = match (status.state, error) {
        (ClusterPolicyState::Ready, _) => 1,
        (_, Some("OperandNotReady")) => 0,
        (_, Some("ReconcileFailed")) if decided => 0,
        _ => -1,
    };
    let mut measures = Measures {
        gpu_nodes_total: fleet.gpu_nodes as i64,
        reconciliation_status,
        reconciliation_has_nfd_labels: fleet.discovered.into(),
        ..Measures::default()
    };
    let asked = spec.operator.use_ocp_driver_toolkit != Some(false) && spec.driver.use_precompiled != Some(true);
    if let Some(openshift) = cluster.openshift.as_ref().filter(|_| asked) {
        let possible = openshift.toolkits.is_some() && !fleet.rhcos.is_empty();
        let known = openshift.toolkits.clone().unwrap_or_default();
        measures.openshift_driver_toolkit_enabled = if possible { 1 } else { -1 };
        measures.openshift_driver_toolkit_nfd_too_old = (fleet.gpu_nodes > 0 && fleet.rhcos.is_empty()).into();
        measures.openshift_driver_toolkit_imagestream_missing = openshift.toolkits.is_none().into();
        let missing = possible && fleet.rhcos.iter().any(|version| !known.contains_key(version));
        measures.openshift_driver_toolkit_rhcos_tags_missing = missing.into();
        measures.openshift_driver_toolkit_imagestream_broken = openshift.broken.into();
    }
    measures
}
