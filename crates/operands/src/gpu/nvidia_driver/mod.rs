//! NVIDIADriver: drivers for a subset of nodes, one DaemonSet per pool of nodes that share an image.
//!
//! It deploys the same driver component as a ClusterPolicy, for its own nodes: [`settings`] maps its spec, [`pools`]
//! selects the DaemonSets, [`names`] names them, [`status`] reports progress.

mod names;
mod pools;
mod settings;
mod status;

use std::collections::BTreeMap;

use capstan_api::gpu::NvidiaDriver;
use capstan_api::gpu::nvidia_driver::{DriverType, NvidiaDriverStatus};
use capstan_plan::kit;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::operand::decide;
use capstan_plan::kit::pod::{at, host_dir, set_env};
use capstan_plan::kit::rbac::Rights;
use capstan_plan::{Facts, Object, Plan, Ref, is_current};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Toleration};
use kube::{Resource, ResourceExt};
use pools::Pool;

use crate::gpu::Cluster;
use crate::gpu::components::access::{access, constraints};
use crate::gpu::components::context::{HostPaths, given};
use crate::gpu::components::daemon::GpuDaemon;
use crate::gpu::components::driver::digest::{self, Record};
use crate::gpu::components::driver::{self as component, MAIN, TOOLKIT, files, startup_probe, template};
use crate::gpu::components::{Cx, Outcome};
use crate::gpu::upgrade::hold_back;

/// Label of all objects of an NVIDIADriver.
const STATE: (&str, &str) = ("nvidia.com/gpu-operator.state", "state-driver");

/// Label of pods of NVIDIADrivers: the target operating system.
const SYSTEM: &str = "nvidia.com/node.os-version";

/// Components of which a node runs at most one: drivers, and vGPU managers under their current and former name.
const COMPONENTS: [&str; 3] = ["nvidia-driver", "nvidia-vgpu-manager", "nvidia-vgpu-host-manager"];

/// Whether a driver pod comes from an NVIDIADriver.
pub fn is_own_pod(pod: &serde_json::Value) -> bool {
    pod["metadata"]["labels"][SYSTEM].is_string()
}

/// Input of an NVIDIADriver plan from other resources.
#[derive(Clone, Debug, Default)]
pub struct DriverContext {
    /// Whether a ClusterPolicy manages the drivers instead.
    pub disabled: bool,
    /// Host root of the ClusterPolicy.
    pub root: String,
    /// Why the NVIDIADrivers as a whole are invalid: reason and message.
    pub refusal: Option<(&'static str, String)>,
}

/// Context of a plan.
struct Driver<'a> {
    driver: &'a NvidiaDriver,
    context: &'a DriverContext,
    cx: Cx<'a>,
}

/// The only operand of an NVIDIADriver.
type Operand = kit::Operand<fn(&Driver<'_>) -> bool, fn(&Driver<'_>) -> Outcome<Vec<Object>>>;

const OPERANDS: &[Operand] = &[Operand { name: STATE.1, condition: "Ready", deploy: None, enabled: |_| true, objects }];

impl<'a> Driver<'a> {
    fn new(driver: &'a NvidiaDriver, facts: &'a Facts, cluster: &'a Cluster, context: &'a DriverContext) -> Self {
        let daemonsets = settings::daemonsets(&driver.spec);
        let cx = Cx::new("NVIDIADriver CR", driver.controller_owner_ref(&()), &daemonsets, facts, cluster);
        let usual = HostPaths::default();
        let paths = HostPaths { root: given(Some(&context.root)).unwrap_or(usual.root), ..usual };
        Self { driver, context, cx: Cx { paths, ..cx } }
    }
}

/// Plans a driver. A user error is part of the plan, never an `Err`.
pub fn plan(
    driver: &NvidiaDriver,
    facts: &Facts,
    cluster: &Cluster,
    context: &DriverContext,
) -> Plan<NvidiaDriverStatus> {
    let one = Driver::new(driver, facts, cluster, context);
    if let Some(refused) = status::refused(&one) {
        return refused;
    }
    let decided = decide(OPERANDS, &one, &facts.live, |_, object| Some(one.cx.scope.child(object)));
    let shown = status::observed(&one, &decided.parts);
    Plan { objects: Some(decided.objects), ..shown }
}

