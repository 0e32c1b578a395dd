//! The file system of a container on disk, for a body that opens files itself: links to directories that are shared, and
//! files for what comes from objects.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;

use super::disk;
use super::files::{Files, Mount, Source, join};

impl Files {
    /// Makes what is mounted into the container below a directory that stands for its root. Called again, it brings
    /// ConfigMaps and Secrets up to date. Directories that are in memory are left out.
    pub fn lay_out(&self, root: &Path) -> io::Result<()> {
        let mut mounts: Vec<&Mount> = self.mounts.iter().collect();
        // A mount may be within another one.
        mounts.sort_by_key(|mount| mount.path.len());
        for mount in mounts {
            let place = root.join(&mount.path);
            match &mount.source {
                Source::Shared(directory, base) => {
                    if let Some(shared) = directory.path() {
                        link(&shared.join(join(base, &mount.sub_path)), &place)?;
                    }
                }
                _ => self.copy(mount, &place)?,
            }
        }
        Ok(())
    }

    /// Writes what a mount shows now, and removes what it no longer does.
    fn copy(&self, mount: &Mount, place: &Path) -> io::Result<()> {
        let names: BTreeSet<String> = self.list(&mount.path).into_iter().collect();
        if names.is_empty() {
            if let Some(content) = self.read(&mount.path) {
                return write(place, &content);
            }
            return std::fs::create_dir_all(place);
        }
        for name in disk::list(place, "").iter().filter(|name| !names.contains(*name)) {
            disk::remove(place, name);
        }
        for name in &names {
            let content = self.read(&format!("{}/{name}", mount.path)).unwrap_or_default();
            write(&place.join(name), &content)?;
        }
        Ok(())
    }
}

/// Shows a directory, or a file that is there, at another place.
fn link(shared: &Path, place: &Path) -> io::Result<()> {
    if !shared.exists() {
        std::fs::create_dir_all(shared)?;
    }
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match symlink(shared, place) {
        // It is there already: from an earlier start, or because it is within another mount.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Writes a file as a whole, unless it says so already: whoever waits for a change is not woken for nothing.
fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    if std::fs::read(file).is_ok_and(|there| there == content) {
        return Ok(());
    }
    disk::write(file, content)
}
