//! sysfs attributes below a root: read as text and numbers, and written.
//!
//! A write to an attribute is a command to the kernel. [`Attributes`] is the only place where such a write leaves this
//! crate: [`Host`] passes it to the node's kernel, [`crate::fake::Kernel`] emulates it on a tree of plain files. The
//! code above it (driver binding, VFs) is the same for both.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// A kernel with readable and writable attributes.
pub trait Attributes: Send + Sync {
    /// The directory that holds `sys` and `proc`.
    fn root(&self) -> &Path;
    /// Writes an attribute, named relative to the root: `sys/bus/pci/rescan`.
    fn store(&self, attribute: &str, value: &str) -> io::Result<()>;
}

/// The kernel of this node, with the node's root mounted at a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// The node whose root is mounted at `root`: `/` outside of containers.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl Attributes for Host {
    fn root(&self) -> &Path {
        &self.root
    }

    fn store(&self, attribute: &str, value: &str) -> io::Result<()> {
        // Never created: a missing attribute is an error, and one write is one command.
        let mut file = std::fs::OpenOptions::new().write(true).open(self.root.join(attribute))?;
        io::Write::write_all(&mut file, value.as_bytes())
    }
}

/// Writes an attribute; an error names its path and value.
pub(crate) fn store(kernel: &(impl Attributes + ?Sized), attribute: &str, value: &str) -> Result<()> {
    kernel.store(attribute, value).map_err(|error| Error::Write {
        path: kernel.root().join(attribute),
        value: value.trim_end().to_owned(),
        why: error.to_string(),
    })
}

/// Text of an attribute without the newline.
pub(crate) fn text(dir: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(name)).ok().map(|text| text.trim().to_owned())
}

/// A number with or without `0x`, always hexadecimal.
pub(crate) fn hex(dir: &Path, name: &str) -> Option<u32> {
    u32::from_str_radix(text(dir, name)?.trim_start_matches("0x"), 16).ok()
}

/// A non-negative number; the kernel writes -1 for "none".
pub(crate) fn number(dir: &Path, name: &str) -> Option<u32> {
    text(dir, name)?.parse().ok()
}

/// Name of a symlink's target, whether or not it exists.
pub(crate) fn link(dir: &Path, name: &str) -> Option<String> {
    std::fs::read_link(dir.join(name)).ok().and_then(|to| Some(to.file_name()?.to_str()?.to_owned()))
}

/// Sorted names in a directory; empty if it does not exist.
pub(crate) fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::File { path: dir.to_owned(), why: error.to_string() }),
    };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_that_is_not_there_is_named_and_not_made() {
        let root = tempfile::tempdir().expect("a directory");
        let error = store(&Host::new(root.path()), "sys/bus/pci/rescan", "1").expect_err("nothing there");
        let Error::Write { path, value, .. } = &error else { panic!("{error}") };
        assert_eq!((path.as_path(), value.as_str()), (root.path().join("sys/bus/pci/rescan").as_path(), "1"));
        assert!(!path.exists());
    }

    #[test]
    fn an_attribute_is_written_whole() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::write(root.path().join("numvfs"), "0").expect("a file");
        assert_eq!(store(&Host::new(root.path()), "numvfs", "4"), Ok(()));
        assert_eq!(number(root.path(), "numvfs"), Some(4));
    }
}
