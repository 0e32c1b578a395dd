//! One look at a whole cluster: its objects as the API server tells them, and the last words of containers that fare ill.
//!
//! `plan`, `status`, `doctor`, `versions` and `gather` all work on this and on nothing else, so that whatever they do on a
//! cluster can be done again from a file, elsewhere and later.

mod file;
mod kinds;
mod logs;
mod read;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use file::SNAPSHOT;
pub(crate) use logs::all_of as logs_of;
pub(crate) use read::{look, objects, read};
pub(crate) use watch::Watch;

/// What a cluster looked like.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Snapshot {
    /// What tells a file with a snapshot from others.
    #[serde(serialize_with = "file::own_format")]
    pub(crate) format: String,
    /// When it was taken.
    pub(crate) taken: Option<Timestamp>,
    /// What the API server says of its version, such as `v1.37.1`.
    pub(crate) server_version: String,
    /// Objects by kind: `NIMService.apps.nvidia.com`, or `Pod` in the core group.
    pub(crate) objects: BTreeMap<String, Vec<Value>>,
    /// The ends of logs, by `namespace/pod/container`; with `#previous` those of the container that ran before.
    pub(crate) logs: BTreeMap<String, String>,
    /// Kinds that could not be read, and why: what is said of them later is said with less confidence.
    pub(crate) unread: BTreeMap<String, String>,
    /// Whether values of Secrets and the like were replaced.
    pub(crate) redacted: bool,
}

impl Snapshot {
    /// All objects of a kind: `of("apps.nvidia.com", "NIMService")`.
    pub(crate) fn of(&self, group: &str, kind: &str) -> &[Value] {
        self.objects.get(&name_of(group, kind)).map_or(&[], Vec::as_slice)
    }

    /// All objects of a kind, decoded. Those that do not decode are left out.
    pub(crate) fn typed<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        let all = self.of(&K::group(&()), &K::kind(&()));
        all.iter().filter_map(|object| K::deserialize(object).ok()).collect()
    }

    /// One object; the namespace of a cluster-wide one is empty.
    pub(crate) fn find(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.of(group, kind).iter().find(|object| named(object) == (namespace, name))
    }

    /// The end of a container's log.
    pub(crate) fn log(&self, namespace: &str, pod: &str, container: &str) -> Option<&str> {
        self.logs.get(&format!("{namespace}/{pod}/{container}")).map(String::as_str)
    }

    /// The end of the log of the container that ran before this one.
    pub(crate) fn previous_log(&self, namespace: &str, pod: &str, container: &str) -> Option<&str> {
        self.logs.get(&format!("{namespace}/{pod}/{container}#previous")).map(String::as_str)
    }

    /// Adds an object under its kind.
    #[cfg(test)]
    pub(crate) fn add(&mut self, object: Value) {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let key = name_of(group, object["kind"].as_str().unwrap_or_default());
        self.objects.entry(key).or_default().push(object);
    }
}

/// Where commands get their snapshot from.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Source {
    /// The cluster; the current one when absent
    #[arg(long, value_name = "FILE", conflicts_with = "snapshot")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A snapshot or an archive of `capstan gather` instead of a cluster
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
}

impl Source {
    /// The snapshot that was asked for.
    pub(crate) async fn get(&self) -> Result<Snapshot> {
        match &self.snapshot {
            Some(file) => Snapshot::load(file),
            None => read(&self.client().await?).await,
        }
    }

    /// The same with these kinds alone, where a cluster is asked.
    pub(crate) async fn look(&self, kinds: &[&str]) -> Result<Snapshot> {
        match &self.snapshot {
            Some(file) => Snapshot::load(file),
            None => look(&self.client().await?, kinds).await,
        }
    }

    /// The cluster that was asked for.
    pub(crate) async fn client(&self) -> Result<kube::Client> {
        crate::connect(self.kubeconfig.as_deref()).await
    }
}

/// How a kind is named here.
pub(crate) fn name_of(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// The resource of a kind that is named as by [`name_of`]: `daemonsets` of `DaemonSet.apps`.
pub(crate) fn plural(name: &str) -> &'static str {
    static PLURALS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        kinds::all().into_iter().map(|kind| (name_of(&kind.group, &kind.kind), kind.plural)).collect()
    });
    PLURALS.get(name).map_or("", String::as_str)
}

/// Namespace and name of an object.
pub(crate) fn named(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}
