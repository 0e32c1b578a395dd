//! Container toolkit: configures the container runtime of a node for GPUs.

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::pod::{Build, Mount, at, config, container, env_of, host, host_make, set_env};
use capstan_plan::kit::rbac::{Rights, rule};
use k8s_openapi::api::core::v1::{
    Affinity, ConfigMap, Container, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
};

use super::access::access;
use super::daemon::{GpuDaemon, gpu_daemon};
use super::snippets::set_all;
use super::{Operand, Outcome, PolicyCx, enabled};
use crate::gpu::fleet::ContainerRuntime;
use crate::gpu::nodes::keys::RUNTIME;

pub(crate) const OPERAND: Operand = Operand {
    name: "state-container-toolkit",
    condition: "ContainerToolkit",
    deploy: Some("container-toolkit"),
    enabled: |cx| enabled(&cx.spec().toolkit.component),
    objects,
};

/// Default install directory on nodes.
pub(crate) const DIR: &str = "/usr/local/nvidia";

const NAME: &str = "nvidia-container-toolkit-daemonset";
const ACCOUNT: &str = "nvidia-container-toolkit";
const ENTRYPOINT: &str = "nvidia-container-toolkit-entrypoint";
const MAIN: &str = "nvidia-container-toolkit-ctr";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights { here: vec![rule("apps", &["daemonsets"], &["list"])], ..Rights::default() };
    let mut objects = access(cx, ACCOUNT, rights);
    objects.push(entrypoint(cx, ENTRYPOINT, NAME, "sleep 5\nexec nvidia-toolkit"));
    let others = others(cx);
    let mut main = daemon(cx, cx.container_runtime())?;
    if !others.is_empty() {
        main.pod.affinity = Some(without(&others));
    }
    objects.push(main.object(&cx.scope));
    for runtime in others {
        let mut daemon = daemon(cx, runtime)?;
        daemon.rename(&format!("{NAME}-{}", runtime.name()));
        daemon.pod.node_selector.get_or_insert_default().insert(RUNTIME.into(), runtime.name().into());
        objects.push(daemon.object(&cx.scope));
    }
    Ok(objects)
}

/// Container runtimes of nodes other than the main one: each gets a toolkit DaemonSet.
fn others(cx: &PolicyCx<'_>) -> Vec<ContainerRuntime> {
    let all = cx.cluster.fleet.runtimes.keys().copied();
    all.filter(|one| cx.cluster.openshift.is_none() && *one != cx.container_runtime()).collect()
}

/// Node affinity to nodes with none of these runtimes.
fn without(runtimes: &[ContainerRuntime]) -> Affinity {
    let requirement = NodeSelectorRequirement {
        key: RUNTIME.into(),
        operator: "NotIn".into(),
        values: Some(runtimes.iter().map(|runtime| runtime.name().into()).collect()),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), ..NodeSelectorTerm::default() };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector { node_selector_terms: vec![term] }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    }
}

/// A ConfigMap with a script that waits for driver validation, sources its results, and then runs `then`.
pub(crate) fn entrypoint(cx: &PolicyCx<'_>, name: &str, app: &str, then: &str) -> Object {
    let script = format!(
        "#!/bin/bash\n\
         ready=/run/nvidia/validations/driver-ready\n\
         until [ -f \"$ready\" ]; do\n  echo \"waiting for the driver to be validated\"\n  sleep 5\ndone\n\
         set -o allexport\n. \"$ready\"\nset +o allexport\n\
         {then}\n"
    );
    let mut metadata = cx.scope.meta(name);
    metadata.labels.get_or_insert_default().insert("app".into(), app.into());
    let data = [("entrypoint.sh".to_owned(), script)].into();
    Object::new(&ConfigMap { metadata, data: Some(data), ..ConfigMap::default() })
}

/// The init container that waits for driver validation.
pub(crate) fn driver_validation() -> Container {
    container("driver-validation")
        .runs(&["sh", "-c"], &["nvidia-validator"])
        .with("WITH_WAIT", "true")
        .with("COMPONENT", "driver")
        .field("OPERATOR_NAMESPACE", "metadata.namespace")
        .mounts(vec![
            at("driver-install-dir", "/run/nvidia/driver").host_to_container(),
            at("run-nvidia-validations", "/run/nvidia/validations").bidirectional(),
            at("host-root", "/host").read_only().host_to_container(),
            at("host-dev-char", "/host-dev-char"),
        ])
        .privileged_s0()
}

