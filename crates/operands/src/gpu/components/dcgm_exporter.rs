//! DCGM exporter: metrics of every GPU for Prometheus.

use capstan_api::gpu::dcgm::DcgmExporter;
use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::monitoring::scraped_service;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, config, container, env_of, host, host_make, set_env};
use capstan_plan::kit::rbac::{Rights, cluster_role, rule};
use k8s_openapi::api::core::v1::{ContainerPort, HTTPGetAction, Probe, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::access::{access, constraints};
use super::context::KUBELET_DIR;
use super::daemon::{GpuDaemon, gpu_daemon};
use super::monitor::{monitor, rules};
use super::own::OwnImage;
use super::snippets::{after_toolkit, set_all};
use super::{Cx, Operand, Outcome, PolicyCx, enabled, node_agent};

pub(crate) const OPERAND: Operand = Operand {
    name: capstan_node::EXPORTER.operand(),
    condition: "DcgmExporter",
    deploy: capstan_node::EXPORTER.deploy,
    enabled: |cx| enabled(&cx.spec().dcgm_exporter.component),
    objects,
};

const IMAGE: &str = "DCGM_EXPORTER_IMAGE";
pub(crate) const NAME: &str = "nvidia-dcgm-exporter";
const READER: &str = "nvidia-dcgm-exporter-read-pods";
pub(crate) const PORT: i32 = 9400;
const POD_LABELS: &str = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS";
const POD_UID: &str = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID";
pub(crate) const REMOTE: &str = "DCGM_REMOTE_HOSTENGINE_INFO";
/// Address of the DCGM host engine.
pub(crate) const ENGINE: &str = "nvidia-dcgm:5555";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let exporter = &cx.spec().dcgm_exporter;
    let shared = node_agent::has(cx, &capstan_node::EXPORTER)?;
    let mut objects = Vec::new();
    if !shared {
        let rights = Rights { here: vec![rule("", &["configmaps"], &["get", "list"])], ..Rights::default() };
        objects.extend(access(cx, NAME, if is_own(cx) { Rights::default() } else { rights }));
        if reads_pods(exporter) {
            objects.extend(cluster_role(&cx.scope, READER, NAME, own_rights(cx).everywhere));
        }
        objects.extend(constraints(cx, NAME, Shares { ports: true, anything: true, ..Shares::default() }));
    }
    let settings = exporter.service.clone().unwrap_or_default();
    let spec = ServiceSpec {
        type_: settings.type_.filter(|type_| !type_.is_empty()),
        internal_traffic_policy: settings.internal_traffic_policy.filter(|policy| !policy.is_empty()),
        ..ServiceSpec::default()
    };
    let service = scraped_service(&cx.scope, NAME, "gpu-metrics", PORT, spec);
    objects.push(if shared { node_agent::retarget_service(service) } else { service });
    if let Some(settings) = exporter.service_monitor.as_ref().filter(|settings| settings.enabled == Some(true)) {
        objects.extend(monitor(cx, NAME, "gpu-metrics", "app", Some(settings)));
    }
    objects.extend(rules(cx, NAME, recorded()));
    for object in &mut objects {
        object.body["metadata"]["labels"]["app"] = NAME.into();
    }
    if shared {
        objects.extend(node_agent::objects(cx)?);
    } else {
        objects.push(policy_daemon(cx)?.object(&cx.scope));
    }
    Ok(objects)
}

/// Whether our own image is the exporter, which uses NVML.
pub(crate) fn is_own(cx: &PolicyCx<'_>) -> bool {
    cx.is_own(&cx.spec().dcgm_exporter.component.image, IMAGE)
}

/// RBAC rules of our exporter: needed only for pod metadata.
pub(crate) fn own_rights(cx: &PolicyCx<'_>) -> Rights {
    let pods = || rule("", &["pods"], &["get", "list", "watch"]);
    let everywhere = reads_pods(&cx.spec().dcgm_exporter).then(pods).into_iter().collect();
    Rights { everywhere, ..Rights::default() }
}

/// Whether metrics have pod metadata from the API server.
fn reads_pods(exporter: &DcgmExporter) -> bool {
    let asked = |name: &str| {
        let env = exporter.component.env.iter().flatten();
        env.rev()
            .find(|one| one.name == name)
            .is_some_and(|one| one.value.as_deref().unwrap_or_default().eq_ignore_ascii_case("true"))
    };
    exporter.enable_pod_labels == Some(true)
        || exporter.enable_pod_uid == Some(true)
        || asked(POD_LABELS)
        || asked(POD_UID)
}

fn template() -> Daemon {
    let toolkit = after_toolkit("run-nvidia", "/run/nvidia");
    let mut main = container(NAME)
        .with("DCGM_EXPORTER_LISTEN", ":9400")
        .with("DCGM_EXPORTER_KUBERNETES", "true")
        .with("DCGM_EXPORTER_COLLECTORS", "/etc/dcgm-exporter/dcp-metrics-included.csv")
        .node_name()
        .mounts(vec![at("pod-gpu-resources", "/var/lib/kubelet/pod-resources").read_only()])
        .privileged();
    main.ports =
        Some(vec![ContainerPort { name: Some("metrics".into()), container_port: PORT, ..ContainerPort::default() }]);
    let probe = |period: Option<i32>| Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/health".into()),
            port: IntOrString::Int(PORT),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: Some(45),
        period_seconds: period,
        ..Probe::default()
    };
    main.liveness_probe = Some(probe(Some(5)));
    main.readiness_probe = Some(probe(None));
    let volumes = vec![host("pod-gpu-resources", "/var/lib/kubelet/pod-resources"), host("run-nvidia", "/run/nvidia")];
    let mut daemon =
        gpu_daemon(NAME, NAME, capstan_node::EXPORTER.deploy()).with_scc(NAME).with(vec![toolkit], vec![main], volumes);
    daemon.pod.automount_service_account_token = Some(false);
    daemon
}

