//! A fake kernel: carries out writes to sysfs attributes on a tree of plain files.
//!
//! It refuses what a real kernel refuses, with the same error numbers: a driver that does not match a device, a number of
//! virtual functions that changes from one non-zero value to another, unloading a module in use.

mod modules;
mod pci;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::pci::PciAddress;
use crate::sysfs::Attributes;

/// The kernel of a node below a directory that [`super::Root`] wrote.
pub struct Kernel {
    root: PathBuf,
    /// Held while a write is processed.
    lock: Mutex<()>,
}

impl Kernel {
    /// The kernel of the node below `root`, with its persisted state.
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), lock: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of resets of a device.
    pub fn resets(&self, at: &PciAddress) -> usize {
        fs::read(self.root.join(format!(".kernel/resets/{at}"))).map_or(0, |marks| marks.len())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn file(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)
    }

    fn link(&self, name: &str, to: &str) -> io::Result<()> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        self.delete(name)?;
        std::os::unix::fs::symlink(to, path)
    }

    /// Removes a file, symlink or directory tree; a missing one is no error.
    fn delete(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        let removed = match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    fn names(&self, dir: &str) -> Vec<String> {
        crate::sysfs::names(&self.path(dir)).unwrap_or_default()
    }

    /// State that a real kernel keeps in memory: devices on the bus, module files.
    fn load_state<T: DeserializeOwned>(&self, kind: &str, name: &str) -> io::Result<T> {
        let text = fs::read(self.path(&format!(".kernel/{kind}/{name}.json")))?;
        serde_json::from_slice(&text).map_err(io::Error::other)
    }

    fn save_state<T: Serialize>(&self, kind: &str, name: &str, value: &T) -> io::Result<()> {
        self.file(&format!(".kernel/{kind}/{name}.json"), &serde_json::to_string(value).map_err(io::Error::other)?)
    }

    fn load_all<T: DeserializeOwned>(&self, kind: &str) -> io::Result<Vec<T>> {
        let names = self.names(&format!(".kernel/{kind}"));
        names.iter().filter_map(|name| name.strip_suffix(".json")).map(|name| self.load_state(kind, name)).collect()
    }
}

impl Attributes for Kernel {
    fn root(&self) -> &Path {
        &self.root
    }

    fn store(&self, attribute: &str, value: &str) -> io::Result<()> {
        let _lock = self.lock();
        let parts: Vec<&str> = attribute.split('/').collect();
        let value = value.trim_end();
        match parts[..] {
            ["sys", "bus", "pci", "rescan"] => self.rescan_store(),
            ["sys", "bus", "pci", "drivers_probe"] => self.probe_drivers(&self.present(value)?),
            ["sys", "bus", "pci", "drivers", driver, "bind"] => self.bind_store(value, driver),
            ["sys", "bus", "pci", "drivers", driver, "unbind"] => self.unbind_store(value, driver),
            ["sys", "bus", "pci", "devices", at, "remove"] => self.remove_device(&self.present(at)?),
            ["sys", "bus", "pci", "devices", at, "reset"] => self.reset_store(at),
            ["sys", "bus", "pci", "devices", at, "sriov_numvfs"] => {
                self.numvfs_store(&self.present(at)?, value.parse().map_err(|_| Errno::INVAL)?)
            }
            // An attribute without side effects.
            _ if self.path(attribute).is_file() => fs::write(self.path(attribute), format!("{value}\n")),
            _ => Err(Errno::NOENT.into()),
        }
    }
}

#[cfg(test)]
mod tests;
