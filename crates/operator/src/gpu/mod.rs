//! The GPU product: controllers of ClusterPolicy, GPUCluster, NVIDIADriver, driver upgrades, node labels and the
//! operands' namespace.

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

/// Registration of the GPU product.
pub static PRODUCT: Product = Product {
    name: "gpu",
    kinds: capstan_api::gpu::KINDS,
    webhooks: &[],
    granted: capstan_operands::gpu::cluster_policy::granted,
    metrics: |options, registry| options.gpu.metrics.register(registry),
    controllers,
};

/// GPU-related settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Namespace of the operator, in which operands run.
    pub namespace: String,
    /// Images of operands by variable: `DRIVER_IMAGE` …
    pub images: BTreeMap<String, String>,
    /// Our own image, the default where no image is set.
    pub agent: Agent,
    /// Metrics.
    pub metrics: Metrics,
    /// Identity for requests to the maintenance operator, which then cordons and drains nodes for upgrades; we do it
    /// ourselves when unset.
    pub requestor: Option<Requestor>,
    /// Settings of node readiness (condition and taint).
    pub readiness: Readiness,
}

/// Debounce of node changes, which come by the hundred.
const NODE_DEBOUNCE: Duration = Duration::from_millis(250);

/// State shared by the controllers.
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
