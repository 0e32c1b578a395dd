//! A store that is on disk as well: one file, written behind the memory.
//!
//! Memory answers everything. Each change is handed to one thread, in the order of revisions, and that thread commits all
//! that came since its last commit in one transaction, with a sync: so the file is at any time the state at some
//! revision, and many writers share the cost of a sync. Whoever must not lose a write waits for [`Store::saved`].
//!
//! A reader may see a write that is not on disk yet, and a crash takes such a write back. So that its revision is never
//! used for anything else, a store that is opened goes on [`LEAP`] revisions later, and has forgotten all before that.

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

/// The format of our file. Another number is a file that this program cannot read.
const FORMAT: &str = "1";
/// More than can ever wait to be written: see [`WAITING`].
const LEAP: u64 = 1 << 20;
/// Pages that the database keeps: all reads are answered by ourselves.
const CACHE: usize = 8 << 20;
/// Most changes in one transaction.
const BATCH: usize = 4096;
/// Most changes that wait for the next one. Whoever changes more than a disk can follow is held up until it has: the
/// memory for what waits is as finite as that for what is there.
const WAITING: usize = 2 * BATCH;

/// Group, plural and key to record.
const OBJECTS: TableDefinition<(&str, &str, &str), &[u8]> = TableDefinition::new("objects");
/// What is kept beside the objects, by name.
const KEPT: TableDefinition<&str, &[u8]> = TableDefinition::new("kept");
/// About the file itself.
const ABOUT: TableDefinition<&str, &[u8]> = TableDefinition::new("about");
const ABOUT_FORMAT: &str = "format";
const ABOUT_REVISION: &str = "revision";

/// Why there is no store on disk, or none any more.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiskError {
    /// Somebody else has it open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a program that is too old or too new.
    #[error("{} has format {found}, and this program reads format {FORMAT}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: String,
    },
    /// It is something else, or broken.
    #[error("{} is damaged, or no store: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It was closed.
    #[error("{} is closed", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
    /// The system does not let us.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: Arc<io::Error>,
    },
}

/// The file behind a store, as those see it who wait for it.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    /// Changes that were handed to the writer.
    handed: AtomicU64,
    progress: watch::Receiver<Progress>,
    kept: Mutex<HashMap<String, Vec<u8>>>,
}

/// How far the writer is.
#[derive(Debug, Default)]
struct Progress {
    /// Changes that are on disk.
    saved: u64,
    failure: Option<DiskError>,
}

/// Where changes go. The writer ends when this is dropped, after it has written everything.
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
    Keep(String, Vec<u8>),
}

impl Store {
    /// The store in a file, which is made if it is not there. Only one process can have it open. Call it on a thread that
    /// may block: everything is read.
    pub fn open(path: &Path, retention: Retention) -> Result<Self, DiskError> {
        let file = open_file(path).map_err(|error| fault(path, error.into()))?;
        let database = builder().create_file(file).map_err(|error| fault(path, error.into()))?;
        Self::on(path, database, retention)
    }

    fn on(path: &Path, database: Database, retention: Retention) -> Result<Self, DiskError> {
        check(path, &database)?;
        let (mut state, kept) = load(path, &database, retention)?;
        let (progress, seen) = watch::channel(Progress::default());
        let disk =
            Arc::new(Disk { path: path.to_owned(), handed: AtomicU64::new(0), progress: seen, kept: Mutex::new(kept) });
        let (changes, received) = mpsc::sync_channel(WAITING);
        let place = path.to_owned();
        let writer = std::thread::Builder::new().name("store".into());
        let writer = writer.spawn(move || keep_up(&place, &database, &received, &progress));
        let writer = Some(writer.map_err(|error| fault(path, error.into()))?);
        state.journal = Some(Journal { disk: disk.clone(), changes: Some(changes), writer });
        Ok(Self { state: Arc::new(Mutex::new(state)), disk: Some(disk) })
    }

