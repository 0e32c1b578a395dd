//! A GPUCluster as a ClusterPolicy, as far as they have things in common.

use capstan_api::gpu::cluster_policy::ClusterPolicySpec;
use capstan_api::gpu::cluster_policy::operator::HostPaths;
use capstan_api::gpu::cluster_policy::stack::Validator;
use capstan_api::gpu::component::Image;
use capstan_api::gpu::{ClusterPolicy, GpuClusterSpec};

/// The policy with the same monitoring and the same settings of DaemonSets.
pub(super) fn policy(spec: &GpuClusterSpec) -> ClusterPolicy {
    let mut dcgm = spec.dcgm.clone().unwrap_or_default();
    dcgm.component.enabled = Some(dcgm.component.enabled == Some(true));
    let mut exporter = spec.dcgm_exporter.clone().unwrap_or_default();
    exporter.component.enabled = Some(spec.dcgm_exporter.is_some() && exporter.component.enabled != Some(false));
    let kubelet = spec.host_paths.as_ref().and_then(|paths| paths.kubelet_root_dir.clone());
    let pull = &spec.dra_driver.image;
    // Validators run the operator's own image, pulled as the driver's.
    let image = Image {
        image_pull_policy: pull.image_pull_policy.clone(),
        image_pull_secrets: pull.image_pull_secrets.clone(),
        ..Image::default()
    };
    let spec = ClusterPolicySpec {
        dcgm,
        dcgm_exporter: exporter,
        validator: Some(Validator { image, ..Validator::default() }),
        daemonsets: spec.daemonsets.clone().unwrap_or_default(),
        host_paths: Some(HostPaths { kubelet_root_dir: kubelet, ..HostPaths::default() }),
        ..ClusterPolicySpec::default()
    };
    ClusterPolicy::new("", spec)
}
