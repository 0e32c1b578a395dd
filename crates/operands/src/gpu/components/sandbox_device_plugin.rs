//! Device plugin for KubeVirt: advertises whole GPUs and vGPUs for virtual machines.

use capstan_api::gpu::cluster_policy::sandbox::SandboxMode;
use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, container, host, host_make};
use capstan_plan::kit::rbac::{Rights, rule};
use k8s_openapi::api::core::v1::Container;

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::{Operand, Outcome, PolicyCx, switched_on};

pub(crate) const OPERAND: Operand = Operand {
    name: "state-sandbox-device-plugin",
    condition: "SandboxDevicePlugin",
    deploy: Some("sandbox-device-plugin"),
    enabled: |cx| {
        cx.sandboxes()
            && switched_on(cx.spec().sandbox_device_plugin.as_ref())
            && cx.sandbox_mode() == SandboxMode::Kubevirt
    },
    objects,
};

const NAME: &str = "nvidia-sandbox-device-plugin-daemonset";
const ACCOUNT: &str = "nvidia-sandbox-device-plugin";

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    let mut objects = access(cx, ACCOUNT, rights());
    objects.extend(constraints(cx, ACCOUNT, Shares::default()));
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

/// RBAC rules of a sandbox device plugin.
pub(crate) fn rights() -> Rights {
    Rights {
        here: vec![
            rule("", &["pods"], &["create", "get", "list", "watch", "delete"]),
            rule("nfd.k8s-sigs.io", &["nodefeatures"], &["create", "get", "list", "watch", "update"]),
        ],
        everywhere: vec![
            rule("config.openshift.io", &["clusterversions"], &["get", "list"]),
            rule("", &["nodes", "pods"], &["get"]),
        ],
    }
}

/// An init container that waits for `ready` on nodes with that workload only.
pub(crate) fn wait_on(component: &str, workload: &str, ready: &str) -> Container {
    let script = format!(
        "dir=/run/nvidia/validations; until [ -f $dir/workload-type ]; do echo waiting for the workload type; sleep 5; done; \
         [ \"$(cat $dir/workload-type)\" = {workload} ] || exit 0; \
         until [ -f $dir/{ready} ]; do echo waiting for {ready}; sleep 5; done"
    );
    container(&format!("{component}-validation"))
        .runs(&["sh", "-c"], &[&script])
        .with("NVIDIA_VISIBLE_DEVICES", "void")
        .mounts(vec![at("run-nvidia-validations", "/run/nvidia/validations").host_to_container()])
        .privileged()
}

fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let plugin = cx.spec().sandbox_device_plugin.clone().unwrap_or_default();
    let main = container("nvidia-sandbox-device-plugin-ctr")
        .node_name()
        .field("POD_NAMESPACE", "metadata.namespace")
        .mounts(vec![
            at("device-plugin", "/var/lib/kubelet/device-plugins"),
            at("vfio", "/dev/vfio"),
            at("cdi-root", "/var/run/cdi"),
        ])
        .privileged();
    let waits = vec![
        wait_on("vfio-pci", "vm-passthrough", "vfio-pci-ready"),
        wait_on("vgpu-devices", "vm-vgpu", "vgpu-devices-ready"),
    ];
    let mut daemon = gpu_daemon(NAME, ACCOUNT, "sandbox-device-plugin").with_scc(ACCOUNT).with(
        waits,
        vec![main],
        vec![
            host("device-plugin", "/var/lib/kubelet/device-plugins"),
            host("vfio", "/dev/vfio"),
            host_make("cdi-root", "/var/run/cdi"),
            host_make("run-nvidia-validations", "/run/nvidia/validations"),
        ],
    );
    daemon.common(cx)?;
    daemon.validated(cx)?;
    daemon.runs_as(cx, &plugin, "SANDBOX_DEVICE_PLUGIN_IMAGE")?;
    daemon.finishes_as(&plugin);
    Ok(daemon)
}
