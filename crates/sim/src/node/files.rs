//! Files of containers: mounts, and directories that containers or pods share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::sync::watch;

use capstan_apiserver::ops::Server;
use capstan_apiserver::store::TableKey;

use super::disk;

/// A shared directory of a node, a pod or a claim; in memory or on disk. Paths have no leading slash. Clones share one
/// state.
#[derive(Clone, Debug)]
pub struct Directory {
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Memory(Arc<Content>),
    Disk(Arc<Path>),
}

#[derive(Debug)]
struct Content {
    files: Mutex<BTreeMap<String, Bytes>>,
    /// Incremented by each change.
    changed: watch::Sender<u64>,
}

impl Content {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Bytes>)) {
        change(&mut self.files());
        self.changed.send_modify(|count| *count += 1);
    }
}

impl Default for Directory {
    fn default() -> Self {
        let content = Content { files: Mutex::default(), changed: watch::Sender::new(0) };
        Self { place: Place::Memory(Arc::new(content)) }
    }
}

impl Directory {
    /// A directory on disk, created by the first write.
    pub fn on_disk(path: impl Into<PathBuf>) -> Self {
        Self { place: Place::Disk(path.into().into()) }
    }

    /// Its path, if it is on disk.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Memory(_) => None,
            Place::Disk(root) => Some(root),
        }
    }

    /// The content of a file.
    pub fn read(&self, path: &str) -> Option<Bytes> {
        match &self.place {
            Place::Memory(content) => content.files().get(clean(path)).cloned(),
            Place::Disk(root) => disk::read(root, clean(path)),
        }
    }

    /// Writes a file.
    pub fn write(&self, path: &str, content: impl Into<Bytes>) {
        let (path, bytes) = (clean(path), content.into());
        match &self.place {
            Place::Memory(content) => content.change(|files| drop(files.insert(path.to_owned(), bytes))),
            Place::Disk(root) => {
                let file = root.join(path);
                if let Err(error) = disk::write(&file, &bytes) {
                    tracing::warn!(file = %file.display(), %error, "file of a virtual node not written");
                }
            }
        }
    }

    /// Removes a file, or all files in a directory.
    pub fn remove(&self, path: &str) {
        let path = clean(path);
        match &self.place {
            Place::Memory(content) => {
                content.change(|files| files.retain(|name, _| name != path && within(name, path).is_none()));
            }
            Place::Disk(root) => disk::remove(root, path),
        }
    }

    /// Paths of all files below a path, relative to it.
    pub fn list(&self, path: &str) -> Vec<String> {
        match &self.place {
            Place::Memory(content) => {
                let files = content.files();
                files.keys().filter_map(|name| within(name, clean(path))).map(str::to_owned).collect()
            }
            Place::Disk(root) => disk::list(root, clean(path)),
        }
    }

    /// Waits until a file is removed.
    pub async fn wait_until_gone(&self, path: &str) {
        self.wait_until(path, |directory| directory.read(path).is_none().then_some(())).await;
    }

    /// Waits until a file exists.
    pub async fn wait_for(&self, path: &str) -> Bytes {
        self.wait_until(path, |directory| directory.read(path)).await
    }

    /// Waits for a condition on a file; for ever, if no writer is left.
    async fn wait_until<T>(&self, path: &str, holds: impl Fn(&Self) -> Option<T>) -> T {
        match &self.place {
            Place::Memory(content) => {
                let mut changed = content.changed.subscribe();
                loop {
                    if let Some(found) = holds(self) {
                        return found;
                    }
                    if changed.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            }
            Place::Disk(root) => loop {
                // The watch starts before the check, so that no change is missed.
                let watch = disk::Watch::around(root, clean(path));
                if let Some(found) = holds(self) {
                    return found;
                }
                watch.changed().await;
            },
        }
    }
}

fn clean(path: &str) -> &str {
    path.trim_matches('/')
}

/// The rest of a path below a directory.
fn within<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    if directory.is_empty() {
        return Some(path);
    }
    path.strip_prefix(directory)?.strip_prefix('/')
}

/// Source of a mount.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Part of a writable directory.
    Shared(Directory, String),
    /// The current content of a ConfigMap or Secret. `items`: keys and paths, all if empty.
    Live { table: TableKey, name: String, items: Vec<(String, String)> },
    /// Static content.
    Fixed(BTreeMap<String, Bytes>),
    /// Several of these.
    Several(Vec<Source>),
}

/// A mount.
#[derive(Clone, Debug)]
pub(super) struct Mount {
    /// Mount path, without leading and trailing slashes.
    pub(super) path: String,
    /// `subPath` of the volume.
    pub(super) sub_path: String,
    pub(super) source: Source,
    pub(super) read_only: bool,
}

