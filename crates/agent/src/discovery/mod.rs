//! Feature discovery: node labels about GPUs, driver, MIG devices and sharing, and optionally about the node itself.
//!
//! `facts.rs` derives the resources, `labels.rs` has a row for every label, `node.rs` reads the other node features,
//! `publish.rs` and `cluster.rs` are the outputs. A transient hardware error keeps the labels; when the driver is gone,
//! they are removed.

mod cluster;
mod facts;
mod labels;
mod node;
mod options;
mod passthrough;
mod publish;
#[cfg(test)]
mod tests;
mod vgpu;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_hw::gpu::nvidia::{Hardware, Inventory, Source};
use capstan_hw::pci;
use kube::api::Api;
use tokio::signal::unix::{SignalKind, signal};

pub use cluster::{FeatureObject, NodeLabels};
pub use facts::{DriverVersion, Facts, Vgpu};
pub use labels::{Labels, labels};
pub use node::NodeFeatures;
pub use options::{Options, Settings, Strategy};
pub use publish::{File, NodeReport, Publisher, Stdout};

use crate::config::MigStrategy;
use crate::files::Changes;
use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result};

/// This role's entry in the agent's list.
pub(crate) const ROLE: Entry =
    entry!(capstan_node::FEATURE_DISCOVERY.name, "Discover GPUs and publish them as node labels", Options, run);

/// Discovers and publishes on every change and at every interval, until stopped.
pub async fn run(options: Options, cx: Cx) -> Result<()> {
    let env = |name: &str| cx.variable(name);
    let failed = |source| Error::Io { what: "cannot listen for SIGHUP".into(), source };
    let mut reload = signal(SignalKind::hangup()).map_err(failed)?;
    loop {
        let path = cx.path_of(options.config_path(env));
        let file = match &path {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|source| Error::Io { what: format!("cannot read {}", path.display()), source })?,
            None => String::new(),
        };
        let settings = options.settings(&file, env)?;
        let publisher = publisher(&options, &settings, &cx).await?;
        let work = publish_loop(&options, &settings, path.as_deref(), &*publisher, &cx);
        let ended = tokio::select! {
            ended = work => ended?,
            _ = reload.recv() => Ended::Reload,
        };
        match ended {
            Ended::Reload => tracing::info!("configuration reloaded"),
            Ended::Done => return Ok(()),
            Ended::Stopped => {
                let file = !settings.object && !settings.label_node && settings.interval.is_some();
                if file || options.withdraw_on_exit.unwrap_or(false) {
                    publisher.withdraw().await?;
                }
                return Ok(());
            }
        }
    }
}

async fn publisher(options: &Options, settings: &Settings, cx: &Cx) -> Result<Box<dyn Publisher>> {
    if !settings.object && !settings.label_node {
        return Ok(match &settings.output {
            Some(path) => Box::new(File(cx.path(path))),
            None => Box::new(Stdout),
        });
    }
    let client = match options.kubeconfig.as_ref().filter(|path| !path.is_empty()) {
        Some(path) => cx.client_by(path.as_ref()).await?,
        None => cx.client().await?,
    };
    let node = options.node_name.clone();
    if settings.label_node {
        return Ok(Box::new(cluster::NodeLabels { api: Api::all(client), node }));
    }
    Ok(Box::new(cluster::FeatureObject::new(client, &node, &options.namespace, &options.pod_name).await))
}

/// Debounce interval for changes.
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(300);

/// Why the publish loop ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// Oneshot: published.
    Done,
    /// Stopped.
    Stopped,
    /// The config file changed.
    Reload,
}

/// Whether this process has published before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Published {
    /// Not yet.
    Never,
    /// At least once.
    Before,
}

/// The publish loop.
async fn publish_loop(
    options: &Options,
    settings: &Settings,
    config: Option<&Path>,
    publisher: &dyn Publisher,
    cx: &Cx,
) -> Result<Ended> {
    let before = config.map(std::fs::read_to_string);
    let mut published = Published::Never;
    loop {
        // Watch before discovery, so that no change in between is missed.
        let dev = cx.roots.dev_here.join("dev");
        let (mut devices, mut edits) = match settings.oneshot {
            true => (Changes::none(), Changes::none()),
            false => (
                Changes::of_names(&[&dev.join("nvidia-caps"), &dev]),
                Changes::of(&config.and_then(Path::parent).into_iter().collect::<Vec<_>>()),
            ),
        };
        match discover(options, settings, cx, published).await? {
            Some(report) => match publisher.publish(&report).await {
                Ok(()) => published = Published::Before,
                Err(error) if settings.oneshot => return Err(error),
                Err(error) => tracing::warn!(%error, "labels not written; retrying"),
            },
            None if settings.oneshot => return Err(Error::External("the hardware did not answer".into())),
            None => {}
        }
        if settings.oneshot {
            return Ok(Ended::Done);
        }
        // Without an interval only events count; a year stands for no timeout.
        let timeout = settings.interval.unwrap_or(Duration::from_secs(365 * 24 * 3600));
        let change = async {
            tokio::select! {
                () = devices.next(timeout) => {}
                () = edits.next(timeout) => {}
            }
            // Events come in bursts: a driver creates its device nodes one after the other.
            tokio::time::sleep(DEBOUNCE_INTERVAL).await;
        };
        tokio::select! {
            () = cx.stop.cancelled() => return Ok(Ended::Stopped),
            () = change => {}
        }
        let now = config.map(std::fs::read_to_string);
        if let (Some(Ok(before)), Some(Ok(now))) = (&before, &now)
            && before != now
        {
            return Ok(Ended::Reload);
        }
    }
}

