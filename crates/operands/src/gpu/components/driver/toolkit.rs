//! OpenShift driver toolkit: an image per RHCOS version, in which drivers are built.

use capstan_plan::kit::Daemon;
use capstan_plan::kit::pod::{Build, Mount, at, container, empty_dir_volume, set_env};
use k8s_openapi::api::core::v1::Container;

use super::settings::DriverSettings;
use crate::gpu::components::snippets::requirements;
use crate::gpu::components::{Cx, PolicyCx};
use crate::gpu::fleet::OSTREE;

/// The container in which drivers are built.
pub(crate) const TOOLKIT: &str = "openshift-driver-toolkit-ctr";

const SHARED: &str = "shared-nvidia-driver-toolkit";
const INSIDE: &str = "/mnt/shared-nvidia-driver-toolkit";

/// RHCOS versions for which drivers are built with the toolkit; `None` where it is not used.
pub(crate) fn toolkit_builds(cx: &PolicyCx<'_>) -> Option<Vec<String>> {
    let wanted = cx.spec().operator.use_ocp_driver_toolkit != Some(false);
    let precompiled = cx.spec().driver.use_precompiled == Some(true);
    let known = cx.cluster.openshift.as_ref()?.toolkits.is_some();
    let versions = &cx.cluster.fleet.rhcos;
    (wanted && !precompiled && known && !versions.is_empty()).then(|| versions.iter().cloned().collect())
}

/// The toolkit container of the template.
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

/// Builds the driver for one RHCOS version. `parts` are the building containers and their commands.
pub(crate) fn build_with_toolkit(
    cx: &Cx<'_>,
    daemon: &mut Daemon,
    driver: &DriverSettings<'_>,
    version: &str,
    parts: &[(&str, &str)],
) {
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
        if driver.gds.is_some() {
            set_env(toolkit, "GDS_ENABLED", "true");
        }
        if driver.gdrcopy.is_some() {
            set_env(toolkit, "GDRCOPY_ENABLED", "true");
        }
        if image.is_none() {
            set_env(toolkit, "RHCOS_IMAGE_MISSING", "true");
        }
        toolkit.image = image.clone().or(operand);
        if let Some(resources) = &driver.component.resources {
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
            daemon.mount(name, empty_dir_volume(SHARED), at(SHARED, INSIDE));
        }
    }
}
