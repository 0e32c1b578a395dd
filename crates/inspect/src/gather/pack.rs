//! The archive: a gzipped tar with one folder in it.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

pub(super) use crate::snapshot::SNAPSHOT;
use crate::{Error, Result, Snapshot};

/// The top-level folder.
const FOLDER: &str = "capstan-gather";

/// Writes the archive. Returns its size in bytes.
pub(super) fn pack(file: &Path, entries: &[(String, Vec<u8>)]) -> Result<u64> {
    let cannot = |source: std::io::Error| Error::Write { file: file.to_owned(), source };
    let out = File::create(file).map_err(cannot)?;
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        let path = format!("{FOLDER}/{name}");
        archive.append_data(&mut header, &path, content.as_slice()).map_err(cannot)?;
    }
    let mut out = archive.into_inner().and_then(GzEncoder::finish).map_err(cannot)?;
    out.flush().map_err(cannot)?;
    Ok(out.metadata().map_err(cannot)?.len())
}

/// Compressed size of a text in bytes.
pub(super) fn compressed(text: &str) -> u64 {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    let written = out.write_all(text.as_bytes()).and_then(|()| out.finish());
    written.map_or(text.len(), |out| out.len()) as u64
}

/// Names of all logs, oldest first: terminated containers by their end, then running ones by their start.
pub(super) fn by_age(snapshot: &Snapshot) -> Vec<String> {
    let mut logs: Vec<(String, String)> =
        snapshot.logs.keys().map(|name| (time(snapshot, name).unwrap_or_default(), name.clone())).collect();
    logs.sort();
    logs.into_iter().map(|(_, name)| name).collect()
}

fn time(snapshot: &Snapshot, log: &str) -> Option<String> {
    let (name, previous) = log.strip_suffix("#previous").map_or((log, false), |name| (name, true));
    let mut parts = name.split('/');
    let (namespace, pod, container) = (parts.next()?, parts.next()?, parts.next()?);
    let status = &snapshot.find("", "Pod", namespace, pod)?["status"];
    let fields = ["initContainerStatuses", "containerStatuses"].into_iter();
    let mut all = fields.flat_map(|field| status[field].as_array().into_iter().flatten());
    let status = all.find(|one| one["name"] == container)?;
    let ended = |state: &Value| state["terminated"]["finishedAt"].as_str().map(str::to_owned);
    if previous {
        return ended(&status["lastState"]);
    }
    ended(&status["state"]).or_else(|| status["state"]["running"]["startedAt"].as_str().map(str::to_owned))
}
