//! GPU nodes: the controllers of ClusterPolicies, of GPUClusters, of NVIDIADrivers, of driver upgrades, and of labels of
//! nodes and of the namespace of operands.

mod cluster;
mod cluster_policy;
mod diagnoses;
mod gpu_cluster;
mod metrics;
mod namespace;
mod nodes;
mod nvidia_driver;
mod upgrade;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use capstan_operands::gpu::nodes::{Readiness, StartupTaint};
pub use capstan_operands::gpu::upgrade::Requestor;
pub use capstan_operands::gpu::{Agent, IMAGES, Layout};
use capstan_runtime::Runtime;
pub use metrics::Metrics;

use self::cluster::NodeCensus;
use self::diagnoses::UnhealthyPods;
use self::upgrade::UpgradeReports;
use crate::product::{Launch, Product};

/// What GPUs add to the operator.
pub static PRODUCT: Product = Product {
    name: "gpu",
    kinds: capstan_api::gpu::KINDS,
    webhooks: &[],
    granted: capstan_operands::gpu::cluster_policy::granted,
    metrics: |options, registry| options.gpu.metrics.register(registry),
    controllers,
};

/// What the operator was started with, as far as GPUs are concerned.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Namespace of the operator, in which operands run.
    pub namespace: String,
    /// Images of operands by variable: `DRIVER_IMAGE` …
    pub images: BTreeMap<String, String>,
    /// Our own image, which stands in for those that nobody names.
    pub agent: Agent,
    /// What is measured.
    pub metrics: Metrics,
    /// As whom we ask another operator to take nodes out of use for upgrades; we do it ourselves when unset.
    pub requestor: Option<Requestor>,
    /// What nodes are told about their GPUs.
    pub readiness: Readiness,
}

/// Nodes change by the hundred: an object is reconciled once for all that change within this time.
const NODE_DEBOUNCE: Duration = Duration::from_millis(250);

/// What the controllers share.
struct Cx {
    runtime: Runtime,
    settings: Settings,
    reports: UpgradeReports,
    census: NodeCensus,
    unhealthy: UnhealthyPods,
}

fn controllers(launch: &mut Launch<'_>) {
    let (runtime, settings) = (launch.runtime, &launch.options.gpu);
    let cx = Arc::new(Cx {
        runtime: runtime.clone(),
        settings: settings.clone(),
        reports: UpgradeReports::default(),
        census: NodeCensus::follow(&runtime.cache),
        unhealthy: UnhealthyPods::follow(&runtime.cache, &settings.namespace),
    });
    launch.controller(cluster_policy::ClusterPolicies(cx.clone()));
    launch.controller(nvidia_driver::NvidiaDrivers(cx.clone()));
    launch.controller(gpu_cluster::GpuClusters(cx.clone()));
    nodes::start(launch, &cx);
    upgrade::start(launch, &cx);
    namespace::start(launch, &cx);
}
