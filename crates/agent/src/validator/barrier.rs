//! The files that say how far a node is. Their names and content are a contract with every image of a GPU node.

use std::path::{Path, PathBuf};

use crate::{Result, files};

/// The directory of the files.
pub struct Barrier {
    dir: PathBuf,
}

impl Barrier {
    /// The barrier in a directory.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Says that something works. What says so already is left alone: whoever waits for a change would wake itself.
    pub fn write(&self, file: &str, content: &str) -> Result<()> {
        let path = self.dir.join(file);
        if std::fs::read(&path).is_ok_and(|there| there == content.as_bytes()) {
            return Ok(());
        }
        files::write(&path, content.as_bytes())
    }

    /// Takes that back.
    pub fn clear(&self, file: &str) -> Result<()> {
        files::remove(&self.dir.join(file))
    }
}

/// What the GPUs of a node are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadConfig {
    /// Containers.
    Container,
    /// Virtual machines with whole GPUs.
    VmPassthrough,
    /// Virtual machines with parts of GPUs.
    VmVgpu,
}

impl WorkloadConfig {
    /// By its name in labels.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "container" => Some(Self::Container),
            "vm-passthrough" => Some(Self::VmPassthrough),
            "vm-vgpu" => Some(Self::VmVgpu),
            _ => None,
        }
    }

    /// Its name in labels and in the file `workload-type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::VmPassthrough => "vm-passthrough",
            Self::VmVgpu => "vm-vgpu",
        }
    }

    /// What a node's label says, else the default, else whole GPUs for virtual machines.
    pub fn of(label: Option<&str>, default: &str) -> Self {
        label.and_then(Self::parse).or_else(|| Self::parse(default)).unwrap_or(Self::VmPassthrough)
    }
}
