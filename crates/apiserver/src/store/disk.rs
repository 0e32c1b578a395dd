//! Persistence: one redb file, written asynchronously behind the in-memory store.
//!
//! All reads are served from memory. Changes are queued to one thread in revision order; it commits all queued changes
//! in one transaction with an fsync. So the file always holds the state at some revision, and writers share the cost of
//! an fsync. Callers that need durability wait for [`Store::saved`].
//!
//! A reader may observe a write that is not on disk yet, and a crash reverts it. So that its revision is never reused,
//! a store that is opened continues [`REVISION_GAP`] revisions later, with all history before that compacted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::watch;

use super::record::{self, Types};
use super::{Event, EventKind, FieldPaths, Object, Retention, State, Store, TableKey};

/// Version of the file format. A file with another version cannot be read.
const FORMAT: &str = "1";
/// More than the number of changes that can be queued: see [`QUEUE_CAPACITY`].
const REVISION_GAP: u64 = 1 << 20;
/// Size of redb's page cache: small, because reads are served from memory.
const CACHE: usize = 8 << 20;
/// Maximum number of changes per transaction.
const BATCH: usize = 4096;
/// Maximum number of queued changes. When the queue is full, writers block until the disk catches up: this bounds
/// memory.
const QUEUE_CAPACITY: usize = 2 * BATCH;

/// Group, plural and key to record.
const OBJECTS: TableDefinition<(&str, &str, &str), &[u8]> = TableDefinition::new("objects");
/// Blobs by name: see [`Store::put_blob`].
const BLOBS: TableDefinition<&str, &[u8]> = TableDefinition::new("kept");
/// Metadata of the file.
const FILE_METADATA: TableDefinition<&str, &[u8]> = TableDefinition::new("about");
const FORMAT_KEY: &str = "format";
const REVISION_KEY: &str = "revision";

/// Why a store could not be opened, or can no longer be written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process has the file open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file has another format version.
    #[error("{} has format {found}, and this program reads format {FORMAT}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: String,
    },
    /// The file is not a store, or is corrupt.
    #[error("{} is damaged, or no store: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is corrupt.
        why: String,
    },
    /// The store was closed.
    #[error("{} is closed", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
    /// An I/O error.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: Arc<io::Error>,
    },
}

/// State shared with callers that wait for the disk.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    /// Number of changes queued to the writer.
    queued: AtomicU64,
    progress: watch::Receiver<Progress>,
    blobs: Mutex<HashMap<String, Vec<u8>>>,
}

/// Progress of the writer.
#[derive(Debug, Default)]
struct Progress {
    /// Number of changes committed to disk.
    saved: u64,
    failure: Option<DiskError>,
}

/// Queue of the writer thread. When dropped, the writer flushes the queue and exits.
#[derive(Debug)]
pub(super) struct Journal {
    disk: Arc<Disk>,
    changes: Option<mpsc::SyncSender<Change>>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Change {
    Put(TableKey, Arc<Object>),
    Remove(TableKey, Arc<Object>),
    PutBlob(String, Vec<u8>),
}

impl Store {
    /// Opens the store in a file, and creates the file if it does not exist. Only one process can have it open. Blocks:
    /// the whole file is read.
    pub fn open(path: &Path, retention: Retention) -> Result<Self, DiskError> {
        let file = open_file(path).map_err(|error| disk_error(path, error.into()))?;
        let database = builder().create_file(file).map_err(|error| disk_error(path, error.into()))?;
        Self::on(path, database, retention)
    }

    fn on(path: &Path, database: Database, retention: Retention) -> Result<Self, DiskError> {
        check(path, &database)?;
        let (mut state, blobs) = load(path, &database, retention)?;
        let (progress, seen) = watch::channel(Progress::default());
        let disk = Arc::new(Disk {
            path: path.to_owned(),
            queued: AtomicU64::new(0),
            progress: seen,
            blobs: Mutex::new(blobs),
        });
        let (changes, received) = mpsc::sync_channel(QUEUE_CAPACITY);
        let place = path.to_owned();
        let writer = std::thread::Builder::new().name("store".into());
        let writer = writer.spawn(move || run_writer(&place, &database, &received, &progress));
        let writer = Some(writer.map_err(|error| disk_error(path, error.into()))?);
        state.journal = Some(Journal { disk: disk.clone(), changes: Some(changes), writer });
        Ok(Self { state: Arc::new(Mutex::new(state)), disk: Some(disk) })
    }

