//! Device plugin: advertises the GPUs of a node to the kubelet.

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::pod::{Build, Mount, at, config, container, env_of, host, host_make, set_env};
use capstan_plan::kit::rbac::{Rights, rule};

use super::access::access;
use super::daemon::{GpuDaemon, gpu_daemon};
use super::own::OwnImage;
use super::snippets::{after_toolkit, config_managers, configured, mig};
use super::toolkit::entrypoint;
use super::{Operand, Outcome, PolicyCx, enabled, node_agent};

pub(crate) const OPERAND: Operand = Operand {
    name: capstan_node::DEVICE_PLUGIN.operand(),
    condition: "DevicePlugin",
    deploy: capstan_node::DEVICE_PLUGIN.deploy,
    enabled: |cx| enabled(&cx.spec().device_plugin.component),
    objects,
};

const ACCOUNT: &str = "nvidia-device-plugin";
/// Default directory of MPS pipes and logs.
pub(crate) const MPS_ROOT: &str = "/run/nvidia/mps";

const IMAGE: &str = "DEVICE_PLUGIN_IMAGE";
pub(crate) const NAME: &str = "nvidia-device-plugin-daemonset";
const MAIN: &str = "nvidia-device-plugin";
const ENTRYPOINT: &str = "nvidia-device-plugin-entrypoint";

/// Modules that were not loaded by the driver pod count too.
const SCRIPT: &str = r#"loaded() { grep -q "^$1 " /proc/modules; }
if loaded gdrdrv; then export GDRCOPY_ENABLED="${GDRCOPY_ENABLED:-true}"; fi
if loaded nvidia_fs; then
  export GDS_ENABLED="${GDS_ENABLED:-true}" MOFED_ENABLED="${MOFED_ENABLED:-true}"
fi
exec nvidia-device-plugin "$@""#;

/// Its RBAC rules.
pub(crate) fn rights(_: &PolicyCx<'_>) -> Rights {
    Rights { everywhere: vec![rule("", &["nodes"], &["get", "list", "watch"])], ..Rights::default() }
}

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    if node_agent::has(cx, &capstan_node::DEVICE_PLUGIN)? {
        return node_agent::objects(cx);
    }
    let mut objects = access(cx, ACCOUNT, rights(cx));
    if !is_own(cx) {
        objects.push(entrypoint(cx, ENTRYPOINT, NAME, SCRIPT));
    }
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

/// Whether our own image is the device plugin.
fn is_own(cx: &PolicyCx<'_>) -> bool {
    cx.is_own(&cx.spec().device_plugin.component.image, IMAGE)
}

fn template() -> Daemon {
    let (first, sidecar) = config_managers("nvidia-device-plugin");
    let toolkit = after_toolkit("run-nvidia-validations", "/run/nvidia/validations");
    let main = container(MAIN)
        .runs(&["/bin/sh", "-c"], &["/bin/entrypoint.sh"])
        .with("PASS_DEVICE_SPECS", "true")
        .with("FAIL_ON_INIT_ERROR", "true")
        .with("DEVICE_LIST_STRATEGY", "envvar")
        .with("DEVICE_ID_STRATEGY", "uuid")
        .with("NVIDIA_VISIBLE_DEVICES", "all")
        .with("NVIDIA_DRIVER_CAPABILITIES", "all")
        .with("MPS_ROOT", MPS_ROOT)
        .mounts(vec![
            at(ENTRYPOINT, "/bin/entrypoint.sh").read_only().sub("entrypoint.sh"),
            at("device-plugin", "/var/lib/kubelet/device-plugins"),
            at("run-nvidia-validations", "/run/nvidia/validations"),
            at("driver-install-dir", "/driver-root").host_to_container(),
            at("host-root", "/host").read_only().host_to_container(),
            at("cdi-root", "/var/run/cdi"),
            at("mps-shm", "/dev/shm"),
            at("mps-root", "/mps"),
        ])
        .privileged();
    gpu_daemon(NAME, ACCOUNT, capstan_node::DEVICE_PLUGIN.deploy()).with_scc("hostmount-anyuid").with(
        vec![toolkit, first],
        vec![main, sidecar],
        vec![
            config(ENTRYPOINT, ENTRYPOINT, Some(0o700), &[]),
            host("device-plugin", "/var/lib/kubelet/device-plugins"),
            host_make("run-nvidia-validations", "/run/nvidia/validations"),
            host_make("driver-install-dir", "/run/nvidia/driver"),
            host("host-root", "/"),
            host_make("cdi-root", "/var/run/cdi"),
            host_make("mps-root", MPS_ROOT),
            host("mps-shm", "/run/nvidia/mps/shm"),
        ],
    )
}

pub(crate) fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let plugin = &cx.spec().device_plugin;
    let mut daemon = template();
    daemon.common(cx)?;
    daemon.validated(cx)?;
    let own = daemon.runs_role(cx, &plugin.component, IMAGE, &capstan_node::DEVICE_PLUGIN)?;
    if own {
        daemon.after_driver();
        daemon.unmount(ENTRYPOINT);
    } else {
        behind_script(&mut daemon);
    }
    if cx.gds().is_some() {
        set_env(daemon.main(), "GDS_ENABLED", "true");
        set_env(daemon.main(), "MOFED_ENABLED", "true");
    }
    if cx.gdrcopy().is_some() {
        set_env(daemon.main(), "GDRCOPY_ENABLED", "true");
    }
    configured(cx, &mut daemon, plugin.component.resources.as_ref(), own)?;
    daemon.sees_gpus(cx, MAIN);
    mig(cx, &mut daemon);
    if cx.runtime.cdi {
        let main = daemon.main();
        set_env(main, "CDI_ENABLED", "true");
        set_env(main, "DEVICE_LIST_STRATEGY", "cdi-annotations,cdi-cri");
        set_env(main, "CDI_ANNOTATION_PREFIX", "cdi.k8s.io/");
    }
    cdi_hook(cx, &mut daemon);
    mps_root(cx, &mut daemon);
    daemon.finishes_as(&plugin.component);
    Ok(daemon)
}

/// User arguments go to the program, not to the shell that starts it.
pub(crate) fn behind_script(daemon: &mut Daemon) {
    let main = daemon.main();
    let given = main.args.take().unwrap_or_default();
    let script = "/bin/entrypoint.sh".to_owned();
    main.args = Some(if given.is_empty() || given == [script.clone()] {
        vec![script]
    } else {
        [format!("{script} \"$@\""), script].into_iter().chain(given).collect()
    });
}

/// The CDI hook from the toolkit.
pub(crate) fn cdi_hook(cx: &PolicyCx<'_>, daemon: &mut Daemon) {
    if cx.runtime.cdi && enabled(&cx.spec().toolkit.component) {
        let path = format!("{}/toolkit/nvidia-cdi-hook", cx.toolkit_dir());
        set_env(daemon.main(), "NVIDIA_CDI_HOOK_PATH", &path);
    }
}

/// Directory of MPS pipes and logs.
pub(crate) fn mps_root(cx: &PolicyCx<'_>, daemon: &mut Daemon) {
    let root = cx.spec().device_plugin.mps.as_ref().and_then(|mps| mps.root.as_deref());
    let Some(root) = root.filter(|root| !root.is_empty() && *root != MPS_ROOT) else { return };
    daemon.set_host_path("mps-root", root);
    daemon.set_host_path("mps-shm", &format!("{root}/shm"));
    if env_of(daemon.main(), "MPS_ROOT").is_some() {
        set_env(daemon.main(), "MPS_ROOT", root);
    }
}
