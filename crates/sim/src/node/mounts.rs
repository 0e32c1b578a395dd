//! Dependencies of containers: volumes, and variables from ConfigMaps and Secrets.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use capstan_apiserver::ops::Server;
use capstan_apiserver::store::TableKey;
use k8s_openapi::api::core::v1::{Container, EnvVarSource, KeyToPath, PodSpec, Volume, VolumeProjection};

use super::files::{Directory, Mount, Source, data};
use crate::Pod;
use crate::caches::Caches;

fn config_maps() -> TableKey {
    TableKey::new("", "configmaps")
}

fn secrets() -> TableKey {
    TableKey::new("", "secrets")
}

/// The message of the `FailedMount` event for a missing volume, if any.
pub(super) fn missing(server: &Server, caches: &Caches, pod: &Pod) -> Option<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    volumes.into_iter().flatten().find_map(|volume| {
        let name = &volume.name;
        if let Some(claim) = &volume.persistent_volume_claim {
            let claim = &claim.claim_name;
            let found = caches.volume_claims.find(namespace, claim);
            let bound = found.is_some_and(|claim| crate::scheduler::volumes::bound_to(&claim).is_some());
            return (!bound).then(|| {
                format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{name}], unattached volumes=[], failed to \
                     process volumes=[{name}]: error processing PVC {namespace}/{claim}: PVC is not bound"
                )
            });
        }
        let absent =
            needs(volume).into_iter().find(|(table, object)| server.store().get(table, namespace, object).is_none());
        absent.map(|(table, object)| {
            let kind = if &*table.plural == "secrets" { "secret" } else { "configmap" };
            format!("MountVolume.SetUp failed for volume {name:?} : {kind} {object:?} not found")
        })
    })
}

/// The ConfigMaps and Secrets that a volume requires, except the root CA ConfigMap, which is published asynchronously.
fn needs(volume: &Volume) -> Vec<(TableKey, String)> {
    let mut needs = Vec::new();
    if let Some(map) = volume.config_map.as_ref().filter(|map| map.optional != Some(true)) {
        needs.push((config_maps(), map.name.clone()));
    }
    if let Some(secret) = volume.secret.as_ref().filter(|secret| secret.optional != Some(true)) {
        needs.push((secrets(), secret.secret_name.clone().unwrap_or_default()));
    }
    for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
        if let Some(map) = source.config_map.as_ref().filter(|map| map.optional != Some(true)) {
            needs.push((config_maps(), map.name.clone()));
        }
        if let Some(secret) = source.secret.as_ref().filter(|secret| secret.optional != Some(true)) {
            needs.push((secrets(), secret.name.clone()));
        }
    }
    needs.retain(|(_, name)| name != "kube-root-ca.crt");
    needs
}

/// Configuration error in the environment of a container.
pub(super) fn misconfigured(server: &Server, pod: &Pod, container: &Container) -> Option<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let absent = |table: TableKey, name: &str| server.store().get(&table, namespace, name).is_none();
    for source in container.env_from.iter().flatten() {
        if let Some(map) = source.config_map_ref.as_ref().filter(|map| map.optional != Some(true))
            && absent(config_maps(), &map.name)
        {
            return Some(format!("configmap {:?} not found", map.name));
        }
        if let Some(secret) = source.secret_ref.as_ref().filter(|secret| secret.optional != Some(true))
            && absent(secrets(), &secret.name)
        {
            return Some(format!("secret {:?} not found", secret.name));
        }
    }
    container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()).find_map(|source| {
        let (table, kind, title, name, key) = match source {
            EnvVarSource { config_map_key_ref: Some(key), .. } if key.optional != Some(true) => {
                (config_maps(), "configmap", "ConfigMap", &key.name, &key.key)
            }
            EnvVarSource { secret_key_ref: Some(key), .. } if key.optional != Some(true) => {
                (secrets(), "secret", "Secret", &key.name, &key.key)
            }
            _ => return None,
        };
        match data(server, &table, namespace, name) {
            None => Some(format!("{kind} {name:?} not found")),
            Some(data) if data.contains_key(key) => None,
            Some(_) => Some(format!("couldn't find key {key} in {title} {namespace}/{name}")),
        }
    })
}

/// The environment of a container.
pub(super) fn environment(
    server: &Server,
    pod: &Pod,
    container: &Container,
    host_ip: &str,
    pod_ip: &str,
) -> BTreeMap<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut env: BTreeMap<String, String> = [
        ("HOSTNAME", pod.metadata.name.as_deref().unwrap_or_default()),
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let map = source.config_map_ref.as_ref().and_then(|map| data(server, &config_maps(), namespace, &map.name));
        let secret = source.secret_ref.as_ref().and_then(|secret| data(server, &secrets(), namespace, &secret.name));
        let all = map.into_iter().chain(secret).flatten();
        env.extend(all.map(|(key, value)| (format!("{prefix}{key}"), text(&value))));
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), &env)),
            Some(EnvVarSource { config_map_key_ref: Some(key), .. }) => {
                data(server, &config_maps(), namespace, &key.name).and_then(|data| data.get(&key.key).map(text))
            }
            Some(EnvVarSource { secret_key_ref: Some(key), .. }) => {
                data(server, &secrets(), namespace, &key.name).and_then(|data| data.get(&key.key).map(text))
            }
            Some(EnvVarSource { field_ref: Some(field), .. }) => field_of(pod, &field.field_path, host_ip, pod_ip),
            Some(EnvVarSource { resource_field_ref: Some(field), .. }) => resource_of(container, &field.resource),
            Some(_) => None,
        };
        env.extend(value.map(|value| (variable.name.clone(), value)));
    }
    env
}

