//! What a policy changes of a driver.

use capstan_api::gpu::component::{DriverManager, Resources};
use capstan_api::gpu::driver_parts::{DriverSidecar, KernelModuleType, Probe};
use k8s_openapi::api::core::v1::{self as core, EnvFromSource, SecretEnvSource};

use super::files::{self, mount_map};
use super::toolkit::{TOOLKIT, build_with_toolkit};
use super::{Flavour, MAIN};
use crate::gpu::components::daemon::Daemon;
use crate::gpu::components::pod::set_env;
use crate::gpu::components::snippets::{pull_if_set, requirements, set_all};
use crate::gpu::components::{Cx, Outcome};
use crate::gpu::image;

const MANAGER: &str = "k8s-driver-manager";
const PEERMEM: &str = "nvidia-peermem-ctr";
const STORAGE: &str = "nvidia-fs-ctr";
const GDRCOPY: &str = "nvidia-gdrcopy-ctr";

/// The init container that unloads the old driver, as the policy has it.
pub(crate) fn manage(
    cx: &Cx<'_>,
    daemon: &mut Daemon,
    manager: Option<&DriverManager>,
    resources: Option<&Resources>,
) -> Outcome<()> {
    let manager = manager.cloned().unwrap_or_default();
    let path = cx.image(&manager.image, "DRIVER_MANAGER_IMAGE")?;
    daemon.pull_with(manager.image.image_pull_secrets.as_ref());
    let Some(one) = daemon.container(MANAGER) else { return Ok(()) };
    one.image = Some(path);
    pull_if_set(one, &manager.image);
    set_all(one, manager.env.as_ref());
    if let Some(resources) = resources {
        one.resources = Some(requirements(resources));
    }
    Ok(())
}

pub(crate) fn apply(cx: &Cx<'_>, daemon: &mut Daemon, flavour: &Flavour) -> Outcome<()> {
    let driver = &cx.spec().driver;
    manage(cx, daemon, driver.manager.as_ref(), driver.component.resources.as_ref())?;
    rdma(cx, daemon);
    daemon.runs_image(&path(cx, flavour)?, &driver.component);
    let main_image = daemon.main().image.clone();
    if let Some(peermem) = daemon.container(PEERMEM) {
        peermem.image = main_image;
        pull_if_set(peermem, &driver.component.image);
    }
    modules(cx, daemon);
    probes(cx, daemon);
    for (sidecar, variable) in [(cx.gdrcopy(), "GDRCOPY_ENABLED"), (cx.gds(), "GDS_ENABLED")] {
        if sidecar.is_some() {
            set_env(daemon.main(), variable, "true");
        }
    }
    files::licence(cx, daemon);
    files::topology(cx, daemon);
    let parameters = driver.kernel_module_config.as_ref().and_then(|config| config.name.as_deref());
    if let Some(name) = parameters.filter(|name| !name.is_empty()) {
        let field = "spec.driver.kernelModuleConfig.name";
        mount_map(cx, daemon, name, field, "/drivers", &[MAIN, PEERMEM])?;
    }
    set_all(daemon.main(), driver.component.env.as_ref());
    let precompiled = flavour.kernel().is_some();
    if precompiled {
        files::kernel_modules(daemon, flavour.os());
    } else {
        files::packages(cx, daemon, flavour.os(), &[MAIN, STORAGE, GDRCOPY])?;
        secret_env(cx, daemon)?;
    }
    files::proxy(cx, daemon);
    sidecar(cx, daemon, flavour, cx.gds(), STORAGE, "GDS_IMAGE")?;
    sidecar(cx, daemon, flavour, cx.gdrcopy(), GDRCOPY, "GDRCOPY_IMAGE")?;
    match flavour {
        Flavour::Rhcos(version, _) => {
            let parts = [
                (MAIN, "nv-ctr-run-with-dtk"),
                (STORAGE, "nv-fs-ctr-run-with-dtk"),
                (GDRCOPY, "gdrcopy-ctr-run-with-dtk"),
            ];
            build_with_toolkit(cx, daemon, version, &parts);
        }
        _ => daemon.remove(TOOLKIT),
    }
    daemon.host_network(driver.component.host_network);
    Ok(())
}

/// The image for the flavour's operating system, and for its kernel if modules are built already.
fn path(cx: &Cx<'_>, flavour: &Flavour) -> Outcome<String> {
    let image = &cx.spec().driver.component.image;
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

fn rdma(cx: &Cx<'_>, daemon: &mut Daemon) {
    let rdma = cx.spec().driver.rdma.clone().unwrap_or_default();
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
        daemon.move_volume("mlnx-ofed-usr-src", "/usr/src");
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

fn modules(cx: &Cx<'_>, daemon: &mut Daemon) {
    let Some(kind) = cx.spec().driver.kernel_module_type else { return };
    set_env(daemon.main(), "KERNEL_MODULE_TYPE", module_type(kind));
    if kind == KernelModuleType::Open {
        set_env(daemon.main(), "OPEN_KERNEL_MODULES_ENABLED", "true");
    }
}

/// The user changes numbers only; a probe that is not there yet asks what the startup probe asks.
fn probes(cx: &Cx<'_>, daemon: &mut Daemon) {
    let driver = &cx.spec().driver;
    let main = daemon.main();
    let startup = main.startup_probe.clone().unwrap_or_default();
    let asks = core::Probe { exec: startup.exec.clone(), ..core::Probe::default() };
    let changed = |probe: Option<core::Probe>, numbers: Option<&Probe>| match numbers {
        Some(numbers) => Some(with_numbers(probe.unwrap_or_else(|| asks.clone()), numbers)),
        None => probe,
    };
    main.startup_probe = changed(main.startup_probe.take(), driver.startup_probe.as_ref());
    main.liveness_probe = changed(main.liveness_probe.take(), driver.liveness_probe.as_ref());
    main.readiness_probe = changed(main.readiness_probe.take(), driver.readiness_probe.as_ref());
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

fn secret_env(cx: &Cx<'_>, daemon: &mut Daemon) -> Outcome<()> {
    let Some(name) = cx.spec().driver.secret_env.as_deref().filter(|name| !name.is_empty()) else { return Ok(()) };
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
    flavour: &Flavour,
    settings: Option<&DriverSidecar>,
    name: &str,
    variable: &str,
) -> Outcome<()> {
    let Some(settings) = settings else {
        daemon.remove(name);
        return Ok(());
    };
    if flavour.kernel().is_some() {
        let what = if name == STORAGE { "GPUDirect Storage driver (nvidia-fs)" } else { "GDRCopy driver" };
        return Err(format!("{what} is not supported along with pre-compiled NVIDIA drivers"));
    }
    let path = image::for_system(cx.image(&settings.image, variable)?, &flavour.os().tag());
    daemon.pull_with(settings.image.image_pull_secrets.as_ref());
    let resources = cx.spec().driver.component.resources.clone();
    let Some(one) = daemon.container(name) else { return Ok(()) };
    one.image = Some(path);
    pull_if_set(one, &settings.image);
    set_all(one, settings.env.as_ref());
    if let Some(resources) = &resources {
        one.resources = Some(requirements(resources));
    }
    Ok(())
}
