//! GPU nodes that are virtual.
//!
//! [`Machines`] gives nodes fake hardware, files on disk and a kubelet for device plugins: containers of the operator's
//! own image run the code that is shipped (`capstan_agent`) on it. [`rules`] imitates all operands instead, for fleets of
//! hundreds and thousands. In both, containers wait for each other as on a real node: through the files under
//! `/run/nvidia/validations`. A driver takes a while, the validator looks for it, the toolkit waits for the validator,
//! the device plugin for the toolkit, and only then the node offers GPUs.
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

pub use imitation::{bad_drivers, reboot, rules};
pub use machine::Machine;
pub use machines::Machines;

/// Label with the number of GPUs that the hardware of a virtual node has.
pub const HARDWARE: &str = "sim.capstan.dev/gpus";
/// Label with the model of those GPUs, such as `L40s`; without it they are H200.
pub const MODEL: &str = "sim.capstan.dev/gpu-model";
/// Kernel of virtual nodes with GPUs.
const KERNEL: &str = "6.8.0-45-generic";

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// To build and load a driver.
    pub driver: Duration,
    /// To set up a container runtime.
    pub toolkit: Duration,
    /// To run one check.
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

/// A node with GPUs, as Node Feature Discovery and GPU feature discovery label it. It offers them only when a device
/// plugin runs.
pub fn gpu_node(name: &str, gpus: u16) -> NodeTemplate {
    bare_node(name, gpus).label(labels::GPU_PRODUCT, "NVIDIA-H200")
}

/// The same without what GPU feature discovery finds out: for nodes on which it runs.
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
