//! API discovery: served groups, versions and resources, unaggregated and aggregated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::api::Inner;
use crate::registry::{Resource, Snapshot, Subresource};

/// Groups by priority, as in kube-apiserver; others follow by name.
const ORDER: &[&str] = &[
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "storagemigration.k8s.io",
];

/// Discovery documents, cached until the registry changes.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    generation: u64,
    documents: BTreeMap<(String, &'static str), (Bytes, String)>,
}

/// A version of a group, with its resources.
struct Version {
    version: Arc<str>,
    resources: Vec<Arc<Resource>>,
}

impl Discovery {
    /// The unaggregated document at `/api`, `/apis`, `/api/v1`, `/apis/GROUP` or `/apis/GROUP/VERSION`.
    pub(super) fn plain(&self, inner: &Inner, parts: &[&str], host: &str) -> Option<Value> {
        let groups = groups(&inner.server.registry().snapshot());
        let find = |name: &str| groups.iter().find(|(group, _)| group == name);
        match *parts {
            ["api"] => Some(json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
            })),
            ["apis"] => {
                let groups = groups.iter().filter(|(name, _)| !name.is_empty());
                let groups: Vec<Value> = groups.map(|(name, versions)| group(name, versions)).collect();
                Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
            }
            ["apis", name] => {
                let (name, versions) = find(name)?;
                let mut document = group(name, versions);
                document["kind"] = "APIGroup".into();
                document["apiVersion"] = "v1".into();
                Some(document)
            }
            ["api", version] => resource_list("", find("")?.1.iter().find(|v| &*v.version == version)?),
            ["apis", name, version] => resource_list(name, find(name)?.1.iter().find(|v| &*v.version == version)?),
            _ => None,
        }
    }

    /// The aggregated document at `/api` or `/apis`, with its ETag.
    pub(super) fn aggregated(&self, inner: &Inner, root: &str, api: &'static str) -> (Bytes, String) {
        let snapshot = inner.server.registry().snapshot();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.generation != snapshot.generation {
            *cache = Cache { generation: snapshot.generation, documents: BTreeMap::new() };
        }
        let make = || {
            let document = aggregate(&snapshot, root == "api", api);
            let body = Bytes::from(document.to_string());
            let etag = format!("\"{}\"", hex(digest(&SHA256, &body).as_ref()));
            (body, etag)
        };
        cache.documents.entry((root.to_owned(), api)).or_insert_with(make).clone()
    }

    /// All served paths, as listed at `/`.
    pub(super) fn paths(&self, inner: &Inner) -> Vec<String> {
        let mut paths: Vec<String> = [
            "/.well-known/openid-configuration",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/",
            "/healthz",
            "/healthz/etcd",
            "/healthz/ping",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/",
            "/openid/v1/jwks",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned)
        .to_vec();
        for (name, versions) in groups(&inner.server.registry().snapshot()) {
            if name.is_empty() {
                continue;
            }
            paths.push(format!("/apis/{name}"));
            paths.extend(versions.iter().map(|version| format!("/apis/{name}/{}", version.version)));
        }
        paths.sort();
        paths
    }
}

/// All groups by priority, each with its versions, preferred version first.
fn groups(snapshot: &Snapshot) -> Vec<(String, Vec<Version>)> {
    let mut groups: Vec<(String, Vec<Version>)> = Vec::new();
    for resource in snapshot.iter() {
        let at = groups.iter().position(|(name, _)| **name == *resource.group).unwrap_or_else(|| {
            groups.push((resource.group.to_string(), Vec::new()));
            groups.len() - 1
        });
        let versions = &mut groups[at].1;
        match versions.iter_mut().find(|version| version.version == resource.version) {
            Some(version) => version.resources.push(resource.clone()),
            None => versions.push(Version { version: resource.version.clone(), resources: vec![resource.clone()] }),
        }
    }
    let rank = |name: &str| ORDER.iter().position(|group| *group == name).unwrap_or(ORDER.len());
    groups.sort_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
    for (_, versions) in &mut groups {
        versions
            .sort_by(|a, b| priority(&b.version).cmp(&priority(&a.version)).then_with(|| a.version.cmp(&b.version)));
    }
    groups
}

