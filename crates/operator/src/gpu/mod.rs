//! GPU nodes: the controllers of ClusterPolicies, of GPUClusters, of NVIDIADrivers, and of labels of nodes and of the
//! namespace of operands.

mod cluster;
mod cluster_policy;
mod gpu_cluster;
mod metrics;
mod namespace;
mod nodes;
mod nvidia_driver;
mod troubles;
mod upgrade;

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};
pub use capstan_operands::gpu::nodes::{Readiness, StartupTaint};
pub use capstan_operands::gpu::upgrade::Requestor;
pub use capstan_operands::gpu::{Agent, IMAGES, Layout};
use capstan_plan::Gvk;
use capstan_runtime::queue::Queue;
use capstan_runtime::{Action, Cache, Change, Controller, Error, Key, Runtime};
pub use metrics::Metrics;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::cluster::Census;
use self::troubles::Unwell;
use self::upgrade::Board;
use crate::schemas::Schemas;

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

/// Nodes come in crowds: an object is looked at once for all that change within this time.
const CROWD: Duration = Duration::from_millis(250);

/// What a reconcile works with.
#[derive(Clone)]
struct Cx {
    runtime: Runtime,
    schemas: Schemas,
    settings: Settings,
    board: Board,
    census: Census,
    unwell: Unwell,
}

/// Looks at custom resources again when something changed that they depend on and do not own. The text is the namespace
/// of operands.
type Concern = fn(&Cache, &Queue<Key>, &str, &Change<'_>);

/// Runs the controllers until `stop`.
pub(crate) fn start(
    tasks: &mut JoinSet<()>,
    runtime: &Runtime,
    schemas: &Schemas,
    settings: &Settings,
    stop: &CancellationToken,
) {
    let cx = Cx {
        runtime: runtime.clone(),
        schemas: schemas.clone(),
        settings: settings.clone(),
        board: Board::default(),
        census: Census::follow(&runtime.cache),
        unwell: Unwell::follow(&runtime.cache, &settings.namespace),
    };
    controller::<ClusterPolicy, _, _>(
        tasks,
        &cx,
        "clusterpolicy",
        cluster_policy::concern,
        cluster_policy::reconcile,
        stop,
    );
    controller::<NvidiaDriver, _, _>(
        tasks,
        &cx,
        "nvidiadriver",
        nvidia_driver::concern,
        nvidia_driver::reconcile,
        stop,
    );
    controller::<GpuCluster, _, _>(tasks, &cx, "gpucluster", gpu_cluster::concern, gpu_cluster::reconcile, stop);
    nodes::start(tasks, &cx, stop);
    upgrade::start(tasks, &cx, stop);
    namespace::start(tasks, &cx, stop);
}

/// Runs the controller of a cluster-wide kind, one object at a time.
fn controller<K, F, Fut>(
    tasks: &mut JoinSet<()>,
    cx: &Cx,
    name: &'static str,
    concern: Concern,
    reconcile: F,
    stop: &CancellationToken,
) where
    K: kube::Resource<DynamicType = ()>,
    F: Fn(Cx, Key) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let controller = Controller::of::<K>(name, &cx.runtime).concurrency(1);
    let queue = controller.queue();
    cx.board.tell(Gvk::of::<K>(), &cx.runtime.cache, &queue);
    cx.schemas.wake::<K>(queue.clone(), &cx.runtime.cache);
    let (cache, namespace) = (cx.runtime.cache.clone(), cx.settings.namespace.clone());
    // Every object is looked at when the cache is complete.
    cx.runtime.cache.subscribe(move |change| {
        if cache.is_synced() {
            concern(&cache, &queue, &namespace, change);
        }
    });
    let cx = cx.clone();
    tasks.spawn(controller.run(stop.clone(), move |key| reconcile(cx.clone(), key)));
}
