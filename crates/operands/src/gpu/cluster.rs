//! The input of GPU plans besides live objects.

use std::collections::BTreeMap;

use crate::causes::Diagnoses;
use crate::gpu::kernels::Unsupported;
use crate::gpu::nodes::StartupTaint;
use crate::gpu::upgrade::Report;
use crate::gpu::{Agent, Fleet};

/// GPU-related state of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Namespace of the operator, in which operands run.
    pub namespace: String,
    /// Images of operands that the operator was started with, by variable: `DRIVER_IMAGE` …
    pub images: BTreeMap<String, String>,
    /// Our own image, the default where no image is set.
    pub agent: Agent,
    /// The nodes.
    pub fleet: Fleet,
    /// ClusterPolicies that are not terminating: creation time and name.
    pub policies: Vec<(String, String)>,
    /// Names of all GPUClusters.
    pub gpu_clusters: Vec<String>,
    /// OpenShift, if the cluster is one.
    pub openshift: Option<OpenShift>,
    /// Driver pods without an image for their kernel; only filled for precompiled drivers.
    pub unsupported: Vec<Unsupported>,
    /// The startup taint, which operands must tolerate.
    pub startup_taint: Option<StartupTaint>,
    /// Upgrade reports by NVIDIADriver, or under an empty name for the ClusterPolicy; `None` before the first pass.
    pub upgrades: Option<BTreeMap<String, Report>>,
    /// Diagnoses of driver and validator pods.
    pub diagnoses: Diagnoses,
}

/// OpenShift settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenShift {
    /// Major and minor version: `4.19`.
    pub version: String,
    /// Driver toolkit images by RHCOS version; `None` without the ImageStream.
    pub toolkits: Option<BTreeMap<String, String>>,
    /// Whether the ImageStream has a tag without a name.
    pub broken: bool,
    /// The cluster proxy: environment variable and value.
    pub proxy: Vec<(String, String)>,
    /// ConfigMap with the CA certificates of the proxy.
    pub trusted_ca: Option<String>,
}

impl Cluster {
    /// The upgrade report of an NVIDIADriver, or of the ClusterPolicy for an empty name: see
    /// [`show`](crate::gpu::upgrade::show).
    pub fn upgrade(&self, driver: &str) -> Option<Option<&Report>> {
        self.upgrades.as_ref().map(|all| all.get(driver))
    }

    /// The active ClusterPolicy: the oldest, the first by name among equals.
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