/// The plan while blocked from outside.
pub fn blocked(
    driver: &NvidiaDriver,
    facts: &Facts,
    cluster: &Cluster,
    context: &DriverContext,
    reason: &str,
    message: &str,
) -> Plan<NvidiaDriverStatus> {
    status::failed(&Driver::new(driver, facts, cluster, context), reason, message)
}

/// Objects that a driver references: their changes requeue it.
pub fn references(driver: &NvidiaDriver, namespace: &str) -> Vec<Ref> {
    let spec = &driver.spec;
    let maps = [&spec.repo_config, &spec.cert_config, &spec.kernel_module_config, &spec.virtual_topology_config];
    let maps = maps.into_iter().flatten().filter_map(|config| config.name.as_deref()).filter(|name| !name.is_empty());
    let secrets = spec.secret_env.as_deref().filter(|name| !name.is_empty());
    maps.map(|name| Ref::of::<ConfigMap>(namespace, name))
        .chain(secrets.map(|name| Ref::of::<Secret>(namespace, name)))
        .collect()
}

fn objects(one: &Driver<'_>) -> Outcome<Vec<Object>> {
    let cx = &one.cx;
    let mut objects: BTreeMap<Ref, Object> = BTreeMap::new();
    let mut add = |object: Object| drop(objects.insert(object.reference.clone(), object));
    let pools = pools::pools(one);
    if !pools.is_empty() {
        add(probe(one, cx));
        files::trusted_ca(cx).into_iter().for_each(&mut add);
    }
    for pool in pools {
        let account = names::account(one.driver, &pool);
        let rights = Rights { everywhere: component::rules(), ..Rights::default() };
        access(cx, &account, rights).into_iter().for_each(&mut add);
        let shares = Shares { pid: true, anything: true, ..Shares::default() };
        constraints(cx, &account, shares).into_iter().for_each(&mut add);
        add(hold_back(daemon_set(one, &pool, &account)?, &one.cx.facts.live));
    }
    let mut objects: Vec<Object> = objects.into_values().collect();
    for object in &mut objects {
        object.body["metadata"]["labels"][STATE.0] = STATE.1.into();
    }
    Ok(objects)
}

/// The startup probe ConfigMap, with a name of its own: it is deleted with its driver.
fn probe(one: &Driver<'_>, cx: &Cx<'_>) -> Object {
    let mut object = startup_probe(cx);
    object.reference.name = names::probe(one.driver);
    object.body["metadata"]["name"] = object.reference.name.clone().into();
    object.body["metadata"]["labels"].as_object_mut().map(|labels| labels.remove("app"));
    object
}

/// The DaemonSet of a pool. An operator upgrade alone rolls out no driver: a newer driver manager image is used only
/// when something else changes.
fn daemon_set(one: &Driver<'_>, pool: &Pool, account: &str) -> Outcome<Object> {
    let wanted = render(one, pool, account, None)?;
    let unset = one.driver.spec.manager.as_ref().is_none_or(|manager| manager.image.image.is_none());
    let there = one.cx.facts.live.get(&wanted.reference).filter(|_| unset);
    let containers = there.and_then(|live| live.pointer("/spec/template/spec/initContainers")?.as_array());
    let manager = containers.and_then(|all| all.iter().find(|container| container["name"] == "k8s-driver-manager"));
    if let Some(running) = manager.and_then(|container| container["image"].as_str()) {
        let kept = render(one, pool, account, Some(running))?;
        if is_current(&one.cx.scope.child(kept.clone()), &one.cx.facts.live) {
            return Ok(kept);
        }
    }
    Ok(wanted)
}

