//! Node status exporter: validation results of each node, as metrics.

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::monitoring::{alert, scraped_service};
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, container, host, host_dir};
use capstan_plan::kit::rbac::{Rights, rule};
use k8s_openapi::api::core::v1::{ContainerPort, ServiceSpec};
use serde_json::json;

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::monitor::{monitor, rules};
use super::own::OwnImage;
use super::snippets::as_root;
use super::{Operand, Outcome, PolicyCx};

pub(crate) const OPERAND: Operand = Operand {
    name: capstan_node::NODE_STATUS_EXPORTER.operand(),
    condition: "NodeStatusExporter",
    deploy: capstan_node::NODE_STATUS_EXPORTER.deploy,
    enabled: |cx| cx.spec().node_status_exporter.enabled == Some(true),
    objects,
};

const NAME: &str = "nvidia-node-status-exporter";
const PORT: i32 = 8000;

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights {
        here: vec![rule("", &["pods"], &["get", "list"]), rule("apps", &["daemonsets"], &["get", "list", "watch"])],
        everywhere: vec![rule("", &["nodes"], &["get", "list", "watch"])],
    };
    let mut objects = access(cx, NAME, rights);
    for object in objects.iter_mut().take(3) {
        object.body["metadata"]["labels"]["app"] = NAME.into();
    }
    objects.extend(constraints(cx, NAME, Shares { anything: true, ..Shares::default() }));
    objects.push(scraped_service(&cx.scope, NAME, "node-status", PORT, ServiceSpec::default()));
    objects.extend(monitor(cx, NAME, "node-status", "node-status", None));
    objects.extend(rules(
        cx,
        "nvidia-node-status-exporter-alerts",
        json!([{"name": "node-status", "rules": alerts()}]),
    ));
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

fn alerts() -> Vec<serde_json::Value> {
    let table = [
        ("", "gpu_operator_node_device_plugin_devices_total == 0", "offers no GPU"),
        ("Driver", "gpu_operator_node_driver_validation == 0", "has no working driver"),
        (
            "Toolkit",
            "gpu_operator_node_toolkit_ready == 0 and gpu_operator_node_driver_validation == 1",
            "has a driver but no working toolkit",
        ),
        (
            "Cuda",
            "gpu_operator_node_cuda_ready == 0 and gpu_operator_node_driver_validation == 1",
            "has a driver but runs no CUDA program",
        ),
    ];
    let one = |(part, expr, what): &(&str, &str, &str)| {
        let name = format!("GPUOperatorNodeDeployment{part}Failed");
        alert(&name, expr, "30m", &format!("Node {{{{ $labels.node }}}} {what}"))
    };
    table.iter().map(one).collect()
}

fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let exporter = &cx.spec().node_status_exporter;
    let mut main = container(NAME)
        .runs(&["nvidia-validator"], &[])
        .with("NVIDIA_VISIBLE_DEVICES", "void")
        .with("COMPONENT", "metrics")
        .with("METRICS_PORT", "8000")
        .node_name()
        .field("OPERATOR_NAMESPACE", "metadata.namespace")
        .mounts(vec![
            at("run-nvidia", "/run/nvidia").host_to_container(),
            at("host-root", "/host").read_only().host_to_container(),
        ])
        .privileged();
    main.ports = Some(vec![ContainerPort {
        name: Some("node-status".into()),
        container_port: PORT,
        ..ContainerPort::default()
    }]);
    let volumes = vec![host_dir("run-nvidia", "/run/nvidia"), host("host-root", "/")];
    let mut daemon = gpu_daemon(NAME, NAME, capstan_node::NODE_STATUS_EXPORTER.deploy()).with_scc(NAME).with(
        vec![],
        vec![main],
        volumes,
    );
    daemon.common(cx)?;
    daemon.runs_role(cx, exporter, "VALIDATOR_IMAGE", &capstan_node::NODE_STATUS_EXPORTER)?;
    daemon.finishes_as(exporter);
    as_root(daemon.main());
    Ok(daemon)
}
