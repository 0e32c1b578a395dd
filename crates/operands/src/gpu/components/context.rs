//! Context of components: [`Cx`] for all, [`PolicyCx`] for those of a ClusterPolicy only.
//!
//! A custom resource fills a [`Cx`] with views of its fields, so that components do not depend on the kind.

use std::ops::Deref;

use capstan_api::gpu::cluster_policy::sandbox::SandboxMode;
use capstan_api::gpu::cluster_policy::stack::{MigStrategy, Validator};
use capstan_api::gpu::component::Image;
use capstan_api::gpu::daemonsets::{Daemonsets, UpdateStrategy};
use capstan_api::gpu::driver_parts::DriverSidecar;
use capstan_api::gpu::{ClusterPolicy, ClusterPolicySpec};
use capstan_plan::kit::{self, Defaults, Scope, daemon_set};
use capstan_plan::{Facts, Object, Ref};
use k8s_openapi::api::apps::v1::DaemonSetUpdateStrategy;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};

use super::{Outcome, enabled, toolkit};
use crate::gpu::fleet::ContainerRuntime;
use crate::gpu::{Cluster, image};

/// Value of `app.kubernetes.io/managed-by` on all objects of the GPU kinds.
pub const MANAGER: &str = "gpu-operator";

/// Default driver root on the host.
pub(crate) const DRIVER_DIR: &str = capstan_node::paths::DRIVER_ROOT;

/// Default kubelet directory.
pub(crate) const KUBELET_DIR: &str = "/var/lib/kubelet";

/// An operand of a ClusterPolicy.
pub(crate) type Operand = kit::Operand<fn(&PolicyCx<'_>) -> bool, fn(&PolicyCx<'_>) -> Outcome<Vec<Object>>>;

/// Context of a component, independent of the custom resource.
pub(crate) struct Cx<'a> {
    /// Namespace, owner, and common settings of all workloads.
    pub(crate) scope: Scope,
    /// Update strategy, if the user sets one; an error is a user error.
    pub(crate) update: Outcome<Option<DaemonSetUpdateStrategy>>,
    pub(crate) facts: &'a Facts,
    pub(crate) cluster: &'a Cluster,
    /// Name of the custom resource in messages.
    pub(crate) source: &'static str,
    pub(crate) paths: HostPaths<'a>,
    pub(crate) runtime: GpuRuntime<'a>,
    /// Settings of the validator init containers.
    pub(crate) validator: Validator,
}

/// Directories on the nodes.
#[derive(Clone, Copy)]
pub(crate) struct HostPaths<'a> {
    /// Host root.
    pub(crate) root: &'a str,
    /// Driver root.
    pub(crate) driver: &'a str,
    pub(crate) kubelet: &'a str,
}

impl Default for HostPaths<'_> {
    fn default() -> Self {
        Self { root: "/", driver: DRIVER_DIR, kubelet: KUBELET_DIR }
    }
}

/// How the runtime injects GPUs into containers.
#[derive(Clone, Copy)]
pub(crate) struct GpuRuntime<'a> {
    /// RuntimeClass of management containers.
    pub(crate) class: &'a str,
    /// Whether by CDI.
    pub(crate) cdi: bool,
    /// Whether by the NRI plugin.
    pub(crate) nri: bool,
}

impl Default for GpuRuntime<'_> {
    fn default() -> Self {
        Self { class: "nvidia", cdi: true, nri: false }
    }
}

/// `text`, unless it is empty.
pub(crate) fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

impl<'a> Cx<'a> {
    /// A context with these settings for all DaemonSets and defaults for everything else.
    pub(crate) fn new(
        source: &'static str,
        owner: Option<OwnerReference>,
        daemonsets: &Daemonsets,
        facts: &'a Facts,
        cluster: &'a Cluster,
    ) -> Self {
        let defaults = Defaults {
            labels: daemonsets.labels.clone().unwrap_or_default(),
            annotations: daemonsets.annotations.clone().unwrap_or_default(),
            tolerations: daemonsets.tolerations.clone().unwrap_or_default(),
            priority_class: given(daemonsets.priority_class_name.as_ref()).map(Into::into),
            pod_security_context: daemonsets.pod_security_context.clone(),
        };
        // Operands must tolerate the startup taint.
        let required_tolerations = cluster.startup_taint.iter().map(|taint| taint.toleration()).collect();
        let namespace = cluster.namespace.clone();
        Self {
            scope: Scope { namespace, manager: MANAGER, owner, defaults, required_tolerations },
            update: update(daemonsets),
            facts,
            cluster,
            source,
            paths: HostPaths::default(),
            runtime: GpuRuntime::default(),
            validator: Validator::default(),
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.scope.namespace
    }

    /// The container runtime of most nodes.
    pub(crate) fn container_runtime(&self) -> ContainerRuntime {
        if self.cluster.openshift.is_some() { ContainerRuntime::Crio } else { self.cluster.fleet.runtime() }
    }

    pub(crate) fn image(&self, image: &Image, variable: &str) -> Outcome<String> {
        image::path(image, variable, &self.cluster.images, self.source)
    }

    /// The ConfigMap in the operator's namespace; an error names the field that references it.
    pub(crate) fn config_map(&self, name: &str, field: &str) -> Outcome<ConfigMap> {
        self.facts.live.typed(self.namespace(), name).ok_or_else(|| {
            format!("{field} is {name:?}, but namespace {} has no ConfigMap of that name: create it", self.namespace())
        })
    }

    /// An error unless the Secret exists in the operator's namespace.
    pub(crate) fn secret(&self, name: &str, field: &str) -> Outcome<()> {
        match self.facts.live.get(&Ref::of::<Secret>(self.namespace(), name)) {
            Some(_) => Ok(()),
            None => Err(format!(
                "{field} is {name:?}, but namespace {} has no Secret of that name: create it",
                self.namespace()
            )),
        }
    }
}

/// The update strategy.
fn update(daemonsets: &Daemonsets) -> Outcome<Option<DaemonSetUpdateStrategy>> {
    let unavailable = given(daemonsets.rolling_update.as_ref().and_then(|rolling| rolling.max_unavailable.as_ref()));
    match (daemonsets.update_strategy.unwrap_or_default(), unavailable) {
        (UpdateStrategy::OnDelete, _) => Ok(Some(daemon_set::on_delete())),
        (UpdateStrategy::RollingUpdate, None) => Ok(None),
        (UpdateStrategy::RollingUpdate, Some(text)) => match daemon_set::parse_int_or_percent(text) {
            Some(share) => Ok(Some(daemon_set::rolling_update(share))),
            None => Err(format!(
                "spec.daemonsets.rollingUpdate.maxUnavailable is {text:?}: give a number of nodes such as 1, or a share \
                 such as 10%"
            )),
        },
    }
}

/// Context of the operands of a ClusterPolicy.
pub(crate) struct PolicyCx<'a> {
    cx: Cx<'a>,
    pub(crate) policy: &'a ClusterPolicy,
}