fn render(one: &Driver<'_>, pool: &Pool, account: &str, manager: Option<&str>) -> Outcome<Object> {
    let (spec, cx) = (&one.driver.spec, &one.cx);
    let host_manager = spec.driver_type == DriverType::VgpuHostManager;
    let mut daemon = template::template();
    daemon.common(cx)?;
    let before = daemon.main().volume_mounts.clone().unwrap_or_default().len();
    component::settings::apply(cx, &mut daemon, &settings::of(spec), &pool.flavour())?;
    if let (Some(container), Some(image)) = (daemon.container("k8s-driver-manager"), manager) {
        container.image = Some(image.into());
    }
    let more = daemon.main().volume_mounts.clone().unwrap_or_default().split_off(before);
    if let Some(args) = spec.args.as_ref().filter(|_| pool.rhcos.is_none()) {
        daemon.main().args.get_or_insert_default().extend(args.iter().cloned());
    }
    set_env(daemon.main(), "NVIDIA_VISIBLE_DEVICES", "void");
    if host_manager {
        daemon.main().startup_probe = None;
        daemon.main().lifecycle = None;
        daemon.pod.termination_grace_period_seconds = Some(120);
        daemon.mount(MAIN, host_dir("cgroup", "/sys/fs/cgroup"), at("cgroup", "/sys/fs/cgroup"));
        daemon.mount(MAIN, host_dir("vfio", "/dev/vfio"), at("vfio", "/dev/vfio"));
    } else {
        daemon.main().startup_probe = Some(settings::startup_probe(spec, daemon.main()));
    }
    if let Some(volume) = daemon.volume("driver-startup-probe-script").and_then(|volume| volume.config_map.as_mut()) {
        volume.name = names::probe(one.driver);
    }
    identify(one, &mut daemon, pool, account);
    let digest = record(one, cx, &mut daemon, pool, &more).digest();
    for name in ["k8s-driver-manager", MAIN, TOOLKIT] {
        if let Some(container) = daemon.container(name) {
            set_env(container, digest::VARIABLE, &digest);
        }
    }
    Ok(daemon.object(&cx.scope))
}

/// Sets names, labels and node selector of a pool.
fn identify(one: &Driver<'_>, daemon: &mut Daemon, pool: &Pool, account: &str) {
    let spec = &one.driver.spec;
    let host_manager = spec.driver_type == DriverType::VgpuHostManager;
    daemon.name = names::daemon_set(one.driver, pool);
    daemon.pod.service_account_name = Some(account.into());
    daemon.annotations.insert("openshift.io/scc".into(), account.into());
    daemon.labels.insert(STATE.0.into(), STATE.1.into());
    let precompiled = if pool.kernel.is_some() { "true" } else { "false" };
    let component = if host_manager { "nvidia-vgpu-host-manager" } else { "nvidia-driver" };
    for labels in [&mut daemon.labels, &mut daemon.pod_labels] {
        labels.insert("app".into(), daemon.name.clone());
        labels.insert(SYSTEM.into(), pool.os.tag());
        labels.insert("nvidia.com/precompiled".into(), precompiled.into());
        labels.insert("app.kubernetes.io/component".into(), component.into());
        if let Some(kernel) = &pool.kernel {
            labels.insert("nvidia.com/precompiled.kernel-version".into(), component::sanitized(kernel));
        }
    }
    daemon.selector = BTreeMap::from([("app".to_owned(), daemon.name.clone())]);
    daemon.pod.affinity = Some(template::anti_affinity(&COMPONENTS));
    let deploy = if host_manager { "vgpu-manager" } else { "driver" };
    let mut nodes = BTreeMap::from([(format!("{}{deploy}", crate::gpu::fleet::DEPLOY), "true".to_owned())]);
    nodes.extend(spec.node_selector.clone().unwrap_or_default());
    nodes.extend(pool.selector());
    nodes.insert(crate::gpu::fleet::PRESENT.into(), "true".into());
    nodes.insert(crate::gpu::fleet::OWNER.into(), one.driver.name_any());
    daemon.pod.node_selector = Some(nodes);
    let tolerations = daemon.pod.tolerations.get_or_insert_default();
    tolerations.extend(spec.tolerations.iter().flatten().cloned().collect::<Vec<Toleration>>());
}