/// The DaemonSet of a ClusterPolicy.
pub(crate) fn policy_daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let engine = if enabled(&cx.spec().dcgm.component) { Engine::Beside } else { Engine::Within };
    daemon(cx, &cx.spec().dcgm_exporter, engine)
}

/// Which DCGM engine the exporter uses by default.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// The standalone host engine.
    Beside,
    /// The embedded engine.
    Within,
}

/// The DaemonSet with these settings.
pub(crate) fn daemon(cx: &Cx<'_>, exporter: &DcgmExporter, engine: Engine) -> Outcome<Daemon> {
    let mut daemon = template();
    daemon.common(cx)?;
    daemon.validated(cx)?;
    let own = daemon.runs_role(cx, &exporter.component, IMAGE, &capstan_node::EXPORTER)?;
    daemon.pod_annotations.extend(exporter.annotations.clone().unwrap_or_default());
    if own {
        by_itself(&mut daemon);
    } else if engine == Engine::Beside {
        set_env(daemon.main(), REMOTE, ENGINE);
    }
    daemon.host_network(exporter.component.host_network);
    daemon.sees_gpus(cx, NAME);
    if exporter.host_pid == Some(true) {
        daemon.pod.host_pid = Some(true);
    }
    jobs(exporter, &mut daemon);
    if exporter.enable_pod_labels == Some(true) {
        set_env(daemon.main(), POD_LABELS, "true");
    }
    if exporter.enable_pod_uid == Some(true) {
        set_env(daemon.main(), POD_UID, "true");
    }
    if let Some(allowed) = exporter.pod_label_allowlist_regex.as_ref().filter(|list| !list.is_empty()) {
        set_env(daemon.main(), "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", &allowed.join(","));
    }
    metrics(cx, exporter, &mut daemon);
    if cx.paths.kubelet != KUBELET_DIR {
        daemon.set_host_path("pod-gpu-resources", &format!("{}/pod-resources", cx.paths.kubelet));
    }
    set_all(daemon.main(), exporter.component.env.as_ref());
    // An engine on localhost needs the host network.
    if env_of(daemon.main(), REMOTE).is_some_and(|address| address.starts_with("localhost")) {
        daemon.host_network(Some(true));
    }
    let from_config_map =
        env_of(daemon.main(), "DCGM_EXPORTER_CONFIGMAP_DATA").is_some_and(|data| !["", "none"].contains(&data));
    if reads_pods(exporter) || from_config_map {
        daemon.pod.automount_service_account_token = Some(true);
    }
    Ok(daemon)
}

/// Our exporter has built-in default metrics, and is ready as soon as it runs.
fn by_itself(daemon: &mut Daemon) {
    let main = daemon.main();
    main.env.iter_mut().for_each(|env| env.retain(|one| one.name != "DCGM_EXPORTER_COLLECTORS"));
    for probe in [&mut main.liveness_probe, &mut main.readiness_probe].into_iter().flatten() {
        probe.initial_delay_seconds = None;
    }
}

/// HPC job mapping files.
fn jobs(exporter: &DcgmExporter, daemon: &mut Daemon) {
    let Some(mapping) = exporter.hpc_job_mapping.as_ref().filter(|mapping| mapping.enabled == Some(true)) else {
        return;
    };
    let given = mapping.directory.as_deref().filter(|directory| !directory.is_empty());
    let directory = given.unwrap_or("/var/lib/dcgm-exporter/job-mapping");
    set_env(daemon.main(), "DCGM_HPC_JOB_MAPPING_DIR", directory);
    daemon.mount(NAME, host_make("hpc-job-mapping", directory), at("hpc-job-mapping", directory).read_only());
}

/// The user's metrics list. The exporter reads it at its start, so a change restarts the pods.
fn metrics(cx: &Cx<'_>, exporter: &DcgmExporter, daemon: &mut Daemon) {
    let name = exporter.config.as_ref().and_then(|config| config.name.as_deref()).filter(|name| !name.is_empty());
    let Some(name) = name else { return };
    let (file, path) = ("dcgm-metrics.csv", "/etc/dcgm-exporter/dcgm-metrics.csv");
    let volume = config("metrics-config", name, None, &[(file, file)]);
    daemon.mount(NAME, volume, at("metrics-config", path).read_only().sub(file));
    set_env(daemon.main(), "DCGM_EXPORTER_COLLECTORS", path);
    daemon.restarts_with(cx, name);
}

/// Recording rules for OpenShift's vendor-neutral accelerator metrics.
fn recorded() -> serde_json::Value {
    let table = [
        ("accelerator_gpu_utilization", "DCGM_FI_DEV_GPU_UTIL"),
        ("accelerator_memory_used_bytes", "DCGM_FI_DEV_FB_USED * 1024 * 1024"),
        ("accelerator_memory_total_bytes", "DCGM_FI_DEV_FB_TOTAL * 1024 * 1024"),
        ("accelerator_power_usage_watts", "DCGM_FI_DEV_POWER_USAGE"),
        ("accelerator_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP"),
        ("accelerator_sm_clock_hertz", "DCGM_FI_DEV_SM_CLOCK * 1000000"),
        ("accelerator_memory_clock_hertz", "DCGM_FI_DEV_MEM_CLOCK * 1000000"),
    ];
    let rules: Vec<_> = table
        .iter()
        .map(|(name, expr)| json!({"record": name, "expr": expr, "labels": {"vendor": "nvidia"}}))
        .collect();
    json!([{"name": "dcgm.accelerator.metrics", "interval": "30s", "rules": rules}])
}
