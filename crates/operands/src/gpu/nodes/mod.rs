//! Node labels and annotations: decided at once and written in one patch.
//!
//! [`Wanted`] is the desired state of the active custom resources, [`decide`] applies it to one node. Rules: only keys
//! that change are written; user values are never overwritten or removed; a value by which a manager paused an operand
//! is kept; after an uninstall nothing of ours is left.

pub mod claims;
mod evidence;
pub mod keys;
mod owners;
mod patch;
pub mod ready;
mod taint;
mod view;
mod wanted;

#[cfg(test)]
mod tests;

use std::time::Duration;

use capstan_api::gpu::cluster_policy::sandbox::Workload;
use capstan_plan::{Note, Severity};

pub use evidence::{Evidence, Readiness, faults, progress};
pub use keys::OWNER;
pub use owners::{FINALIZER, outlives_its_deletion};
pub use patch::NodePatch;
pub use taint::StartupTaint;
pub use view::{Entries, Node};
pub use wanted::{Refusal, Wanted, deploys_cc_manager, has_gpu};

use self::owners::{Assigned, Driver, Owners};
use self::wanted::{AutoUpgrade, Stack};
use super::fleet::ContainerRuntime;
use super::upgrade::{self, State, keys as upgrade_keys};

/// Requeue delay of a node that still uses what would be removed.
const IN_USE: Duration = Duration::from_secs(30);

/// Facts about a node besides its metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeFacts {
    /// Whether a pod on the node holds a claim of the DRA driver, see [`claims::in_use`]; unknown counts as yes. Only
    /// needed if [`needs_claims`].
    pub claims_in_use: Option<bool>,
    /// Whether an orphaned driver pod runs there, left by a DaemonSet that was deleted with orphan propagation.
    pub orphaned_driver: bool,
    /// Whether a driver pod of an NVIDIADriver runs there.
    pub owned_driver: bool,
}

/// The decision on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The patch; may be empty. See [`NodePatch::needs_lock`].
    pub patch: NodePatch,
    /// Delay until the next reconcile without a change.
    pub requeue: Option<Duration>,
    /// Events about the node.
    pub events: Vec<Note>,
}

/// Whether the decision depends on claims in use.
pub fn needs_claims(wanted: &Wanted, node: &Node<'_>) -> bool {
    let set = node.labels.get(keys::DRA_DRIVER).is_some_and(|value| !value.is_empty());
    let stays = wanted.stack == Stack::Dra && !node.labels.is(keys::OPERANDS, "false");
    set && !stays && !matches!(wanted.stack, Stack::Nothing | Stack::Frozen)
}

/// Decides all changes of one node.
pub fn decide(wanted: &Wanted, node: &Node<'_>, facts: &NodeFacts) -> Decision {
    let mut decision = Decision::default();
    match wanted.stack {
        Stack::Frozen => return decision,
        Stack::Nothing => {
            decision.patch = uninstall(node);
            return decision;
        }
        Stack::DevicePlugin { .. } | Stack::Dra => {}
    }
    if has_gpu(node.labels) {
        if !node.labels.is(keys::PRESENT, "true") {
            decision.patch.set(keys::PRESENT, "true");
        }
        operands(wanted, node, facts, &mut decision);
        drivers(wanted, node, facts, &mut decision);
        runtime(wanted, node, &mut decision.patch);
    } else {
        if node.labels.is(keys::PRESENT, "true") {
            decision.patch.set(keys::PRESENT, "false");
        }
        leave(node, &mut decision.patch);
    }
    decision
}

/// Removes everything of ours from the node.
fn uninstall(node: &Node<'_>) -> NodePatch {
    let mut patch = NodePatch::default();
    if node.labels.get(keys::PRESENT).is_some() {
        patch.remove(keys::PRESENT);
    }
    leave(node, &mut patch);
    if node.annotations.get(keys::MIG_CONFIG_IS_OURS).is_some() {
        patch.strip(keys::MIG_CONFIG_IS_OURS);
        if node.labels.is(keys::MIG_CONFIG, keys::MIG_OFF) {
            patch.remove(keys::MIG_CONFIG);
        }
    }
    patch
}

