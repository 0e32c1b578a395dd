//! OpenShift's driver toolkit: an image per version of the node system, in which drivers are built.

use k8s_openapi::api::core::v1::Container;

use crate::gpu::components::Cx;
use crate::gpu::components::daemon::Daemon;
use crate::gpu::components::pod::{Build, Mount, at, container, scratch, set_env};
use crate::gpu::components::snippets::requirements;
use crate::gpu::fleet::OSTREE;

/// The container in which drivers are built.
pub(crate) const TOOLKIT: &str = "openshift-driver-toolkit-ctr";

const SHARED: &str = "shared-nvidia-driver-toolkit";
const INSIDE: &str = "/mnt/shared-nvidia-driver-toolkit";

/// Versions of the node system for which drivers are built with the toolkit; `None` where it is not used.
pub(crate) fn toolkit_builds(cx: &Cx<'_>) -> Option<Vec<String>> {
    let wanted = cx.spec().operator.use_ocp_driver_toolkit != Some(false);
    let precompiled = cx.spec().driver.use_precompiled == Some(true);
    let known = cx.cluster.openshift.as_ref()?.toolkits.is_some();
    let versions = &cx.cluster.fleet.rhcos;
    (wanted && !precompiled && known && !versions.is_empty()).then(|| versions.iter().cloned().collect())
}

/// The container, as templates have it.
pub(crate) fn toolkit_container() -> Container {
    let script = format!(
        "until [ -f {INSIDE}/dir_prepared ]; do echo waiting for the driver container to prepare {INSIDE}; sleep 10; \
         done; exec {INSIDE}/ocp_dtk_entrypoint dtk-build-driver"
    );
    container(TOOLKIT)
        .runs(&["bash", "-xc"], &[&script])
        .with("RHCOS_VERSION", "")
        .with("NVIDIA_VISIBLE_DEVICES", "void")
        .mounts(vec![
            at(SHARED, INSIDE),
            at("var-log", "/var/log"),
            at("mlnx-ofed-usr-src", "/run/mellanox/drivers/usr/src").host_to_container(),
            at("host-os-release", "/host-etc/os-release").read_only(),
        ])
        .privileged_s0()
}

/// Builds the driver for one version of the node system. `parts` are containers that build, and what they run.
pub(crate) fn build_with_toolkit(cx: &Cx<'_>, daemon: &mut Daemon, version: &str, parts: &[(&str, &str)]) {
    let toolkits = cx.cluster.openshift.as_ref().and_then(|openshift| openshift.toolkits.as_ref());
    let image = toolkits.and_then(|images| images.get(version)).filter(|image| !image.is_empty()).cloned();
    daemon.name = format!("{}-{version}", daemon.name);
    for labels in [&mut daemon.labels, &mut daemon.selector, &mut daemon.pod_labels] {
        labels.insert("app".into(), daemon.name.clone());
    }
    daemon.labels.insert("openshift.driver-toolkit.rhcos".into(), version.into());
    for labels in [&mut daemon.labels, &mut daemon.pod_labels] {
        labels.insert("openshift.driver-toolkit".into(), "true".into());
        if image.is_none() {
            labels.insert("openshift.driver-toolkit.rhcos-image-missing".into(), "true".into());
        }
    }
    daemon.pod.node_selector.get_or_insert_default().insert(OSTREE.into(), version.into());
    let operand = daemon.main().image.clone();
    if let Some(toolkit) = daemon.container(TOOLKIT) {
        set_env(toolkit, "RHCOS_VERSION", version);
        if cx.gds().is_some() {
            set_env(toolkit, "GDS_ENABLED", "true");
        }
        if cx.gdrcopy().is_some() {
            set_env(toolkit, "GDRCOPY_ENABLED", "true");
        }
        if image.is_none() {
            set_env(toolkit, "RHCOS_IMAGE_MISSING", "true");
        }
        toolkit.image = image.clone().or(operand);
        if let Some(resources) = &cx.spec().driver.component.resources {
            toolkit.resources = Some(requirements(resources));
        }
    }
    for (name, argument) in parts {
        if let Some(part) = daemon.container(name) {
            part.command = Some(vec!["ocp_dtk_entrypoint".into()]);
            part.args = Some(vec![(*argument).into()]);
            if image.is_none() {
                set_env(part, "RHCOS_IMAGE_MISSING", "true");
                set_env(part, "RHCOS_VERSION", version);
            }
            daemon.mount(name, scratch(SHARED), at(SHARED, INSIDE));
        }
    }
}
