//! The user's settings of a driver.

use std::borrow::Cow;

use capstan_api::gpu::ClusterPolicySpec;
use capstan_api::gpu::component::{Component, ConfigMapRef, DriverManager, Resources};
use capstan_api::gpu::driver_parts::{DriverSidecar, KernelModuleType, Probe, Rdma};
use capstan_plan::kit::Daemon;
use capstan_plan::kit::pod::set_env;
use k8s_openapi::api::core::v1::{self as core, EnvFromSource, SecretEnvSource};

use super::files::{self, mount_map};
use super::toolkit::{TOOLKIT, build_with_toolkit};
use super::{Flavour, MAIN};
use crate::gpu::components::context::{enabled_sidecar, given};
use crate::gpu::components::daemon::GpuDaemon;
use crate::gpu::components::snippets::{pull_if_set, requirements, set_all};
use crate::gpu::components::{Cx, Outcome};
use crate::gpu::image;

const MANAGER: &str = "k8s-driver-manager";
const PEERMEM: &str = "nvidia-peermem-ctr";
const STORAGE: &str = "nvidia-fs-ctr";
const GDRCOPY: &str = "nvidia-gdrcopy-ctr";

/// Driver settings, from a ClusterPolicy or an NVIDIADriver.
pub(crate) struct DriverSettings<'a> {
    /// Image, resources, arguments, environment and network of the driver container.
    pub(crate) component: Cow<'a, Component>,
    pub(crate) kernel_module_type: Option<KernelModuleType>,
    pub(crate) rdma: Option<&'a Rdma>,
    /// The driver manager, which unloads the old driver.
    pub(crate) manager: Option<&'a DriverManager>,
    /// ConfigMap with package repositories.
    pub(crate) repositories: Option<&'a str>,
    /// ConfigMap with certificates.
    pub(crate) certificates: Option<&'a str>,
    /// ConfigMap with parameters of kernel modules.
    pub(crate) kernel_modules: Option<&'a str>,
    /// ConfigMap of the topology daemon of vGPU guests.
    pub(crate) topology: Option<&'a str>,
    pub(crate) licence: Licence<'a>,
    /// Secret whose keys become variables.
    pub(crate) secret_env: Option<&'a str>,
    pub(crate) startup_probe: Option<&'a Probe>,
    pub(crate) liveness_probe: Option<&'a Probe>,
    pub(crate) readiness_probe: Option<&'a Probe>,
    /// GPUDirect Storage, where it is switched on.
    pub(crate) gds: Option<&'a DriverSidecar>,
    /// GDRCopy, where it is switched on.
    pub(crate) gdrcopy: Option<&'a DriverSidecar>,
}

/// Licence of vGPU guests.
#[derive(Clone, Copy, Default)]
pub(crate) struct Licence<'a> {
    /// Secret with the licence; wins over the ConfigMap.
    pub(crate) secret: Option<&'a str>,
    pub(crate) config_map: Option<&'a str>,
    /// Whether there is a token of the licence service.
    pub(crate) token: bool,
}

impl<'a> DriverSettings<'a> {
    /// Driver settings of a ClusterPolicy.
    pub(crate) fn of_policy(spec: &'a ClusterPolicySpec) -> Self {
        let driver = &spec.driver;
        let licence = driver.licensing_config.as_ref().map(|licence| Licence {
            secret: given(licence.secret_name.as_ref()),
            config_map: given(licence.config_map_name.as_ref()),
            token: licence.nls_enabled == Some(true),
        });
        Self {
            component: Cow::Borrowed(&driver.component),
            kernel_module_type: driver.kernel_module_type,
            rdma: driver.rdma.as_ref(),
            manager: driver.manager.as_ref(),
            repositories: driver.repo_config.as_ref().and_then(|config| given(config.config_map_name.as_ref())),
            certificates: config_map(driver.cert_config.as_ref()),
            kernel_modules: config_map(driver.kernel_module_config.as_ref()),
            topology: driver.virtual_topology.as_ref().and_then(|topology| given(topology.config.as_ref())),
            licence: licence.unwrap_or_default(),
            secret_env: given(driver.secret_env.as_ref()),
            startup_probe: driver.startup_probe.as_ref(),
            liveness_probe: driver.liveness_probe.as_ref(),
            readiness_probe: driver.readiness_probe.as_ref(),
            gds: enabled_sidecar(spec.gds.as_ref()),
            gdrcopy: enabled_sidecar(spec.gdrcopy.as_ref()),
        }
    }
}