/// Discovers once. `None` on a transient error: keep the published labels.
async fn discover(options: &Options, settings: &Settings, cx: &Cx, published: Published) -> Result<Option<NodeReport>> {
    let (options, settings, cx) = (options.clone(), settings.clone(), cx.clone());
    let result =
        tokio::task::spawn_blocking(move || discover_now(&options, &settings, &cx.hardware, &cx.root, published));
    result.await.map_err(|error| Error::External(error.to_string()))?
}

/// [`discover`] on a blocking thread.
fn discover_now(
    options: &Options,
    settings: &Settings,
    source: &Arc<Source>,
    root: &Path,
    published: Published,
) -> Result<Option<NodeReport>> {
    let devices = pci::devices(root)?;
    let passthrough = options.device_discovery_strategy == Strategy::Vfio;
    let inventory = if passthrough {
        passthrough::inventory(root, &devices)
    } else {
        // MIG devices have labels only with a MIG strategy, and enumerating them is slow.
        let read_inventory = |hardware: Arc<dyn Hardware>| match settings.mig {
            MigStrategy::None => hardware.whole_gpus(),
            _ => hardware.inventory(),
        };
        match source.get().and_then(read_inventory) {
            // It may recover soon; keep the published labels until then.
            Ok(inventory)
                if !inventory.lost.is_empty() && (published == Published::Before || inventory.gpus.is_empty()) =>
            {
                tracing::warn!(lost = ?inventory.lost, "GPU not responding");
                return Ok(None);
            }
            Ok(inventory) => inventory,
            Err(error) => {
                // Reload the driver library on the next attempt.
                source.forget();
                let gone = matches!(error, capstan_hw::Error::NoLibrary { .. } | capstan_hw::Error::NoDriver(_));
                if settings.fail_on_init_error && gone {
                    return Err(error.into());
                }
                tracing::warn!(%error, "hardware not readable; retrying");
                if !gone {
                    return Ok(None);
                }
                Inventory::empty()
            }
        }
    };
    let facts = Facts {
        classes: classes(&inventory, &devices),
        inventory: &inventory,
        machine: machine(root, &settings.machine_type_file),
        timestamp: settings.timestamp.then(|| jiff::Timestamp::now().as_second()),
        vgpu: vgpu(&devices),
        mig: settings.mig,
        sharing: &settings.sharing,
        passthrough,
    };
    facts.check()?;
    let node = options.node_features.unwrap_or(false).then(|| node::read(root, &devices));
    Ok(Some(NodeReport { labels: labels(&facts), node }))
}

fn classes(inventory: &Inventory, devices: &[pci::Device]) -> Vec<Option<u32>> {
    let class = |address: &capstan_hw::pci::PciAddress| {
        devices.iter().find(|device| device.address == *address).map(|device| device.class)
    };
    inventory.gpus.iter().map(|gpu| class(&gpu.pci)).collect()
}

fn machine(root: &Path, file: &Path) -> String {
    let path = root.join(file.strip_prefix("/").unwrap_or(file));
    let text = if file.as_os_str().is_empty() { None } else { std::fs::read_to_string(path).ok() };
    text.map(|text| labels::sanitise(text.trim())).unwrap_or_else(|| "unknown".into())
}

/// Whether GPUs are virtual; `None` if the config space of one is not readable.
fn vgpu(devices: &[pci::Device]) -> Option<Vgpu> {
    let mut found = Vgpu { present: false, host: None };
    for device in devices.iter().filter(|device| device.vendor == pci::NVIDIA) {
        match vgpu::read(&device.config().unwrap_or_default()) {
            vgpu::VgpuKind::Physical => {}
            vgpu::VgpuKind::Virtual(host) => {
                found.present = true;
                found.host = found.host.or(host);
            }
            vgpu::VgpuKind::Unknown => return None,
        }
    }
    Some(found)
}
