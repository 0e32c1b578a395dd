//! vGPU manager: the driver of nodes whose GPUs are shared by virtual machines.

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, container, host, host_dir, host_make, set_env};
use capstan_plan::kit::rbac::{Rights, rule};

use super::access::{access, constraints, unloading};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::driver::{self, DriverSettings, toolkit_builds};
use super::snippets::set_all;
use super::{Operand, Outcome, PolicyCx, switched_on};
use crate::gpu::fleet::Os;
use crate::gpu::image;

pub(crate) const OPERAND: Operand = Operand {
    name: "state-vgpu-manager",
    condition: "VgpuManager",
    deploy: Some("vgpu-manager"),
    enabled: |cx| {
        let manager = cx.spec().vgpu_manager.as_ref().map(|manager| &manager.component);
        cx.sandboxes() && switched_on(manager) && !cx.drivers_apart()
    },
    objects,
};

pub(crate) const NAME: &str = "nvidia-vgpu-manager-daemonset";
const ACCOUNT: &str = "nvidia-vgpu-manager";
const MAIN: &str = "nvidia-vgpu-manager-ctr";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let everywhere = [unloading(), vec![rule("apps", &["daemonsets"], &["get"])]].concat();
    let rights = Rights { everywhere, ..Rights::default() };
    let mut objects = access(cx, ACCOUNT, rights);
    objects.extend(constraints(cx, ACCOUNT, Shares { pid: true, ipc: true, anything: true, ..Shares::default() }));
    if cx.cluster.fleet.gpu_nodes > 0 {
        let systems = driver::systems(cx)?;
        for version in toolkit_builds(cx).iter().flatten() {
            objects.push(daemon(cx, &systems[0], Some(version))?.object(&cx.scope));
        }
        for (place, os) in systems.iter().enumerate().filter(|_| toolkit_builds(cx).is_none()) {
            let mut daemon = daemon(cx, os, None)?;
            if systems.len() > 1 {
                driver::only_on(&mut daemon, os, place == 0);
            }
            objects.push(daemon.object(&cx.scope));
        }
    }
    Ok(objects)
}

fn template() -> Daemon {
    let firmware = || {
        vec![
            at("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
            at("nv-firmware", "/lib/firmware"),
        ]
    };
    let main = container(MAIN)
        .runs(&["nvidia-driver"], &["init"])
        .mounts(vec![
            at("run-nvidia", "/run/nvidia").bidirectional(),
            at("host-os-release", "/host-etc/os-release").read_only(),
            at("vfio", "/dev/vfio"),
            at("cgroup", "/sys/fs/cgroup"),
            at("var-log", "/var/log"),
            at("dev-log", "/dev/log"),
        ])
        .mounts(firmware())
        .privileged_s0();
    let toolkit = driver::toolkit_container()
        .mounts(vec![at("run-nvidia", "/run/nvidia").bidirectional(), at("dev-log", "/dev/log")])
        .mounts(firmware());
    let mut daemon = gpu_daemon(NAME, ACCOUNT, "vgpu-manager").with_scc(ACCOUNT).with(
        vec![driver::manager(false)],
        vec![main, toolkit],
        vec![
            host_make("run-nvidia", "/run/nvidia"),
            host("host-os-release", "/etc/os-release"),
            host_dir("vfio", "/dev/vfio"),
            host_dir("cgroup", "/sys/fs/cgroup"),
            host_dir("var-log", "/var/log"),
            host("dev-log", "/dev/log"),
            host_make("mlnx-ofed-usr-src", "/run/mellanox/drivers/usr/src"),
            host("host-root", "/"),
            host_dir("host-sys", "/sys"),
            host("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
            host_make("nv-firmware", "/run/nvidia/driver/lib/firmware"),
        ],
    );
    daemon.pod.host_pid = Some(true);
    daemon.pod.host_ipc = Some(true);
    daemon.pod.termination_grace_period_seconds = Some(120);
    daemon.pod_annotations.insert("kubectl.kubernetes.io/default-container".into(), MAIN.into());
    daemon
}

fn daemon(cx: &PolicyCx<'_>, os: &Os, rhcos: Option<&str>) -> Outcome<Daemon> {
    let manager = cx.spec().vgpu_manager.clone().unwrap_or_default();
    let mut daemon = template();
    daemon.common(cx)?;
    driver::manage(cx, &mut daemon, manager.driver_manager.as_ref(), manager.component.resources.as_ref())?;
    let path = cx.image(&manager.component.image, "VGPU_MANAGER_IMAGE")?;
    daemon.runs_image(&image::for_system(path, &os.tag()), &manager.component);
    daemon.host_network(manager.component.host_network);
    if let Some(openshift) = &cx.cluster.openshift {
        set_env(daemon.main(), "OPENSHIFT_VERSION", &openshift.version);
    }
    set_all(daemon.main(), manager.component.env.as_ref());
    let modules = manager.kernel_module_config.as_ref().and_then(|config| config.name.as_deref());
    if let Some(name) = modules.filter(|name| !name.is_empty()) {
        let field = "spec.vgpuManager.kernelModuleConfig.name";
        driver::mount_map(cx, &mut daemon, name, field, "/drivers", &[MAIN])?;
    }
    match rhcos {
        Some(version) => {
            let settings = DriverSettings::of_policy(cx.spec());
            driver::build_with_toolkit(cx, &mut daemon, &settings, version, &[(MAIN, "nv-ctr-run-with-dtk")]);
        }
        None => daemon.remove(driver::TOOLKIT),
    }
    Ok(daemon)
}
