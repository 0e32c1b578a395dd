//! AMD GPUs (`amd.com`): [`DeviceConfig`] says what runs on a set of AMD nodes, [`RemediationWorkflowStatus`] keeps the
//! history of automatic node repairs.

mod device_config;
mod driver;
mod metrics_exporter;
mod operand;
mod operands;
mod remediation;
mod service_monitor;

pub use device_config::{
    CommonConfig, DeploymentStatus, DeviceConfig, DeviceConfigSpec, DeviceConfigStatus, ModuleStatus, UtilsContainer,
};
pub use driver::{
    Driver, DriverType, DriverUpgradePolicy, ImageBuild, ImageSign, KernelModuleConfig, NodeDrainPolicy,
    PodDeletionPolicy, RegistryTls, VfioConfig,
};
pub use metrics_exporter::{ExporterConfig, ExporterServiceType, MetricsExporter, RbacProxy, StaticAuthorization};
pub use operand::{Operand, UpgradePolicy, UpgradeStrategy};
pub use operands::{ConfigManager, DevicePlugin, DraDriver, LogsLocation, TestRunner};
pub use remediation::{
    RemediationHistory, RemediationRun, RemediationWorkflow, RemediationWorkflowStatus, RemediationWorkflowStatusSpec,
};
pub use service_monitor::{Prometheus, ServiceMonitor};

use crate::crd::Entry;

/// API group of AMD's kinds.
pub const GROUP: &str = "amd.com";

/// API version of AMD's kinds.
const VERSION: &str = "v1alpha1";

/// Kinds of this domain.
pub const KINDS: &[Entry] = &[Entry::of::<DeviceConfigSpec>(), Entry::of::<RemediationWorkflowStatusSpec>()];
