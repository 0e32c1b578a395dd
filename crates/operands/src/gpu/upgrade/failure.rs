//! Why an upgrade fails on a node: the first word of the reason that the node carries.

/// Why an upgrade fails on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Pods may not be evicted, or did not go in time.
    EvictionFailed,
    /// The same while the whole node was drained.
    DrainFailed,
    /// The new driver pod restarts again and again.
    DriverCrashes,
    /// The new driver pod did not become ready in time.
    DriverNotReady,
    /// There is no driver pod.
    DriverMissing,
    /// The validator did not become ready in time.
    ValidationFailed,
    /// There is no validator.
    ValidatorMissing,
    /// The node could not be taken out of use.
    MaintenanceFailed,
}

impl Failure {
    /// The word for it in the reason annotation.
    pub fn word(self) -> &'static str {
        match self {
            Self::EvictionFailed => "EvictionFailed",
            Self::DrainFailed => "DrainFailed",
            Self::DriverCrashes => "DriverCrashes",
            Self::DriverNotReady => "DriverNotReady",
            Self::DriverMissing => "DriverMissing",
            Self::ValidationFailed => "ValidationFailed",
            Self::ValidatorMissing => "ValidatorMissing",
            Self::MaintenanceFailed => "MaintenanceFailed",
        }
    }

    /// Whether the driver is to blame, as far as one can tell.
    pub(super) fn by_driver(reason: &str) -> bool {
        let drivers = [Self::DriverCrashes, Self::DriverNotReady, Self::ValidationFailed];
        drivers.iter().any(|failure| reason.starts_with(failure.word()))
    }
}
