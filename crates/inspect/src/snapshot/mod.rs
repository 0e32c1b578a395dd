//! A snapshot of a cluster: its objects as the API server returns them, and log tails of unhealthy containers.
//!
//! Plans, status, diagnosis, versions and archives read only this, so that all of them can be repeated from a file,
//! elsewhere and later.

mod file;
mod kinds;
mod logs;
mod read;
mod watch;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use file::SNAPSHOT;
pub use logs::all_of as logs_of;
pub use watch::Watch;

/// The state of a cluster at one time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    /// Format version of the file.
    #[serde(serialize_with = "file::own_format")]
    pub format: String,
    /// When it was taken.
    pub taken: Option<Timestamp>,
    /// Version of the API server, such as `v1.37.1`.
    pub server_version: String,
    /// Objects by kind: `NIMService.apps.nvidia.com`, or `Pod` in the core group.
    pub objects: BTreeMap<String, Vec<Value>>,
    /// Log tails, by `namespace/pod/container`; with `#previous` those of the previous container.
    pub logs: BTreeMap<String, String>,
    /// Kinds that could not be read, and why: conclusions about them are uncertain.
    pub unread: BTreeMap<String, String>,
    /// Whether Secrets and the like were redacted.
    pub redacted: bool,
}

impl Snapshot {
    /// All objects of a kind: `of("apps.nvidia.com", "NIMService")`.
    pub fn of(&self, group: &str, kind: &str) -> &[Value] {
        self.objects.get(&name_of(group, kind)).map_or(&[], Vec::as_slice)
    }

    /// All objects of a kind, decoded. Undecodable ones are skipped.
    pub fn typed<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        let all = self.of(&K::group(&()), &K::kind(&()));
        all.iter().filter_map(|object| K::deserialize(object).ok()).collect()
    }

    /// One object; the namespace is empty if cluster-scoped.
    pub fn find(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.of(group, kind).iter().find(|object| named(object) == (namespace, name))
    }

    /// The log tail of a container.
    pub fn log(&self, namespace: &str, pod: &str, container: &str) -> Option<&str> {
        self.logs.get(&format!("{namespace}/{pod}/{container}")).map(String::as_str)
    }

    /// The log tail of the previous container.
    pub fn previous_log(&self, namespace: &str, pod: &str, container: &str) -> Option<&str> {
        self.logs.get(&format!("{namespace}/{pod}/{container}#previous")).map(String::as_str)
    }

    /// Adds an object under its kind.
    pub fn add(&mut self, object: Value) {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let key = name_of(group, object["kind"].as_str().unwrap_or_default());
        self.objects.entry(key).or_default().push(object);
    }
}

/// Key of a kind in a snapshot.
pub fn name_of(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// The resource of a kind key by [`name_of`]: `daemonsets` for `DaemonSet.apps`.
pub fn plural(name: &str) -> &'static str {
    static PLURALS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        kinds::all().into_iter().map(|kind| (name_of(&kind.group, &kind.kind), kind.plural)).collect()
    });
    PLURALS.get(name).map_or("", String::as_str)
}

/// Namespace and name of an object.
pub fn named(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}
