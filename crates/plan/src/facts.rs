//! What a decision may know.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{Answer, Gvk, LiveObjects, Question};

/// A snapshot: nothing in it changes while a decision is made, and nothing else may be looked at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The time.
    pub now: Timestamp,
    /// Version of the API server.
    pub server: ServerVersion,
    /// Kinds that the server serves.
    pub served: BTreeSet<Gvk>,
    /// Live objects that matter here.
    pub live: LiveObjects,
    /// What to tell the user when the CRD in the cluster has another schema than this build.
    pub skew: Option<String>,
    /// Whether registries can be asked about images; without, they count as images that say nothing.
    pub registries: bool,
    /// What came back on the questions of earlier plans.
    pub answers: BTreeMap<Question, Answer>,
    /// What the cluster is made with.
    pub orchestrator: Orchestrator,
}

impl Facts {
    /// Facts of a moment at which nothing else is known.
    pub fn at(now: Timestamp) -> Self {
        Self {
            now,
            server: ServerVersion::default(),
            served: BTreeSet::new(),
            live: LiveObjects::default(),
            skew: None,
            registries: false,
            answers: BTreeMap::new(),
            orchestrator: Orchestrator::default(),
        }
    }

    /// Whether the server serves the kind of `K`.
    pub fn serves<K: kube::Resource<DynamicType = ()>>(&self) -> bool {
        self.served.contains(&Gvk::of::<K>())
    }
}

/// What a cluster is made with, as labels of its nodes tell.
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
    /// What the labels of one node say.
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

/// Labels that feature discovery sets for features of processors, a hundred on each node: no decision may depend on
/// them, so that nobody has to remember them.
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
    /// Reads a git version such as `v1.34.0-gke.1`; what cannot be read counts as 0.
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