/// Expands `$(NAME)`; `$$` is a dollar sign, and unknown names are left as they are.
pub(super) fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')'));
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = name.filter(|(name, _)| env.contains_key(*name)) {
            out.push_str(&env[name]);
            rest = after;
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out + rest
}

fn field_of(pod: &Pod, path: &str, host_ip: &str, pod_ip: &str) -> Option<String> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    let entry = |map: &Option<BTreeMap<String, String>>, prefix: &str| {
        let key = path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']")?;
        map.as_ref()?.get(key).cloned()
    };
    match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.hostIP" | "status.hostIPs" => Some(host_ip.to_owned()),
        "status.podIP" | "status.podIPs" => Some(pod_ip.to_owned()),
        _ => Some(
            entry(&meta.labels, "metadata.labels")
                .or_else(|| entry(&meta.annotations, "metadata.annotations"))
                .unwrap_or_default(),
        ),
    }
}

fn resource_of(container: &Container, path: &str) -> Option<String> {
    let (list, name) = path.split_once('.')?;
    let resources = container.resources.as_ref()?;
    let list = if list == "limits" { &resources.limits } else { &resources.requests };
    let quantity = list.as_ref()?.get(name)?;
    // Whole CPUs, rounded up; bytes.
    Some(capstan_semantics::quantity::units(quantity).to_string())
}

/// Directories of a pod's volumes.
pub(super) struct Directories<'a> {
    /// The node's file system.
    pub(super) host: &'a Directory,
    /// The pod's own volumes, by name.
    pub(super) own: &'a mut HashMap<String, Directory>,
    /// Volumes of claims.
    pub(super) claim: &'a dyn Fn(&str) -> Directory,
}

/// Mounts of a container.
pub(super) fn mounts(pod: &Pod, container: &Container, directories: &mut Directories<'_>) -> Vec<Mount> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mounts = container.volume_mounts.iter().flatten().filter_map(|mount| {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
        let source = source(pod, spec, volume, directories);
        let writable = matches!(source, Source::Shared(..)) && mount.read_only != Some(true);
        Some(Mount {
            path: mount.mount_path.trim_matches('/').to_owned(),
            sub_path: mount.sub_path.clone().unwrap_or_default(),
            source,
            read_only: !writable,
        })
    });
    mounts.collect()
}

fn source(pod: &Pod, spec: &PodSpec, volume: &Volume, directories: &mut Directories<'_>) -> Source {
    if let Some(path) = &volume.host_path {
        return Source::Shared(directories.host.clone(), path.path.clone());
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        return Source::Shared((directories.claim)(&claim.claim_name), String::new());
    }
    if let Some(map) = &volume.config_map {
        return Source::Live { table: config_maps(), name: map.name.clone(), items: items(&map.items) };
    }
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.clone().unwrap_or_default();
        return Source::Live { table: secrets(), name, items: items(&secret.items) };
    }
    if let Some(projected) = &volume.projected {
        let sources = projected.sources.iter().flatten();
        return Source::Several(sources.filter_map(|source| projection(pod, spec, source)).collect());
    }
    if let Some(downward) = &volume.downward_api {
        let files = downward.items.iter().flatten().filter_map(|item| {
            let path = item.field_ref.as_ref()?.field_path.as_str();
            Some((item.path.clone(), Bytes::from(downward_field(pod, path))))
        });
        return Source::Fixed(files.collect());
    }
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let made = || match directories.host.path() {
        Some(host) => Directory::on_disk(host.join(pod_directory(uid)).join("volumes").join(&volume.name)),
        None => Directory::default(),
    };
    Source::Shared(directories.own.entry(volume.name.clone()).or_insert_with(made).clone(), String::new())
}

/// Directory of a pod on its node, if its file system is on disk.
pub(super) fn pod_directory(uid: &str) -> String {
    format!("var/lib/kubelet/pods/{uid}")
}

fn projection(pod: &Pod, spec: &PodSpec, source: &VolumeProjection) -> Option<Source> {
    if let Some(map) = &source.config_map {
        return Some(Source::Live { table: config_maps(), name: map.name.clone(), items: items(&map.items) });
    }
    if let Some(secret) = &source.secret {
        return Some(Source::Live { table: secrets(), name: secret.name.clone(), items: items(&secret.items) });
    }
    if let Some(downward) = &source.downward_api {
        let files = downward.items.iter().flatten().filter_map(|item| {
            let path = item.field_ref.as_ref()?.field_path.as_str();
            Some((item.path.clone(), Bytes::from(downward_field(pod, path))))
        });
        return Some(Source::Fixed(files.collect()));
    }
    let token = source.service_account_token.as_ref()?;
    let account = spec.service_account_name.as_deref().unwrap_or("default");
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    // Bodies authenticate as their service account directly; the token file only has to exist.
    let text = format!("system:serviceaccount:{namespace}:{account}");
    Some(Source::Fixed([(token.path.clone(), Bytes::from(text))].into()))
}

/// A downward API field as file content: labels and annotations are lists of lines.
fn downward_field(pod: &Pod, path: &str) -> String {
    let lines = |map: &Option<BTreeMap<String, String>>| {
        let lines = map.iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    match path {
        "metadata.labels" => lines(&pod.metadata.labels),
        "metadata.annotations" => lines(&pod.metadata.annotations),
        _ => field_of(pod, path, "", "").unwrap_or_default(),
    }
}

fn items(items: &Option<Vec<KeyToPath>>) -> Vec<(String, String)> {
    items.iter().flatten().map(|item| (item.key.clone(), item.path.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        let env: BTreeMap<String, String> = [("A".to_owned(), "1".to_owned())].into();
        let cases = [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$A", "$A"),
            ("100$", "100$"),
            ("$(A", "$(A"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, &env), expected);
        }
    }
}
