//! Files that others on the node wait for: written as a whole or not at all, and waited for without polling.

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

/// Writes a file so that a reader sees the old one or the new one, and a crash leaves either. What was written when this
/// returns is there after a power loss too.
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

/// Removes a file; one that is not there is fine.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed(format!("cannot remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Names that appear and go.
const NAMES: WatchMask =
    WatchMask::CREATE.union(WatchMask::MOVED_TO).union(WatchMask::DELETE).union(WatchMask::MOVED_FROM);

/// Waits until something in one of these directories changes, or `longest` has passed. Of a directory that does not exist
/// the next one above it is watched: whoever listens anew after each change finds it when it is made.
pub struct Changes {
    events: Option<inotify::EventStream<Vec<u8>>>,
}

impl Changes {
    /// Starts to listen: what happens from now on ends the next [`Changes::next`].
    pub fn of(dirs: &[&Path]) -> Self {
        Self::with(dirs, NAMES | WatchMask::CLOSE_WRITE)
    }

    /// The same for what appears and goes, not for what is written: in `/dev` everyone writes all the time.
    pub fn of_names(dirs: &[&Path]) -> Self {
        Self::with(dirs, NAMES)
    }

    fn with(dirs: &[&Path], mask: WatchMask) -> Self {
        let events = Inotify::init().ok().and_then(|inotify| {
            let watched = dirs.iter().filter(|dir| watch(&inotify, dir, mask)).count();
            // With the buffer of one event with the longest name.
            (watched > 0).then(|| inotify.into_event_stream(vec![0; 4096]).ok()).flatten()
        });
        Self { events }
    }

    /// Waits for time alone.
    pub fn none() -> Self {
        Self { events: None }
    }

    /// The next change.
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

/// Watches a directory, or the next one above it that exists; whether there is one.
fn watch(inotify: &Inotify, dir: &Path, mask: WatchMask) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let mut below: Option<&Path> = None;
    for path in dir.ancestors() {
        let before = identity(path);
        if inotify.watches().add(path, mask).is_ok() {
            // One that was removed meanwhile tells nothing any more, and one that was made below it had no watch yet.
            let missed = identity(path) != before || below.is_some_and(Path::exists);
            return if missed { watch(inotify, dir, mask) } else { true };
        }
        below = Some(path);
    }
    false
}

/// The kernel takes tens of milliseconds to end a watch: a thread that serves others must not wait for that.
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
