//! The desired node state of the active custom resources. Stateless: derived for each decision.

use std::collections::BTreeMap;

use capstan_api::gpu::cluster_policy::ClusterPolicySpec;
use capstan_api::gpu::cluster_policy::sandbox::{SandboxMode, Workload};
use capstan_api::gpu::cluster_policy::stack::DefaultMigLayout;
use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};

use jiff::Timestamp;

use super::keys;
use super::owners::Owners;
use super::view::{Entries, Node};

/// The desired state of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub(super) stack: Stack,
    pub(super) owners: Owners,
    pub(super) auto_upgrade: AutoUpgrade,
    /// Whether we install drivers, rather than the node image.
    pub(super) installs_drivers: bool,
    /// Whether a device plugin is deployed.
    pub(super) plugs_in: bool,
    /// Creation time of the active custom resource.
    pub(super) since: Option<Timestamp>,
    /// Why the custom resources are invalid, if they are. Only a change resolves it; no retry.
    pub refusal: Option<Refusal>,
}

/// A user error that leaves (some) labels unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Stable, machine-readable reason.
    pub reason: &'static str,
    /// Sentence for people.
    pub message: String,
}

/// The deployed stack.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stack {
    /// Not installed: our labels are removed.
    Nothing,
    /// Undetermined: everything is left unchanged.
    Frozen,
    /// Of a ClusterPolicy.
    DevicePlugin {
        /// Default workload, if nodes may run sandboxes.
        sandbox: Option<Workload>,
        mode: SandboxMode,
        cc_manager: bool,
        /// Whether MIG-capable nodes start with MIG disabled.
        mig_off: bool,
    },
    /// Of a GPUCluster.
    Dra,
}

/// Where auto-upgrade is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoUpgrade {
    /// Nowhere.
    Off,
    /// On every GPU node.
    On,
    /// Per NVIDIADriver; `annotated` is whether the annotation for the driver manager is set.
    PerDriver { annotated: bool },
}

/// Whether cc-manager is deployed: the single rule for its label, DaemonSet and validator.
pub fn deploys_cc_manager(spec: &ClusterPolicySpec) -> bool {
    let sandbox = spec.sandbox_workloads.as_ref();
    let kata = sandbox.is_some_and(|sandbox| sandbox.mode == Some(SandboxMode::Kata));
    let enabled = spec.cc_manager.as_ref().and_then(|manager| manager.component.enabled) == Some(true);
    sandbox.is_some_and(|sandbox| sandbox.enabled == Some(true)) && kata && enabled
}

impl Wanted {
    /// Whether NVIDIADrivers own nodes.
    pub fn assigns(&self) -> bool {
        matches!(self.owners, Owners::Assigned(_))
    }

    /// From the active ClusterPolicy or GPUCluster and the NVIDIADrivers. Terminating drivers keep their nodes until
    /// these have moved; do not pass ones without our finalizer.
    pub fn of(policy: Option<&ClusterPolicy>, cluster: Option<&GpuCluster>, drivers: &[NvidiaDriver]) -> Self {
        let metas = [policy.map(|one| &one.metadata), cluster.map(|one| &one.metadata)];
        let since = metas.into_iter().flatten().filter_map(|meta| Some(meta.creation_timestamp.as_ref()?.0)).max();
        let nothing = Self {
            stack: Stack::Nothing,
            owners: Owners::Unused,
            auto_upgrade: AutoUpgrade::Off,
            installs_drivers: !drivers.is_empty(),
            plugs_in: false,
            since,
            refusal: None,
        };
        match (policy, cluster) {
            (None, None) => nothing,
            (Some(policy), Some(cluster)) => {
                let name = |meta: &Option<String>| meta.clone().unwrap_or_default();
                let message = format!(
                    "conflicting GPUCluster resource \"{}\" detected; ClusterPolicy and GPUCluster cannot co-exist: \
                     delete it or ClusterPolicy \"{}\"",
                    name(&cluster.metadata.name),
                    name(&policy.metadata.name),
                );
                let refusal = Some(Refusal { reason: "ReconcileFailed", message });
                Self { stack: Stack::Frozen, owners: Owners::Frozen, refusal, ..nothing }
            }
            (None, Some(_)) => {
                let auto_upgrade = AutoUpgrade::PerDriver { annotated: true };
                Self { stack: Stack::Dra, auto_upgrade, ..nothing }.with_owners(drivers)
            }
            (Some(policy), None) => {
                let spec = &policy.spec;
                let plugs_in = spec.device_plugin.component.enabled != Some(false);
                let wanted = Self { stack: Stack::of(spec), plugs_in, ..nothing };
                if spec.driver.use_nvidia_driver_crd == Some(true) {
                    let auto_upgrade = AutoUpgrade::PerDriver { annotated: !sandboxed(spec) };
                    Self { auto_upgrade, ..wanted }.with_owners(drivers)
                } else {
                    let driver = spec.driver.component.enabled != Some(false);
                    let policy = spec.driver.upgrade_policy.as_ref();
                    let auto = policy.is_some_and(|policy| policy.auto_upgrade == Some(true));
                    let on = driver && auto && !sandboxed(spec);
                    let auto_upgrade = if on { AutoUpgrade::On } else { AutoUpgrade::Off };
                    Self { auto_upgrade, installs_drivers: driver, ..wanted }
                }
            }
        }
    }

