//! Tests of persistence: a reopened store equals the closed one, and a copy of the file between two batches equals the
//! state at that time.

use futures::FutureExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::store::{GcEvent, Selection, Start, TypeMeta};

fn table(plural: &str) -> TableKey {
    TableKey::new("", plural)
}

fn object(name: &str, round: usize, owner: Option<&str>) -> Object {
    let mut value = json!({
        "metadata": {"namespace": "a", "name": name, "uid": format!("uid-{name}-{round}"), "labels": {"round": round.to_string()}},
        "spec": {"nodeName": format!("node-{round}")}, "data": "x".repeat(round * 7),
    });
    if let Some(owner) = owner {
        value["metadata"]["ownerReferences"] = json!([{"uid": owner}]);
    }
    let types = TypeMeta { api_version: "v1".into(), kind: "Pod".into() };
    Object::new(Arc::new(types), &value, &FieldPaths::builtin("", "pods"))
}

/// Everything in a store, in order.
fn contents(store: &Store) -> Vec<(TableKey, Value)> {
    let mut tables = store.tables();
    tables.sort();
    let all = tables.into_iter().flat_map(|table| {
        let objects = store.select(&table, &Selection::default());
        objects.into_iter().map(move |object| (table.clone(), object.value())).collect::<Vec<_>>()
    });
    all.collect()
}

fn reopen(path: &Path) -> Store {
    Store::open(path, Retention::default()).unwrap()
}

async fn saved(store: &Store) {
    store.saved().await.unwrap();
}

/// One change: table, name, and whether the object is deleted.
type Step = (bool, u8, bool);

fn take(store: &Store, (pods, name, gone): Step, round: usize) {
    let (table, name) = (table(if pods { "pods" } else { "secrets" }), format!("n{name}"));
    match (store.get(&table, "a", &name), gone) {
        (Some(there), true) => drop(store.delete(&table, "a", &name, there.revision).unwrap()),
        (Some(there), false) => drop(store.update(&table, object(&name, round, None), there.revision).unwrap()),
        (None, true) => {}
        (None, false) => drop(store.create(&table, object(&name, round, Some("owner"))).unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_file_holds_what_memory_held_at_each_batch(
        batches in prop::collection::vec(prop::collection::vec(any::<Step>().prop_map(|(t, n, g)| (t, n % 6, g)), 0..8), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store");
            let store = reopen(&path);
            let mut copies = Vec::new();
            for (round, batch) in batches.iter().enumerate() {
                for step in batch {
                    take(&store, *step, round);
                }
                saved(&store).await;
                let copy = dir.path().join(format!("copy-{round}"));
                std::fs::copy(&path, &copy).unwrap();
                copies.push((copy, contents(&store), store.revision()));
            }
            let (held, revision) = (contents(&store), store.revision());
            store.close();
            let again = reopen(&path);
            assert_eq!(contents(&again), held);
            assert!(revision == 1 || again.revision() > revision);
            for (copy, held, revision) in copies {
                let then = reopen(&copy);
                assert_eq!(contents(&then), held);
                assert!(revision == 1 || then.revision() > revision, "{} after {revision}", then.revision());
            }
        });
    }
}

#[tokio::test]
async fn what_was_seen_before_is_expired_and_writes_go_on_from_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = reopen(&path);
    let first = store.create(&table("pods"), object("p", 1, None)).unwrap();
    store.close();
    let store = reopen(&path);
    let late = store.watch(&table("pods"), Selection::default(), Start::After(first.revision)).unwrap_err();
    assert_eq!((late.code, late.reason), (410, "Expired"));
    assert!(store.watch(&table("pods"), Selection::default(), Start::After(store.revision())).is_ok());
    let second = store.update(&table("pods"), object("p", 2, None), first.revision).unwrap();
    assert!(second.revision > first.revision + 1);
}