    /// Waits until all writes so far are on disk. Returns at once for an in-memory store.
    pub async fn saved(&self) -> Result<(), DiskError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let wanted = disk.queued.load(Ordering::Acquire);
        let mut progress = disk.progress.clone();
        let reached = progress.wait_for(|now| now.saved >= wanted || now.failure.is_some()).await;
        match reached.as_deref() {
            Ok(Progress { saved, .. }) if *saved >= wanted => Ok(()),
            Ok(Progress { failure: Some(failure), .. }) => Err(failure.clone()),
            _ => Err(DiskError::Closed { path: disk.path.clone() }),
        }
    }

    /// Waits until persisting fails: from then on nothing is written to disk.
    pub async fn wait_for_failure(&self) -> DiskError {
        if let Some(disk) = &self.disk {
            let mut progress = disk.progress.clone();
            if let Ok(now) = progress.wait_for(|now| now.failure.is_some()).await
                && let Some(failure) = &now.failure
            {
                return failure.clone();
            }
        }
        std::future::pending().await
    }

    /// Flushes all changes and closes the file. Later changes are never [saved](Store::saved).
    pub fn close(&self) {
        let writer = self.lock().journal.as_mut().and_then(Journal::end);
        // The lock is released: other callers need not wait for the disk.
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }

    /// The blob of that name: see [`Store::put_blob`].
    pub fn blob(&self, name: &str) -> Option<Vec<u8>> {
        self.disk.as_ref()?.blobs.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Persists a named blob beside the objects, such as a signing key. Ignored by an in-memory store.
    pub fn put_blob(&self, name: &str, value: &[u8]) {
        let state = self.lock();
        let Some(journal) = &state.journal else { return };
        let mut blobs = journal.disk.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.insert(name.to_owned(), value.to_vec());
        journal.enqueue(Change::PutBlob(name.to_owned(), value.to_vec()));
    }
}

impl Journal {
    /// Queues an event to the writer.
    pub(super) fn record(&self, table: &TableKey, event: &Event) {
        let change = if event.kind == EventKind::Deleted { Change::Remove } else { Change::Put };
        self.enqueue(change(table.clone(), event.object.clone()));
    }

    fn enqueue(&self, change: Change) {
        self.disk.queued.fetch_add(1, Ordering::Release);
        if let Some(changes) = &self.changes {
            // The receiver is gone only after a failure, which `progress` reports.
            let _ = changes.send(change);
        }
    }

    /// Closes the queue, so that the writer exits after flushing it.
    fn end(&mut self) -> Option<JoinHandle<()>> {
        self.changes = None;
        self.writer.take()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(writer) = self.end() {
            let _ = writer.join();
        }
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    builder
}

/// Checks that a database has our format, or initializes an empty one.
fn check(path: &Path, database: &Database) -> Result<(), DiskError> {
    let foreign = || DiskError::Damaged { path: path.to_owned(), why: "it belongs to another program".into() };
    let check = || -> Result<Result<(), DiskError>, redb::Error> {
        let write = database.begin_write()?;
        let fresh = write.list_tables()?.next().is_none();
        let mut metadata = write.open_table(FILE_METADATA)?;
        let found = metadata.get(FORMAT_KEY)?.map(|found| String::from_utf8_lossy(found.value()).into_owned());
        match found {
            None if fresh => drop(metadata.insert(FORMAT_KEY, FORMAT.as_bytes())?),
            None => return Ok(Err(foreign())),
            Some(found) if found != FORMAT => return Ok(Err(DiskError::Format { path: path.to_owned(), found })),
            Some(_) => {}
        }
        drop(metadata);
        write.open_table(OBJECTS)?;
        write.open_table(BLOBS)?;
        write.commit()?;
        Ok(Ok(()))
    };
    check().map_err(|error| disk_error(path, error))?
}

/// Opens the file with mode 0600, as it holds secrets. A file that a crash left zero-filled is truncated.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    if file.try_lock().is_ok() {
        let mut start = [0; 16];
        let read = file.read(&mut start)?;
        if start == [0; 16] && read > 0 {
            file.set_len(0)?;
        }
        file.rewind()?;
        file.unlock()?;
    }
    Ok(file)
}