    fn with_owners(mut self, drivers: &[NvidiaDriver]) -> Self {
        match Owners::of(drivers) {
            Ok(owners) => self.owners = owners,
            Err(refusal) => (self.owners, self.refusal) = (Owners::Frozen, Some(refusal)),
        }
        self
    }

    /// Checks for nodes that two NVIDIADrivers select. If there is one, no owner changes until that is resolved.
    pub fn check<'a>(&mut self, nodes: impl IntoIterator<Item = Node<'a>>) {
        let Owners::Assigned(assigned) = &self.owners else { return };
        let conflict = nodes.into_iter().filter(|node| has_gpu(node.labels)).find_map(|node| {
            let claims = assigned.claims(|key| label_with_presence(node.labels, key));
            (claims.len() > 1).then(|| {
                let mut names: Vec<_> = claims.into_iter().map(|driver| driver.name.as_str()).collect();
                names.sort_unstable();
                let names = names.join(" ");
                format!("multiple NVIDIADrivers match the same node {}: [{names}]", node.name)
            })
        });
        if let Some(message) = conflict {
            self.owners = Owners::Frozen;
            self.refusal = Some(Refusal { reason: "ConflictingNodeSelector", message });
        }
    }
}

/// Whether NFD found a GPU.
pub fn has_gpu(labels: Entries<'_>) -> bool {
    keys::PCI.iter().any(|key| labels.is(key, "true"))
}

/// A label of a GPU node, including those that we are about to set.
fn label_with_presence<'a>(labels: Entries<'a>, key: &str) -> Option<&'a str> {
    if key == keys::PRESENT { Some("true") } else { labels.get(key) }
}

fn sandboxed(spec: &ClusterPolicySpec) -> bool {
    spec.sandbox_workloads.as_ref().is_some_and(|sandbox| sandbox.enabled == Some(true))
}

impl Stack {
    fn of(spec: &ClusterPolicySpec) -> Self {
        let sandbox = spec.sandbox_workloads.as_ref();
        let mig_enabled = spec.mig_manager.as_ref().is_none_or(|manager| manager.component.enabled != Some(false));
        let config = spec.mig_manager.as_ref().and_then(|manager| manager.config.as_ref());
        let layout = config.map(|config| config.default.unwrap_or_default());
        Self::DevicePlugin {
            sandbox: sandboxed(spec).then(|| sandbox.and_then(|sandbox| sandbox.default_workload).unwrap_or_default()),
            mode: sandbox.and_then(|sandbox| sandbox.mode).unwrap_or_default(),
            cc_manager: deploys_cc_manager(spec),
            mig_off: mig_enabled && layout == Some(DefaultMigLayout::AllDisabled),
        }
    }
}

/// Selectors of one NVIDIADriver.
pub(super) type Selector = Option<BTreeMap<String, String>>;
