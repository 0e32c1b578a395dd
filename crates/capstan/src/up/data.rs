//! Persistent clusters: their store, errors of it, and what to wait for after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use capstan_apiserver::store::{DiskError, Object, Retention, Selection, Store, TableKey};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};

use super::progress::View;

/// Store file in the directory.
const FILE: &str = "cluster.redb";
/// Key that marks the initial manifests as applied: what users delete later stays deleted.
const INITIALIZED: &str = "furnished";

/// Directory of a persistent cluster.
pub(super) struct Data {
    dir: PathBuf,
    pub(super) store: Store,
    /// Pods that were Ready when the cluster stopped: by namespace and name.
    ready: BTreeMap<(String, String), Before>,
}

/// State of a pod before the restart.
struct Before {
    uid: String,
    restarts: i32,
}

impl Data {
    /// Opens the directory, and creates it if missing.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let made = std::fs::create_dir_all(dir);
        made.map_err(|error| {
            anyhow!("cannot make the directory {}: {error}: choose another with --data", dir.display())
        })?;
        let store = Store::open(&dir.join(FILE), Retention::default()).map_err(|error| with_advice(&error))?;
        let pods = store.select(&TableKey::new("", "pods"), &Selection::default());
        let ready = pods.iter().filter_map(|object| before(object)).collect();
        Ok(Self { dir: dir.to_owned(), store, ready })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Default path of the kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Number of existing nodes: up to the highest index, as a deleted node joins again.
    pub(super) fn nodes(&self) -> Option<u16> {
        let nodes = self.store.select(&TableKey::new("", "nodes"), &Selection::default());
        let number = |name: &str| name.strip_prefix("gpu-")?.parse::<u16>().ok();
        nodes.iter().filter_map(|node| number(node.name())).map(|number| number.saturating_add(1)).max()
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.store.blob(INITIALIZED).is_some()
    }

    pub(super) fn mark_initialized(&self) {
        self.store.put_blob(INITIALIZED, b"");
    }

    /// Waits until the pods that were Ready are Ready again. Their stored status is stale, so each must have restarted
    /// once more.
    pub(super) async fn pods_ready(&self, client: &Client, view: View) -> Result<()> {
        let all = self.ready.len();
        if all == 0 {
            return Ok(());
        }
        let mut stage = view.stage("pods");
        let mut waiting: BTreeMap<_, _> = self.ready.iter().collect();
        let mut existing = BTreeSet::new();
        let api: Api<Pod> = Api::all(client.clone());
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        while !waiting.is_empty() {
            let key = |pod: &Pod| (pod.namespace().unwrap_or_default(), pod.name_any());
            match events.try_next().await.context("cannot watch the pods")? {
                Some(Event::Init) => existing.clear(),
                Some(Event::InitApply(pod)) | Some(Event::Apply(pod)) => {
                    if waiting.get(&key(&pod)).is_some_and(|before| has_recovered(&pod, before)) {
                        waiting.remove(&key(&pod));
                    }
                    existing.insert(key(&pod));
                }
                Some(Event::InitDone) => waiting.retain(|key, _| existing.contains(*key)),
                Some(Event::Delete(pod)) => drop(waiting.remove(&key(&pod))),
                None => bail!("the watch of the pods ended"),
            }
            stage.counted(all - waiting.len(), all, "Ready again");
        }
        stage.done(&format!("{all} Ready again"));
        Ok(())
    }
}

/// An error with advice.
pub(super) fn with_advice(error: &DiskError) -> Error {
    let fix = match error {
        DiskError::InUse { .. } => "stop the other `capstan up`, or choose another directory with --data",
        DiskError::Format { .. } => "use the version of capstan that wrote it, or another directory with --data",
        DiskError::Damaged { .. } => "move it away to begin anew, or choose another directory with --data",
        DiskError::Io { error, .. } if is_full(error.kind()) => "make room, and start again: what was answered is kept",
        DiskError::Io { .. } | DiskError::Closed { .. } => "choose a directory that you may write to with --data",
    };
    anyhow!("{error}: {fix}")
}

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Waits until the store fails; a cluster in memory has none.
pub(super) async fn store_failure(data: Option<&Data>) -> Error {
    match data {
        Some(data) => with_advice(&data.store.wait_for_failure().await),
        None => std::future::pending().await,
    }
}

fn before(object: &Object) -> Option<((String, String), Before)> {
    let pod: Pod = object.parse_unmanaged().ok()?;
    let status = pod.status.as_ref().filter(|status| is_ready(status))?;
    let before = Before { uid: object.uid.to_string(), restarts: restarts(status) };
    Some(((object.namespace().to_owned(), object.name().to_owned()), before))
}

/// Whether a pod restarted and is Ready, or was replaced or terminated.
fn has_recovered(pod: &Pod, before: &Before) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let other = pod.uid().is_none_or(|uid| uid != before.uid);
    over || other || (is_ready(&status) && restarts(&status) > before.restarts)
}

fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

fn restarts(status: &PodStatus) -> i32 {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten().map(|one| one.restart_count).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_failure_names_the_file_and_what_to_do() {
        let path = PathBuf::from("d/cluster.redb");
        let io = |kind: ErrorKind| DiskError::Io { path: path.clone(), error: Arc::new(kind.into()) };
        let cases = [
            (DiskError::InUse { path: path.clone() }, "stop the other `capstan up`"),
            (DiskError::Format { path: path.clone(), found: "2".into() }, "use the version of capstan that wrote it"),
            (DiskError::Damaged { path: path.clone(), why: "x".into() }, "move it away"),
            (io(ErrorKind::StorageFull), "make room"),
            (io(ErrorKind::PermissionDenied), "choose a directory that you may write to"),
        ];
        for (error, fix) in cases {
            let text = with_advice(&error).to_string();
            assert!(text.contains("d/cluster.redb") && text.contains(fix), "{text}");
        }
    }
}
