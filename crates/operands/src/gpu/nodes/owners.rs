//! Which NVIDIADriver owns a node: the one that selects it, else the default. If two select the same node, no owner
//! changes until that is resolved.

use capstan_api::gpu::NvidiaDriver;
use capstan_plan::CPU_FEATURES;

use super::keys;
use super::wanted::{Refusal, Selector};

/// Ownership of drivers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owners {
    /// By the ClusterPolicy: no node has an owner.
    Unused,
    /// Undetermined: owners are left unchanged.
    Frozen,
    /// By NVIDIADrivers.
    Assigned(Assigned),
}

/// The NVIDIADrivers of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Assigned {
    specific: Vec<Driver>,
    default: Option<Driver>,
    /// Terminating ones: they get no new node, and keep their nodes until these have moved.
    terminating: Vec<Driver>,
}

/// The relevant fields of an NVIDIADriver.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Driver {
    pub(super) name: String,
    selector: Selector,
    /// Whether auto-upgrade is on: the default.
    pub(super) auto_upgrade: bool,
}

impl Owners {
    pub(super) fn of(drivers: &[NvidiaDriver]) -> Result<Self, Refusal> {
        let mut assigned = Assigned::default();
        let mut defaults = Vec::new();
        for driver in drivers {
            let name = driver.metadata.name.clone().unwrap_or_default();
            let selector = driver.spec.node_selector.clone();
            let auto_upgrade = upgrades(driver);
            let going = driver.metadata.deletion_timestamp.is_some();
            if !going {
                validate(&name, driver.spec.default, &selector)?;
            }
            let one = Driver { name, selector, auto_upgrade };
            if going {
                assigned.terminating.push(one);
            } else if driver.spec.default {
                defaults.push(one);
            } else {
                assigned.specific.push(one);
            }
        }
        if defaults.len() > 1 {
            let mut names: Vec<_> = defaults.iter().map(|driver| driver.name.as_str()).collect();
            names.sort_unstable();
            let message = format!("multiple default NVIDIADrivers found: [{}]", names.join(" "));
            return Err(Refusal { reason: "ReconcileFailed", message });
        }
        assigned.default = defaults.pop();
        Ok(Self::Assigned(assigned))
    }
}

impl Assigned {
    /// The NVIDIADrivers, besides the default, that select a node with these labels.
    pub(super) fn claims<'a>(&'a self, label: impl Fn(&str) -> Option<&'a str>) -> Vec<&'a Driver> {
        let selects = |driver: &&Driver| {
            driver.selector.iter().flatten().all(|(key, value)| label(key).is_some_and(|found| found == value))
        };
        self.specific.iter().filter(selects).collect()
    }

    /// The owner of a GPU node with these labels; an error if there are several.
    pub(super) fn owner<'a>(
        &'a self,
        label: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Option<&'a Driver>, Ambiguous> {
        match self.claims(label).as_slice() {
            [] => Ok(self.default.as_ref()),
            [one] => Ok(Some(one)),
            _ => Err(Ambiguous),
        }
    }

    /// The one of that name.
    pub(super) fn named(&self, name: &str) -> Option<&Driver> {
        self.specific.iter().chain(&self.default).chain(&self.terminating).find(|driver| driver.name == name)
    }
}

/// Finalizer of an NVIDIADriver whose nodes must move to others first.
pub const FINALIZER: &str = "capstan.dev/nodes-move-first";

/// Whether the nodes must move to another NVIDIADriver before this one is removed, as an upgrade of each. Deleting the
/// only one means no drivers at all, and must not wait for an operator that may be uninstalled as well.
pub fn outlives_its_deletion(driver: &NvidiaDriver, all: &[NvidiaDriver]) -> bool {
    let other =
        |one: &NvidiaDriver| one.metadata.deletion_timestamp.is_none() && one.metadata.name != driver.metadata.name;
    upgrades(driver) && all.iter().any(other)
}

/// Whether drivers are upgraded automatically: yes, unless its policy says no.
fn upgrades(driver: &NvidiaDriver) -> bool {
    driver.spec.upgrade_policy.as_ref().is_none_or(|policy| policy.auto_upgrade != Some(false))
}

/// Several NVIDIADrivers select the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ambiguous;

fn validate(name: &str, default: bool, selector: &Selector) -> Result<(), Refusal> {
    let conflict = |message| Err(Refusal { reason: "ConflictingNodeSelector", message });
    let Some(selector) = selector else { return Ok(()) };
    if selector.contains_key(keys::OWNER) {
        return conflict(format!("NVIDIADriver \"{name}\" nodeSelector cannot use reserved label \"{}\"", keys::OWNER));
    }
    if let Some(key) = selector.keys().find(|key| key.starts_with(CPU_FEATURES)) {
        return conflict(format!(
            "NVIDIADriver \"{name}\" nodeSelector uses label \"{key}\": features of processors cannot select drivers; label \
             the nodes with a key of your own"
        ));
    }
    if default && !selector.is_empty() {
        return conflict(format!(
            "NVIDIADriver \"{name}\" is the default and has a nodeSelector: the default serves the nodes that no other \
             selects; remove nodeSelector or default"
        ));
    }
    Ok(())
}
