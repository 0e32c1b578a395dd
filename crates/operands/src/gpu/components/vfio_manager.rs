//! VFIO manager: binds the GPUs of a node to vfio-pci, for virtual machines.

use std::collections::BTreeMap;

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, container, host, host_dir, host_make};
use capstan_plan::kit::rbac::Rights;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::access::{access, constraints, unloading};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::driver;
use super::{Operand, Outcome, PolicyCx, switched_on};

pub(crate) const OPERAND: Operand = Operand {
    name: "state-vfio-manager",
    condition: "VfioManager",
    deploy: Some("vfio-manager"),
    enabled: |cx| cx.sandboxes() && switched_on(cx.spec().vfio_manager.as_ref().map(|manager| &manager.component)),
    objects,
};

const NAME: &str = "nvidia-vfio-manager";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights { everywhere: unloading(), ..Rights::default() };
    let mut objects = access(cx, NAME, rights);
    objects.extend(constraints(cx, NAME, Shares { anything: true, ..Shares::default() }));
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

/// Resources of a mostly idle manager.
pub(crate) fn small() -> ResourceRequirements {
    let quantity = |text: &str| Quantity(text.into());
    let memory = ("memory".to_owned(), quantity("200Mi"));
    ResourceRequirements {
        limits: Some(BTreeMap::from([memory.clone()])),
        requests: Some(BTreeMap::from([memory, ("cpu".into(), quantity("100m"))])),
        ..ResourceRequirements::default()
    }
}

fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let manager = cx.spec().vfio_manager.clone().unwrap_or_default();
    let mut main = container(NAME)
        .runs(&["/bin/bash", "-c"], &["vfio-manage bind --all && sleep infinity"])
        .with("HOST_ROOT", "/host")
        .mounts(vec![
            at("host-sys", "/sys"),
            at("host-lib-modules", "/lib/modules").read_only(),
            at("host-root", "/host"),
        ])
        .privileged()
        .before_stop("vfio-manage unbind --all");
    main.resources = Some(small());
    let mut daemon = gpu_daemon(NAME, NAME, "vfio-manager").selected_by_name().with(
        vec![driver::manager(false)],
        vec![main],
        vec![
            host_make("run-nvidia", "/run/nvidia"),
            host_dir("host-sys", "/sys"),
            host_dir("host-lib-modules", "/lib/modules"),
            host("host-root", "/"),
        ],
    );
    daemon.pod.termination_grace_period_seconds = Some(30);
    daemon.common(cx)?;
    driver::manage(cx, &mut daemon, manager.driver_manager.as_ref(), manager.component.resources.as_ref())?;
    daemon.runs_as(cx, &manager.component, "VFIO_MANAGER_IMAGE")?;
    daemon.finishes_as(&manager.component);
    Ok(daemon)
}
