//! The config digest of a driver: equal digests mean that the loaded driver is up to date.
//!
//! The hashed text is part of the API: taken-over clusters must not reinstall their drivers.

use std::collections::BTreeMap;
use std::fmt::Write;

use capstan_plan::kit;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::pod::set_env;
use k8s_openapi::api::core::v1::{Container, PodSpec, Volume, VolumeMount};

use super::MAIN;

pub(crate) const VARIABLE: &str = "DRIVER_CONFIG_DIGEST";

/// The hashed fields of a driver, by name.
#[derive(Default)]
pub(crate) struct Record(BTreeMap<&'static str, String>);

impl Record {
    pub(crate) fn text(&mut self, field: &'static str, value: &str) {
        if !value.is_empty() {
            self.0.insert(field, format!("(string){value}"));
        }
    }

    pub(crate) fn flag(&mut self, field: &'static str, value: bool) {
        if value {
            self.0.insert(field, "(bool)true".into());
        }
    }

    pub(crate) fn list(&mut self, field: &'static str, values: &[String]) {
        if !values.is_empty() {
            self.0.insert(field, format!("([]string)[{}]", values.join(" ")));
        }
    }

    /// Variables, in their order.
    pub(crate) fn env(&mut self, field: &'static str, variables: &[(String, String)]) {
        let one = |(name, value): &(String, String)| format!("{{Name:(string){name} Value:(string){value}}}");
        self.items(field, "config.EnvVar", variables.iter().map(one).collect());
    }

    /// Mounts: name, path, sub-path, read-only.
    pub(crate) fn mounts(&mut self, field: &'static str, mounts: &[(String, String, String, bool)]) {
        let one = |(name, path, sub, read_only): &(String, String, String, bool)| {
            format!("{{Name:(string){name} MountPath:(string){path} SubPath:(string){sub} ReadOnly:(bool){read_only}}}")
        };
        self.items(field, "config.VolumeMountConfig", mounts.iter().map(one).collect());
    }

    /// Volumes: name, ConfigMap, Secret, path of the host.
    pub(crate) fn volumes(&mut self, field: &'static str, volumes: &[[String; 4]]) {
        let one = |[name, map, secret, path]: &[String; 4]| {
            format!(
                "{{Name:(string){name} ConfigMapName:(string){map} SecretName:(string){secret} HostPath:(string){path}}}"
            )
        };
        self.items(field, "config.VolumeConfig", volumes.iter().map(one).collect());
    }

    fn items(&mut self, field: &'static str, type_: &str, items: Vec<String>) {
        if !items.is_empty() {
            self.0.insert(field, format!("([]{type_})[{}]", items.join(" ")));
        }
    }

    pub(crate) fn digest(&self) -> String {
        let mut text = String::new();
        for (field, value) in &self.0 {
            let _ = write!(text, "{field}:{value}");
        }
        kit::fnv(&text).to_string()
    }
}

/// Adds the digest of the finished pod to its environment.
pub(crate) fn stamp(daemon: &mut Daemon) {
    let digest = of(&daemon.pod).digest();
    for name in ["k8s-driver-manager", MAIN, super::TOOLKIT] {
        if let Some(container) = daemon.container(name) {
            set_env(container, VARIABLE, &digest);
        }
    }
}

fn of(pod: &PodSpec) -> Record {
    let mut record = Record::default();
    let containers = || pod.init_containers.iter().flatten().chain(&pod.containers);
    let find = |name: &str| containers().find(|container| container.name == name);
    let image = |container: &Container| container.image.clone().unwrap_or_default();
    if let Some(manager) = find("k8s-driver-manager") {
        record.text("DriverManagerImage", &image(manager));
        record.env("ManagerEnv", &literals(manager));
    }
    if let Some(driver) = find(MAIN) {
        record.text("DriverImage", &image(driver));
        record.list("DriverCommand", driver.command.as_deref().unwrap_or_default());
        record.list("DriverArgs", driver.args.as_deref().unwrap_or_default());
        record.env("DriverEnv", &literals(driver));
        let mut secrets = driver.env_from.iter().flatten().filter_map(|source| source.secret_ref.as_ref());
        record.text("SecretEnvSource", secrets.next_back().map_or("", |secret| &secret.name));
        let mut mounts: Vec<_> = driver.volume_mounts.iter().flatten().map(mount).collect();
        mounts.sort();
        record.mounts("AdditionalVolumeMounts", &mounts);
    }
    if let Some(peermem) = find("nvidia-peermem-ctr") {
        record.text("PeermemImage", &image(peermem));
        record.flag("GPUDirectRDMAEnabled", true);
    }
    if let Some(storage) = find("nvidia-fs-ctr") {
        record.text("GDSImage", &image(storage));
        record.flag("GDSEnabled", true);
        record.env("GDSEnv", &literals(storage));
    }
    if let Some(gdrcopy) = find("nvidia-gdrcopy-ctr") {
        record.text("GDRCopyImage", &image(gdrcopy));
        record.flag("GDRCopyEnabled", true);
        record.env("GDRCopyEnv", &literals(gdrcopy));
    }
    if let Some(toolkit) = find(super::TOOLKIT) {
        record.text("DTKImage", &image(toolkit));
        record.flag("DTKEnabled", true);
    }
    let root = pod.volumes.iter().flatten().find(|volume| volume.name == "host-root");
    record.text("HostRoot", root.and_then(|root| root.host_path.as_ref()).map_or("", |host| &host.path));
    let mut volumes: Vec<_> = pod.volumes.iter().flatten().map(volume).collect();
    volumes.sort();
    record.volumes("AdditionalVolumes", &volumes);
    record
}

/// The hashed parts of a mount: name, path, sub-path, read-only.
pub(crate) fn mount(one: &VolumeMount) -> (String, String, String, bool) {
    let sub = one.sub_path.clone().unwrap_or_default();
    (one.name.clone(), one.mount_path.clone(), sub, one.read_only == Some(true))
}

/// The hashed parts of a volume: name, ConfigMap, Secret, host path.
pub(crate) fn volume(one: &Volume) -> [String; 4] {
    let map = one.config_map.as_ref().map(|map| map.name.clone()).unwrap_or_default();
    let secret = one.secret.as_ref().and_then(|secret| secret.secret_name.clone()).unwrap_or_default();
    let path = one.host_path.as_ref().map(|host| host.path.clone()).unwrap_or_default();
    [one.name.clone(), map, secret, path]
}

/// Literal environment variables by name, without the digest itself.
fn literals(container: &Container) -> Vec<(String, String)> {
    let env = container.env.iter().flatten().filter(|one| one.value_from.is_none() && one.name != VARIABLE);
    let mut env: Vec<_> = env.map(|one| (one.name.clone(), one.value.clone().unwrap_or_default())).collect();
    env.sort();
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(record: &mut Record, driver: &str, manager: &str) {
        record.text("DriverImage", &format!("nvcr.io/nvidia/driver:{driver}"));
        record.text("DriverManagerImage", &format!("nvcr.io/nvidia/cloud-native/k8s-driver-manager:{manager}"));
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn digests_equal_those_of_running_clusters() {
        let mut one = Record::default();
        images(&mut one, "525.85.03-ubuntu22.04", "devel");
        one.text("DriverType", "gpu");
        assert_eq!(one.digest(), "886542011");

        let mut one = Record::default();
        images(&mut one, "570.172.08-ubuntu20.04", "v0.8.0");
        let env = pairs(&[("GPU_DIRECT_RDMA_ENABLED", "true"), ("USE_HOST_MOFED", "true")]);
        one.env("DriverEnv", &env);
        one.env("ManagerEnv", &env);
        assert_eq!(one.digest(), "785503300");

        let mut one = Record::default();
        images(&mut one, "570.172.08-ubuntu20.04", "v0.8.0");
        one.env("DriverEnv", &pairs(&[("GDRCOPY_ENABLED", "true"), ("GDS_ENABLED", "true")]));
        one.text("SecretEnvSource", "test-env-secret");
        assert_eq!(one.digest(), "4204546510");

        let mut one = Record::default();
        images(&mut one, "570.172.08-ubuntu20.04", "v0.8.0");
        let mount = ("licensing-config".into(), "/drivers/gridd.conf".into(), "gridd.conf".into(), true);
        one.mounts("AdditionalVolumeMounts", &[mount]);
        let volume = ["licensing-config".into(), String::new(), "test-secret".into(), String::new()];
        one.volumes("AdditionalVolumes", &[volume]);
        assert_eq!(one.digest(), "1164839178");

        let mut one = Record::default();
        images(&mut one, "525.85.03-ubuntu22.04", "devel");
        one.list("DriverArgs", &["--foo".into(), "--bar".into()]);
        let env = pairs(&[("BAR", "bar"), ("FOO", "foo")]);
        one.env("DriverEnv", &env);
        one.env("ManagerEnv", &env);
        one.text("KernelModuleType", "open");
        assert_eq!(one.digest(), "2311915915");
    }
}