/// Removes the labels of a node without (usable) GPUs.
fn leave(node: &Node<'_>, patch: &mut NodePatch) {
    for key in keys::all() {
        withdraw(node, patch, key);
    }
    for key in [keys::OWNER, keys::RUNTIME] {
        if node.labels.get(key).is_some() {
            patch.remove(key);
        }
    }
    annotate(node, patch, keys::AUTO_UPGRADE, None);
    patch.merge(upgrade::abandon(node));
}

/// The container runtime label, for runtime-specific operands.
fn runtime(wanted: &Wanted, node: &Node<'_>, patch: &mut NodePatch) {
    let plugins = matches!(wanted.stack, Stack::DevicePlugin { .. });
    let unusual = node.runtime.filter(|runtime| plugins && *runtime != ContainerRuntime::Containerd);
    match (unusual.map(ContainerRuntime::name), node.labels.get(keys::RUNTIME)) {
        (Some(name), found) if found != Some(name) => patch.set(keys::RUNTIME, name),
        (None, Some(_)) => patch.remove(keys::RUNTIME),
        _ => {}
    }
}

/// Deploy labels.
fn operands(wanted: &Wanted, node: &Node<'_>, facts: &NodeFacts, decision: &mut Decision) {
    if node.labels.is(keys::OPERANDS, "false") {
        keys::all().for_each(|key| withdraw_in_order(node, facts, decision, key));
        return;
    }
    match &wanted.stack {
        Stack::Dra => {
            let plugins = keys::all().filter(|key| keys::plugin_only(key));
            plugins.for_each(|key| withdraw(node, &mut decision.patch, key));
            keys::DRA.iter().for_each(|key| deploy(node, &mut decision.patch, key));
        }
        Stack::DevicePlugin { sandbox, mode, cc_manager, mig_off } => {
            let workload = workload(node, *sandbox);
            let wanted = keys::operands(workload, *mode, *cc_manager);
            let partitions = |key: &str| key == keys::MIG_MANAGER && workload == Workload::Container;
            for key in keys::all().filter(|key| !wanted.clone().any(|one| one == *key) && !partitions(key)) {
                withdraw_in_order(node, facts, decision, key);
            }
            wanted.for_each(|key| deploy(node, &mut decision.patch, key));
            let capable = mig_capable(node);
            if capable && workload == Workload::Container && node.labels.get(keys::MIG_MANAGER).is_none() {
                decision.patch.set(keys::MIG_MANAGER, "true");
            }
            if capable && *mig_off && node.labels.get(keys::MIG_CONFIG).is_none_or(str::is_empty) {
                decision.patch.set(keys::MIG_CONFIG, keys::MIG_OFF);
                decision.patch.annotate(keys::MIG_CONFIG_IS_OURS, "true");
            }
        }
        Stack::Nothing | Stack::Frozen => {}
    }
}

/// The workload type of the node.
fn workload(node: &Node<'_>, sandbox: Option<Workload>) -> Workload {
    let Some(default) = sandbox else { return Workload::Container };
    match node.labels.get(keys::WORKLOAD) {
        Some("container") => Workload::Container,
        Some("vm-passthrough") => Workload::VmPassthrough,
        Some("vm-vgpu") => Workload::VmVgpu,
        _ => default,
    }
}

/// Whether the node is MIG-capable; by product before GPU feature discovery has run.
fn mig_capable(node: &Node<'_>) -> bool {
    if node.labels.get(keys::VGPU_HOST_DRIVER).is_some_and(|version| !version.is_empty()) {
        return false;
    }
    if let Some(capable) = node.labels.get(keys::MIG_CAPABLE) {
        return capable == "true";
    }
    let product = node.labels.get(keys::PRODUCT).unwrap_or_default().to_ascii_lowercase();
    ["h100", "a100", "a30"].iter().any(|model| product.contains(model))
}

fn deploy(node: &Node<'_>, patch: &mut NodePatch, key: &str) {
    if node.labels.get(key).is_none_or(str::is_empty) {
        patch.set(key, "true");
    }
}

fn withdraw(node: &Node<'_>, patch: &mut NodePatch, key: &str) {
    if node.labels.get(key).is_some_and(keys::is_ours) {
        patch.remove(key);
    }
}

/// The same, except that the DRA driver stays until all claims are unprepared.
fn withdraw_in_order(node: &Node<'_>, facts: &NodeFacts, decision: &mut Decision, key: &str) {
    let set = node.labels.get(key).is_some_and(|value| !value.is_empty());
    if key == keys::DRA_DRIVER && set && facts.claims_in_use != Some(false) {
        decision.requeue = Some(IN_USE);
    } else {
        withdraw(node, &mut decision.patch, key);
    }
}

