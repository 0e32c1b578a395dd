//! The journal's keys. The first group is the reference's, so that an upgrade under way can be taken over, both ways.

/// Label: how far the node is.
pub const STATE: &str = capstan_node::labels::UPGRADE_STATE;
/// Label by which users keep a node out of upgrades: `true`.
pub const SKIP: &str = "nvidia.com/gpu-driver-upgrade.skip";
/// Label by which users keep a pod out of drains: `true`.
pub const SKIP_DRAIN: &str = "nvidia.com/gpu-driver-upgrade-drain.skip";
/// Annotation of a driver pod's init container that waits until it may load the driver.
pub const SAFE_LOAD: &str = "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load";
/// Annotation: the node was cordoned before, and stays so.
pub const INITIAL: &str = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable";
/// Annotation: since when jobs are waited for.
pub const WAIT_START: &str = "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time";
/// Annotation: since when the validator is waited for.
pub const VALIDATION_START: &str = "nvidia.com/gpu-driver-upgrade-validation-start-time";
/// Annotation by which users ask for an upgrade, or for another try.
pub const REQUESTED: &str = "nvidia.com/gpu-driver-upgrade-requested";
/// Annotation: a NodeMaintenance takes the node out of use.
pub const REQUESTOR: &str = "nvidia.com/gpu-driver-upgrade-requestor-mode";

/// Annotation: since when the node is in its state.
pub const SINCE: &str = "capstan.dev/upgrade-since";
/// Annotation: why the upgrade failed here.
pub const REASON: &str = "capstan.dev/upgrade-reason";
/// Annotation: how often it failed.
pub const ATTEMPTS: &str = "capstan.dev/upgrade-attempts";
/// Annotation: revision that is installed.
pub const TARGET: &str = "capstan.dev/upgrade-target";
/// Annotation: revision that worked before.
pub const FROM: &str = "capstan.dev/upgrade-from";
/// Annotation: UID of a driver pod that is to be replaced though nothing is wrong with its revision.
pub const RESTART: &str = "capstan.dev/upgrade-restart";
/// Annotation: revision for which this node goes first.
pub const CANARY: &str = "capstan.dev/upgrade-canary";
/// Annotation: NVIDIADriver that gets the node in the course of the upgrade; empty for none.
pub const NEXT_OWNER: &str = "capstan.dev/upgrade-next-owner";
/// Annotation by which users say which nodes come first: the smallest number.
pub const ORDER: &str = "capstan.dev/upgrade-order";
