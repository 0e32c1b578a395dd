//! Why a pod does not do its work, in words.
//!
//! One place for them: conditions and events of the operator and the findings of `capstan doctor` are made of what stands
//! here, so that a cause is called the same wherever it is read. [`pods`] names a cause from what the status of a pod says;
//! [`diagnosis`] groups the causes of many pods.

pub mod diagnosis;
pub mod pods;
pub mod words;

pub use diagnosis::{BUILD, Diagnoses, Diagnosis, STUCK, diagnose, notes, offers, title};
pub use pods::{Part, State, UnhealthyPod};

/// A class of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Secure Boot rejects the driver.
    SecureBoot,
    /// nouveau holds the GPUs.
    Nouveau,
    /// Kernel headers cannot be had.
    Headers,
    /// An old driver is in use.
    InUse,
    /// The driver does not support the kernel.
    Kernel,
    /// Nobody compiled a driver for the kernel.
    NoPrecompiled,
    /// The driver fails, and nobody knows why.
    DriverCrashes,
    /// The driver is installed and not loaded.
    NotLoaded,
    /// Fabric manager does not run.
    FabricManager,
    /// The container runtime does not know the class of the pod.
    RuntimeHandler,
    /// An image is not there.
    ImagePull,
    /// A registry refuses an image.
    RegistrySecret,
    /// A validation does not end.
    Barrier,
    /// The device plugin does not run.
    PluginNotRunning,
    /// Something else fails, and nobody knows why.
    Crashes,
    /// Something was killed for its memory.
    OutOfMemory,
}

impl Class {
    /// The rule of the doctor that finds it.
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

    /// Reason of events about it.
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

/// A cause at one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Which.
    pub class: Class,
    /// What it is about: a container, an image or a handler, as its class has it.
    pub subject: String,
    /// How a container ended, where that is all that is known.
    pub code: u64,
}

impl Cause {
    /// One that is about something.
    pub fn of(class: Class, subject: &str) -> Self {
        Self { class, subject: subject.into(), code: 0 }
    }

    /// A container that failed with that code.
    pub fn crash(class: Class, container: &str, code: u64) -> Self {
        Self { code, ..Self::of(class, container) }
    }

    /// What is wrong, on a node with that kernel. The same at every node with the same cause.
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
