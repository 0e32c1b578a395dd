//! The DRA driver: a kubelet plugin on each node that publishes its GPUs, and compute domains if enabled.

use capstan_api::gpu::gpu_cluster::KubeletPlugin;
use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::daemon_set::rolling_update;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, container, host, host_dir, host_make, on_nodes, set_env};
use capstan_plan::kit::rbac::{Rights, bound_role, rule};
use k8s_openapi::api::apps::v1::DaemonSetUpdateStrategy;
use k8s_openapi::api::core::v1::{Container, GRPCAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::resources::largest;
use super::{Dra, Operand, classes, controller};
use crate::gpu::components::access::{access, constraints};
use crate::gpu::components::daemon::{GpuDaemon, deployed};
use crate::gpu::components::snippets::{as_root, requirements, set_all};
use crate::gpu::components::{Cx, Outcome};
use crate::gpu::image;

pub(super) const OPERAND: Operand =
    Operand { name: "state-dra-driver", condition: "DraDriver", deploy: Some(DEPLOY), enabled: |_| true, objects };

const DEPLOY: &str = "dra-driver";
const NAME: &str = "nvidia-dra-driver-kubelet-plugin";
const ACCOUNT: &str = "nvidia-dra-driver-kubeletplugin";
const CHECK: &str = "driver-validation";
const GPUS: &str = "gpus";
const DOMAINS: &str = "compute-domains";

const READ: &[&str] = &["get", "list", "watch"];
pub(super) const ALL: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

fn objects(dra: &Dra<'_>) -> Outcome<Vec<Object>> {
    let cx = &dra.cx;
    let domains = dra.compute_domains().is_some();
    let mut here = Vec::new();
    if domains {
        here.push(rule("resource.nvidia.com", &["computedomaincliques"], &["get"]));
    }
    let everywhere = vec![
        rule("resource.nvidia.com", &["computedomains"], READ),
        rule("resource.k8s.io", &["resourceclaims"], READ),
        rule("resource.k8s.io", &["resourceslices"], &["create", "delete", "get", "list", "update", "watch"]),
        rule("", &["nodes"], &["get", "list", "patch", "update", "watch"]),
        rule("", &["pods"], READ),
    ];
    let mut objects = access(cx, ACCOUNT, Rights { here, everywhere });
    let validation = format!("{ACCOUNT}-driver-validation");
    objects.extend(bound_role(&cx.scope, &validation, ACCOUNT, vec![rule("apps", &["daemonsets"], &["list"])]));
    if dra.has("MPSSupport") {
        objects.extend(bound_role(
            &cx.scope,
            &format!("{ACCOUNT}-mps"),
            ACCOUNT,
            vec![rule("apps", &["deployments"], ALL)],
        ));
    }
    objects.extend(classes::classes(dra));
    objects.extend(classes::policy(cx, ACCOUNT));
    objects.extend(scc(cx));
    if domains {
        objects.extend(controller::objects(dra)?);
    }
    objects.push(daemon(dra)?.object(&cx.scope));
    Ok(objects)
}

/// SCCs of the plugin and of the compute domain daemons.
fn scc(cx: &Cx<'_>) -> Option<Object> {
    let shares = Shares { network: true, ports: true, ..Shares::default() };
    let mut object = constraints(cx, "nvidia-dra-driver", shares)?;
    let user = |account: &str| format!("system:serviceaccount:{}:{account}", cx.namespace());
    object.body["users"] = vec![user(ACCOUNT), user(controller::DAEMON)].into();
    object.body.as_object_mut().map(|body| body.remove("groups"));
    Some(object)
}

/// RollingUpdate of all nodes at once: prepared claims are not affected.
pub(super) fn all_at_once() -> Option<DaemonSetUpdateStrategy> {
    Some(rolling_update(IntOrString::String("100%".into())))
}

fn template(dra: &Dra<'_>, containers: Vec<Container>) -> Daemon {
    let (kubelet, driver) = (dra.cx.paths.kubelet.to_owned(), dra.driver_dir());
    let check = container(CHECK)
        .runs(&["nvidia-validator"], &[])
        .with("COMPONENT", "driver")
        .with("WITH_WAIT", "true")
        .with("DRIVER_VALIDATION_SKIP_GPU_INIT", "true")
        .with("DISABLE_DEV_CHAR_SYMLINK_CREATION", "true")
        .field("OPERATOR_NAMESPACE", "metadata.namespace")
        .with("HOST_ROOT", "/")
        .with("DRIVER_INSTALL_DIR", driver)
        .with("DRIVER_INSTALL_DIR_CTR_PATH", "/driver-root")
        .mounts(vec![
            at("host-root", "/host").read_only().host_to_container(),
            at("driver-root", "/driver-root").host_to_container(),
            at("validations", "/run/nvidia/validations"),
        ])
        .privileged();
    let mut volumes = vec![
        host_make("plugins-registry", &format!("{kubelet}/plugins_registry")),
        host_make("plugins", &format!("{kubelet}/plugins")),
        host_make("cdi", "/var/run/cdi"),
        host_make("validations", "/run/nvidia/validations"),
        host("host-root", "/"),
        host_make("driver-root", driver),
    ];
    if dra.has("PassthroughSupport") {
        volumes.extend([
            host_dir("lib-modules", "/lib/modules"),
            host_dir("sysfs", "/sys"),
            host_dir("procfs", "/proc"),
        ]);
    }
    let mut daemon = Daemon::new(NAME, ACCOUNT, deployed(DEPLOY)).with_scc("nvidia-dra-driver").with(
        vec![check],
        containers,
        volumes,
    );
    for labels in [&mut daemon.labels, &mut daemon.pod_labels] {
        labels.insert("app.kubernetes.io/name".into(), "nvidia-dra-driver".into());
        labels.insert("app.kubernetes.io/component".into(), "kubelet-plugin".into());
    }
    daemon.strategy = all_at_once();
    daemon.pod.affinity = Some(on_nodes(&[
        ("feature.node.kubernetes.io/pci-10de.present", "true"),
        ("feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA"),
        ("nvidia.com/gpu.present", "true"),
    ]));
    daemon
}

fn daemon(dra: &Dra<'_>) -> Outcome<Daemon> {
    let cx = &dra.cx;
    let image = &dra.spec().dra_driver.image;
    let path = dra.image()?;
    let mut containers = vec![gpus(dra, &path)];
    let settings = dra.compute_domains().map(|domains| domains.kubelet_plugin.as_ref());
    if let Some(settings) = settings {
        containers.push(domains(dra, settings));
    }
    for container in &mut containers {
        container.image = Some(path.clone());
        container.image_pull_policy = Some(image::pull_policy(image).into());
    }
    let mut daemon = template(dra, containers);
    daemon.common(cx)?;
    daemon.add_pull_secrets(image.image_pull_secrets.as_ref());
    daemon.check(cx, CHECK)?;
    if let Some(check) = daemon.container(CHECK) {
        as_root(check);
        let asked = [dra.gpus(), settings.flatten()].into_iter().flatten().filter_map(|one| one.resources.as_ref());
        check.resources = largest(asked);
    }
    Ok(daemon)
}

/// Common settings of both containers.
fn plugin(dra: &Dra<'_>, name: &str, program: &str, endpoint: &str) -> Container {
    let kubelet = dra.cx.paths.kubelet.to_owned();
    // Only the validator knows the driver root: the driver may be the host's.
    let script = format!(
        "set -o allexport; . /run/nvidia/validations/driver-ready; set +o allexport\n\
         if [ \"${{MASK_NVIDIA_DRIVER_PARAMS}}\" = true ]; then\n\
         \x20 sed 's/^ModifyDeviceFiles: 1$/ModifyDeviceFiles: 0/' /proc/driver/nvidia/params > /tmp/params\n\
         \x20 mount --bind /tmp/params /proc/driver/nvidia/params\n\
         fi\n\
         exec {program} -v \"${{LOG_VERBOSITY}}\"\n"
    );
    container(name)
        .runs(&["bash", "-c"], &[&script])
        .with("HTTP_ENDPOINT", endpoint)
        .with("METRICS_PATH", "/metrics")
        .with("LOG_VERBOSITY", "4")
        .with("MASK_NVIDIA_DRIVER_PARAMS", "")
        .with("NVIDIA_VISIBLE_DEVICES", "void")
        .with("CDI_ROOT", "/var/run/cdi")
        .with("NVIDIA_MIG_CONFIG_DEVICES", "all")
        .node_name()
        .field("NAMESPACE", "metadata.namespace")
        .with("KUBELET_REGISTRAR_DIRECTORY_PATH", &format!("{kubelet}/plugins_registry"))
        .with("KUBELET_PLUGINS_DIRECTORY_PATH", &format!("{kubelet}/plugins"))
        .mounts(vec![
            at("plugins-registry", &format!("{kubelet}/plugins_registry")),
            at("plugins", &format!("{kubelet}/plugins")).bidirectional(),
            at("cdi", "/var/run/cdi"),
            at("validations", "/run/nvidia/validations").read_only(),
            at("host-root", "/host").read_only().host_to_container(),
            at("driver-root", "/driver-root").host_to_container(),
        ])
        .privileged()
}

fn gpus(dra: &Dra<'_>, image: &str) -> Container {
    let mut main =
        plugin(dra, GPUS, "gpu-kubelet-plugin", ":8080").with("HOST_ROOT", "/host").with("IMAGE_NAME", image);
    if dra.has("PassthroughSupport") {
        main.volume_mounts.get_or_insert_default().extend([
            at("lib-modules", "/lib/modules/").read_only().host_to_container(),
            at("sysfs", "/sys/").bidirectional(),
            at("procfs", "/proc/").bidirectional(),
        ]);
    }
    finish(dra, &mut main, dra.gpus(), 51516, 30);
    main
}

fn domains(dra: &Dra<'_>, settings: Option<&KubeletPlugin>) -> Container {
    let mut main =
        plugin(dra, DOMAINS, "compute-domain-kubelet-plugin", ":8081").with("GPU_CLIQUE_LABEL_ENABLED", "true");
    finish(dra, &mut main, settings, 51515, 10);
    main
}

/// Probes, feature gates and user settings.
fn finish(dra: &Dra<'_>, main: &mut Container, settings: Option<&KubeletPlugin>, port: i32, period: i32) {
    let settings = settings.cloned().unwrap_or_default();
    let health = settings.healthcheck.unwrap_or_default();
    let port = if health.enabled == Some(false) { -1 } else { health.port.unwrap_or(port) };
    set_env(main, "HEALTHCHECK_PORT", &port.to_string());
    if port > 0 {
        let probe = |period: i32, failures: i32| Probe {
            grpc: Some(GRPCAction { port, service: Some("liveness".into()), ..GRPCAction::default() }),
            period_seconds: Some(period),
            timeout_seconds: Some(10),
            failure_threshold: Some(failures),
            ..Probe::default()
        };
        main.startup_probe = Some(probe(1, 600));
        main.liveness_probe = Some(probe(period, 3));
    }
    if let Some(features) = dra.features() {
        set_env(main, "FEATURE_GATES", &features);
    }
    set_all(main, settings.env.as_ref());
    main.resources = settings.resources.as_ref().map(requirements);
}
