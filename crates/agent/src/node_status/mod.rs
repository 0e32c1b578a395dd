//! Node status metrics: which validations passed, whether the driver responds, how many GPUs are allocatable.
//! Read-only: it never touches a validation file.

use std::fmt::Write;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_http::{answer, text};
use capstan_node::validation;
use futures::StreamExt;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::own_node::NodeFacts;
use crate::roles::{Entry, entry};
use crate::validator::{self, World, checks};
use crate::{Cx, Error, Result};

/// This role's entry in the agent's list. It has the validator's flags, one of which has no default there.
pub(crate) const ROLE: Entry = Entry {
    options: |command| {
        let component = |arg: clap::Arg| arg.required(false).default_value(COMPONENT);
        (validator::ROLE.options)(command).mut_arg("component", component)
    },
    ..entry!(capstan_node::NODE_STATUS_EXPORTER.name, "Serve node status metrics", validator::Options, run)
};

/// The validator component of this role.
pub(crate) const COMPONENT: &str = "metrics";

/// Maximum age of the cached driver result.
const DRIVER_TTL: Duration = Duration::from_secs(60);

/// Validation files and their metrics.
const FILES: [(&str, &str); 4] = [
    ("gpu_operator_node_driver_ready", validation::DRIVER),
    ("gpu_operator_node_toolkit_ready", validation::TOOLKIT),
    ("gpu_operator_node_plugin_ready", validation::PLUGIN),
    ("gpu_operator_node_cuda_ready", validation::CUDA),
];

/// Values that are cached between scrapes.
#[derive(Default)]
struct Cached {
    facts: Option<NodeFacts>,
    devices_seen: Option<i64>,
    driver: Option<(Instant, bool)>,
    driver_seen: Option<i64>,
}

struct Status {
    world: World,
    node: String,
    started: i64,
    known: Mutex<Cached>,
}

/// Serves metrics until stopped.
pub async fn run(options: validator::Options, cx: Cx) -> Result<()> {
    if options.metrics_port == 0 {
        return Err(Error::Config(
            "--metrics-port (METRICS_PORT) is 0; set it to 8000, where the service looks".into(),
        ));
    }
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, options.metrics_port));
    let listener = cx.listen(address).await?;
    let stop = cx.stop.clone();
    let node = options.node_name.clone();
    let world = World::new(options, cx).await?;
    let status = Arc::new(Status { world, node, started: now(), known: Mutex::default() });
    let watch = watch_node(status.clone());
    let serve = serve(listener, status);
    stop.run_until_cancelled(async { tokio::join!(serve, watch) }).await;
    Ok(())
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Watches the Node. Without an API server, the device count is -1.
async fn watch_node(status: Arc<Status>) {
    let mut changes = (status.world.watch)();
    while let Some(facts) = changes.next().await {
        let mut known = status.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.facts = facts.ok();
        if known.facts.as_ref().is_some_and(|facts| devices(facts) > 0) {
            known.devices_seen = Some(now());
        }
    }
    std::future::pending().await
}

fn devices(facts: &NodeFacts) -> u64 {
    NodeFacts::gpus(&facts.capacity).map(|(_, count)| count).sum()
}

async fn serve(listener: TcpListener, status: Arc<Status>) {
    let stop = status.world.cx.stop.clone();
    capstan_http::serve(
        listener,
        || None,
        stop,
        move |request| {
            let status = status.clone();
            async move {
                match request.uri().path() {
                    "/metrics" => {
                        status.refresh_driver().await;
                        answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", status.page())
                    }
                    _ => text(StatusCode::NOT_FOUND, "try /metrics\n"),
                }
            }
        },
    )
    .await;
}

impl Status {
    fn known(&self) -> std::sync::MutexGuard<'_, Cached> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queries the driver again if the cached result is too old.
    async fn refresh_driver(&self) {
        let fresh = self.known().driver.is_some_and(|(at, _)| at.elapsed() < DRIVER_TTL);
        if fresh {
            return;
        }
        let works = checks::find_driver(&self.world).await.is_ok();
        let mut known = self.known();
        known.driver = Some((Instant::now(), works));
        if works {
            known.driver_seen = Some(now());
        }
    }

    fn page(&self) -> String {
        self.text() + &self.world.cx.health.metrics()
    }

    fn text(&self) -> String {
        let known = self.known();
        let mut values: Vec<(&str, &str, i64)> =
            vec![("gpu_operator_node_metrics_ready_ts_seconds", "When this exporter started", self.started)];
        for (name, file) in FILES {
            // Only success counts: a file that cannot be read is unknown.
            let there = self.world.exists(&self.world.options.output_dir.join(file));
            values.push((name, "Whether this check has passed on the node", there.into()));
        }
        let works = known.driver.is_some_and(|(_, works)| works);
        values.push(("gpu_operator_node_driver_validation", "Whether the driver answers", works.into()));
        let at = "gpu_operator_node_driver_validation_last_success_ts_seconds";
        values.extend(known.driver_seen.map(|seconds| (at, "When the driver last answered", seconds)));
        let total = known.facts.as_ref().map_or(-1, |facts| i64::try_from(devices(facts)).unwrap_or(i64::MAX));
        let name = "gpu_operator_node_device_plugin_devices_total";
        values.push((name, "GPUs that pods of this node may have; -1 when the node cannot be asked", total));
        let at = "gpu_operator_node_device_plugin_validation_last_success_ts_seconds";
        values.extend(known.devices_seen.map(|seconds| (at, "When pods could last have GPUs", seconds)));
        let on_bus = self.world.pci_gpus().map_or(-1, |gpus| gpus.len() as i64);
        values.push((
            "gpu_operator_nvidia_pci_devices_total",
            "NVIDIA GPUs on the PCI bus; -1 when it cannot be read",
            on_bus,
        ));
        render(&self.node, &values)
    }
}

fn render(node: &str, values: &[(&str, &str, i64)]) -> String {
    let mut out = String::new();
    for (name, help, value) in values {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name}{{node=\"{node}\"}} {value}");
    }
    out
}
