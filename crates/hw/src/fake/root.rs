//! The files that a node's kernel would show: `/dev`, `/proc` and `/sys` below a directory.
//!
//! [`Root`] writes them as they are at first; [`Kernel`] changes them as a kernel would. What a kernel knows beyond its
//! files (devices that were removed, modules that are not loaded) is kept in `.kernel`, so that whoever opens the same
//! directory later finds the same node.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{Kernel, ModuleFile, PciDevice};
use crate::gpu::nvidia::Inventory;

/// A directory that looks like a node's root to code that is told to look there.
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// A node without any device, at a directory of the caller's.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Writes what a node with these GPUs shows. Device nodes are plain files: no one needs to be root.
    pub fn write(path: impl Into<PathBuf>, inventory: &Inventory) -> std::io::Result<Self> {
        let root = Self::new(path);
        for name in ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"] {
            root.file(&format!("dev/{name}"), "")?;
        }
        let version = Some(inventory.driver.clone());
        root.module(&ModuleFile { version, drivers: vec!["nvidia".into()], ..ModuleFile::new("nvidia") })?;
        root.module(&ModuleFile { depends: vec!["nvidia".into()], ..ModuleFile::new("nvidia_uvm") })?;
        for gpu in &inventory.gpus {
            root.file(&format!("dev/nvidia{}", gpu.minor), "")?;
            root.pci(&PciDevice::gpu(gpu))?;
        }
        root.file("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n234 nvidia-caps\n235 nvidia-caps-imex-channels\n510 nvidia-uvm\n\nBlock devices:\n  8 sd\n")?;
        root.file("proc/driver/nvidia-caps/mig-minors", &root.minors(inventory)?)?;
        root.file("proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileUID: 0\n")?;
        Ok(root)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kernel that shows these files.
    pub fn kernel(&self) -> Kernel {
        Kernel::open(&self.path)
    }

    /// Writes one file below the root.
    pub fn file(&self, name: &str, text: &str) -> std::io::Result<()> {
        let file = self.path.join(name);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(file, text)
    }

    /// Adds a PCI device, with the driver that knows it.
    pub fn pci(&self, device: &PciDevice) -> std::io::Result<()> {
        self.kernel().plug(device)
    }

    /// Adds a PCI driver that knows no device by itself, such as `vfio-pci`.
    pub fn driver(&self, name: &str) -> std::io::Result<()> {
        self.kernel().register(name)
    }

    /// Adds a kernel module and loads it, in place of one of that name that is loaded.
    pub fn module(&self, module: &ModuleFile) -> std::io::Result<()> {
        self.kernel().replace(module)
    }

    /// Adds a kernel module that is not loaded.
    pub fn loadable(&self, module: &ModuleFile) -> std::io::Result<()> {
        self.kernel().install(module)
    }

    /// One line for every instance that could be, as the kernel numbers them, and device files for those that are.
    fn minors(&self, inventory: &Inventory) -> std::io::Result<String> {
        let (mut text, mut minor) = (String::from("config 1\nmonitor 2\n"), 3);
        for gpu in &inventory.gpus {
            for gi in 0..15 {
                let _ = writeln!(text, "gpu{}/gi{gi}/access {minor}", gpu.minor);
                let here = gpu.mig_devices.iter().any(|part| part.gi == gi);
                if here {
                    self.file(&format!("dev/nvidia-caps/nvidia-cap{minor}"), "")?;
                }
                minor += 1;
                for ci in 0..8 {
                    let _ = writeln!(text, "gpu{}/gi{gi}/ci{ci}/access {minor}", gpu.minor);
                    if gpu.mig_devices.iter().any(|part| (part.gi, part.ci) == (gi, ci)) {
                        self.file(&format!("dev/nvidia-caps/nvidia-cap{minor}"), "")?;
                    }
                    minor += 1;
                }
            }
        }
        Ok(text)
    }
}
