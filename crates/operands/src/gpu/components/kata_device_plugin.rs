//! Device plugin for Kata: advertises whole GPUs for confidential containers.

use capstan_api::gpu::cluster_policy::sandbox::SandboxMode;
use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, at, container, host, host_make};

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::sandbox_device_plugin::{rights, wait_on};
use super::{Operand, Outcome, PolicyCx, switched_on};

pub(crate) const OPERAND: Operand = Operand {
    name: "state-kata-device-plugin",
    condition: "KataDevicePlugin",
    deploy: Some("kata-sandbox-device-plugin"),
    enabled: |cx| {
        cx.sandboxes()
            && switched_on(cx.spec().kata_sandbox_device_plugin.as_ref())
            && cx.sandbox_mode() == SandboxMode::Kata
    },
    objects,
};

const NAME: &str = "nvidia-kata-sandbox-device-plugin-daemonset";
const ACCOUNT: &str = "nvidia-kata-sandbox-device-plugin";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let mut objects = access(cx, ACCOUNT, rights());
    objects.extend(constraints(cx, ACCOUNT, Shares::default()));
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let plugin = cx.spec().kata_sandbox_device_plugin.clone().unwrap_or_default();
    let main = container("nvidia-kata-sandbox-device-plugin-ctr")
        .node_name()
        .field("POD_NAMESPACE", "metadata.namespace")
        .field("POD_SERVICE_ACCOUNT", "spec.serviceAccountName")
        .mounts(vec![at("device-plugin", "/var/lib/kubelet/device-plugins"), at("cdi-root", "/var/run/cdi")])
        .privileged();
    let mut daemon = gpu_daemon(NAME, ACCOUNT, "kata-sandbox-device-plugin").with_scc(ACCOUNT).with(
        vec![wait_on("vfio-pci", "vm-passthrough", "vfio-pci-ready")],
        vec![main],
        vec![
            host("device-plugin", "/var/lib/kubelet/device-plugins"),
            host_make("cdi-root", "/var/run/cdi"),
            host_make("run-nvidia-validations", "/run/nvidia/validations"),
        ],
    );
    daemon.common(cx)?;
    daemon.validated(cx)?;
    daemon.runs_as(cx, &plugin, "KATA_SANDBOX_DEVICE_PLUGIN_IMAGE")?;
    daemon.finishes_as(&plugin);
    Ok(daemon)
}