fn template() -> Daemon {
    let main = container(MAIN)
        .runs(&["/bin/sh", "-c"], &["/bin/entrypoint.sh"])
        .with("ROOT", DIR)
        .with("NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND", "management.nvidia.com/gpu")
        .with("NVIDIA_VISIBLE_DEVICES", "void")
        .with("TOOLKIT_PID_FILE", "/run/nvidia/toolkit/toolkit.pid")
        .field("NRI_NAMESPACE", "metadata.namespace")
        .mounts(vec![
            at(ENTRYPOINT, "/bin/entrypoint.sh").read_only().sub("entrypoint.sh"),
            at("toolkit-root", "/run/nvidia/toolkit"),
            at("run-nvidia-validations", "/run/nvidia/validations"),
            at("toolkit-install-dir", DIR),
            at("crio-hooks", "/usr/share/containers/oci/hooks.d"),
            at("driver-install-dir", "/driver-root").host_to_container(),
            at("host-root", "/host").read_only().host_to_container(),
            at("cdi-root", "/var/run/cdi"),
        ])
        .privileged_s0();
    let mut daemon = gpu_daemon(NAME, ACCOUNT, "container-toolkit").with_scc("hostmount-anyuid").with(
        vec![driver_validation()],
        vec![main],
        vec![
            config(ENTRYPOINT, ENTRYPOINT, Some(0o700), &[]),
            host_make("toolkit-root", "/run/nvidia/toolkit"),
            host_make("run-nvidia-validations", "/run/nvidia/validations"),
            host_make("driver-install-dir", "/run/nvidia/driver"),
            host("host-root", "/"),
            host("toolkit-install-dir", DIR),
            host("crio-hooks", "/run/containers/oci/hooks.d"),
            host("host-dev-char", "/dev/char"),
            host_make("cdi-root", "/var/run/cdi"),
        ],
    );
    daemon.pod.host_pid = Some(true);
    daemon
}

fn daemon(cx: &PolicyCx<'_>, of: ContainerRuntime) -> Outcome<Daemon> {
    let toolkit = &cx.spec().toolkit;
    let mut daemon = template();
    daemon.common(cx)?;
    daemon.validated(cx)?;
    // Arguments go to the program behind the script, which is configured by environment only.
    let component = capstan_api::gpu::component::Component { args: None, ..toolkit.component.clone() };
    daemon.runs_as(cx, &component, "CONTAINER_TOOLKIT_IMAGE")?;
    let main = daemon.main();
    if cx.runtime.cdi {
        set_env(main, "CDI_ENABLED", "true");
        set_env(main, "NVIDIA_RUNTIME_SET_AS_DEFAULT", "false");
        set_env(main, "NVIDIA_CONTAINER_RUNTIME_MODE", "cdi");
        set_env(main, "CRIO_CONFIG_MODE", "config");
        if cx.runtime.nri {
            set_env(main, "ENABLE_NRI_PLUGIN", "true");
        }
    } else if of == ContainerRuntime::Crio {
        set_env(main, "CRIO_CONFIG_MODE", "hook");
    }
    let dir = cx.toolkit_dir();
    if dir != DIR {
        set_env(main, "ROOT", dir);
        for mount in main.volume_mounts.iter_mut().flatten().filter(|mount| mount.name == "toolkit-install-dir") {
            mount.mount_path = dir.into();
        }
        daemon.set_host_path("toolkit-install-dir", dir);
    }
    if of == ContainerRuntime::Crio && cx.cluster.openshift.is_none() {
        daemon.set_host_path("crio-hooks", "/usr/share/containers/oci/hooks.d");
    }
    set_all(daemon.main(), toolkit.component.env.as_ref());
    set_env(daemon.main(), "RUNTIME", of.name());
    if cx.runtime.nri {
        nri(&mut daemon)
    } else {
        runtime(cx, of, &mut daemon)
    }
    daemon.host_network(toolkit.component.host_network);
    Ok(daemon)
}