/// The digest fields, from the custom resource.
fn record(
    one: &Driver<'_>,
    cx: &Cx<'_>,
    daemon: &mut Daemon,
    pool: &Pool,
    more: &[k8s_openapi::api::core::v1::VolumeMount],
) -> Record {
    let spec = &one.driver.spec;
    let mut record = Record::default();
    let mut image =
        |name: &str| daemon.container(name).and_then(|container| container.image.clone()).unwrap_or_default();
    let name = |config: &Option<capstan_api::gpu::component::ConfigMapRef>| {
        config.as_ref().and_then(|config| config.name.clone()).unwrap_or_default()
    };
    let env = |list: &Option<Vec<capstan_api::gpu::component::EnvVar>>| -> Vec<(String, String)> {
        let list = list.iter().flatten();
        list.map(|one| (one.name.clone(), one.value.clone().unwrap_or_default())).collect()
    };
    record.text("DriverImage", &image(MAIN));
    record.text("DriverManagerImage", &image("k8s-driver-manager"));
    record.text("PeermemImage", &image("nvidia-peermem-ctr"));
    record.text("GDSImage", &image("nvidia-fs-ctr"));
    record.text("GDRCopyImage", &image("nvidia-gdrcopy-ctr"));
    record.text("DTKImage", &image(TOOLKIT));
    record.text("DriverType", names::type_name(spec.driver_type));
    record.text("KernelModuleType", component::settings::module_type(spec.kernel_module_type.unwrap_or_default()));
    record.list("DriverArgs", spec.args.as_deref().unwrap_or_default());
    record.env("DriverEnv", &env(&spec.env));
    record.env("ManagerEnv", &env(&spec.manager.as_ref().and_then(|manager| manager.env.clone())));
    record.text("SecretEnvSource", spec.secret_env.as_deref().unwrap_or_default());
    let licence = spec.licensing_config.as_ref().and_then(|licence| licence.secret_name.clone());
    record.text("LicensingConfigName", &licence.unwrap_or_default());
    record.text("VirtualTopologyConfig", &name(&spec.virtual_topology_config));
    record.text("KernelModuleConfig", &name(&spec.kernel_module_config));
    record.text("RepoConfig", &name(&spec.repo_config));
    record.text("CertConfig", &name(&spec.cert_config));
    let rdma = spec.rdma.clone().unwrap_or_default();
    record.flag("GPUDirectRDMAEnabled", rdma.enabled == Some(true));
    record.flag("UseHostMOFED", rdma.enabled == Some(true) && rdma.use_host_mofed == Some(true));
    for (sidecar, flag, list) in [(&spec.gds, "GDSEnabled", "GDSEnv"), (&spec.gdrcopy, "GDRCopyEnabled", "GDRCopyEnv")]
    {
        if let Some(sidecar) = sidecar.as_ref().filter(|sidecar| sidecar.enabled == Some(true)) {
            record.flag(flag, true);
            record.env(list, &env(&sidecar.env));
        }
    }
    record.flag("UsePrecompiled", pool.kernel.is_some());
    record.text("KernelVersion", pool.kernel.as_deref().unwrap_or_default());
    record.flag("DTKEnabled", pool.rhcos.is_some());
    record.text("RHCOSVersion", pool.rhcos.as_deref().unwrap_or_default());
    if let Some(openshift) = &cx.cluster.openshift {
        record.text("OpenshiftVersion", &openshift.version);
        for (variable, value) in &openshift.proxy {
            let field = match variable.as_str() {
                "HTTP_PROXY" => "HTTPProxy",
                "HTTPS_PROXY" => "HTTPSProxy",
                _ => "NoProxy",
            };
            record.text(field, value);
        }
        record.text("TrustedCAConfigMapName", openshift.trusted_ca.as_deref().unwrap_or_default());
    }
    let mounts: Vec<_> = more.iter().map(digest::mount).collect();
    record.mounts("AdditionalVolumeMounts", &mounts);
    let mut seen: Vec<&str> = Vec::new();
    let named = more.iter().filter(|mount| {
        !seen.contains(&mount.name.as_str()) && {
            seen.push(&mount.name);
            true
        }
    });
    let names: Vec<String> = named.map(|mount| mount.name.clone()).collect();
    let volumes: Vec<_> =
        names.iter().filter_map(|name| daemon.volume(name).map(|volume| digest::volume(volume))).collect();
    record.volumes("AdditionalVolumes", &volumes);
    record.text("HostRoot", &one.context.root);
    record
}

#[cfg(test)]
mod tests;
