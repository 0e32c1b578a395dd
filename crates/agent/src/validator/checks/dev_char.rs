//! Symlinks in `/dev/char` to NVIDIA device nodes: systemd resolves devices there for cgroup rules; without them a
//! systemd daemon-reload takes GPUs from running containers.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{DriverLocation, World};
use crate::{Error, Result};

/// Minor number of the control device.
const CONTROL: u32 = 255;
const MODESET: u32 = 254;

pub(super) fn link(world: &World, found: &DriverLocation, gpus: usize) -> Result<()> {
    let options = &world.options;
    let dev_root = match found {
        DriverLocation::Container if options.driver_install_dir_ctr_path.join("dev").is_dir() => {
            &options.driver_install_dir
        }
        _ => &options.host_root,
    };
    let dir = world.fixed("/host-dev-char");
    if !dir.is_dir() {
        return Err(Error::Check("/host-dev-char is not mounted".into()));
    }
    let devices = read(&world.fixed("/proc/devices"))?;
    let minors = std::fs::read_to_string(world.fixed("/proc/driver/nvidia-caps/mig-minors")).unwrap_or_default();
    for ((major, minor), node) in links(&devices, &minors, gpus)? {
        point(&dir.join(format!("{major}:{minor}")), &dev_root.join("dev").join(node))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|source| Error::Io { what: format!("cannot read {}", path.display()), source })
}

/// Device numbers and nodes of every device that a node with this many GPUs can have.
pub(super) fn links(devices: &str, minors: &str, gpus: usize) -> Result<Vec<((u32, u32), PathBuf)>> {
    let major = |names: &[&str]| {
        let found = names.iter().find_map(|name| major_of(devices, name));
        found.ok_or_else(|| Error::Check(format!("/proc/devices has no {}: is the module loaded?", names[0])))
    };
    let (frontend, uvm) = (major(&["nvidia", "nvidia-frontend"])?, major(&["nvidia-uvm"])?);
    let mut links = vec![
        ((frontend, CONTROL), PathBuf::from("nvidiactl")),
        ((frontend, MODESET), "nvidia-modeset".into()),
        ((uvm, 0), "nvidia-uvm".into()),
        ((uvm, 1), "nvidia-uvm-tools".into()),
    ];
    links.extend((0..gpus as u32).map(|minor| ((frontend, minor), format!("nvidia{minor}").into())));
    if !minors.is_empty() {
        let caps = major(&["nvidia-caps"])?;
        for minor in capabilities(minors, gpus) {
            links.push(((caps, minor), format!("nvidia-caps/nvidia-cap{minor}").into()));
        }
    }
    Ok(links)
}

fn major_of(devices: &str, name: &str) -> Option<u32> {
    let characters = devices.split("Block devices:").next().unwrap_or_default();
    characters.lines().find_map(|line| {
        let (number, device) = line.trim().split_once(' ')?;
        (device.trim() == name).then(|| number.parse().ok()).flatten()
    })
}

/// Minor numbers of the capabilities of this many GPUs. Other lines are skipped.
pub(super) fn capabilities(minors: &str, gpus: usize) -> Vec<u32> {
    let lines = minors.lines().filter_map(|line| {
        let (name, minor) = line.trim().split_once(' ')?;
        let minor = minor.trim().parse().ok()?;
        if matches!(name, "config" | "monitor") {
            return Some(minor);
        }
        let gpu: usize = name.strip_prefix("gpu")?.split('/').next()?.parse().ok()?;
        (gpu < gpus && name.ends_with("/access")).then_some(minor)
    });
    lines.collect()
}

/// Creates or corrects a symlink.
fn point(link: &Path, target: &Path) -> Result<()> {
    if std::fs::read_link(link).is_ok_and(|current| current == target) {
        return Ok(());
    }
    let temporary = link.with_extension("capstan");
    let _ = std::fs::remove_file(&temporary);
    let made = symlink(target, &temporary).and_then(|()| std::fs::rename(&temporary, link));
    made.map_err(|source| Error::Io { what: format!("cannot link {}", link.display()), source })
}
