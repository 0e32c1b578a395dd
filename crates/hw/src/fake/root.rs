//! A fake root: the `/dev`, `/proc` and `/sys` of a node below a directory.
//!
//! [`Root`] builds the tree; [`Kernel`] changes it as a kernel would. In-memory state of a kernel (removed devices,
//! loadable modules) is in `.kernel`, so that a later process continues with the same node.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{Kernel, ModuleFile, PciDevice};
use crate::gpu::nvidia::Inventory;
use crate::sysfs::Attributes;

/// A directory that is the root of a fake node.
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// A node without devices, at this directory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Writes the files of a node with these GPUs. Device nodes are plain files, so that root is not needed. GPUs are
    /// not bound to a driver yet: `kernel().probe(..)` binds them.
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
            root.kernel().store("sys/bus/pci/drivers/nvidia/unbind", gpu.pci.as_str())?;
        }
        root.file("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n234 nvidia-caps\n235 nvidia-caps-imex-channels\n510 nvidia-uvm\n\nBlock devices:\n  8 sd\n")?;
        root.file("proc/driver/nvidia-caps/mig-minors", &root.minors(inventory)?)?;
        root.file("proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileUID: 0\n")?;
        Ok(root)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kernel behind these files.
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

    /// Adds a PCI device, bound to its driver.
    pub fn pci(&self, device: &PciDevice) -> std::io::Result<()> {
        self.kernel().plug(device)
    }

    /// Registers a PCI driver that matches devices only by override, such as `vfio-pci`.
    pub fn driver(&self, name: &str) -> std::io::Result<()> {
        self.kernel().register(name)
    }

    /// Adds a loaded kernel module; one of the same name is replaced.
    pub fn module(&self, module: &ModuleFile) -> std::io::Result<()> {
        self.kernel().replace(module)
    }

    /// Adds a kernel module that can be loaded.
    pub fn loadable_module(&self, module: &ModuleFile) -> std::io::Result<()> {
        self.kernel().install(module)
    }

    /// Content of `mig-minors`: a line for every possible instance; device files for the existing ones.
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
