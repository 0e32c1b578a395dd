//! Why an upgrade failed on a node: the first word of the reason annotation.

/// Why an upgrade fails on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Pods must not be evicted, or did not terminate in time.
    EvictionFailed,
    /// The same while the node was drained.
    DrainFailed,
    /// The new driver pod crash-loops.
    DriverCrashes,
    /// The new driver pod did not become ready in time.
    DriverNotReady,
    /// There is no driver pod.
    DriverMissing,
    /// The validator did not become ready in time.
    ValidationFailed,
    /// There is no validator.
    ValidatorMissing,
    /// The maintenance operator failed.
    MaintenanceFailed,
}

impl Failure {
    /// Its word in the reason annotation.
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

    /// Whether the driver is the likely cause.
    pub(super) fn by_driver(reason: &str) -> bool {
        let drivers = [Self::DriverCrashes, Self::DriverNotReady, Self::ValidationFailed];
        drivers.iter().any(|failure| reason.starts_with(failure.word()))
    }
}