fn annotate(node: &Node<'_>, patch: &mut NodePatch, key: &str, value: Option<&str>) {
    match (value, node.annotations.get(key)) {
        (Some(wanted), found) if found != Some(wanted) => patch.annotate(key, wanted),
        (None, Some(_)) => patch.strip(key),
        _ => {}
    }
}

/// Driver owner and auto-upgrade annotation.
fn drivers(wanted: &Wanted, node: &Node<'_>, facts: &NodeFacts, decision: &mut Decision) {
    let (annotated, upgraded) = match (&wanted.owners, wanted.auto_upgrade) {
        (Owners::Frozen, _) => return,
        (Owners::Unused, auto) => {
            if node.labels.get(keys::OWNER).is_some() {
                decision.patch.remove(keys::OWNER);
            }
            annotate(node, &mut decision.patch, upgrade_keys::NEXT_OWNER, None);
            (auto == AutoUpgrade::On, auto == AutoUpgrade::On)
        }
        (Owners::Assigned(assigned), auto) => {
            let label = |key: &str| if key == keys::PRESENT { Some("true") } else { node.labels.get(key) };
            let Ok(owner) = assigned.owner(label) else { return };
            let on = owner.is_some_and(|owner| owner.auto_upgrade);
            let pending = own(assigned, owner, node, facts, decision);
            (on && auto == AutoUpgrade::PerDriver { annotated: true }, on || pending)
        }
    };
    annotate(node, &mut decision.patch, keys::AUTO_UPGRADE, annotated.then_some("true"));
    let state = node.labels.get(upgrade_keys::STATE).unwrap_or_default();
    if !upgraded {
        decision.patch.merge(upgrade::abandon(node));
    } else if state.is_empty() && !decision.patch.labels.contains_key(upgrade_keys::STATE) {
        // A node without a driver gets the newest one. Setting the state here saves a request per node.
        decision.patch.set(upgrade_keys::STATE, State::Done.label());
    }
}

/// Assigns the node to its owner; true if the change has to wait for an upgrade.
fn own(
    assigned: &Assigned,
    owner: Option<&Driver>,
    node: &Node<'_>,
    facts: &NodeFacts,
    decision: &mut Decision,
) -> bool {
    let patch = &mut decision.patch;
    let current = node.labels.get(keys::OWNER);
    let name = owner.map(|owner| owner.name.as_str());
    let next = upgrade_keys::NEXT_OWNER;
    let state = State::of(node.labels);
    let quiet = matches!(state, State::Unset | State::Done);
    if current == name {
        annotate(node, patch, next, None);
        if quiet && facts.orphaned_driver && owner.is_some_and(|owner| owner.auto_upgrade) {
            require(node, patch);
        }
        return false;
    }
    // Another owner means another DaemonSet, and a driver restart under load: that is an upgrade.
    let former = current.and_then(|name| assigned.named(name)).filter(|_| facts.owned_driver);
    if let Some(former) = former.filter(|former| owner.unwrap_or(former).auto_upgrade) {
        if node.annotations.get(next) != Some(name.unwrap_or_default()) {
            patch.annotate(next, name.unwrap_or_default());
            let to = name.map_or("no NVIDIADriver".into(), |name| format!("NVIDIADriver {name}"));
            let message = format!("driver moves from NVIDIADriver {} to {to} as an upgrade of this node", former.name);
            decision.events.push(Note { severity: Severity::Normal, reason: upgrade::EVENT, message });
        }
        if quiet {
            require(node, &mut decision.patch);
        }
        return true;
    }
    annotate(node, patch, next, None);
    match name {
        Some(name) => patch.set(keys::OWNER, name),
        None => patch.remove(keys::OWNER),
    }
    if quiet && facts.orphaned_driver && owner.is_some_and(|owner| owner.auto_upgrade) {
        require(node, patch);
    }
    false
}

/// Requests an upgrade. Records whether the node is cordoned now.
fn require(node: &Node<'_>, patch: &mut NodePatch) {
    patch.set(upgrade_keys::STATE, State::Required.label());
    if node.unschedulable {
        patch.annotate(upgrade_keys::INITIAL, "true");
    }
}
