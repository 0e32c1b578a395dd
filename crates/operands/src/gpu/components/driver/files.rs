//! Files and settings of the host or the user that driver containers need.

use std::collections::BTreeMap;

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::pod::{Mount, at, config, env_of, host_dir, host_typed, secret, set_env};
use k8s_openapi::api::core::v1::ConfigMap;

use super::MAIN;
use super::settings::{DriverSettings, Licence};
use crate::gpu::components::daemon::GpuDaemon;
use crate::gpu::components::{Cx, Outcome};
use crate::gpu::fleet::{ContainerRuntime, Os};

const TRUSTED_CA: &str = "gpu-operator-trusted-ca";

/// Mounts every file of a ConfigMap into `directory`. subPath mounts are never updated in a running pod, so a change of
/// the ConfigMap restarts the pods.
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
pub(super) fn licence(licence: &Licence<'_>, daemon: &mut Daemon) {
    if licence.secret.is_none() && licence.config_map.is_none() {
        return;
    }
    let (conf, token) = ("gridd.conf", "client_configuration_token.tok");
    let mut files = vec![(conf, format!("/drivers/{conf}"))];
    if licence.token {
        files.push((token, format!("/drivers/ClientConfigToken/{token}")));
    }
    let items: Vec<(&str, &str)> = files.iter().map(|(file, _)| (*file, *file)).collect();
    let volume = match licence.secret {
        Some(name) => secret("licensing-config", name, &items),
        None => config("licensing-config", licence.config_map.unwrap_or_default(), None, &items),
    };
    for (file, path) in &files {
        daemon.mount(MAIN, volume.clone(), at("licensing-config", path).read_only().sub(file));
    }
}

/// Topology daemon of vGPU guests.
pub(crate) fn topology(config_map: Option<&str>, daemon: &mut Daemon) {
    let Some(name) = config_map else { return };
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

/// Package repositories, certificates and subscriptions for driver builds.
pub(super) fn packages(
    cx: &Cx<'_>,
    daemon: &mut Daemon,
    driver: &DriverSettings<'_>,
    os: &Os,
    containers: &[&str],
) -> Outcome<()> {
    if let Some(name) = driver.repositories {
        let directory = directory(os, ["/etc/yum.repos.d", "/etc/apt/sources.list.d", "/etc/zypp/repos.d"])?;
        mount_map(cx, daemon, name, "spec.driver.repoConfig.configMapName", directory, containers)?;
    }
    if let Some(name) = driver.certificates {
        let directories =
            ["/etc/pki/ca-trust/extracted/pem", "/usr/local/share/ca-certificates", "/etc/pki/trust/anchors"];
        mount_map(cx, daemon, name, "spec.driver.certConfig.name", directory(os, directories)?, containers)?;
    }
    subscriptions(cx, daemon, os, driver.repositories.is_some());
    Ok(())
}

/// The directory for the distribution family: Red Hat, Debian, SUSE.
fn directory(os: &Os, of: [&'static str; 3]) -> Outcome<&'static str> {
    match os.id.as_str() {
        "centos" | "rhcos" | "rhel" | "rocky" | "ol" => Ok(of[0]),
        "debian" | "ubuntu" => Ok(of[1]),
        "sles" | "sl-micro" => Ok(of[2]),
        other => Err(format!("distribution {other} is not supported with spec.driver.repoConfig or certConfig")),
    }
}

/// The host's subscription to vendor packages.
fn subscriptions(cx: &Cx<'_>, daemon: &mut Daemon, os: &Os, own_repositories: bool) {
    let openshift = cx.cluster.openshift.is_some();
    let paths: &[(&str, &str, &str)] = match os.id.as_str() {
        "rhel" if !openshift && cx.container_runtime() != ContainerRuntime::Crio && !own_repositories => &[
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
                // User settings take precedence.
                if env_of(container, &name).is_none() {
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

/// The ConfigMap that OpenShift fills with the cluster's CA bundle.
pub(crate) fn trusted_ca(cx: &Cx<'_>) -> Option<Object> {
    cx.cluster.openshift.as_ref()?.trusted_ca.as_ref()?;
    let mut metadata = cx.scope.meta(TRUSTED_CA);
    let label = "config.openshift.io/inject-trusted-cabundle";
    metadata.labels.get_or_insert_default().insert(label.into(), "true".into());
    let data = BTreeMap::from([("ca-bundle.crt".to_owned(), String::new())]);
    let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    Some(Object::new(&map).preserve("/data/ca-bundle.crt"))
}