/// Priority of a version: stable before beta before alpha before anything else, then by number.
fn priority(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u32 = rest[..digits].parse().ok()?;
        let rest = &rest[digits..];
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        let (level, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (_, Some(minor)) => (1, minor),
            _ => return None,
        };
        Some((level, major, minor.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

fn group(name: &str, versions: &[Version]) -> Value {
    let version = |version: &Version| json!({"groupVersion": format!("{name}/{}", version.version), "version": &*version.version});
    let all: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "versions": all, "preferredVersion": all.first().cloned().unwrap_or_default()})
}

fn resource_list(group: &str, version: &Version) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in &version.resources {
        let mut entry = json!({
            "name": &*resource.plural,
            "singularName": &*resource.singular,
            "namespaced": resource.namespaced,
            "kind": &*resource.kind,
            "verbs": resource.verbs,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        if resource.serves("watch") {
            entry["storageVersionHash"] = storage_hash(resource).into();
        }
        resources.push(entry);
        for sub in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind.unwrap_or(&resource.kind),
                "verbs": sub.verbs,
            });
            if let Some((group, version)) = sub.group_version {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            resources.push(entry);
        }
    }
    let group_version = crate::registry::api_version(group, &version.version);
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    // The core group's list has no `apiVersion`, as in kube-apiserver.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

/// Subresources by name, but the status of a custom resource comes first.
fn subresources(resource: &Resource) -> Vec<&Subresource> {
    let mut all: Vec<&Subresource> = resource.subresources.iter().collect();
    if resource.custom().is_some() {
        all.sort_by_key(|sub| sub.name != "status");
    }
    all
}

/// The storage version hash, which storage migrators compare.
fn storage_hash(resource: &Resource) -> String {
    // Some kinds have a storage version that is not served.
    let version = match &*resource.plural {
        "customresourcedefinitions" | "clustertrustbundles" | "podcertificaterequests" => "v1beta1",
        "devicetaintrules" => "v1beta2",
        _ => &*resource.storage_version,
    };
    let text = format!("{}/{version}/{}", resource.storage_group, resource.kind);
    BASE64_STANDARD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..8])
}

fn aggregate(snapshot: &Snapshot, core: bool, api: &str) -> Value {
    let items: Vec<Value> = groups(snapshot)
        .iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = version.resources.iter().map(|r| aggregated_resource(r)).collect();
                    json!({"version": &*version.version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{api}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(resource: &Resource) -> Value {
    // Built-in resources inherit group and version from their group list; custom ones state them.
    let (group, version) = match resource.custom() {
        Some(_) => (&*resource.group, &*resource.version),
        None => ("", ""),
    };
    let mut entry = json!({
        "resource": &*resource.plural,
        "responseKind": {"group": group, "version": version, "kind": &*resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        let sub = |sub: &Subresource| {
            let (group, version) = sub.group_version.unwrap_or((group, version));
            json!({
                "subresource": sub.name,
                "responseKind": {"group": group, "version": version, "kind": sub.kind.unwrap_or(&resource.kind)},
                "verbs": sub.verbs,
            })
        };
        entry["subresources"] = subresources(resource).into_iter().map(sub).collect();
    }
    entry
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn versions_rank_by_stability_then_number() {
        let mut versions = vec!["v1alpha1", "foo", "v2", "v1beta2", "v10", "v1beta10", "v1"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }

    #[test]
    fn the_storage_hash_is_that_of_a_real_server() {
        let registry = Registry::builtin();
        let pods = registry.lookup("", "v1", "pods").unwrap();
        assert_eq!(storage_hash(&pods), "xPOwRZ+Yhw8=");
    }

    #[test]
    fn the_core_group_comes_first_and_custom_ones_last() {
        let groups = groups(&Registry::builtin().snapshot());
        let names: Vec<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(&names[..3], ["", "apiregistration.k8s.io", "apps"]);
        let autoscaling = &groups.iter().find(|(name, _)| name == "autoscaling").unwrap().1;
        assert_eq!(&*autoscaling[0].version, "v2");
    }
}
