//! Reads the node's files and hardware. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Gpu, Inventory, Topology};

use super::devices::KernelFiles;
use super::health::{self, GpuHealth};
use super::platform::{Platform, PlatformFiles, refine_with_nvml};
use super::plugin::Sockets;
use super::{Node, Settings, allocate};
use crate::config::{InvalidValue, MigStrategy};
use crate::{Cx, Result, mps};

/// File state of the previous pass.
#[derive(Default, PartialEq, Eq)]
pub(super) struct WatchedFiles {
    /// Inode and ctime of the kubelet's socket: they change when the kubelet restarts.
    pub(super) kubelet: Option<(u64, i64, i64)>,
    /// Device nodes of GPUs.
    pub(super) nodes: BTreeSet<String>,
    /// Resources whose MPS daemon is running.
    pub(super) started: BTreeSet<String>,
}

impl WatchedFiles {
    /// Reads the files.
    pub(super) fn read(node: &Node, sockets: &Sockets, root: &Path) -> Self {
        let kubelet = sockets.kubelet.as_ref().and_then(|socket| socket.metadata().ok());
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

/// The hardware as probed.
pub(super) struct Probed {
    pub(super) platform: Platform,
    pub(super) inventory: Inventory,
    pub(super) topology: Topology,
    pub(super) kernel: KernelFiles,
}

/// The hardware, and the health of each GPU if queried.
pub(super) type ProbeResult = capstan_hw::Result<(Probed, BTreeMap<String, GpuHealth>)>;

/// Probes the hardware; with `query_health` the health of each GPU too.
pub(super) async fn probe(cx: &Cx, node: &Node, known: Option<Inventory>, query_health: bool) -> ProbeResult {
    let (source, roots, root) = (cx.hardware.clone(), node.roots.clone(), cx.root.clone());
    let discovery = node.settings.discovery;
    // Enumerating MIG devices is slow; skip it where they are neither advertised nor part of a CDI spec.
    let parts = node.settings.mig != MigStrategy::None || node.settings.cdi();
    let result = tokio::task::spawn_blocking(move || {
        let platform = PlatformFiles::read(&roots, &root).platform(discovery);
        if platform != Platform::Nvml {
            return Ok((Probed::single_device(platform), BTreeMap::new()));
        }
        let hardware = source.get()?;
        let current = if parts { hardware.inventory()? } else { hardware.whole_gpus()? };
        let inventory = keep_lost(current, known.as_ref());
        let gpu_health = if query_health { health::query_health(&*hardware, &inventory) } else { BTreeMap::new() };
        let probed = Probed {
            platform: refine_with_nvml(discovery, &inventory),
            topology: hardware.topology()?,
            kernel: KernelFiles::read(&root, &inventory),
            inventory,
        };
        Ok((probed, gpu_health))
    });
    result
        .await
        .unwrap_or_else(|error| Err(capstan_hw::Error::Call { call: "probe the hardware", why: error.to_string() }))
}

impl Probed {
    /// A platform whose GPUs are one device.
    fn single_device(platform: Platform) -> Self {
        let inventory = Inventory::empty();
        Self { platform, inventory, topology: Topology::default(), kernel: KernelFiles::default() }
    }
}

/// Keeps a lost GPU as it was last known: it is unhealthy, not removed.
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

/// Roots of the driver: those of the process, unless the plugin's settings override them.
pub(super) fn roots(known: &Roots, settings: &Settings) -> Roots {
    if settings.driver_root.is_none() && settings.dev_root.is_none() && settings.container_driver_root.is_none() {
        return known.clone();
    }
    let host = settings.driver_root.clone().unwrap_or_else(|| known.host.clone());
    let here = settings.container_driver_root.clone().unwrap_or_else(|| known.here.clone());
    Roots::new(host, here, settings.dev_root.clone())
}

/// The IMEX channels that exist.
pub(super) fn channels(node: &Node, root: &Path) -> Result<Vec<u32>> {
    let mut existing = Vec::new();
    for &channel in &node.settings.imex_channels {
        let path = allocate::channel_path(channel);
        let paths = [&node.roots.dev_here, root].map(|root| root.join(path.trim_start_matches('/')));
        let found = paths.iter().any(|path| path.metadata().is_ok_and(|meta| meta.file_type().is_char_device()));
        match (found, node.settings.imex_required) {
            (true, _) => existing.push(channel),
            (false, true) => {
                let why = format!("has no device node {path}; create it, or set imex.required to false");
                return Err(InvalidValue::new("imex.channelIDs", channel, why).into());
            }
            (false, false) => tracing::warn!(channel, path, "IMEX channel not found; not injected"),
        }
    }
    Ok(existing)
}