impl<'a> Deref for PolicyCx<'a> {
    type Target = Cx<'a>;

    fn deref(&self) -> &Cx<'a> {
        &self.cx
    }
}

impl<'a> PolicyCx<'a> {
    pub(crate) fn new(policy: &'a ClusterPolicy, facts: &'a Facts, cluster: &'a Cluster) -> Self {
        let spec = &policy.spec;
        let usual = HostPaths::default();
        let paths = spec.host_paths.as_ref().map_or(usual, |paths| HostPaths {
            root: given(paths.root_fs.as_ref()).unwrap_or(usual.root),
            driver: given(paths.driver_install_dir.as_ref()).unwrap_or(usual.driver),
            kubelet: given(paths.kubelet_root_dir.as_ref()).unwrap_or(usual.kubelet),
        });
        let (cdi, usual) = (spec.cdi.as_ref(), GpuRuntime::default());
        let runtime = GpuRuntime {
            class: given(spec.operator.runtime_class.as_ref()).unwrap_or(usual.class),
            cdi: cdi.and_then(|cdi| cdi.enabled).unwrap_or(usual.cdi),
            nri: cdi.and_then(|cdi| cdi.nri_plugin_enabled).unwrap_or(usual.nri),
        };
        let validator = spec.validator.clone().unwrap_or_default();
        let cx = Cx::new("ClusterPolicy CR", policy.controller_owner_ref(&()), &spec.daemonsets, facts, cluster);
        Self { cx: Cx { paths, runtime, validator, ..cx }, policy }
    }

    pub(crate) fn spec(&self) -> &'a ClusterPolicySpec {
        &self.policy.spec
    }

    pub(crate) fn name(&self) -> String {
        self.policy.name_any()
    }

    pub(crate) fn toolkit_dir(&self) -> &'a str {
        given(self.spec().toolkit.install_dir.as_ref()).unwrap_or(toolkit::DIR)
    }

    pub(crate) fn mig_strategy(&self) -> Option<MigStrategy> {
        self.spec().mig.as_ref().and_then(|mig| mig.strategy)
    }

    pub(crate) fn driver_enabled(&self) -> bool {
        enabled(&self.spec().driver.component)
    }

    /// Whether NVIDIADrivers manage the drivers.
    pub(crate) fn drivers_apart(&self) -> bool {
        self.spec().driver.use_nvidia_driver_crd == Some(true)
    }

    /// GPUDirect Storage, where it is switched on.
    pub(crate) fn gds(&self) -> Option<&'a DriverSidecar> {
        enabled_sidecar(self.spec().gds.as_ref())
    }

    /// GDRCopy, where it is switched on.
    pub(crate) fn gdrcopy(&self) -> Option<&'a DriverSidecar> {
        enabled_sidecar(self.spec().gdrcopy.as_ref())
    }

    /// Whether sandbox workloads are enabled.
    pub(crate) fn sandboxes(&self) -> bool {
        self.spec().sandbox_workloads.as_ref().and_then(|sandbox| sandbox.enabled).unwrap_or(false)
    }

    pub(crate) fn sandbox_mode(&self) -> SandboxMode {
        self.spec().sandbox_workloads.as_ref().and_then(|sandbox| sandbox.mode).unwrap_or_default()
    }
}

/// A driver sidecar, if enabled.
pub(crate) fn enabled_sidecar(sidecar: Option<&DriverSidecar>) -> Option<&DriverSidecar> {
    sidecar.filter(|sidecar| sidecar.enabled == Some(true))
}