/// The name of a ConfigMap, if the user gave one.
pub(crate) fn config_map(config: Option<&ConfigMapRef>) -> Option<&str> {
    config.and_then(|config| given(config.name.as_ref()))
}

/// The driver manager init container with the user's settings.
pub(crate) fn manage(
    cx: &Cx<'_>,
    daemon: &mut Daemon,
    manager: Option<&DriverManager>,
    resources: Option<&Resources>,
) -> Outcome<()> {
    let manager = manager.cloned().unwrap_or_default();
    let path = cx.image(&manager.image, "DRIVER_MANAGER_IMAGE")?;
    daemon.add_pull_secrets(manager.image.image_pull_secrets.as_ref());
    let Some(one) = daemon.container(MANAGER) else { return Ok(()) };
    one.image = Some(path);
    pull_if_set(one, &manager.image);
    set_all(one, manager.env.as_ref());
    if let Some(resources) = resources {
        one.resources = Some(requirements(resources));
    }
    Ok(())
}

pub(crate) fn apply(cx: &Cx<'_>, daemon: &mut Daemon, driver: &DriverSettings<'_>, flavour: &Flavour) -> Outcome<()> {
    manage(cx, daemon, driver.manager, driver.component.resources.as_ref())?;
    rdma(driver, daemon);
    daemon.runs_image(&path(cx, driver, flavour)?, &driver.component);
    let main_image = daemon.main().image.clone();
    if let Some(peermem) = daemon.container(PEERMEM) {
        peermem.image = main_image;
        pull_if_set(peermem, &driver.component.image);
    }
    modules(driver, daemon);
    probes(driver, daemon);
    for (sidecar, variable) in [(driver.gdrcopy, "GDRCOPY_ENABLED"), (driver.gds, "GDS_ENABLED")] {
        if sidecar.is_some() {
            set_env(daemon.main(), variable, "true");
        }
    }
    files::licence(&driver.licence, daemon);
    files::topology(driver.topology, daemon);
    if let Some(name) = driver.kernel_modules {
        let field = "spec.driver.kernelModuleConfig.name";
        mount_map(cx, daemon, name, field, "/drivers", &[MAIN, PEERMEM])?;
    }
    set_all(daemon.main(), driver.component.env.as_ref());
    let precompiled = flavour.kernel().is_some();
    if precompiled {
        files::kernel_modules(daemon, flavour.os());
    } else {
        files::packages(cx, daemon, driver, flavour.os(), &[MAIN, STORAGE, GDRCOPY])?;
        secret_env(cx, driver, daemon)?;
    }
    files::proxy(cx, daemon);
    sidecar(cx, daemon, driver, flavour, STORAGE)?;
    sidecar(cx, daemon, driver, flavour, GDRCOPY)?;
    match flavour {
        Flavour::Rhcos(version, _) => {
            let parts = [
                (MAIN, "nv-ctr-run-with-dtk"),
                (STORAGE, "nv-fs-ctr-run-with-dtk"),
                (GDRCOPY, "gdrcopy-ctr-run-with-dtk"),
            ];
            build_with_toolkit(cx, daemon, driver, version, &parts);
        }
        _ => daemon.remove(TOOLKIT),
    }
    daemon.host_network(driver.component.host_network);
    Ok(())
}

/// The image for the variant's operating system, and for its kernel if precompiled.
fn path(cx: &Cx<'_>, driver: &DriverSettings<'_>, flavour: &Flavour) -> Outcome<String> {
    let image = &driver.component.image;
    let tag = flavour.os().tag();
    let Some(kernel) = flavour.kernel() else {
        return Ok(image::for_system(cx.image(image, "DRIVER_IMAGE")?, &tag));
    };
    let set = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let base = match (set(&image.repository), set(&image.image), set(&image.version)) {
        (Some(repository), Some(name), Some(version)) => format!("{repository}/{name}:{version}-{kernel}"),
        (None, Some(name), None) => format!("{name}-{kernel}"),
        _ => return Err(
            "spec.driver.usePrecompiled needs spec.driver.repository, spec.driver.image and spec.driver.version, or a \
             whole reference in spec.driver.image"
                .into(),
        ),
    };
    Ok(image::for_system(base, &tag))
}

