//! Virtual GPU nodes.
//!
//! [`Machines`] gives nodes fake hardware, files on disk and a device manager: containers of the operator's own image
//! run the shipped code (`capstan_agent`) on it. [`rules`] imitates all operands instead, for fleets of hundreds and
//! thousands. In both, containers wait for each other as on a real node: through the files under
//! `/run/nvidia/validations`. The validator waits for the driver, the toolkit for the validator, the device plugin for
//! the toolkit, and only then the node has allocatable GPUs.
//!
//! ```
//! use capstan_gpu_sim::{Pace, gpu_node, rules};
//! use capstan_sim::node;
//!
//! let nodes = (0..2).map(|index| gpu_node(&format!("gpu-{index}"), 8)).collect();
//! let settings = node::Settings { nodes, rules: rules(Pace::default()), ..node::Settings::default() };
//! assert_eq!(settings.nodes.len(), 2);
//! ```

mod allocations;
mod device_plugins;
mod dra;
pub mod faults;
mod imitation;
mod logs;
mod machine;
mod machines;
mod node_features;
mod role;
mod workloads;

use std::time::Duration;

use capstan_node::labels;
use capstan_sim::NodeTemplate;

pub use imitation::{failing_drivers, reboot, rules};
pub use machine::Machine;
pub use machines::Machines;

/// Label with the number of physical GPUs of a virtual node.
pub const HARDWARE: &str = "sim.capstan.dev/gpus";
/// Label with the GPU model, such as `L40s`; H200 by default.
pub const MODEL: &str = "sim.capstan.dev/gpu-model";
/// Kernel version of virtual GPU nodes.
const KERNEL: &str = "6.8.0-45-generic";

/// Durations of operations.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Build and load of a driver.
    pub driver: Duration,
    /// Container runtime setup.
    pub toolkit: Duration,
    /// One validator check.
    pub check: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            driver: Duration::from_millis(300),
            toolkit: Duration::from_millis(50),
            check: Duration::from_millis(20),
        }
    }
}

/// A GPU node as labelled by Node Feature Discovery and GPU feature discovery. Its GPUs become allocatable when a
/// device plugin runs.
pub fn gpu_node(name: &str, gpus: u16) -> NodeTemplate {
    bare_node(name, gpus).label(labels::GPU_PRODUCT, "NVIDIA-H200")
}

/// The same without the labels of GPU feature discovery: for nodes on which it runs.
pub fn bare_node(name: &str, gpus: u16) -> NodeTemplate {
    let gpus = gpus.to_string();
    let labels = [
        ("feature.node.kubernetes.io/pci-10de.present", "true"),
        ("feature.node.kubernetes.io/system-os_release.ID", "ubuntu"),
        ("feature.node.kubernetes.io/system-os_release.VERSION_ID", "24.04"),
        ("feature.node.kubernetes.io/kernel-version.full", KERNEL),
        (HARDWARE, &gpus),
    ];
    NodeTemplate {
        name: name.into(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        kernel: Some(KERNEL.into()),
        ..NodeTemplate::default()
    }
}
