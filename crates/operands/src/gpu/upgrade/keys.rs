//! Keys of the journal. The first group is upstream's, so that an upgrade in progress can be taken over, both ways.

/// Label: the upgrade state.
pub const STATE: &str = capstan_node::labels::UPGRADE_STATE;
/// Label: `true` excludes a node from upgrades.
pub const SKIP: &str = "nvidia.com/gpu-driver-upgrade.skip";
/// Label: `true` excludes a pod from drains.
pub const SKIP_DRAIN: &str = "nvidia.com/gpu-driver-upgrade-drain.skip";
/// Annotation of a driver pod's init container that waits until it may load the driver.
pub const SAFE_LOAD: &str = "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load";
/// Annotation: the node was cordoned before, and stays cordoned.
pub const INITIAL: &str = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable";
/// Annotation: start of the wait for jobs.
pub const WAIT_START: &str = "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time";
/// Annotation: start of the wait for the validator.
pub const VALIDATION_START: &str = "nvidia.com/gpu-driver-upgrade-validation-start-time";
/// Annotation: the user requests an upgrade or a retry.
pub const REQUESTED: &str = "nvidia.com/gpu-driver-upgrade-requested";
/// Annotation: requestor mode, by a NodeMaintenance.
pub const REQUESTOR: &str = "nvidia.com/gpu-driver-upgrade-requestor-mode";

/// Annotation: when the state was entered.
pub const SINCE: &str = "capstan.dev/upgrade-since";
/// Annotation: why the upgrade failed here.
pub const REASON: &str = "capstan.dev/upgrade-reason";
/// Annotation: number of failures.
pub const ATTEMPTS: &str = "capstan.dev/upgrade-attempts";
/// Annotation: target revision.
pub const TARGET: &str = "capstan.dev/upgrade-target";
/// Annotation: previous working revision.
pub const FROM: &str = "capstan.dev/upgrade-from";
/// Annotation: UID of a driver pod to restart although its revision is current.
pub const RESTART: &str = "capstan.dev/upgrade-restart";
/// Annotation: revision for which this node is a canary.
pub const CANARY: &str = "capstan.dev/upgrade-canary";
/// Annotation: the next owner of the node after the upgrade; empty for none.
pub const NEXT_OWNER: &str = "capstan.dev/upgrade-next-owner";
/// Annotation: upgrade order, ascending.
pub const ORDER: &str = "capstan.dev/upgrade-order";
