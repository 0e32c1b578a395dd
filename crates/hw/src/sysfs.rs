//! Attributes of sysfs below a root: read as text and numbers, and written.
//!
//! Writing an attribute is a command to the kernel. [`Attributes`] is the one place where such a command leaves this
//! crate: [`Host`] hands it to the kernel of the node, [`crate::fake::Kernel`] carries it out on a tree of plain files.
//! The code above it (driver binding, virtual functions) is the same for both.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// A kernel whose attributes can be read as files and written.
pub trait Attributes: Send + Sync {
    /// The directory that holds `sys` and `proc`.
    fn root(&self) -> &Path;
    /// Writes an attribute, named relative to the root: `sys/bus/pci/rescan`.
    fn store(&self, attribute: &str, value: &str) -> io::Result<()>;
}

/// The kernel of this node, with the node's root mounted at a directory of ours.
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
        // Never created: an attribute that is not there is an error, and one write is one command.
        let mut file = std::fs::OpenOptions::new().write(true).open(self.root.join(attribute))?;
        io::Write::write_all(&mut file, value.as_bytes())
    }
}

/// Writes an attribute; what fails is told with its path and value.
pub(crate) fn store(kernel: &(impl Attributes + ?Sized), attribute: &str, value: &str) -> Result<()> {
    kernel.store(attribute, value).map_err(|error| Error::Write {
        path: kernel.root().join(attribute),
        value: value.trim_end().to_owned(),
        why: error.to_string(),
    })
}

/// Text of an attribute without the line's end.
pub(crate) fn text(dir: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(name)).ok().map(|text| text.trim().to_owned())
}

/// A number with or without `0x`, always hexadecimal.
pub(crate) fn hex(dir: &Path, name: &str) -> Option<u32> {
    u32::from_str_radix(text(dir, name)?.trim_start_matches("0x"), 16).ok()
}

/// A number that is not negative; the kernel says -1 for "none".
pub(crate) fn number(dir: &Path, name: &str) -> Option<u32> {
    text(dir, name)?.parse().ok()
}

/// Name of what a link leads to, whether or not that is there.
pub(crate) fn link(dir: &Path, name: &str) -> Option<String> {
    std::fs::read_link(dir.join(name)).ok().and_then(|to| Some(to.file_name()?.to_str()?.to_owned()))
}

/// Names in a directory, sorted; a directory that is not there has none.
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
