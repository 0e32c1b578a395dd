//! Checks the driver: on the host or in a container, and that its GPUs respond.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use capstan_hw::gpu::nvidia::driver::{PROGRAM_DIRS, Roots};
use capstan_hw::root::executable_in;
use capstan_node::{labels, validation};

use super::{Outcome, World, dev_char, find};
use crate::{Error, Result};

/// Where the driver is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DriverLocation {
    /// On the host.
    Host {
        /// A WSL driver, without device nodes.
        wsl: bool,
    },
    /// In a driver container's root.
    Container,
}

pub(super) async fn run(world: &World) -> Result<Outcome> {
    let (location, gpus) = find_driver(world).await?;
    if location == DriverLocation::Container {
        check_reported_modules(world).await?;
    }
    let content = ready_file(world, &location);
    let links = !world.options.disable_dev_char_symlink_creation && location != (DriverLocation::Host { wsl: true });
    if links {
        dev_char::link(world, &location, gpus).map_err(|error| {
            Error::Check(format!(
                "cannot link device nodes in /dev/char: {error}; systemd's cgroups need those links to give containers GPUs; DISABLE_DEV_CHAR_SYMLINK_CREATION=true leaves them out"
            ))
        })?;
    }
    Ok(Outcome::Ready { file: validation::DRIVER, content })
}

/// Finds a driver that responds, and its GPU count. Writes nothing.
pub(crate) async fn find_driver(world: &World) -> Result<(DriverLocation, usize)> {
    let options = &world.options;
    let host = &options.host_root_ctr_path;
    let wsl = host.join("usr/lib/wsl/lib/nvidia-smi");
    if wsl.symlink_metadata().is_ok_and(|meta| meta.len() > 0) {
        return Ok((DriverLocation::Host { wsl: true }, 1));
    }
    let on_host = host_program(world).map(|_| count_gpus(world, &Roots::new(&options.host_root, host, None)));
    if let Some(Ok(gpus)) = on_host {
        return Ok((DriverLocation::Host { wsl: false }, gpus));
    }
    if managed(world).await? {
        let ready = options.output_dir.join(validation::DRIVER_CONTAINER);
        if !world.exists(&ready) {
            return Err(Error::Check(format!("the driver's pod is not ready: no {}", ready.display())));
        }
    }
    let container = Roots::new(&options.driver_install_dir, &options.driver_install_dir_ctr_path, None);
    match (count_gpus(world, &container), on_host) {
        (Ok(gpus), _) => Ok((DriverLocation::Container, gpus)),
        // Errors of the host's driver matter only if there is no other.
        (Err(error), Some(Err(host))) => {
            Err(Error::Check(format!("no driver works: in a container: {error}; on the host: {host}")))
        }
        (Err(error), _) => Err(Error::Check(format!("no driver works: {error}"))),
    }
}

/// The host's `nvidia-smi`, which indicates a driver on the host.
pub(super) fn host_program(world: &World) -> Option<PathBuf> {
    let host = &world.options.host_root_ctr_path;
    let mut places = PROGRAM_DIRS.iter().map(|dir| host.join(dir).join("nvidia-smi"));
    places.find(|file| executable_in(host, file))
}

/// Checks that the driver below these roots responds; returns its GPU count.
fn count_gpus(world: &World, roots: &Roots) -> Result<usize> {
    if world.options.driver_validation_skip_gpu_init {
        roots.nvml()?;
        return Ok(world.pci_gpus()?.len());
    }
    let inventory = (world.open)(roots)?.whole_gpus()?;
    match inventory.lost.first() {
        Some(lost) => {
            let name = lost.uuid.clone().unwrap_or_else(|| format!("number {}", lost.index));
            Err(Error::Check(format!("GPU {name} does not answer: it fell off the bus; reset it or reboot the node")))
        }
        None => Ok(inventory.gpus.len()),
    }
}

/// Whether the operator manages a driver on this node, by the node label.
async fn managed(world: &World) -> Result<bool> {
    if world.node.is_none() && world.options.node_name.is_empty() {
        return Ok(false);
    }
    let facts = world.facts().await?;
    let deployed = facts.label(labels::DEPLOY_DRIVER);
    Ok(deployed.is_some_and(|value| value != "false" && value != "pre-installed"))
}

/// Checks the modules that the driver pod reports as loaded.
async fn check_reported_modules(world: &World) -> Result<()> {
    let file = world.options.output_dir.join(validation::DRIVER_CONTAINER);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(Error::Io { what: format!("cannot read {}", file.display()), source }),
    };
    for component in reported_components(&text, &file)? {
        let check = find(component).expect("a check of ours");
        if let Outcome::Ready { file, content } = (check.run)(world).await? {
            super::super::Barrier::at(&world.options.output_dir).write(file, &content)?;
        }
    }
    Ok(())
}

/// The components named in the driver pod's ready file.
pub(super) fn reported_components(text: &str, file: &Path) -> Result<Vec<&'static str>> {
    const KEYS: [(&str, &str); 3] =
        [("GDRCOPY_ENABLED", "gdrcopy"), ("GDS_ENABLED", "nvidia-fs"), ("GPU_DIRECT_RDMA_ENABLED", "nvidia-peermem")];
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let flags: BTreeMap<String, bool> = serde_saphyr::from_str(text)
        .map_err(|error| Error::Check(format!("{} is no list of true and false: {error}", file.display())))?;
    let on = KEYS.into_iter().filter(|(key, _)| flags.get(*key) == Some(&true));
    Ok(on.map(|(_, component)| component).collect())
}

/// Content of the ready file, which other images source as shell: the roots of driver and device nodes.
pub(super) fn ready_file(world: &World, location: &DriverLocation) -> String {
    let options = &world.options;
    let host_root = options.host_root.display().to_string();
    let (host, root, root_here, dev, dev_here) = match location {
        DriverLocation::Host { .. } => (true, host_root.clone(), "/host", host_root, "/host"),
        DriverLocation::Container => {
            let install = options.driver_install_dir.display().to_string();
            let has_dev = options.driver_install_dir_ctr_path.join("dev").is_dir();
            let (dev, dev_here) = if has_dev { (install.clone(), "/driver-root") } else { (host_root, "/host") };
            (false, install, "/driver-root", dev, dev_here)
        }
    };
    format!(
        "IS_HOST_DRIVER={host}\nNVIDIA_DRIVER_ROOT={root}\nDRIVER_ROOT_CTR_PATH={root_here}\nNVIDIA_DEV_ROOT={dev}\nDEV_ROOT_CTR_PATH={dev_here}\n"
    )
}
