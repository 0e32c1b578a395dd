//! Tegra: CSV files list the mounts and devices of a GPU container, one `<kind>, <path>` per line.

use std::path::{Path, PathBuf};

use capstan_cdi::{ContainerEdits, Device, Mount};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::root::resolve_in;

use super::Settings;
use super::devices::Nodes;
use super::files::{glob, names};
use super::hooks::{HookName, hook, links};
use crate::{Error, Result};

const LISTS: &str = "etc/nvidia-container-runtime/host-files-for-container.d";

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    Dev,
    Dir,
    Lib,
    Sym,
}

/// Parses a CSV file; malformed lines are skipped.
pub(super) fn parse(text: &str) -> Vec<(Item, String)> {
    let line = |line: &str| {
        let (kind, path) = line.trim().split_once(',')?;
        let kind = match kind.trim() {
            "dev" => Item::Dev,
            "dir" => Item::Dir,
            "lib" => Item::Lib,
            "sym" => Item::Sym,
            _ => return None,
        };
        let path = path.trim();
        path.starts_with('/').then(|| (kind, path.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// The integrated GPU as device `0`, and its common edits.
pub(super) fn generate(roots: &Roots, settings: &Settings) -> Result<(Vec<Device>, ContainerEdits)> {
    if let Some(id) = settings.devices.iter().find(|id| !matches!(id.as_str(), "all" | "0")) {
        return Err(Error::Config(format!("this system has one GPU, '0': there is no device '{id}'")));
    }
    let (mut nodes, mut common, mut found) = (Nodes::new(roots, settings), ContainerEdits::default(), Vec::new());
    let mut folders: Vec<String> = Vec::new();
    for (item, path) in lines(roots, settings)? {
        let here = roots.here.join(path.trim_start_matches('/'));
        match item {
            Item::Dev => nodes.add(&path),
            Item::Dir | Item::Lib => {
                let Some(mount) = mount(roots, &here, &path) else { continue };
                common.mounts.push(mount);
                let dir = Path::new(&path).parent().map(|dir| dir.to_string_lossy().into_owned());
                folders.extend(dir.filter(|dir| item == Item::Lib && !folders.contains(dir)));
            }
            Item::Sym => {
                let target = std::fs::read_link(&here).ok();
                found.extend(target.map(|target| (target.to_string_lossy().into_owned(), path)));
            }
        }
    }
    common.mounts.extend(mount(roots, &roots.here.join("etc/nv_tegra_release"), "/etc/nv_tegra_release"));
    common.env.push("NVIDIA_VISIBLE_DEVICES=void".into());
    common.hooks.extend(links(settings, &found));
    if let Some(root) = &settings.compat_root {
        common.hooks.extend(hook(
            settings,
            HookName::EnableCudaCompat,
            vec![format!("--cuda-compat-container-root={root}")],
        ));
    }
    let words = folders.into_iter().flat_map(|dir| ["--folder".to_owned(), dir]);
    common.hooks.extend(hook(settings, HookName::UpdateLdcache, words.collect()));
    if nodes.is_empty() {
        return Err(Error::Check("the lists of this Tegra system name no device node that is there".into()));
    }
    Ok((vec![Device { name: "0".into(), container_edits: nodes.edits(), ..Device::default() }], common))
}

fn lines(roots: &Roots, settings: &Settings) -> Result<Vec<(Item, String)>> {
    let mut files: Vec<PathBuf> = settings.csv_files.clone();
    if files.is_empty() {
        let dir = roots.here.join(LISTS);
        let lists = ["devices.csv", "drivers.csv", "l4t.csv"];
        files = names(&dir)
            .into_iter()
            .filter(|(name, _)| lists.contains(&name.as_str()))
            .map(|(name, _)| dir.join(name))
            .collect();
    }
    let mut items = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|source| Error::Io { what: format!("cannot read {}", file.display()), source })?;
        items.extend(parse(&text));
    }
    items.retain(|(_, path)| !settings.csv_ignore.iter().any(|pattern| glob(pattern, path)));
    Ok(items)
}

fn mount(roots: &Roots, here: &Path, path: &str) -> Option<Mount> {
    let real = resolve_in(&roots.here, here)?;
    Some(Mount {
        host_path: roots.on_host(&real).to_string_lossy().into_owned(),
        container_path: path.to_owned(),
        options: ["ro", "nosuid", "nodev", "rbind", "rprivate"].map(str::to_owned).into(),
        type_: None,
    })
}
