//! Files and settings of the host or of the user that a driver container needs.

use std::collections::BTreeMap;

use capstan_plan::Object;
use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, SecretVolumeSource, Volume};

use super::MAIN;
use crate::gpu::components::access::meta;
use crate::gpu::components::daemon::Daemon;
use crate::gpu::components::pod::{Mount, at, config, host_dir, host_typed, set_env};
use crate::gpu::components::{Cx, Outcome};
use crate::gpu::fleet::{ContainerRuntime, Os};

const TRUSTED_CA: &str = "gpu-operator-trusted-ca";

/// Every file of a ConfigMap in `directory` of the containers. A file that is mounted alone never changes in a pod that runs,
/// so that pods are replaced when the ConfigMap changes.
pub(crate) fn mount_map(
    cx: &Cx<'_>,
    daemon: &mut Daemon,
    name: &str,
    field: &str,
    directory: &str,
    containers: &[&str],
) -> Outcome<()> {
    let map = cx.config_map(name, field)?;
    let keys: Vec<String> = map.data.unwrap_or_default().into_keys().collect();
    let items: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), key.as_str())).collect();
    for container in containers {
        for key in &keys {
            let mount = at(name, &format!("{directory}/{key}")).read_only().sub(key);
            daemon.mount(container, config(name, name, None, &items), mount);
        }
    }
    daemon.restarts_with(cx, name);
    Ok(())
}

/// Licence of vGPU guests: the Secret wins over the ConfigMap.
pub(crate) fn licence(cx: &Cx<'_>, daemon: &mut Daemon) {
    let licence = cx.spec().driver.licensing_config.clone().unwrap_or_default();
    let named = |name: Option<String>| name.filter(|name| !name.is_empty());
    let (secret, map) = (named(licence.secret_name), named(licence.config_map_name));
    if secret.is_none() && map.is_none() {
        return;
    }
    let (conf, token) = ("gridd.conf", "client_configuration_token.tok");
    let mut files = vec![(conf, format!("/drivers/{conf}"))];
    if licence.nls_enabled == Some(true) {
        files.push((token, format!("/drivers/ClientConfigToken/{token}")));
    }
    let items: Vec<(&str, &str)> = files.iter().map(|(file, _)| (*file, *file)).collect();
    let volume = match (&secret, &map) {
        (Some(secret), _) => secret_volume("licensing-config", secret, &items),
        (None, map) => config("licensing-config", map.as_deref().unwrap_or_default(), None, &items),
    };
    for (file, path) in &files {
        daemon.mount(MAIN, volume.clone(), at("licensing-config", path).read_only().sub(file));
    }
}

fn secret_volume(name: &str, secret: &str, items: &[(&str, &str)]) -> Volume {
    let item =
        |(key, path): &(&str, &str)| KeyToPath { key: (*key).into(), path: (*path).into(), ..KeyToPath::default() };
    let source = SecretVolumeSource {
        secret_name: Some(secret.into()),
        items: Some(items.iter().map(item).collect()),
        ..SecretVolumeSource::default()
    };
    Volume { name: name.into(), secret: Some(source), ..Volume::default() }
}

/// Topology daemon of vGPU guests.
pub(crate) fn topology(cx: &Cx<'_>, daemon: &mut Daemon) {
    let name = cx.spec().driver.virtual_topology.as_ref().and_then(|topology| topology.config.as_deref());
    let Some(name) = name.filter(|name| !name.is_empty()) else { return };
    let file = "nvidia-topologyd.conf";
    let mount = at("topology-config", &format!("/etc/nvidia/{file}")).read_only().sub(file);
    daemon.mount(MAIN, config("topology-config", name, None, &[(file, file)]), mount);
}

/// SUSE's precompiled drivers load modules of the host.
pub(crate) fn kernel_modules(daemon: &mut Daemon, os: &Os) {
    if ["sles", "sl-micro"].contains(&os.id.as_str()) {
        let mount = at("lib-modules", "/run/host/lib/modules").read_only();
        daemon.mount(MAIN, host_dir("lib-modules", "/lib/modules"), mount);
    }
}

