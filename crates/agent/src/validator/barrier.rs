//! The validation files of a node. Names and content are an API for every image on a GPU node.

use std::path::{Path, PathBuf};

use crate::{Result, files};

/// The directory of validation files.
pub struct Barrier {
    dir: PathBuf,
}

impl Barrier {
    /// The validation files in a directory.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Writes a validation file. An identical one is left alone, so that watchers do not trigger themselves.
    pub fn write(&self, file: &str, content: &str) -> Result<()> {
        let path = self.dir.join(file);
        if std::fs::read(&path).is_ok_and(|there| there == content.as_bytes()) {
            return Ok(());
        }
        files::write(&path, content.as_bytes())
    }

    /// Removes a validation file.
    pub fn clear(&self, file: &str) -> Result<()> {
        files::remove(&self.dir.join(file))
    }
}

/// Workload type of a node's GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadConfig {
    /// Containers.
    Container,
    /// Virtual machines with GPU passthrough.
    VmPassthrough,
    /// Virtual machines with vGPUs.
    VmVgpu,
}

impl WorkloadConfig {
    /// Parses its label value.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "container" => Some(Self::Container),
            "vm-passthrough" => Some(Self::VmPassthrough),
            "vm-vgpu" => Some(Self::VmVgpu),
            _ => None,
        }
    }

    /// Its value in labels and in the file `workload-type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::VmPassthrough => "vm-passthrough",
            Self::VmVgpu => "vm-vgpu",
        }
    }

    /// From the node label, else the default, else passthrough.
    pub fn of(label: Option<&str>, default: &str) -> Self {
        label.and_then(Self::parse).or_else(|| Self::parse(default)).unwrap_or(Self::VmPassthrough)
    }
}
