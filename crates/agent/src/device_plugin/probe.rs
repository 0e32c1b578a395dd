//! Looks at what can change: the node's files and its hardware. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Gpu, Inventory, Topology};

use super::devices::Kernel;
use super::health::{self, Condition};
use super::platform::{Platform, Signs, after_nvml};
use super::plugin::Place;
use super::{Node, Settings, allocate};
use crate::config::{MigStrategy, Wrong};
use crate::{Cx, Result, mps};

/// What files showed at the last look.
#[derive(Default, PartialEq, Eq)]
pub(super) struct WatchedFiles {
    /// Which file the kubelet's socket is: another one when the kubelet started again.
    pub(super) kubelet: Option<(u64, i64, i64)>,
    /// Device nodes of GPUs.
    pub(super) nodes: BTreeSet<String>,
    /// Resources whose MPS daemon runs.
    pub(super) started: BTreeSet<String>,
}

impl WatchedFiles {
    /// Looks at the files.
    pub(super) fn read(node: &Node, place: &Place, root: &Path) -> Self {
        let kubelet = place.kubelet.as_ref().and_then(|socket| socket.metadata().ok());
        let dev = node.roots.dev_here.join("dev");
        let names = |dir: PathBuf| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok())
        };
        let nodes = names(dev.clone()).filter(|name| name.starts_with("nvidia"));
        let started = node.resources.iter().filter(|resource| mps::started(root, &resource.name));
        Self {
            kubelet: kubelet.map(|meta| (meta.ino(), meta.ctime(), meta.ctime_nsec())),
            nodes: nodes
                .chain(names(dev.join("nvidia-caps")))
                .chain(names(dev.join("nvidia-caps-imex-channels")))
                .collect(),
            started: started.map(|resource| resource.name.to_string()).collect(),
        }
    }
}

/// What the hardware said.
pub(super) struct Found {
    pub(super) platform: Platform,
    pub(super) inventory: Inventory,
    pub(super) topology: Topology,
    pub(super) kernel: Kernel,
}

/// What the hardware said, and how the GPUs are.
pub(super) type ProbeResult = capstan_hw::Result<(Found, BTreeMap<String, Condition>)>;

/// Looks at the hardware, and asks the GPUs how they are where that is wanted.
pub(super) async fn probe(cx: &Cx, node: &Node, known: Option<Inventory>, ask: bool) -> ProbeResult {
    let (source, roots, root) = (cx.hardware.clone(), node.roots.clone(), cx.root.clone());
    let discovery = node.settings.discovery;
    // Naming MIG devices takes its time; where they are neither offered nor part of a spec, nobody needs to know.
    let parts = node.settings.mig != MigStrategy::None || node.settings.cdi();
    let looked = tokio::task::spawn_blocking(move || {
        let platform = Signs::read(&roots, &root).platform(discovery);
        if platform != Platform::Nvml {
            return Ok((Found::alone(platform), BTreeMap::new()));
        }
        let hardware = source.get()?;
        let asked = if parts { hardware.inventory()? } else { hardware.whole_gpus()? };
        let inventory = keep_lost(asked, known.as_ref());
        let conditions = if ask { health::conditions(&*hardware, &inventory) } else { BTreeMap::new() };
        let found = Found {
            platform: after_nvml(discovery, &inventory),
            topology: hardware.topology()?,
            kernel: Kernel::read(&root, &inventory),
            inventory,
        };
        Ok((found, conditions))
    });
    looked
        .await
        .unwrap_or_else(|error| Err(capstan_hw::Error::Call { call: "look at the hardware", why: error.to_string() }))
}

impl Found {
    /// A machine whose GPUs are one device.
    fn alone(platform: Platform) -> Self {
        let inventory = Inventory::nothing();
        Self { platform, inventory, topology: Topology::default(), kernel: Kernel::default() }
    }
}

/// A GPU that was there and is lost stays in the list as it was: it is unfit, but no one takes it for gone.
fn keep_lost(mut now: Inventory, before: Option<&Inventory>) -> Inventory {
    let (gpus, lost) = (&mut now.gpus, std::mem::take(&mut now.lost));
    for one in lost {
        let same = |gpu: &&Gpu| one.uuid.as_ref().map_or(gpu.index == one.index, |uuid| gpu.uuid == *uuid);
        let known = before.and_then(|before| before.gpus.iter().find(same));
        match known.filter(|known| gpus.iter().all(|gpu| gpu.uuid != known.uuid)) {
            Some(known) => gpus.push(known.clone()),
            None => now.lost.push(one),
        }
    }
    gpus.sort_by_key(|gpu| gpu.index);
    now
}

/// Where the driver is: as the process was told, unless the plugin was told otherwise.
pub(super) fn roots(known: &Roots, settings: &Settings) -> Roots {
    if settings.driver_root.is_none() && settings.dev_root.is_none() && settings.container_driver_root.is_none() {
        return known.clone();
    }
    let host = settings.driver_root.clone().unwrap_or_else(|| known.host.clone());
    let here = settings.container_driver_root.clone().unwrap_or_else(|| known.here.clone());
    Roots::new(host, here, settings.dev_root.clone())
}

/// The IMEX channels that are there.
pub(super) fn channels(node: &Node, root: &Path) -> Result<Vec<u32>> {
    let mut there = Vec::new();
    for &channel in &node.settings.imex_channels {
        let path = allocate::channel_path(channel);
        let places = [&node.roots.dev_here, root].map(|root| root.join(path.trim_start_matches('/')));
        let found = places.iter().any(|place| place.metadata().is_ok_and(|meta| meta.file_type().is_char_device()));
        match (found, node.settings.imex_required) {
            (true, _) => there.push(channel),
            (false, true) => {
                let why = format!("has no device node {path}; create it, or set imex.required to false");
                return Err(Wrong::new("imex.channelIDs", channel, why).into());
            }
            (false, false) => tracing::warn!(channel, path, "IMEX channel not found; not injected"),
        }
    }
    Ok(there)
}