/// Why a file could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Nothing is mounted there, or it is read-only.
    #[error("read-only file system: {0}")]
    ReadOnly(String),
}

/// The file system of a container.
#[derive(Clone)]
pub struct Files {
    pub(super) mounts: Vec<Mount>,
    pub(super) server: Server,
    pub(super) namespace: String,
    /// The container's own writable layer.
    pub(super) own: Directory,
}

impl Files {
    /// The content of a file.
    pub fn read(&self, path: &str) -> Option<Bytes> {
        match self.locate(path) {
            None => self.own.read(path),
            Some((mount, rest)) => self.read_from(&mount.source, &rest),
        }
    }

    /// The content of a text file.
    pub fn read_text(&self, path: &str) -> Option<String> {
        String::from_utf8(self.read(path)?.to_vec()).ok()
    }

    /// Writes a file.
    pub fn write(&self, path: &str, content: impl Into<Bytes>) -> Result<(), FileError> {
        let (directory, path) = self.writable(path)?;
        directory.write(&path, content);
        Ok(())
    }

    /// Removes a file, or all files in a directory.
    pub fn remove(&self, path: &str) -> Result<(), FileError> {
        let (directory, path) = self.writable(path)?;
        directory.remove(&path);
        Ok(())
    }

    /// Paths of all files below a path, relative to it.
    pub fn list(&self, path: &str) -> Vec<String> {
        match self.locate(path) {
            None => self.own.list(path),
            Some((mount, rest)) => self.list_in(&mount.source, &rest),
        }
    }

    /// Waits until a file exists. Only files in writable mounts are waited for.
    pub async fn wait_for(&self, path: &str) -> Bytes {
        if let Some(content) = self.read(path) {
            return content;
        }
        match self.writable(path) {
            Ok((directory, path)) => directory.wait_for(&path).await,
            Err(_) => std::future::pending().await,
        }
    }

    fn writable(&self, path: &str) -> Result<(Directory, String), FileError> {
        match self.locate(path) {
            None => Ok((self.own.clone(), path.to_owned())),
            Some((Mount { source: Source::Shared(directory, base), read_only: false, .. }, rest)) => {
                Ok((directory.clone(), join(base, &rest)))
            }
            Some(_) => Err(FileError::ReadOnly(path.to_owned())),
        }
    }

    /// The innermost mount of a path, and the path within its volume.
    fn locate(&self, path: &str) -> Option<(&Mount, String)> {
        let path = clean(path);
        let containing = self.mounts.iter().filter_map(|mount| {
            let rest = if path == mount.path { Some("") } else { within(path, &mount.path) };
            rest.map(|rest| (mount, join(&mount.sub_path, rest)))
        });
        containing.max_by_key(|(mount, _)| mount.path.len())
    }

    fn read_from(&self, source: &Source, path: &str) -> Option<Bytes> {
        match source {
            Source::Shared(directory, base) => directory.read(&join(base, path)),
            Source::Fixed(files) => files.get(path).cloned(),
            Source::Live { table, name, items } => self.live(table, name, items).remove(path),
            Source::Several(sources) => sources.iter().rev().find_map(|source| self.read_from(source, path)),
        }
    }

    fn list_in(&self, source: &Source, path: &str) -> Vec<String> {
        let below = |names: Vec<String>| -> Vec<String> {
            names.iter().filter_map(|name| within(name, path)).map(str::to_owned).collect()
        };
        match source {
            Source::Shared(directory, base) => directory.list(&join(base, path)),
            Source::Fixed(files) => below(files.keys().cloned().collect()),
            Source::Live { table, name, items } => below(self.live(table, name, items).into_keys().collect()),
            Source::Several(sources) => {
                let mut names: Vec<String> = sources.iter().flat_map(|source| self.list_in(source, path)).collect();
                names.sort_unstable();
                names.dedup();
                names
            }
        }
    }

    fn live(&self, table: &TableKey, name: &str, items: &[(String, String)]) -> BTreeMap<String, Bytes> {
        let data = data(&self.server, table, &self.namespace, name).unwrap_or_default();
        if items.is_empty() {
            return data;
        }
        items.iter().filter_map(|(key, path)| Some((path.clone(), data.get(key)?.clone()))).collect()
    }
}

/// The content of a ConfigMap or Secret; `None` if it does not exist.
pub(super) fn data(server: &Server, table: &TableKey, namespace: &str, name: &str) -> Option<BTreeMap<String, Bytes>> {
    let object = server.store().get(table, namespace, name)?;
    let bytes = |ByteString(bytes): ByteString| Bytes::from(bytes);
    if &*table.plural == "secrets" {
        let secret: Secret = object.parse().ok()?;
        return Some(secret.data.into_iter().flatten().map(|(key, value)| (key, bytes(value))).collect());
    }
    let map: ConfigMap = object.parse().ok()?;
    let texts = map.data.into_iter().flatten().map(|(key, value)| (key, Bytes::from(value)));
    Some(texts.chain(map.binary_data.into_iter().flatten().map(|(key, value)| (key, bytes(value)))).collect())
}

