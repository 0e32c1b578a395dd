//! Failure causes of pods.
//!
//! The single source of cause messages: conditions and events of the operator and findings of `capstan doctor` use the
//! same wording. [`pods`] derives a cause from a pod status; [`diagnosis`] groups the causes of many pods.

pub mod diagnosis;
pub mod pods;
pub mod words;

pub use diagnosis::{BUILD_TIMEOUT, Diagnoses, Diagnosis, VALIDATION_TIMEOUT, diagnose, new_events, offers, title};
pub use pods::{Part, State, UnhealthyPod};

/// A class of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Secure Boot rejects the driver.
    SecureBoot,
    /// nouveau holds the GPUs.
    Nouveau,
    /// Kernel headers are not available.
    Headers,
    /// An old driver is in use.
    InUse,
    /// The driver does not support the kernel.
    Kernel,
    /// There is no precompiled driver for the kernel.
    NoPrecompiled,
    /// The driver container crashes, cause unknown.
    DriverCrashes,
    /// The driver is installed but not loaded.
    NotLoaded,
    /// Fabric manager does not run.
    FabricManager,
    /// The container runtime lacks the handler of the RuntimeClass.
    RuntimeHandler,
    /// An image cannot be pulled.
    ImagePull,
    /// A registry denies access to an image.
    RegistrySecret,
    /// A validation times out.
    Barrier,
    /// The device plugin does not run.
    PluginNotRunning,
    /// Another container crashes, cause unknown.
    Crashes,
    /// A container was OOM-killed.
    OutOfMemory,
}

impl Class {
    /// The `doctor` rule that reports it.
    pub fn rule(self) -> &'static str {
        match self {
            Self::SecureBoot => "driver-secure-boot",
            Self::Nouveau => "driver-nouveau-loaded",
            Self::Headers => "driver-headers-missing",
            Self::InUse => "driver-in-use",
            Self::Kernel | Self::NoPrecompiled => "driver-kernel-unsupported",
            Self::DriverCrashes => "driver-crashes",
            Self::NotLoaded => "driver-not-loaded",
            Self::FabricManager => "fabric-manager",
            Self::RuntimeHandler => "runtime-handler",
            Self::ImagePull => "image-pull",
            Self::RegistrySecret => "registry-secret",
            Self::Barrier => "init-barrier",
            Self::PluginNotRunning => "plugin-not-running",
            Self::Crashes | Self::OutOfMemory => "operand-crashes",
        }
    }

    /// Its event reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::SecureBoot => "DriverSecureBoot",
            Self::Nouveau => "DriverNouveauLoaded",
            Self::Headers => "DriverHeadersMissing",
            Self::InUse => "DriverInUse",
            Self::Kernel | Self::NoPrecompiled => "DriverKernelUnsupported",
            Self::DriverCrashes => "DriverCrashes",
            Self::NotLoaded => "DriverNotLoaded",
            Self::FabricManager => "FabricManager",
            Self::RuntimeHandler => "RuntimeHandler",
            Self::ImagePull => "ImagePull",
            Self::RegistrySecret => "RegistrySecret",
            Self::Barrier => "InitBarrier",
            Self::PluginNotRunning => "PluginNotRunning",
            Self::Crashes | Self::OutOfMemory => "OperandCrashes",
        }
    }
}

/// The cause of one pod's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Its class.
    pub class: Class,
    /// Its subject: a container, an image or a runtime handler, depending on the class.
    pub subject: String,
    /// Exit code, where nothing else is known.
    pub code: u64,
}

impl Cause {
    /// A cause with a subject.
    pub fn of(class: Class, subject: &str) -> Self {
        Self { class, subject: subject.into(), code: 0 }
    }

    /// A crash with an exit code.
    pub fn crash(class: Class, container: &str, code: u64) -> Self {
        Self { code, ..Self::of(class, container) }
    }

    /// The message, for a node with that kernel. Equal for all nodes with the same cause.
    pub fn what(&self, kernel: &str) -> String {
        let subject = &self.subject;
        match self.class {
            Class::SecureBoot => "Secure Boot rejects the driver's kernel module: its key is not enrolled".into(),
            Class::Nouveau => "the kernel module nouveau holds the GPUs, so the driver cannot".into(),
            Class::Headers => format!("the headers of kernel {kernel} cannot be had, so the driver cannot be built"),
            Class::InUse => "another driver is loaded and somebody uses it, so it cannot be unloaded".into(),
            Class::Kernel => format!("the driver does not support kernel {kernel}"),
            Class::NoPrecompiled => format!("there is no precompiled driver for kernel {kernel}"),
            Class::DriverCrashes => format!("the driver fails in container {subject}"),
            Class::NotLoaded => "the driver is installed and not loaded".into(),
            Class::FabricManager => "fabric manager does not run, so GPUs refuse to work".into(),
            Class::RuntimeHandler => format!("the container runtime has no handler {subject:?}"),
            Class::ImagePull => format!("image {subject} cannot be pulled"),
            Class::RegistrySecret => {
                let registry = words::registry(subject);
                format!("the registry {registry} refuses image {subject}: the pull secret is missing or wrong")
            }
            Class::Barrier => match words::BARRIERS.get(words::place(subject)) {
                Some((name, awaited)) => format!("stuck at {name}, which waits for {awaited}"),
                None => format!("stuck at {subject}"),
            },
            Class::PluginNotRunning => "the device plugin does not run, so no GPUs are offered".into(),
            Class::Crashes => format!("container {subject} fails with exit code {}", self.code),
            Class::OutOfMemory => format!("container {subject} gets more memory than it may have and is killed"),
        }
    }
}