/// Loads the whole file.
fn load(
    path: &Path,
    database: &Database,
    retention: Retention,
) -> Result<(State, HashMap<String, Vec<u8>>), DiskError> {
    let damaged = |why: String| DiskError::Damaged { path: path.to_owned(), why };
    let read = || -> Result<_, redb::Error> {
        let read = database.begin_read()?;
        let metadata = read.open_table(FILE_METADATA)?.get(REVISION_KEY)?;
        let revision = metadata.and_then(|bytes| bytes.value().try_into().ok()).map(u64::from_le_bytes);
        let mut state = match revision {
            Some(revision) => State::new(revision + REVISION_GAP, revision + REVISION_GAP, retention),
            None => State::new(1, 0, retention),
        };
        let (mut types, mut fields) = (Types::new(), HashMap::new());
        for entry in read.open_table(OBJECTS)?.iter()? {
            let (key, bytes) = entry?;
            let (group, plural, key) = key.value();
            let table = TableKey::new(group, plural);
            let id = state.table(&table);
            let fields = fields.entry(id).or_insert_with(|| FieldPaths::builtin(group, plural));
            match record::read(bytes.value(), fields, &mut types) {
                Some(object) => state.restore(id, object),
                None => return Ok(Err(format!("{plural} {key} cannot be read"))),
            }
        }
        let mut blobs = HashMap::new();
        for entry in read.open_table(BLOBS)?.iter()? {
            let (name, value) = entry?;
            blobs.insert(name.value().to_owned(), value.value().to_vec());
        }
        Ok(Ok((state, blobs)))
    };
    read().map_err(|error| disk_error(path, error))?.map_err(damaged)
}

impl State {
    /// Inserts an object that was loaded from disk.
    fn restore(&mut self, id: usize, mut object: Object) {
        if let Some(sibling) = self.sibling(&object) {
            object.share_with_sibling(&sibling);
        }
        for owner in object.owners.iter() {
            self.dependents.entry(owner.clone()).or_default().insert((id, object.key().clone()));
        }
        self.tables[id].restore(Arc::new(object));
    }
}

/// Commits batches until the queue is closed.
fn run_writer(path: &Path, database: &Database, changes: &mpsc::Receiver<Change>, progress: &watch::Sender<Progress>) {
    while let Ok(first) = changes.recv() {
        let batch: Vec<Change> = std::iter::once(first).chain(changes.try_iter()).take(BATCH).collect();
        match commit(database, &batch) {
            Ok(()) => progress.send_modify(|now| now.saved += batch.len() as u64),
            Err(error) => {
                let failure = disk_error(path, error);
                tracing::error!(%failure, "disk store failed; objects no longer persisted");
                return progress.send_modify(|now| now.failure = Some(failure));
            }
        }
    }
}

fn commit(database: &Database, batch: &[Change]) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    let (mut objects, mut blobs) = (write.open_table(OBJECTS)?, write.open_table(BLOBS)?);
    let mut last = None;
    for change in batch {
        match change {
            Change::Put(table, object) => {
                let key = (&*table.group, &*table.plural, &**object.key());
                objects.insert(key, record::write(object).as_slice())?;
                last = Some(object.revision);
            }
            Change::Remove(table, object) => {
                objects.remove((&*table.group, &*table.plural, &**object.key()))?;
                last = Some(object.revision);
            }
            Change::PutBlob(name, value) => drop(blobs.insert(name.as_str(), value.as_slice())?),
        }
    }
    drop((objects, blobs));
    if let Some(revision) = last {
        write.open_table(FILE_METADATA)?.insert(REVISION_KEY, revision.to_le_bytes().as_slice())?;
    }
    write.commit()?;
    Ok(())
}

/// Maps a redb error to a [`DiskError`].
fn disk_error(path: &Path, error: redb::Error) -> DiskError {
    let path = path.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => DiskError::InUse { path },
        redb::Error::UpgradeRequired(found) => DiskError::Format { path, found: format!("redb {found}") },
        redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            DiskError::Damaged { path, why: error.to_string() }
        }
        redb::Error::Io(error) => DiskError::Io { path, error: Arc::new(error) },
        other => DiskError::Damaged { path, why: other.to_string() },
    }
}

#[cfg(test)]
mod tests;
