//! Root file system of a container on disk, for a body that opens files itself: symlinks to shared directories, and
//! files for ConfigMaps and Secrets.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;

use super::disk;
use super::files::{Files, Mount, Source, join};

impl Files {
    /// Creates the mounts of the container below a root directory. Called again, it updates ConfigMaps and Secrets.
    /// In-memory directories are skipped.
    pub fn lay_out(&self, root: &Path) -> io::Result<()> {
        let mut mounts: Vec<&Mount> = self.mounts.iter().collect();
        // A mount may be inside another one.
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

    /// Writes the current content of a mount, and removes obsolete files.
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

/// Symlinks a directory or an existing file.
fn link(shared: &Path, place: &Path) -> io::Result<()> {
    if !shared.exists() {
        std::fs::create_dir_all(shared)?;
    }
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match symlink(shared, place) {
        // It exists: from an earlier start, or inside another mount.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Writes a file atomically, unless its content is equal: watchers are not notified without a change.
fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    if std::fs::read(file).is_ok_and(|existing| existing == content) {
        return Ok(());
    }
    disk::write(file, content)
}