#[tokio::test]
async fn indexes_owners_and_news_for_the_garbage_collector_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = reopen(&path);
    store.create(&table("pods"), object("p", 1, Some("owner"))).unwrap();
    store.close();
    let store = reopen(&path);
    assert_eq!(store.dependents("owner").len(), 1);
    let on_node = crate::store::FieldSelector::parse("spec.nodeName=node-1").unwrap();
    assert_eq!(store.select(&table("pods"), &Selection { fields: on_node, ..Selection::default() }).len(), 1);
    assert_eq!(store.gc_events().try_next(), Some(GcEvent::Enqueue { table: table("pods"), key: "a/p".into() }));
}

#[tokio::test]
async fn what_is_kept_beside_the_objects_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = reopen(&path);
    assert_eq!(store.blob("key"), None);
    store.put_blob("key", b"one");
    store.put_blob("key", b"two");
    saved(&store).await;
    store.close();
    saved(&store).await;
    assert_eq!(reopen(&path).blob("key").as_deref(), Some(&b"two"[..]));
    store.put_blob("key", b"three");
    assert!(matches!(store.saved().await, Err(DiskError::Closed { .. })));
    let memory = Store::default();
    memory.put_blob("key", b"one");
    assert_eq!(memory.blob("key"), None);
}

#[test]
fn whoever_changes_more_than_the_disk_follows_is_held_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = reopen(&path);
    let disk = store.disk.clone().unwrap();
    let last = 4 * QUEUE_CAPACITY;
    for number in 0..=last {
        store.put_blob("key", &number.to_le_bytes());
        let waiting = disk.queued.load(Ordering::Acquire) - disk.progress.borrow().saved;
        assert!(waiting <= (QUEUE_CAPACITY + BATCH) as u64, "{waiting} changes wait");
    }
    store.close();
    assert_eq!(reopen(&path).blob("key").as_deref(), Some(&last.to_le_bytes()[..]));
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let refuse = |path: &Path| Store::open(path, Retention::default()).unwrap_err();
    let store = reopen(&path);
    assert!(matches!(refuse(&path), DiskError::InUse { .. }));
    store.close();
    let database = Database::open(&path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(FILE_METADATA).unwrap().insert(FORMAT_KEY, &b"99"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let text = refuse(&path).to_string();
    assert_eq!(text, format!("{} has format 99, and this program reads format 1", path.display()));
    std::fs::write(&path, "a text that somebody wrote").unwrap();
    assert!(matches!(refuse(&path), DiskError::Damaged { .. }));
    assert!(matches!(refuse(&dir.path().join("no/such/folder")), DiskError::Io { .. }));
}

#[test]
fn a_file_that_a_crash_left_empty_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    std::fs::write(&path, [0; 8192]).unwrap();
    assert_eq!(reopen(&path).revision(), 1);
}

/// A disk that becomes full.
#[derive(Debug)]
struct Full(redb::backends::InMemoryBackend, Arc<std::sync::atomic::AtomicBool>);

impl redb::StorageBackend for Full {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        if self.1.load(Ordering::Acquire) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.0.write(offset, data)
    }
}

#[tokio::test]
async fn a_full_disk_ends_it_and_what_was_saved_stays() {
    let full = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let backend = Full(redb::backends::InMemoryBackend::new(), full.clone());
    let database = builder().create_with_backend(backend).unwrap();
    let store = Store::on(Path::new("disk"), database, Retention::default()).unwrap();
    let first = store.create(&table("pods"), object("p", 1, None)).unwrap();
    saved(&store).await;
    assert!(store.wait_for_failure().now_or_never().is_none());
    full.store(true, Ordering::Release);
    store.update(&table("pods"), object("p", 2, None), first.revision).unwrap();
    let failure = store.saved().await.unwrap_err();
    assert!(
        matches!(&failure, DiskError::Io { error, .. } if error.kind() == io::ErrorKind::StorageFull),
        "{failure:?}"
    );
    assert_eq!(store.wait_for_failure().await.to_string(), failure.to_string());
    // Nothing hangs from now on, and nothing is reported as saved.
    store.create(&table("pods"), object("q", 3, None)).unwrap();
    assert!(store.saved().await.is_err());
}
