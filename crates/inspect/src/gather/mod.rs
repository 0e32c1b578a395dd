//! Support archive: objects, logs, a timeline, status, diagnosis and versions, redacted and below a size limit.

mod pack;
mod size;
mod timeline;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};

pub use size::Size;

use crate::snapshot::{self, Snapshot, named};
use crate::{Error, Paint, Result, doctor, status, versions};

/// Waits shorter than this are not reported, as in `capstan doctor`.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// A redacted snapshot for an archive, always with the operator's logs.
pub async fn read(client: &Client) -> Result<Snapshot> {
    let mut snapshot = Snapshot::read(client).await?;
    let mut pods: Vec<Pod> = snapshot.typed();
    let (label, value) = status::operator::NAME;
    pods.retain(|pod| pod.labels().get(label).is_some_and(|name| name == value));
    snapshot.logs.extend(snapshot::logs_of(client, &pods).await);
    Ok(snapshot.redacted())
}

/// Contents of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Number of objects.
    pub objects: usize,
    /// Number of logs.
    pub logs: usize,
    /// Its size.
    pub size: Size,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// What an archive leaves out, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Without {
    /// Only logs.
    Logs,
    /// Also the file of each object: the snapshot has them all.
    Files,
    /// Also events.
    Events,
}

/// Writes a redacted snapshot as an archive of at most this many bytes: the oldest logs are dropped first.
pub fn archive(mut snapshot: Snapshot, file: &Path, most: u64) -> Result<Archived> {
    let mut logs = pack::by_age(&snapshot);
    let (all, mut without) = (logs.len(), Without::Logs);
    loop {
        let notes = notes(all - logs.len(), all, without, most);
        let size = pack::pack(file, &entries(&snapshot, without, &notes)?)?;
        if size <= most {
            let objects = snapshot.objects.values().map(Vec::len).sum();
            return Ok(Archived { objects, logs: snapshot.logs.len(), size: Size(size), notes });
        }
        if let Some(fewer) = fewer(&snapshot, &logs, size - most) {
            for name in logs.drain(..fewer) {
                snapshot.logs.remove(&name);
            }
        } else if without < Without::Events {
            without = if without == Without::Logs { Without::Files } else { Without::Events };
            if without == Without::Events {
                snapshot.objects.remove("Event");
            }
        } else {
            let _ = std::fs::remove_file(file);
            return Err(Error::TooLarge { size: Size(size) });
        }
    }
}

/// How many of the oldest logs to drop from an archive that exceeds its limit. Each is in it twice.
fn fewer(snapshot: &Snapshot, logs: &[String], excess: u64) -> Option<usize> {
    let mut freed = 0;
    for (index, name) in logs.iter().enumerate() {
        freed += snapshot.logs.get(name).map_or(0, |log| 2 * pack::compressed(log));
        if freed >= excess {
            return Some(index + 1);
        }
    }
    (!logs.is_empty()).then_some(logs.len())
}

fn notes(dropped: usize, all: usize, without: Without, most: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if dropped > 0 {
        notes.push(format!("{dropped} of {all} logs are left out, the oldest ones: the limit is {}", Size(most)));
    }
    if without >= Without::Files {
        notes.push("there is no file for each object: all of them are in snapshot.json".into());
    }
    if without >= Without::Events {
        notes.push("events are left out".into());
    }
    notes
}

/// All files of the archive.
fn entries(snapshot: &Snapshot, without: Without, notes: &[String]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut entries = vec![
        ("README.txt".to_owned(), readme(snapshot, notes).into_bytes()),
        (pack::SNAPSHOT.to_owned(), snapshot.to_json()?),
        ("doctor.txt".to_owned(), doctor::diagnose(snapshot, GRACE_PERIOD, Vec::new()).text(Paint::Plain).into_bytes()),
        ("status.txt".to_owned(), status::plain(snapshot).into_bytes()),
        ("versions.txt".to_owned(), versions::plain(snapshot).into_bytes()),
        ("timeline.txt".to_owned(), timeline::of(snapshot).into_bytes()),
    ];
    if without < Without::Files {
        for (kind, objects) in &snapshot.objects {
            for object in objects {
                let (namespace, name) = named(object);
                let namespace = if namespace.is_empty() { "cluster" } else { namespace };
                let text = serde_saphyr::to_string(object).map_err(|error| Error::Yaml(error.to_string()))?;
                entries.push((format!("objects/{namespace}/{kind}/{}.yaml", safe(name)), text.into_bytes()));
            }
        }
    }
    let logs = snapshot.logs.iter().map(|(name, log)| {
        let name = name.replace("#previous", ".previous");
        (format!("logs/{name}.log"), log.clone().into_bytes())
    });
    entries.extend(logs);
    Ok(entries)
}

/// Replaces characters of object names that file systems do not allow.
fn safe(name: &str) -> String {
    name.replace([':', '/', '\\'], "_")
}

fn readme(snapshot: &Snapshot, notes: &[String]) -> String {
    let taken = snapshot.taken.map(|taken| taken.to_string()).unwrap_or_default();
    let mut text = format!(
        "What a cluster looked like at {taken}, by capstan {}. Kubernetes is {}.\n\n\
         doctor.txt    what is wrong, and how to mend it\n\
         status.txt    what works and what does not\n\
         versions.txt  which images, drivers and versions run\n\
         timeline.txt  events and changes of conditions, in their order\n\
         objects/      each object, by namespace (or cluster) and kind\n\
         logs/         the last lines of the operator and of containers that do not run as they should\n\
         snapshot.json all of that for programs: capstan status --snapshot FILE, and so on\n\n\
         Values of Secrets, of variables that look like secrets, and keys and tokens in logs are replaced by REDACTED.\n",
        env!("CARGO_PKG_VERSION"),
        snapshot.server_version,
    );
    for note in notes {
        text += &format!("Note: {note}.\n");
    }
    for (kind, why) in &snapshot.unread {
        text += &format!("Not read: {kind}: {why}\n");
    }
    text
}