/// The NRI plugin needs only the NRI socket.
fn nri(daemon: &mut Daemon) {
    let socket = env_of(daemon.main(), "NRI_SOCKET").unwrap_or("/var/run/nri/nri.sock").to_owned();
    let (dir, file) = split(&socket);
    set_env(daemon.main(), "NRI_SOCKET", &format!("/runtime/nri-sock-dir/{file}"));
    daemon.mount(MAIN, host_make("nri-socket", dir), at("nri-socket", "/runtime/nri-sock-dir/"));
}

/// Runtime settings: config file, drop-in file, socket.
fn runtime(cx: &PolicyCx<'_>, runtime: ContainerRuntime, daemon: &mut Daemon) {
    let name = runtime.name();
    let specific = |suffix: &str| format!("{}_{suffix}", name.to_uppercase());
    let main = daemon.main();
    if runtime == ContainerRuntime::Containerd {
        set_env(main, "CONTAINERD_RUNTIME_CLASS", cx.runtime.class);
    }
    let usual = match runtime {
        ContainerRuntime::Containerd => "/etc/containerd/config.toml",
        ContainerRuntime::Docker => "/etc/docker/daemon.json",
        ContainerRuntime::Crio => "/etc/crio/config.toml",
    };
    let given = |main: &Container, names: &[&str]| names.iter().find_map(|name| env_of(main, name).map(String::from));
    let file = given(main, &[&specific("CONFIG"), "RUNTIME_CONFIG"]).unwrap_or_else(|| usual.into());
    let (dir, base) = split(&file);
    let inside = format!("/runtime/config-dir/{base}");
    set_env(main, "RUNTIME_CONFIG", &inside);
    set_env(main, &specific("CONFIG"), &inside);
    let volume = format!("{name}-config");
    daemon.mount(MAIN, host_make(&volume, dir), at(&volume, "/runtime/config-dir/"));
    let drop_in = match runtime {
        ContainerRuntime::Containerd => Some("/etc/containerd/conf.d/99-nvidia.toml"),
        ContainerRuntime::Crio => Some("/etc/crio/crio.conf.d/99-nvidia.conf"),
        ContainerRuntime::Docker => None,
    };
    if let Some(usual) = drop_in {
        let main = daemon.main();
        let file = given(main, &["RUNTIME_DROP_IN_CONFIG"]).unwrap_or_else(|| usual.into());
        let (dir, base) = split(&file);
        set_env(main, "RUNTIME_DROP_IN_CONFIG", &format!("/runtime/config-dir.d/{base}"));
        set_env(main, "RUNTIME_DROP_IN_CONFIG_HOST_PATH", &file);
        let volume = format!("{name}-drop-in-config");
        daemon.mount(MAIN, host_make(&volume, dir), at(&volume, "/runtime/config-dir.d/"));
    }
    let main = daemon.main();
    if let Some(source) = given(main, &["RUNTIME_CONFIG_SOURCE"]) {
        let inside = |part: &str| match part.strip_prefix("file=") {
            Some(path) => format!("file=/host{path}"),
            None => part.into(),
        };
        set_env(main, "RUNTIME_CONFIG_SOURCE", &source.split(',').map(inside).collect::<Vec<_>>().join(","));
    }
    let socket = match runtime {
        ContainerRuntime::Containerd => "/run/containerd/containerd.sock",
        ContainerRuntime::Docker => "/var/run/docker.sock",
        ContainerRuntime::Crio => return,
    };
    let file = given(main, &[&specific("SOCKET")]).unwrap_or_else(|| socket.into());
    let (dir, base) = split(&file);
    let inside = format!("/runtime/sock-dir/{base}");
    set_env(main, "RUNTIME_SOCKET", &inside);
    set_env(main, &specific("SOCKET"), &inside);
    let volume = format!("{name}-socket");
    daemon.mount(MAIN, host(&volume, dir), at(&volume, "/runtime/sock-dir/"));
}

/// Directory and name of a file.
fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", file)) => ("/", file),
        Some((dir, file)) => (dir, file),
        None => (".", path),
    }
}
