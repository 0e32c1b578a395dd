//! Directories on disk: for containers whose body opens files itself.
//!
//! Writes are atomic (rename), and waiting uses inotify, as other processes may write there too.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use inotify::{Inotify, WatchMask};

/// Poll interval where inotify is not available.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The content of a file.
pub(super) fn read(root: &Path, path: &str) -> Option<Bytes> {
    std::fs::read(root.join(path)).ok().map(Bytes::from)
}

/// Writes a file atomically, and creates its parent directories.
pub(super) fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let temporary = file.with_file_name(format!(".{name}.tmp"));
    std::fs::write(&temporary, content)?;
    std::fs::rename(&temporary, file)
}

/// Removes a file or a directory tree.
pub(super) fn remove(root: &Path, path: &str) {
    let file = root.join(path);
    let removed = match file.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(&file),
        Ok(_) => std::fs::remove_file(&file),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "file of a virtual node not removed");
        }
        _ => {}
    }
}

/// Paths of all files below a path, relative to it and sorted.
pub(super) fn list(root: &Path, path: &str) -> Vec<String> {
    let base = root.join(path);
    let (mut files, mut todo) = (Vec::new(), vec![base.clone()]);
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => todo.push(path),
                _ => files.extend(path.strip_prefix(&base).ok().map(|rest| rest.to_string_lossy().into_owned())),
            }
        }
    }
    files.sort_unstable();
    files
}

/// Watches a file: its directory, or the nearest existing ancestor.
pub(super) struct Watch {
    events: Option<inotify::EventStream<Vec<u8>>>,
}

impl Watch {
    /// Starts to watch: any later change ends the next [`Watch::changed`].
    pub(super) fn around(root: &Path, path: &str) -> Self {
        let file: PathBuf = root.join(path);
        let dir = file.ancestors().skip(1).find(|dir| dir.is_dir()).unwrap_or(root);
        let mask = WatchMask::CREATE
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVE
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF;
        let events = Inotify::init().ok().and_then(|inotify| {
            inotify.watches().add(dir, mask).ok()?;
            inotify.into_event_stream(vec![0; 4096]).ok()
        });
        Self { events }
    }

    /// Waits for the next change.
    pub(super) async fn changed(mut self) {
        match &mut self.events {
            Some(events) => drop(events.next().await),
            // No inotify watch is available.
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// The kernel takes tens of milliseconds to close a watch: a shared thread must not block on that.
impl Drop for Watch {
    fn drop(&mut self) {
        if let (Some(events), Ok(runtime)) = (self.events.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || drop(events));
        }
    }
}
