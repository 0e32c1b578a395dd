//! The files that a node's kernel would show for its GPUs: `/dev`, `/proc` and `/sys` below a directory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::gpu::nvidia::Inventory;

/// A directory that looks like a node's root to code that is told to look there.
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// Writes what a node with these GPUs shows. Device nodes are plain files: no one needs to be root.
    pub fn write(path: impl Into<PathBuf>, inventory: &Inventory) -> std::io::Result<Self> {
        let root = Self { path: path.into() };
        for name in ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"] {
            root.file(&format!("dev/{name}"), "")?;
        }
        for gpu in &inventory.gpus {
            root.file(&format!("dev/nvidia{}", gpu.minor), "")?;
            let dir = format!("sys/bus/pci/devices/{}", gpu.pci);
            root.file(&format!("{dir}/vendor"), "0x10de\n")?;
            root.file(&format!("{dir}/device"), &format!("0x{:04x}\n", gpu.pci_device >> 16))?;
            root.file(&format!("{dir}/class"), "0x030200\n")?;
            root.file(&format!("{dir}/numa_node"), &format!("{}\n", u32::from(gpu.index >= 4)))?;
        }
        root.file("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n234 nvidia-caps\n235 nvidia-caps-imex-channels\n510 nvidia-uvm\n\nBlock devices:\n  8 sd\n")?;
        root.file("proc/driver/nvidia-caps/mig-minors", &root.minors(inventory)?)?;
        root.file("proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileUID: 0\n")?;
        root.file("proc/modules", "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0\n")?;
        Ok(root)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one file below the root.
    pub fn file(&self, name: &str, text: &str) -> std::io::Result<()> {
        let file = self.path.join(name);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(file, text)
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
