//! Files that other processes on the node wait for: atomic writes, and waiting with inotify instead of polling.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use inotify::{Inotify, WatchMask};

use crate::{Error, Result};

fn failed(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    |source| Error::Io { what, source }
}

/// Writes a file atomically and durably: a reader or a crash sees the old content or the new one, and what was written
/// when this returns survives a power loss.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}.{}.tmp", std::process::id()));
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        // The new name is an entry of the directory, which reaches the disk on its own.
        std::fs::File::open(dir)?.sync_all()
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        failed(format!("cannot write {}", path.display()))(error)
    })
}

/// Removes a file; a missing file is no error.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed(format!("cannot remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Events of created, moved and deleted names.
const NAMES: WatchMask =
    WatchMask::CREATE.union(WatchMask::MOVED_TO).union(WatchMask::DELETE).union(WatchMask::MOVED_FROM);

/// An inotify watch on directories: waits for a change, or until `longest` has passed. For a directory that does not exist
/// its nearest existing ancestor is watched: who renews the watch after each change finds it when it is created.
pub struct Changes {
    events: Option<inotify::EventStream<Vec<u8>>>,
}

impl Changes {
    /// Starts watching: any later change completes the next [`Changes::next`].
    pub fn of(dirs: &[&Path]) -> Self {
        Self::with(dirs, NAMES | WatchMask::CLOSE_WRITE)
    }

    /// Watches created and deleted names only, not writes: in `/dev` there are writes all the time.
    pub fn of_names(dirs: &[&Path]) -> Self {
        Self::with(dirs, NAMES)
    }

    fn with(dirs: &[&Path], mask: WatchMask) -> Self {
        let events = Inotify::init().ok().and_then(|inotify| {
            let watched = dirs.iter().filter(|dir| watch(&inotify, dir, mask)).count();
            // A buffer for one event with the longest name.
            (watched > 0).then(|| inotify.into_event_stream(vec![0; 4096]).ok()).flatten()
        });
        Self { events }
    }

    /// No watch: only the timeout applies.
    pub fn none() -> Self {
        Self { events: None }
    }

    /// Waits for the next change, at most `longest`.
    pub async fn next(&mut self, longest: Duration) {
        let change = async {
            match &mut self.events {
                Some(events) => drop(events.next().await),
                None => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(longest, change).await;
    }
}

/// Watches a directory or its nearest existing ancestor; `false` if none can be watched.
fn watch(inotify: &Inotify, dir: &Path, mask: WatchMask) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let mut below: Option<&Path> = None;
    for path in dir.ancestors() {
        let before = identity(path);
        if inotify.watches().add(path, mask).is_ok() {
            // A directory removed meanwhile sends no events, and one created below had no watch yet: start again.
            let missed = identity(path) != before || below.is_some_and(Path::exists);
            return if missed { watch(inotify, dir, mask) } else { true };
        }
        below = Some(path);
    }
    false
}

/// inotify takes tens of milliseconds to close: do it on another thread.
impl Drop for Changes {
    fn drop(&mut self) {
        if let (Some(events), Ok(runtime)) = (self.events.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || drop(events));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("ready");
        write(&file, b"one").expect("written");
        write(&file, b"two").expect("written");
        assert_eq!(std::fs::read(&file).expect("read"), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "nothing is left behind");
        remove(&file).expect("removed");
        remove(&file).expect("already gone");
    }

    #[tokio::test]
    async fn a_directory_that_is_made_ends_the_wait() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut changes = Changes::of(&[&dir.path().join("a/b/c")]);
        std::fs::create_dir_all(dir.path().join("a/b/c")).expect("made");
        let waited = tokio::time::timeout(Duration::from_secs(30), changes.next(Duration::from_secs(3600))).await;
        assert!(waited.is_ok());
    }

    #[tokio::test]
    async fn a_change_ends_the_wait() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut changes = Changes::of(&[dir.path()]);
        write(&dir.path().join("x"), b"").expect("written");
        let waited = tokio::time::timeout(Duration::from_secs(30), changes.next(Duration::from_secs(3600))).await;
        assert!(waited.is_ok());
    }
}
