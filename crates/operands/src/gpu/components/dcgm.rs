//! DCGM host engine, as a pod of its own.

use capstan_api::gpu::component::Component;
use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::monitoring::service;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, container, host_dir};
use capstan_plan::kit::rbac::Rights;
use k8s_openapi::api::core::v1::{ContainerPort, Probe, ServiceSpec, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::snippets::after_toolkit;
use super::{Cx, Operand, Outcome, PolicyCx, dcgm_exporter, enabled};
use crate::gpu::image;

pub(crate) const OPERAND: Operand = Operand {
    name: "state-dcgm",
    condition: "Dcgm",
    deploy: Some("dcgm"),
    enabled: |cx| enabled(&cx.spec().dcgm.component),
    objects,
};

const IMAGE: &str = "DCGM_IMAGE";
const NAME: &str = "nvidia-dcgm";
pub(crate) const MAIN: &str = "nvidia-dcgm-ctr";
pub(crate) const PORT: i32 = 5555;

/// Message when it is enabled but not needed.
pub(crate) const SPARED: &str = "disabled: the exporter reads NVML itself";

/// Whether it is not needed: our own exporter uses NVML, and no DCGM image is set.
pub(crate) fn is_spared(cx: &PolicyCx<'_>) -> bool {
    let image = &cx.spec().dcgm.component.image;
    dcgm_exporter::is_own(cx) && image::is_unnamed(image) && cx.image(image, IMAGE).is_err()
}

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    if is_spared(cx) {
        return Ok(Vec::new());
    }
    let mut objects = access(cx, NAME, Rights::default());
    let shares = Shares { network: true, ports: true, anything: true, ..Shares::default() };
    objects.extend(constraints(cx, NAME, shares));
    let spec = ServiceSpec {
        type_: Some("ClusterIP".into()),
        internal_traffic_policy: Some("Local".into()),
        ..ServiceSpec::default()
    };
    objects.push(service(&cx.scope, NAME, "dcgm", PORT, spec));
    objects.push(daemon(cx, &cx.spec().dcgm.component)?.object(&cx.scope));
    Ok(objects)
}

fn template() -> Daemon {
    let toolkit = after_toolkit("run-nvidia", "/run/nvidia");
    let mut main = container(MAIN).privileged();
    main.ports =
        Some(vec![ContainerPort { name: Some("dcgm".into()), container_port: PORT, ..ContainerPort::default() }]);
    let probe = Probe {
        tcp_socket: Some(TCPSocketAction { port: IntOrString::Int(PORT), ..TCPSocketAction::default() }),
        initial_delay_seconds: Some(15),
        ..Probe::default()
    };
    main.liveness_probe = Some(probe.clone());
    main.readiness_probe = Some(probe);
    let volumes = vec![host_dir("run-nvidia", "/run/nvidia")];
    gpu_daemon(NAME, NAME, "dcgm").with_scc("hostmount-anyuid").with(vec![toolkit], vec![main], volumes)
}

/// The DaemonSet of the engine with these settings.
pub(crate) fn daemon(cx: &Cx<'_>, dcgm: &Component) -> Outcome<Daemon> {
    let mut daemon = template();
    daemon.common(cx)?;
    daemon.validated(cx)?;
    daemon.runs_as(cx, dcgm, IMAGE)?;
    daemon.finishes_as(dcgm);
    daemon.sees_gpus(cx, MAIN);
    Ok(daemon)
}
