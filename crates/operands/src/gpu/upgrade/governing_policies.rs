//! Whose policy rules which nodes.

use std::collections::BTreeMap;

use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};

use super::requestor::Requestor;
use super::settings::Settings;
use crate::gpu::nodes::{Node, OWNER};

use super::bucket;

/// Where drivers are upgraded automatically, and how.
#[derive(Clone, Debug, PartialEq)]
pub enum GoverningPolicies {
    /// Nowhere.
    Nobody,
    /// Everywhere, as the ClusterPolicy says.
    Policy(Box<Settings>),
    /// As the NVIDIADriver of a node says; those that want no upgrades are not here.
    Drivers(BTreeMap<String, Settings>),
}

impl GoverningPolicies {
    /// What the custom resources say. An NVIDIADriver that is being deleted rules the nodes that leave it for no other.
    pub fn of(
        policy: Option<&ClusterPolicy>,
        cluster: Option<&GpuCluster>,
        drivers: &[NvidiaDriver],
        requestor: Option<&Requestor>,
    ) -> Self {
        let with = |settings: Settings| Settings { requestor: requestor.cloned(), ..settings };
        match (policy, cluster) {
            (None, None) | (Some(_), Some(_)) => Self::Nobody,
            (Some(policy), None) if policy.spec.driver.use_nvidia_driver_crd != Some(true) => {
                let spec = &policy.spec;
                let sandboxes = spec.sandbox_workloads.as_ref().and_then(|sandbox| sandbox.enabled) == Some(true);
                let rule = spec.driver.upgrade_policy.as_ref().filter(|rule| rule.auto_upgrade == Some(true));
                match rule.filter(|_| !sandboxes && spec.driver.component.enabled != Some(false)) {
                    Some(rule) => {
                        let settings = Settings::of(Some(rule), policy.metadata.annotations.as_ref());
                        Self::Policy(Box::new(with(settings)))
                    }
                    None => Self::Nobody,
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
                if settings.is_empty() { Self::Nobody } else { Self::Drivers(settings) }
            }
        }
    }

    /// The governing_policy of a node: the name of an NVIDIADriver, empty for the ClusterPolicy.
    pub fn of_node<'a>(&self, node: &Node<'a>) -> Option<&'a str> {
        match self {
            Self::Nobody => None,
            Self::Policy(_) => Some(""),
            Self::Drivers(all) => {
                // A node that nobody owns any more is given up by its last owner.
                let rules = |name: &&str| all.contains_key(*name);
                bucket(node).filter(rules).or_else(|| node.labels.get(OWNER).filter(rules))
            }
        }
    }

    /// The settings of a governing_policy.
    pub fn settings(&self, name: &str) -> Option<&Settings> {
        match self {
            Self::Nobody => None,
            Self::Policy(settings) => Some(settings),
            Self::Drivers(all) => all.get(name),
        }
    }
}
