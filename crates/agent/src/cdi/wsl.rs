//! WSL: the host's GPU behind one device node, its driver in a directory mounted by Windows.

use std::path::PathBuf;

use capstan_cdi::{ContainerEdits, Device, Mount};
use capstan_hw::gpu::nvidia::driver::Roots;

use super::Settings;
use super::devices::Nodes;
use super::files::names;
use super::hooks::{HookName, hook, links};
use crate::{Error, Result};

/// Where WSL mounts the Windows driver stores.
const STORES: &str = "usr/lib/wsl/drivers";
/// A file that only an NVIDIA driver store has.
const MARK: &str = "libcuda.so.1.1";

/// The single GPU and its driver files.
pub(super) fn generate(roots: &Roots, settings: &Settings) -> Result<(Vec<Device>, ContainerEdits)> {
    let mut nodes = Nodes::new(roots, settings);
    nodes.add("/dev/dxg");
    if nodes.is_empty() {
        return Err(Error::Check("there is no /dev/dxg: Windows gives this system no GPU".into()));
    }
    let store = store(roots).ok_or_else(|| {
        Error::Check(format!("no directory below {} holds {MARK}", roots.here.join(STORES).display()))
    })?;
    let library = |name: &str| [".so", ".bin", ".dll"].iter().any(|part| name.contains(part));
    let wanted = names(&store).into_iter().filter(|(name, _)| library(name) || name == "nvidia-smi");
    let mut files: Vec<PathBuf> = wanted.map(|(name, _)| store.join(name)).collect();
    files.push(roots.here.join("usr/lib/wsl/lib/libdxcore.so"));
    let in_container = |path: &PathBuf| {
        PathBuf::from("/").join(path.strip_prefix(&roots.here).unwrap_or(path)).to_string_lossy().into_owned()
    };
    let mount = |path: &PathBuf| Mount {
        host_path: roots.on_host(path).to_string_lossy().into_owned(),
        container_path: in_container(path),
        options: ["ro", "nosuid", "nodev", "rbind", "rprivate"].map(str::to_owned).into(),
        type_: None,
    };
    let mut common = ContainerEdits {
        env: vec!["NVIDIA_VISIBLE_DEVICES=void".into()],
        mounts: files.iter().filter(|path| path.exists()).map(mount).collect(),
        ..ContainerEdits::default()
    };
    common.hooks.extend(links(settings, &smi_link(&common.mounts)));
    let folders = [in_container(&store), "/usr/lib/wsl/lib".to_owned()];
    let words = folders.into_iter().flat_map(|dir| ["--folder".to_owned(), dir]);
    common.hooks.extend(hook(settings, HookName::UpdateLdcache, words.collect()));
    Ok((vec![Device { name: "all".into(), container_edits: nodes.edits(), ..Device::default() }], common))
}

fn store(roots: &Roots) -> Option<PathBuf> {
    let dir = roots.here.join(STORES);
    names(&dir).into_iter().map(|(name, _)| dir.join(name)).find(|store| store.join(MARK).exists())
}

/// The symlink to nvidia-smi on the path, if it is mounted.
pub(super) fn smi_link(mounts: &[Mount]) -> Vec<(String, String)> {
    let found = mounts.iter().find(|mount| mount.container_path.rsplit('/').next() == Some("nvidia-smi"));
    found.map(|mount| (mount.container_path.clone(), "/usr/bin/nvidia-smi".to_owned())).into_iter().collect()
}
