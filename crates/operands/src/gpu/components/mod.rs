//! Components of the GPU stack, one file each, independent of the custom resource.
//!
//! An operand starts from a template ([`Daemon`](capstan_plan::kit::Daemon)) and applies the settings of the custom
//! resource. Start with [`device_plugin`], then read [`context`] for the inputs and [`daemon`] for the common settings
//! of all DaemonSets.

pub(crate) mod access;
pub(crate) mod cc_manager;
pub(crate) mod context;
pub(crate) mod daemon;
pub(crate) mod dcgm;
pub(crate) mod dcgm_exporter;
pub(crate) mod device_plugin;
pub(crate) mod driver;
pub(crate) mod feature_discovery;
pub(crate) mod kata_device_plugin;
pub(crate) mod mig_manager;
pub(crate) mod mig_parted;
pub(crate) mod monitor;
pub(crate) mod mps;
pub(crate) mod node_agent;
pub(crate) mod node_status;
pub(crate) mod operator_metrics;
pub(crate) mod own;
pub(crate) mod prerequisites;
pub(crate) mod progress;
pub(crate) mod sandbox_device_plugin;
pub(crate) mod sandbox_validation;
pub(crate) mod snippets;
pub(crate) mod toolkit;
pub(crate) mod validation;
pub(crate) mod vfio_manager;
pub(crate) mod vgpu_device_manager;
pub(crate) mod vgpu_devices;
pub(crate) mod vgpu_manager;

use capstan_api::gpu::component::Component;

pub(crate) use capstan_plan::kit::Outcome;
pub use context::MANAGER;
pub(crate) use context::{Cx, Operand, PolicyCx};

/// Whether a component that is on by default is enabled.
pub(crate) fn enabled(component: &Component) -> bool {
    component.enabled.unwrap_or(true)
}

/// Whether a component that is off by default is enabled.
pub(crate) fn switched_on(component: Option<&Component>) -> bool {
    component.is_some_and(|component| component.enabled == Some(true))
}
