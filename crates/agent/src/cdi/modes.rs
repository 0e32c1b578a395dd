//! Specs other than GPUs: management, IMEX channels, GDS, MOFED, GDRCopy, NVSwitch.

use capstan_cdi::{ContainerEdits, Device, Mount};
use capstan_hw::gpu::nvidia::driver::Roots;

use super::Settings;
use super::devices::Nodes;
use super::files::{glob, names};
use super::hooks::{HookName, hook};
use crate::{Error, Result};

/// Highest IMEX channel number.
const MAX_CHANNEL: u32 = (1 << 20) - 1;
const CHANNELS: &str = "/dev/nvidia-caps-imex-channels";

/// All nodes as one device; none without nodes.
fn all(edits: ContainerEdits) -> Vec<Device> {
    if edits.device_nodes.is_empty() {
        return Vec::new();
    }
    vec![Device { name: "all".into(), container_edits: edits, ..Device::default() }]
}

/// Every NVIDIA device node without a spec of its own.
pub(super) fn management(roots: &Roots, settings: &Settings) -> Vec<Device> {
    let mut nodes = Nodes::new(roots, settings);
    let others = ["nvidia-fs*", "nvidia-nvswitch*", "nvidia-nvlink*"];
    nodes.add_all("/dev", |name| name.starts_with("nvidia") && !others.iter().any(|other| glob(other, name)));
    nodes.add_all("/dev/nvidia-caps", |name| name.starts_with("nvidia-cap"));
    nodes.add_all(CHANNELS, |name| name.starts_with("channel"));
    let caps = nodes.has("/dev/nvidia-caps/nvidia-cap1") || nodes.has("/dev/nvidia-caps/nvidia-cap2");
    let mut edits = nodes.edits();
    if caps {
        let words = ["--mode", "755", "--path", "/dev/nvidia-caps"].map(str::to_owned);
        edits.hooks.extend(hook(settings, HookName::Chmod, words.into()));
    }
    all(edits)
}

/// One device for each requested IMEX channel.
pub(super) fn imex(roots: &Roots, settings: &Settings) -> Result<Vec<Device>> {
    let mut wanted = Vec::new();
    for id in &settings.devices {
        match id.as_str() {
            "all" => {
                let found = names(&roots.dev_here.join(CHANNELS.trim_start_matches('/')));
                wanted.extend(found.iter().filter_map(|(name, _)| name.strip_prefix("channel")?.parse::<u32>().ok()));
            }
            id => wanted.push(channel(id)?),
        }
    }
    wanted.sort_unstable();
    wanted.dedup();
    let device = |number: u32| {
        let mut nodes = Nodes::new(roots, settings);
        let path = format!("{CHANNELS}/channel{number}");
        nodes.add(&path);
        if nodes.is_empty() {
            return Err(Error::Check(format!("there is no {path} below {}", roots.dev_here.display())));
        }
        Ok(Device { name: number.to_string(), container_edits: nodes.edits(), ..Device::default() })
    };
    wanted.into_iter().map(device).collect()
}

/// Parses a channel: `7` or `channel7`.
pub(super) fn channel(id: &str) -> Result<u32> {
    let number = id.strip_prefix("channel").unwrap_or(id).parse().ok();
    number.filter(|&number| number <= MAX_CHANNEL).ok_or_else(|| {
        Error::Config(format!("'{id}' is no IMEX channel; write all, a number up to {MAX_CHANNEL}, or channel0"))
    })
}

/// GPUDirect Storage.
pub(super) fn gds(roots: &Roots, settings: &Settings) -> (Vec<Device>, ContainerEdits) {
    let mut nodes = Nodes::new(roots, settings);
    nodes.add_all("/dev", |name| name.starts_with("nvidia-fs"));
    let mounts = ["/run/udev", "/etc/cufile.json"];
    let mounts = mounts.iter().filter(|path| roots.here.join(path.trim_start_matches('/')).exists());
    let mount = |path: &&str| Mount {
        host_path: roots.on_host(&roots.here.join(path.trim_start_matches('/'))).to_string_lossy().into_owned(),
        container_path: (*path).to_owned(),
        options: ["ro", "nosuid", "nodev", "rbind", "rprivate"].map(str::to_owned).into(),
        type_: None,
    };
    let edits = ContainerEdits { mounts: mounts.map(mount).collect(), ..ContainerEdits::default() };
    (all(nodes.edits()), edits)
}

/// MOFED: InfiniBand device nodes.
pub(super) fn mofed(roots: &Roots, settings: &Settings) -> Vec<Device> {
    named(roots, settings, "/dev/infiniband", |name| name.starts_with("uverbs") || name == "rdma_cm")
}

/// GDRCopy.
pub(super) fn gdrcopy(roots: &Roots, settings: &Settings) -> Vec<Device> {
    named(roots, settings, "/dev", |name| name == "gdrdrv")
}

/// NVSwitches.
pub(super) fn nvswitch(roots: &Roots, settings: &Settings) -> Vec<Device> {
    named(roots, settings, "/dev", |name| name.starts_with("nvidia-nvswitch"))
}

fn named(roots: &Roots, settings: &Settings, dir: &str, wanted: fn(&str) -> bool) -> Vec<Device> {
    let mut nodes = Nodes::new(roots, settings);
    nodes.add_all(dir, wanted);
    all(nodes.edits())
}
