//! What a decision about GPUs knows of the cluster besides live objects.

use std::collections::BTreeMap;

use crate::causes::Diagnoses;
use crate::gpu::kernels::Unsupported;
use crate::gpu::nodes::StartupTaint;
use crate::gpu::upgrade::Report;
use crate::gpu::{Agent, Fleet};

/// The cluster, as far as GPUs are concerned.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Namespace of the operator, in which operands run.
    pub namespace: String,
    /// Images of operands that the operator was started with, by variable: `DRIVER_IMAGE` …
    pub images: BTreeMap<String, String>,
    /// Our own image, which stands in for those that nobody names.
    pub agent: Agent,
    /// The nodes.
    pub fleet: Fleet,
    /// Every ClusterPolicy that is not going: creation time and name.
    pub policies: Vec<(String, String)>,
    /// Names of all GPUClusters.
    pub gpu_clusters: Vec<String>,
    /// OpenShift, if the cluster is one.
    pub openshift: Option<OpenShift>,
    /// Driver pods that have no image for their kernel; looked for where drivers are precompiled.
    pub unsupported: Vec<Unsupported>,
    /// The taint of nodes whose GPUs do not work yet, which operands have to tolerate.
    pub startup_taint: Option<StartupTaint>,
    /// How far upgrades of drivers are, by NVIDIADriver, or under an empty name for the ClusterPolicy; `None` as long as
    /// nobody has looked.
    pub upgrades: Option<BTreeMap<String, Report>>,
    /// What is wrong with pods of drivers and of those who check them.
    pub diagnoses: Diagnoses,
}

/// What matters of an OpenShift cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenShift {
    /// Major and minor version: `4.19`.
    pub version: String,
    /// Images of the driver toolkit by version of the nodes' system; `None` without the image stream.
    pub toolkits: Option<BTreeMap<String, String>>,
    /// Whether the image stream has a tag without a name.
    pub broken: bool,
    /// The cluster's proxy: variable in capitals, and value.
    pub proxy: Vec<(String, String)>,
    /// ConfigMap with the certificates that the proxy needs.
    pub trusted_ca: Option<String>,
}

impl Cluster {
    /// How far upgrades are of the drivers of that NVIDIADriver, or of the ClusterPolicy if there is no name: see
    /// [`show`](crate::gpu::upgrade::show).
    pub fn upgrade(&self, driver: &str) -> Option<Option<&Report>> {
        self.upgrades.as_ref().map(|all| all.get(driver))
    }

    /// The ClusterPolicy that counts: the oldest, the first by name among equals.
    pub fn active(&self) -> Option<&str> {
        self.policies.iter().min().map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_policy_counts_and_then_the_first_by_name() {
        let of = |policies: &[(&str, &str)]| Cluster {
            policies: policies.iter().map(|(time, name)| ((*time).into(), (*name).into())).collect(),
            ..Cluster::default()
        };
        assert_eq!(of(&[]).active(), None);
        assert_eq!(of(&[("2026-01-02T00:00:00Z", "a"), ("2026-01-01T00:00:00Z", "b")]).active(), Some("b"));
        assert_eq!(of(&[("2026-01-01T00:00:00Z", "b"), ("2026-01-01T00:00:00Z", "a")]).active(), Some("a"));
    }
}