pub(super) fn join(base: &str, rest: &str) -> String {
    match (clean(base), clean(rest)) {
        ("", rest) => rest.to_owned(),
        (base, "") => base.to_owned(),
        (base, rest) => format!("{base}/{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(mounts: Vec<Mount>) -> Files {
        let server = Server::new(capstan_apiserver::ops::Settings::default());
        Files { mounts, server, namespace: "default".to_owned(), own: Directory::default() }
    }

    fn mount(path: &str, source: Source) -> Mount {
        Mount { path: clean(path).to_owned(), sub_path: String::new(), source, read_only: false }
    }

    #[tokio::test]
    async fn mounts_share_what_they_mount() {
        let host = Directory::default();
        let one = files(vec![mount("/run/validations", Source::Shared(host.clone(), "run/nvidia".to_owned()))]);
        let two = files(vec![mount("/host", Source::Shared(host.clone(), String::new()))]);
        one.write("/run/validations/ready", "yes").unwrap();
        assert_eq!(two.read_text("/host/run/nvidia/ready").as_deref(), Some("yes"));
        assert_eq!(two.list("/host/run"), ["nvidia/ready"]);
        assert_eq!(one.read("/run/other"), None);
        two.remove("/host/run").unwrap();
        assert_eq!(one.list("/run/validations"), Vec::<String>::new());
    }

    #[tokio::test]
    async fn the_innermost_mount_counts() {
        let fixed = Source::Fixed([("a".to_owned(), Bytes::from("fixed"))].into());
        let mut inner = mount("/etc/x", fixed);
        inner.read_only = true;
        let files = files(vec![mount("/etc", Source::Shared(Directory::default(), String::new())), inner]);
        files.write("/etc/x-y", "outer").unwrap();
        assert_eq!(files.read_text("/etc/x/a").as_deref(), Some("fixed"));
        assert_eq!(files.write("/etc/x/a", ""), Err(FileError::ReadOnly("/etc/x/a".to_owned())));
        assert_eq!(files.read_text("/etc/x-y").as_deref(), Some("outer"));
        files.write("/tmp/own", "mine").unwrap();
        assert_eq!(files.read_text("/tmp/own").as_deref(), Some("mine"));
    }

    #[tokio::test]
    async fn a_directory_on_disk_is_one_with_what_others_write_there() {
        let disk = tempfile::tempdir().unwrap();
        let host = Directory::on_disk(disk.path());
        host.write("/run/a", "ours");
        assert_eq!(std::fs::read(disk.path().join("run/a")).unwrap(), b"ours");
        let waiting = tokio::spawn({
            let host = host.clone();
            async move { host.wait_for("run/deep/b").await }
        });
        tokio::task::yield_now().await;
        std::fs::create_dir(disk.path().join("run/deep")).unwrap();
        std::fs::write(disk.path().join("run/deep/b"), "theirs").unwrap();
        waiting.await.unwrap();
        assert_eq!(host.list("run"), ["a", "deep/b"]);
        host.remove("run/deep");
        host.wait_until_gone("run/deep/b").await;
        assert_eq!(host.list(""), ["run/a"]);
    }

    #[test]
    fn a_file_system_is_laid_out_with_links_and_copies() {
        let disk = tempfile::tempdir().unwrap();
        let host = Directory::on_disk(disk.path().join("host"));
        let fixed = Source::Fixed([("a".to_owned(), Bytes::from("fixed"))].into());
        let files = files(vec![
            mount("/run/nvidia/validations", Source::Shared(host.clone(), "run/nvidia/validations".to_owned())),
            mount("/run/nvidia", Source::Shared(host.clone(), "run/nvidia".to_owned())),
            mount("/config", fixed),
        ]);
        let root = disk.path().join("container");
        for _ in 0..2 {
            files.lay_out(&root).unwrap();
        }
        std::fs::write(root.join("run/nvidia/validations/ready"), "yes").unwrap();
        assert_eq!(host.read("run/nvidia/validations/ready").as_deref(), Some(&b"yes"[..]));
        assert_eq!(std::fs::read(root.join("config/a")).unwrap(), b"fixed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_waited_for() {
        let host = Directory::default();
        let waiting = tokio::spawn({
            let host = host.clone();
            async move { host.wait_for("a/b").await }
        });
        tokio::task::yield_now().await;
        host.write("/a/b", "now");
        assert_eq!(waiting.await.unwrap(), "now");
    }
}
