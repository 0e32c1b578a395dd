//! GPU nodes: the controllers of ClusterPolicies, of NVIDIADrivers and of node labels.

mod cluster;
mod cluster_policy;
mod nodes;
mod nvidia_driver;

use std::collections::BTreeMap;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::schemas::Schemas;
pub use capstan_operands::gpu::IMAGES;
use capstan_runtime::Runtime;

/// What the operator was started with, as far as GPUs are concerned.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Namespace of the operator, in which operands run.
    pub namespace: String,
    /// Images of operands by variable: `DRIVER_IMAGE` …
    pub images: BTreeMap<String, String>,
}

/// Runs the controllers until `stop`.
pub(crate) fn start(
    tasks: &mut JoinSet<()>,
    runtime: &Runtime,
    schemas: &Schemas,
    settings: &Settings,
    stop: &CancellationToken,
) {
    cluster_policy::start(tasks, runtime, schemas, settings, stop);
    nvidia_driver::start(tasks, runtime, schemas, settings, stop);
    nodes::start(tasks, runtime, stop);
}
