//! Governing policies: which custom resource governs the upgrades of which nodes.

use std::collections::BTreeMap;

use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};

use super::requestor::Requestor;
use super::settings::Settings;
use crate::gpu::nodes::{Node, OWNER};

use super::bucket;

/// The upgrade settings by governing custom resource.
#[derive(Clone, Debug, PartialEq)]
pub enum GoverningPolicies {
    /// Auto-upgrade is off.
    Disabled,
    /// The ClusterPolicy governs all nodes.
    Policy(Box<Settings>),
    /// NVIDIADrivers govern their nodes; those with auto-upgrade off are absent.
    Drivers(BTreeMap<String, Settings>),
}

impl GoverningPolicies {
    /// From the custom resources. A terminating NVIDIADriver governs nodes that do not move to another one.
    pub fn of(
        policy: Option<&ClusterPolicy>,
        cluster: Option<&GpuCluster>,
        drivers: &[NvidiaDriver],
        requestor: Option<&Requestor>,
    ) -> Self {
        let with = |settings: Settings| Settings { requestor: requestor.cloned(), ..settings };
        match (policy, cluster) {
            (None, None) | (Some(_), Some(_)) => Self::Disabled,
            (Some(policy), None) if policy.spec.driver.use_nvidia_driver_crd != Some(true) => {
                let spec = &policy.spec;
                let sandboxes = spec.sandbox_workloads.as_ref().and_then(|sandbox| sandbox.enabled) == Some(true);
                let rule = spec.driver.upgrade_policy.as_ref().filter(|rule| rule.auto_upgrade == Some(true));
                match rule.filter(|_| !sandboxes && spec.driver.component.enabled != Some(false)) {
                    Some(rule) => {
                        let settings = Settings::of(Some(rule), policy.metadata.annotations.as_ref());
                        Self::Policy(Box::new(with(settings)))
                    }
                    None => Self::Disabled,
                }
            }
            _ => {
                let automatic = drivers.iter().filter(|driver| {
                    driver.spec.upgrade_policy.as_ref().is_none_or(|rule| rule.auto_upgrade != Some(false))
                });
                let settings = automatic.map(|driver| {
                    let meta = &driver.metadata;
                    let settings = Settings::of(driver.spec.upgrade_policy.as_ref(), meta.annotations.as_ref());
                    (meta.name.clone().unwrap_or_default(), with(settings))
                });
                let settings: BTreeMap<_, _> = settings.collect();
                if settings.is_empty() { Self::Disabled } else { Self::Drivers(settings) }
            }
        }
    }

    /// The governing policy of a node: the name of an NVIDIADriver, empty for the ClusterPolicy.
    pub fn of_node<'a>(&self, node: &Node<'a>) -> Option<&'a str> {
        match self {
            Self::Disabled => None,
            Self::Policy(_) => Some(""),
            Self::Drivers(all) => {
                // A node without an owner is released by its last owner.
                let governs = |name: &&str| all.contains_key(*name);
                bucket(node).filter(governs).or_else(|| node.labels.get(OWNER).filter(governs))
            }
        }
    }

    /// The settings of a governing policy.
    pub fn settings(&self, name: &str) -> Option<&Settings> {
        match self {
            Self::Disabled => None,
            Self::Policy(settings) => Some(settings),
            Self::Drivers(all) => all.get(name),
        }
    }
}