/// What building a driver needs: package repositories, certificates, subscriptions.
pub(crate) fn packages(cx: &Cx<'_>, daemon: &mut Daemon, os: &Os, containers: &[&str]) -> Outcome<()> {
    let driver = &cx.spec().driver;
    let repositories = driver.repo_config.as_ref().and_then(|config| config.config_map_name.as_deref());
    let repositories = repositories.filter(|name| !name.is_empty());
    if let Some(name) = repositories {
        let directory = directory(os, ["/etc/yum.repos.d", "/etc/apt/sources.list.d", "/etc/zypp/repos.d"])?;
        mount_map(cx, daemon, name, "spec.driver.repoConfig.configMapName", directory, containers)?;
    }
    let certificates = driver.cert_config.as_ref().and_then(|config| config.name.as_deref());
    if let Some(name) = certificates.filter(|name| !name.is_empty()) {
        let directories =
            ["/etc/pki/ca-trust/extracted/pem", "/usr/local/share/ca-certificates", "/etc/pki/trust/anchors"];
        mount_map(cx, daemon, name, "spec.driver.certConfig.name", directory(os, directories)?, containers)?;
    }
    subscriptions(cx, daemon, os, repositories.is_some());
    Ok(())
}

/// The directory of the distribution's family: Red Hat, Debian, SUSE.
fn directory(os: &Os, of: [&'static str; 3]) -> Outcome<&'static str> {
    match os.id.as_str() {
        "centos" | "rhcos" | "rhel" | "rocky" | "ol" => Ok(of[0]),
        "debian" | "ubuntu" => Ok(of[1]),
        "sles" | "sl-micro" => Ok(of[2]),
        other => Err(format!("distribution {other} is not supported with spec.driver.repoConfig or certConfig")),
    }
}

/// The host's right to packages of its vendor.
fn subscriptions(cx: &Cx<'_>, daemon: &mut Daemon, os: &Os, own_repositories: bool) {
    let openshift = cx.cluster.openshift.is_some();
    let paths: &[(&str, &str, &str)] = match os.id.as_str() {
        "rhel" if !openshift && cx.runtime() != ContainerRuntime::Crio && !own_repositories => &[
            ("/run/secrets/etc-pki-entitlement", "/etc/pki/entitlement", "Directory"),
            ("/run/secrets/redhat.repo", "/etc/yum.repos.d/redhat.repo", "File"),
            ("/run/secrets/rhsm", "/etc/rhsm", "Directory"),
        ],
        "sles" | "sl-micro" => &[
            ("/etc/SUSEConnect", "/etc/SUSEConnect", "FileOrCreate"),
            ("/etc/zypp/credentials.d", "/etc/zypp/credentials.d", "Directory"),
        ],
        _ => return,
    };
    for (index, (inside, outside, type_)) in paths.iter().enumerate() {
        let name = format!("subscription-config-{index}");
        daemon.mount(MAIN, host_typed(&name, outside, type_), at(&name, inside).read_only());
    }
}

/// OpenShift's version, and the cluster's proxy with the certificates that it needs.
pub(crate) fn proxy(cx: &Cx<'_>, daemon: &mut Daemon) {
    let Some(openshift) = &cx.cluster.openshift else { return };
    set_env(daemon.main(), "OPENSHIFT_VERSION", &openshift.version);
    for container in daemon.pod.containers.iter_mut().filter(|one| one.name.contains("nvidia-driver")) {
        for (name, value) in &openshift.proxy {
            for name in [name.to_uppercase(), name.to_lowercase()] {
                // What the user set stays.
                if crate::gpu::components::pod::env_of(container, &name).is_none() {
                    set_env(container, &name, value);
                }
            }
        }
    }
    if openshift.trusted_ca.is_some() {
        let volume = config(TRUSTED_CA, TRUSTED_CA, None, &[("ca-bundle.crt", "tls-ca-bundle.pem")]);
        daemon.mount(MAIN, volume, at(TRUSTED_CA, "/etc/pki/ca-trust/extracted/pem").read_only());
    }
}

/// The ConfigMap that OpenShift fills with the certificates of the cluster.
pub(crate) fn trusted_ca(cx: &Cx<'_>) -> Option<Object> {
    cx.cluster.openshift.as_ref()?.trusted_ca.as_ref()?;
    let mut metadata = meta(cx, TRUSTED_CA, true);
    let label = "config.openshift.io/inject-trusted-cabundle";
    metadata.labels.get_or_insert_default().insert(label.into(), "true".into());
    let data = BTreeMap::from([("ca-bundle.crt".to_owned(), String::new())]);
    let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    Some(Object::new(&map).follow("/data/ca-bundle.crt"))
}
