//! Labels that say what a node has: GPUs, driver, MIG devices, how they are shared, and on demand the node itself.
//!
//! `facts.rs` decides what a node offers, `labels.rs` has a row for every label, `node.rs` knows the rest of the node,
//! `publish.rs` and `cluster.rs` are where labels go. A look at the hardware that fails for a moment changes nothing;
//! when the driver is gone, so are its labels.

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
pub use publish::{File, NodeReport, Publisher, Screen};

use crate::config::MigStrategy;
use crate::files::Changes;
use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result};

/// This role in the agent's list.
pub(crate) const ROLE: Entry =
    entry!(capstan_node::FEATURE_DISCOVERY.name, "Say what the node has, in labels", Options, run);

/// Runs until told to stop: looks, says, waits for a change or for the interval.
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
        let work = say(&options, &settings, path.as_deref(), &*publisher, &cx);
        let ended = tokio::select! {
            ended = work => ended?,
            _ = reload.recv() => Ended::Reload,
        };
        match ended {
            Ended::Reload => tracing::info!("configuration reloaded"),
            Ended::Done => return Ok(()),
            Ended::Told => {
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
            None => Box::new(Screen),
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

/// After a change so long is waited for the rest of it.
const QUIET: Duration = Duration::from_millis(300);

/// Why it stopped saying.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// Everything is said.
    Done,
    /// Someone told it to.
    Told,
    /// The config file changed.
    Reload,
}

/// Whether something was said before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Not by this process.
    First,
    /// It was.
    Later,
}

/// Says what there is, again and again.
async fn say(
    options: &Options,
    settings: &Settings,
    config: Option<&Path>,
    publisher: &dyn Publisher,
    cx: &Cx,
) -> Result<Ended> {
    let before = config.map(std::fs::read_to_string);
    let mut turn = Turn::First;
    loop {
        // Listen before looking: what happens in between is not lost.
        let dev = cx.roots.dev_here.join("dev");
        let (mut devices, mut edits) = match settings.oneshot {
            true => (Changes::none(), Changes::none()),
            false => (
                Changes::of_names(&[&dev.join("nvidia-caps"), &dev]),
                Changes::of(&config.and_then(Path::parent).into_iter().collect::<Vec<_>>()),
            ),
        };
        match discover(options, settings, cx, turn).await? {
            Some(said) => match publisher.publish(&said).await {
                Ok(()) => turn = Turn::Later,
                Err(error) if settings.oneshot => return Err(error),
                Err(error) => tracing::warn!(%error, "labels not written; retrying"),
            },
            None if settings.oneshot => return Err(Error::Outside("the hardware did not answer".into())),
            None => {}
        }
        if settings.oneshot {
            return Ok(Ended::Done);
        }
        // Without an interval only events count, and a year is as good as forever.
        let longest = settings.interval.unwrap_or(Duration::from_secs(365 * 24 * 3600));
        let change = async {
            tokio::select! {
                () = devices.next(longest) => {}
                () = edits.next(longest) => {}
            }
            // They come in bunches: a driver makes its nodes one after the other.
            tokio::time::sleep(QUIET).await;
        };
        tokio::select! {
            () = cx.stop.cancelled() => return Ok(Ended::Told),
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

/// Looks once. `None` when there is no answer for the moment, and what was said shall stay.
async fn discover(options: &Options, settings: &Settings, cx: &Cx, turn: Turn) -> Result<Option<NodeReport>> {
    let (options, settings, cx) = (options.clone(), settings.clone(), cx.clone());
    let looked = tokio::task::spawn_blocking(move || discover_now(&options, &settings, &cx.hardware, &cx.root, turn));
    looked.await.map_err(|error| Error::Outside(error.to_string()))?
}

/// The same, on this thread.
fn discover_now(
    options: &Options,
    settings: &Settings,
    source: &Arc<Source>,
    root: &Path,
    turn: Turn,
) -> Result<Option<NodeReport>> {
    let devices = pci::devices(root)?;
    let passthrough = options.device_discovery_strategy == Strategy::Vfio;
    let inventory = if passthrough {
        passthrough::inventory(root, &devices)
    } else {
        // Parts of GPUs have labels only where they are offered, and naming them takes its time.
        let ask = |hardware: Arc<dyn Hardware>| match settings.mig {
            MigStrategy::None => hardware.whole_gpus(),
            _ => hardware.inventory(),
        };
        match source.get().and_then(ask) {
            // It may be back in a moment; what was said about all of them stays until then.
            Ok(inventory) if !inventory.lost.is_empty() && (turn == Turn::Later || inventory.gpus.is_empty()) => {
                tracing::warn!(lost = ?inventory.lost, "GPU not responding");
                return Ok(None);
            }
            Ok(inventory) => inventory,
            Err(error) => {
                // The next look shall load the library that is there then.
                source.forget();
                let gone = matches!(error, capstan_hw::Error::NoLibrary { .. } | capstan_hw::Error::NoDriver(_));
                if settings.fail_on_init_error && gone {
                    return Err(error.into());
                }
                tracing::warn!(%error, "hardware not readable; retrying");
                if !gone {
                    return Ok(None);
                }
                Inventory::nothing()
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

/// Whether GPUs are virtual; `None` when one of them cannot be asked.
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