    /// Waits until everything that was written up to now is on disk. A store in memory has nothing to wait for.
    pub async fn saved(&self) -> Result<(), DiskError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let wanted = disk.handed.load(Ordering::Acquire);
        let mut progress = disk.progress.clone();
        let reached = progress.wait_for(|now| now.saved >= wanted || now.failure.is_some()).await;
        match reached.as_deref() {
            Ok(Progress { saved, .. }) if *saved >= wanted => Ok(()),
            Ok(Progress { failure: Some(failure), .. }) => Err(failure.clone()),
            _ => Err(DiskError::Closed { path: disk.path.clone() }),
        }
    }

    /// Waits until the disk fails: from then on nothing is kept any more.
    pub async fn lost(&self) -> DiskError {
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

    /// Writes everything and lets go of the file. What changes after that is never [saved](Store::saved).
    pub fn close(&self) {
        let writer = self.lock().journal.as_mut().and_then(Journal::end);
        // The lock is free again: others need not wait for the disk.
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }

    /// What was kept under that name: see [`Store::keep`].
    pub fn kept(&self, name: &str) -> Option<Vec<u8>> {
        self.disk.as_ref()?.kept.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Keeps something beside the objects, such as a key. A store in memory does not.
    pub fn keep(&self, name: &str, value: &[u8]) {
        let state = self.lock();
        let Some(journal) = &state.journal else { return };
        let mut kept = journal.disk.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(name.to_owned(), value.to_vec());
        journal.hand(Change::Keep(name.to_owned(), value.to_vec()));
    }
}

impl Journal {
    /// Hands an event to the writer.
    pub(super) fn record(&self, table: &TableKey, event: &Event) {
        let change = if event.kind == EventKind::Deleted { Change::Remove } else { Change::Put };
        self.hand(change(table.clone(), event.object.clone()));
    }

    fn hand(&self, change: Change) {
        self.disk.handed.fetch_add(1, Ordering::Release);
        if let Some(changes) = &self.changes {
            // A writer that has failed said so.
            let _ = changes.send(change);
        }
    }

    /// Lets the writer end when it has written everything.
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

/// Sees that a database is one of ours, or makes it one.
fn check(path: &Path, database: &Database) -> Result<(), DiskError> {
    let foreign = || DiskError::Damaged { path: path.to_owned(), why: "it belongs to another program".into() };
    let check = || -> Result<Result<(), DiskError>, redb::Error> {
        let write = database.begin_write()?;
        let fresh = write.list_tables()?.next().is_none();
        let mut about = write.open_table(ABOUT)?;
        let found = about.get(ABOUT_FORMAT)?.map(|found| String::from_utf8_lossy(found.value()).into_owned());
        match found {
            None if fresh => drop(about.insert(ABOUT_FORMAT, FORMAT.as_bytes())?),
            None => return Ok(Err(foreign())),
            Some(found) if found != FORMAT => return Ok(Err(DiskError::Format { path: path.to_owned(), found })),
            Some(_) => {}
        }
        drop(about);
        write.open_table(OBJECTS)?;
        write.open_table(KEPT)?;
        write.commit()?;
        Ok(Ok(()))
    };
    check().map_err(|error| fault(path, error))?
}

/// The file, for its owner only: it holds secrets. One that a crash left before anything was in it is made anew.
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

/// Everything that is in the file.
fn load(
    path: &Path,
    database: &Database,
    retention: Retention,
) -> Result<(State, HashMap<String, Vec<u8>>), DiskError> {
    let damaged = |why: String| DiskError::Damaged { path: path.to_owned(), why };
    let read = || -> Result<_, redb::Error> {
        let read = database.begin_read()?;
        let about = read.open_table(ABOUT)?.get(ABOUT_REVISION)?;
        let revision = about.and_then(|bytes| bytes.value().try_into().ok()).map(u64::from_le_bytes);
        let mut state = match revision {
            Some(revision) => State::new(revision + LEAP, revision + LEAP, retention),
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
        let mut kept = HashMap::new();
        for entry in read.open_table(KEPT)?.iter()? {
            let (name, value) = entry?;
            kept.insert(name.value().to_owned(), value.value().to_vec());
        }
        Ok(Ok((state, kept)))
    };
    read().map_err(|error| fault(path, error))?.map_err(damaged)
}

impl State {
    /// Takes over an object that was there before.
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

/// Writes what comes until nobody is left who could change anything.
fn keep_up(path: &Path, database: &Database, changes: &mpsc::Receiver<Change>, progress: &watch::Sender<Progress>) {
    while let Ok(first) = changes.recv() {
        let batch: Vec<Change> = std::iter::once(first).chain(changes.try_iter()).take(BATCH).collect();
        match commit(database, &batch) {
            Ok(()) => progress.send_modify(|now| now.saved += batch.len() as u64),
            Err(error) => {
                let failure = fault(path, error);
                tracing::error!(%failure, "disk store failed; objects no longer persisted");
                return progress.send_modify(|now| now.failure = Some(failure));
            }
        }
    }
}

fn commit(database: &Database, batch: &[Change]) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    let (mut objects, mut kept) = (write.open_table(OBJECTS)?, write.open_table(KEPT)?);
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
            Change::Keep(name, value) => drop(kept.insert(name.as_str(), value.as_slice())?),
        }
    }
    drop((objects, kept));
    if let Some(revision) = last {
        write.open_table(ABOUT)?.insert(ABOUT_REVISION, revision.to_le_bytes().as_slice())?;
    }
    write.commit()?;
    Ok(())
}

/// What a failure of the database means for its user.
fn fault(path: &Path, error: redb::Error) -> DiskError {
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
