//! MIG manager: applies the MIG layout of the node label.

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, config, container, host, host_dir, host_make, set_env};
use capstan_plan::kit::rbac::{Rights, rule};
use k8s_openapi::api::core::v1::ConfigMap;

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::device_plugin::{behind_script, cdi_hook};
use super::snippets::after_toolkit;
use super::toolkit::entrypoint;
use super::{Operand, Outcome, PolicyCx, mig_parted};

pub(crate) const OPERAND: Operand = Operand {
    name: "state-mig-manager",
    condition: "MigManager",
    deploy: Some("mig-manager"),
    enabled: |cx| cx.spec().mig_manager.as_ref().and_then(|manager| manager.component.enabled).unwrap_or(true),
    objects,
};

const NAME: &str = "nvidia-mig-manager";
const ENTRYPOINT: &str = "nvidia-mig-manager-entrypoint";
const LAYOUTS: &str = "default-mig-parted-config";
const CLIENTS: &str = "default-gpu-clients";

/// Host services that keep GPUs open.
const SERVICES: [&str; 9] = [
    "nvsm.service",
    "nvsm-mqtt.service",
    "nvsm-core.service",
    "nvsm-api-gateway.service",
    "nvsm-notifier.service",
    "nv_peer_mem.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "dcgm-exporter.service",
];

const SCRIPT: &str = r#"export WITH_SHUTDOWN_HOST_GPU_CLIENTS="$IS_HOST_DRIVER"
exec nvidia-mig-manager "$@""#;

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights {
        here: vec![
            rule("", &["pods"], &["get", "list", "watch", "delete"]),
            rule("", &["configmaps"], &["create", "get", "list", "update", "patch"]),
        ],
        everywhere: vec![
            rule("", &["nodes"], &["get", "list", "watch", "update", "patch"]),
            rule("", &["pods"], &["list"]),
        ],
    };
    let mut objects = access(cx, NAME, rights);
    objects.extend(constraints(cx, NAME, Shares { pid: true, ipc: true, anything: true, ..Shares::default() }));
    if layouts(cx) == LAYOUTS {
        objects.push(map(cx, LAYOUTS, "config.yaml", mig_parted::config()));
    }
    if clients(cx) == CLIENTS {
        let services: String = SERVICES.iter().map(|service| format!("  - {service}\n")).collect();
        objects.push(map(cx, CLIENTS, "clients.yaml", format!("version: v1\nsystemd-services:\n{services}")));
    }
    objects.push(entrypoint(cx, ENTRYPOINT, NAME, SCRIPT));
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

/// A ConfigMap with one file.
pub(crate) fn map(cx: &PolicyCx<'_>, name: &str, file: &str, text: String) -> Object {
    let data = [(file.to_owned(), text)].into();
    Object::new(&ConfigMap { metadata: cx.scope.meta(name), data: Some(data), ..ConfigMap::default() })
}

/// The mig-parted ConfigMap.
fn layouts<'a>(cx: &PolicyCx<'a>) -> &'a str {
    let config = cx.spec().mig_manager.as_ref().and_then(|manager| manager.config.as_ref());
    config.and_then(|config| config.name.as_deref()).filter(|name| !name.is_empty()).unwrap_or(LAYOUTS)
}

/// The ConfigMap with the GPU clients to stop.
fn clients<'a>(cx: &PolicyCx<'a>) -> &'a str {
    let config = cx.spec().mig_manager.as_ref().and_then(|manager| manager.gpu_clients_config.as_ref());
    config.and_then(|config| config.name.as_deref()).filter(|name| !name.is_empty()).unwrap_or(CLIENTS)
}

fn template() -> Daemon {
    let toolkit = after_toolkit("run-nvidia-validations", "/run/nvidia/validations");
    let main = container(NAME)
        .runs(&["/bin/sh", "-c"], &["/bin/entrypoint.sh"])
        .node_name()
        .field("POD_NAME", "metadata.name")
        .field("POD_NAMESPACE", "metadata.namespace")
        .with("GPU_CLIENTS_FILE", "/gpu-clients/clients.yaml")
        .field("DEFAULT_GPU_CLIENTS_NAMESPACE", "metadata.namespace")
        .mounts(vec![
            at(ENTRYPOINT, "/bin/entrypoint.sh").read_only().sub("entrypoint.sh"),
            at("run-nvidia-validations", "/run/nvidia/validations"),
            at("host-sys", "/sys"),
            at("host-root", "/host").host_to_container(),
            at("gpu-clients", "/gpu-clients"),
            at("mig-parted-config", "/mig-parted-config"),
            at("driver-install-dir", "/driver-root").host_to_container(),
            at("cdi-root", "/var/run/cdi"),
        ])
        .privileged();
    let mut daemon = gpu_daemon(NAME, NAME, "mig-manager").with(
        vec![toolkit],
        vec![main],
        vec![
            config(ENTRYPOINT, ENTRYPOINT, Some(0o700), &[]),
            host_make("run-nvidia-validations", "/run/nvidia/validations"),
            host_dir("host-sys", "/sys"),
            host("host-root", "/"),
            host_make("driver-install-dir", "/run/nvidia/driver"),
            host_make("cdi-root", "/var/run/cdi"),
        ],
    );
    daemon.pod.host_pid = Some(true);
    daemon.pod.host_ipc = Some(true);
    daemon
}

fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let manager = cx.spec().mig_manager.clone().unwrap_or_default();
    let mut daemon = template();
    daemon.common(cx)?;
    daemon.validated(cx)?;
    daemon.runs_as(cx, &manager.component, "MIG_MANAGER_IMAGE")?;
    behind_script(&mut daemon);
    daemon.sees_gpus(cx, NAME);
    let custom = manager.config.as_ref().and_then(|config| config.name.as_deref()).is_some_and(|name| !name.is_empty());
    let (items, variable, file): (&[_], _, _) = if custom {
        (&[], "CONFIG_FILE", "/mig-parted-config/config.yaml")
    } else {
        (&[("config.yaml", "config-default.yaml")], "DEFAULT_CONFIG_FILE", "/mig-parted-config/config-default.yaml")
    };
    let volumes = daemon.pod.volumes.get_or_insert_default();
    volumes.push(config("mig-parted-config", layouts(cx), None, items));
    volumes.push(config("gpu-clients", clients(cx), None, &[]));
    set_env(daemon.main(), variable, file);
    if cx.runtime.cdi {
        set_env(daemon.main(), "CDI_ENABLED", "true");
    }
    cdi_hook(cx, &mut daemon);
    daemon.finishes_as(&manager.component);
    Ok(daemon)
}
