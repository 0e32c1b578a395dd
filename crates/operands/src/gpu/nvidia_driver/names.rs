//! Object names of an NVIDIADriver. Names are part of the API: taken-over clusters keep theirs.

use capstan_api::gpu::NvidiaDriver;
use capstan_api::gpu::nvidia_driver::DriverType;
use capstan_plan::kit;
use kube::ResourceExt;

use super::pools::Pool;

/// As in the API.
pub(super) fn type_name(type_: DriverType) -> &'static str {
    match type_ {
        DriverType::Gpu => "gpu",
        DriverType::Vgpu => "vgpu",
        DriverType::VgpuHostManager => "vgpu-host-manager",
    }
}

/// ServiceAccount, roles and SCC of a pool.
pub(super) fn account(driver: &NvidiaDriver, pool: &Pool) -> String {
    let (name, tag) = (driver.name_any(), pool.os.tag());
    let full = match driver.spec.driver_type {
        DriverType::VgpuHostManager => format!("nvidia-vgpu-manager-{name}-{tag}"),
        type_ => format!("nvidia-{}-driver-{name}-{tag}", type_name(type_)),
    };
    full.chars().take(253).collect()
}

/// DaemonSet of a pool, also the label that selects its pods.
pub(super) fn daemon_set(driver: &NvidiaDriver, pool: &Pool) -> String {
    let uid = driver.uid().unwrap_or_default();
    let version = pool.kernel.as_ref().or(pool.rhcos.as_ref());
    let hash = kit::hash(&version.map_or(uid.clone(), |version| format!("{uid}-{version}")));
    shortened(&format!("nvidia-{}-driver-{}", type_name(driver.spec.driver_type), pool.os.tag()), &hash)
}

/// Labels have at most 63 characters.
fn shortened(prefix: &str, hash: &str) -> String {
    let room = 63 - 1 - hash.len();
    format!("{}-{hash}", prefix.chars().take(room).collect::<String>())
}

/// The ConfigMap with the script of the startup probe.
pub(super) fn probe(driver: &NvidiaDriver) -> String {
    format!("nvidia-driver-startup-probe-{}", driver.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::fleet::Os;

    fn named(uid: &str, os: (&str, &str), kernel: Option<&str>, rhcos: Option<&str>) -> String {
        let mut driver = NvidiaDriver::default();
        driver.metadata.uid = Some(uid.into());
        let os = Os { id: os.0.into(), version: os.1.into() };
        daemon_set(&driver, &Pool { os, kernel: kernel.map(Into::into), rhcos: rhcos.map(Into::into) })
    }

    #[test]
    fn names_equal_those_of_running_clusters() {
        let uid = "bfac7359-6033-45ce-88d6-53db0078526e";
        assert_eq!(named(uid, ("ubuntu", "20.04"), None, None), "nvidia-gpu-driver-ubuntu20.04-67cc6dbb79");
        assert_eq!(
            named(uid, ("ubuntu", "20.04"), Some("5.15.0-70-generic"), None),
            "nvidia-gpu-driver-ubuntu20.04-59b779bcc5"
        );
        assert_eq!(
            named("d5b3a1f2-38a9-4b72-bff1-21fd569fd305", ("rhcos", "4.14"), None, Some("414.92.202309282257")),
            "nvidia-gpu-driver-rhcos4.14-6f4fc4fc6"
        );
    }

    #[test]
    fn a_long_name_loses_the_end_of_its_system() {
        let name = shortened("nvidia-gpu-driver-redhatCoreOS4.14-414.92.202309282257", "59b779bcc5");
        assert_eq!(name, "nvidia-gpu-driver-redhatCoreOS4.14-414.92.2023092822-59b779bcc5");
    }
}