fn rdma(driver: &DriverSettings<'_>, daemon: &mut Daemon) {
    let rdma = driver.rdma.cloned().unwrap_or_default();
    if rdma.enabled != Some(true) {
        daemon.remove(PEERMEM);
        return;
    }
    for name in [MANAGER, MAIN] {
        if let Some(one) = daemon.container(name) {
            set_env(one, "GPU_DIRECT_RDMA_ENABLED", "true");
        }
    }
    if rdma.use_host_mofed == Some(true) {
        for name in [MANAGER, MAIN, PEERMEM] {
            if let Some(one) = daemon.container(name) {
                set_env(one, "USE_HOST_MOFED", "true");
            }
        }
        daemon.set_host_path("mlnx-ofed-usr-src", "/usr/src");
    }
}

/// As in the API.
pub(crate) fn module_type(kind: KernelModuleType) -> &'static str {
    match kind {
        KernelModuleType::Auto => "auto",
        KernelModuleType::Open => "open",
        KernelModuleType::Proprietary => "proprietary",
    }
}

fn modules(driver: &DriverSettings<'_>, daemon: &mut Daemon) {
    let Some(kind) = driver.kernel_module_type else { return };
    set_env(daemon.main(), "KERNEL_MODULE_TYPE", module_type(kind));
    if kind == KernelModuleType::Open {
        set_env(daemon.main(), "OPEN_KERNEL_MODULES_ENABLED", "true");
    }
}

/// The user sets only timings; probes without a handler use that of the startup probe.
fn probes(driver: &DriverSettings<'_>, daemon: &mut Daemon) {
    let main = daemon.main();
    let startup = main.startup_probe.clone().unwrap_or_default();
    let asks = core::Probe { exec: startup.exec.clone(), ..core::Probe::default() };
    let changed = |probe: Option<core::Probe>, numbers: Option<&Probe>| match numbers {
        Some(numbers) => Some(with_numbers(probe.unwrap_or_else(|| asks.clone()), numbers)),
        None => probe,
    };
    main.startup_probe = changed(main.startup_probe.take(), driver.startup_probe);
    main.liveness_probe = changed(main.liveness_probe.take(), driver.liveness_probe);
    main.readiness_probe = changed(main.readiness_probe.take(), driver.readiness_probe);
}

fn with_numbers(mut probe: core::Probe, numbers: &Probe) -> core::Probe {
    let set = |field: &mut Option<i32>, number: Option<i32>| {
        if number.is_some_and(|number| number != 0) {
            *field = number;
        }
    };
    set(&mut probe.initial_delay_seconds, numbers.initial_delay_seconds);
    set(&mut probe.timeout_seconds, numbers.timeout_seconds);
    set(&mut probe.period_seconds, numbers.period_seconds);
    set(&mut probe.success_threshold, numbers.success_threshold);
    set(&mut probe.failure_threshold, numbers.failure_threshold);
    probe
}

fn secret_env(cx: &Cx<'_>, driver: &DriverSettings<'_>, daemon: &mut Daemon) -> Outcome<()> {
    let Some(name) = driver.secret_env else { return Ok(()) };
    cx.secret(name, "spec.driver.secretEnv")?;
    for container in [MAIN, STORAGE, GDRCOPY] {
        if let Some(one) = daemon.container(container) {
            let secret = SecretEnvSource { name: name.into(), ..SecretEnvSource::default() };
            let source = EnvFromSource { secret_ref: Some(secret), ..EnvFromSource::default() };
            one.env_from.get_or_insert_default().push(source);
        }
    }
    Ok(())
}

fn sidecar(
    cx: &Cx<'_>,
    daemon: &mut Daemon,
    driver: &DriverSettings<'_>,
    flavour: &Flavour,
    name: &str,
) -> Outcome<()> {
    let (settings, variable) =
        if name == STORAGE { (driver.gds, "GDS_IMAGE") } else { (driver.gdrcopy, "GDRCOPY_IMAGE") };
    let Some(settings) = settings else {
        daemon.remove(name);
        return Ok(());
    };
    if flavour.kernel().is_some() {
        let what = if name == STORAGE { "GPUDirect Storage driver (nvidia-fs)" } else { "GDRCopy driver" };
        return Err(format!("{what} is not supported along with pre-compiled NVIDIA drivers"));
    }
    let path = image::for_system(cx.image(&settings.image, variable)?, &flavour.os().tag());
    daemon.add_pull_secrets(settings.image.image_pull_secrets.as_ref());
    let Some(one) = daemon.container(name) else { return Ok(()) };
    one.image = Some(path);
    pull_if_set(one, &settings.image);
    set_all(one, settings.env.as_ref());
    if let Some(resources) = &driver.component.resources {
        one.resources = Some(requirements(resources));
    }
    Ok(())
}
