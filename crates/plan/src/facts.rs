//! The input of a plan besides the custom resource.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{Gvk, LiveObjects, Query, QueryResult};

/// An immutable snapshot: a plan reads nothing else.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The current time.
    pub now: Timestamp,
    /// Version of the API server.
    pub server: ServerVersion,
    /// Kinds that the server serves.
    pub served: BTreeSet<Gvk>,
    /// Live objects that the plan reads.
    pub live: LiveObjects,
    /// Message if the schema of the CRD in the cluster differs from this build.
    pub skew: Option<String>,
    /// Whether registries can be queried for image labels; if not, images count as unlabelled.
    pub registries: bool,
    /// Results of the queries of earlier plans.
    pub query_results: BTreeMap<Query, QueryResult>,
    /// The Kubernetes distribution.
    pub orchestrator: Orchestrator,
}

impl Facts {
    /// Facts with only the time.
    pub fn at(now: Timestamp) -> Self {
        Self {
            now,
            server: ServerVersion::default(),
            served: BTreeSet::new(),
            live: LiveObjects::default(),
            skew: None,
            registries: false,
            query_results: BTreeMap::new(),
            orchestrator: Orchestrator::default(),
        }
    }

    /// Whether the server serves the kind of `K`.
    pub fn serves<K: kube::Resource<DynamicType = ()>>(&self) -> bool {
        self.served.contains(&Gvk::of::<K>())
    }
}

/// The Kubernetes distribution, detected by node labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Orchestrator {
    /// VMware Tanzu.
    Tkgs,
    /// OpenShift.
    OpenShift,
    /// Google Kubernetes Engine.
    Gke,
    /// Amazon EKS.
    Eks,
    /// Azure AKS.
    Aks,
    /// Oracle OKE.
    Oke,
    /// HPE Ezmeral.
    Ezmeral,
    /// Rancher's RKE.
    Rke,
    /// Any other.
    #[default]
    Kubernetes,
}

impl Orchestrator {
    /// The distribution by the labels of one node.
    pub fn of_node<'a>(labels: impl IntoIterator<Item = &'a str> + Clone) -> Self {
        const TABLE: [(&str, Orchestrator); 9] = [
            ("node.vmware.com/tkg", Orchestrator::Tkgs),
            ("vsphere-tanzu", Orchestrator::Tkgs),
            ("node.openshift.io/os_id", Orchestrator::OpenShift),
            ("cloud.google.com/gke-nodepool", Orchestrator::Gke),
            ("eks.amazonaws.com/nodegroup", Orchestrator::Eks),
            ("kubernetes.azure.com/cluster", Orchestrator::Aks),
            ("oke.oraclecloud.com/cluster", Orchestrator::Oke),
            ("ezmeral.hpe.com/cluster", Orchestrator::Ezmeral),
            ("rke.cattle.io/version", Orchestrator::Rke),
        ];
        let has = |key: &str| labels.clone().into_iter().any(|label| label == key);
        TABLE.iter().find(|(label, _)| has(label)).map_or(Self::Kubernetes, |(_, orchestrator)| *orchestrator)
    }
}

/// Prefix of NFD's CPU feature labels, a hundred on each node: no plan may depend on them, so that caches can drop
/// them.
pub const CPU_FEATURES: &str = "feature.node.kubernetes.io/cpu-cpuid.";

/// Version of the API server. Vendors' suffixes (`v1.34.0-gke.1`) do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
    /// Patch.
    pub patch: u32,
}

impl ServerVersion {
    /// Parses a git version such as `v1.34.0-gke.1`; parts that are no numbers count as 0.
    pub fn parse(text: &str) -> Self {
        let core = text.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default();
        let mut parts = core.split('.').map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        Self { major: next(), minor: next(), patch: next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_suffix_is_no_older_version() {
        let plain = ServerVersion { major: 1, minor: 34, patch: 0 };
        for text in ["v1.34.0", "1.34.0", "v1.34.0-gke.1", "v1.34.0+k3s1", "v1.34"] {
            assert_eq!(ServerVersion::parse(text), plain, "{text}");
        }
        assert!(ServerVersion::parse("v1.30.5") < plain);
        assert_eq!(ServerVersion::parse("nonsense"), ServerVersion::default());
    }
}
