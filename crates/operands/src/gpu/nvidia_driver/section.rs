//! An NVIDIADriver as the driver section of a ClusterPolicy.

use capstan_api::gpu::cluster_policy::ClusterPolicySpec;
use capstan_api::gpu::cluster_policy::driver::{Driver, LicensingConfig, RepoConfig, VirtualTopology};
use capstan_api::gpu::cluster_policy::operator::HostPaths;
use capstan_api::gpu::component::{Component, Image};
use capstan_api::gpu::daemonsets::Daemonsets;
use capstan_api::gpu::{ClusterPolicy, NvidiaDriver, NvidiaDriverSpec};
use k8s_openapi::api::core::v1::{Container, Probe};

/// The policy that has nothing but this driver.
pub(super) fn policy(driver: &NvidiaDriver, root: &str) -> ClusterPolicy {
    let spec = &driver.spec;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let labels = spec.labels.clone().map(|labels| {
        let ours = |key: &String| key == "app" || key.starts_with("app.kubernetes.io/");
        labels.into_iter().filter(|(key, _)| !ours(key)).collect()
    });
    let licence = spec.licensing_config.clone().map(|licence| LicensingConfig {
        config_map_name: licence.name,
        secret_name: licence.secret_name,
        nls_enabled: Some(licence.nls_enabled.unwrap_or(true)),
    });
    let section = Driver {
        component: Component {
            image: Image {
                repository: spec.repository.clone(),
                image: text(&spec.image),
                version: spec.version.clone(),
                image_pull_policy: spec.image_pull_policy.clone(),
                image_pull_secrets: spec.image_pull_secrets.clone(),
            },
            resources: spec.resources.clone(),
            env: spec.env.clone(),
            host_network: spec.host_network,
            ..Component::default()
        },
        use_precompiled: spec.use_precompiled,
        kernel_module_type: Some(spec.kernel_module_type.unwrap_or_default()),
        rdma: spec.rdma.clone(),
        manager: spec.manager.clone(),
        repo_config: spec.repo_config.clone().map(|config| RepoConfig { config_map_name: config.name }),
        cert_config: spec.cert_config.clone(),
        licensing_config: licence,
        virtual_topology: spec.virtual_topology_config.clone().map(|config| VirtualTopology { config: config.name }),
        kernel_module_config: spec.kernel_module_config.clone(),
        secret_env: spec.secret_env.clone(),
        liveness_probe: spec.liveness_probe.clone(),
        readiness_probe: spec.readiness_probe.clone(),
        ..Driver::default()
    };
    let spec = ClusterPolicySpec {
        driver: section,
        gds: spec.gds.clone(),
        gdrcopy: spec.gdrcopy.clone(),
        daemonsets: Daemonsets {
            labels,
            annotations: spec.annotations.clone(),
            priority_class_name: spec.priority_class_name.clone(),
            pod_security_context: spec.pod_security_context.clone(),
            ..Daemonsets::default()
        },
        host_paths: Some(HostPaths { root_fs: text(root), ..HostPaths::default() }),
        ..ClusterPolicySpec::default()
    };
    ClusterPolicy::new("", spec)
}

/// The startup probe: numbers of the user replace ours as a whole. Modules that are built already are there sooner.
pub(super) fn startup_probe(spec: &NvidiaDriverSpec, driver: &Container) -> Probe {
    let ours = driver.startup_probe.clone().unwrap_or_default();
    match &spec.startup_probe {
        Some(numbers) => Probe {
            exec: ours.exec,
            initial_delay_seconds: numbers.initial_delay_seconds,
            timeout_seconds: numbers.timeout_seconds,
            period_seconds: numbers.period_seconds,
            success_threshold: numbers.success_threshold,
            failure_threshold: numbers.failure_threshold,
            ..Probe::default()
        },
        None if spec.use_precompiled == Some(true) => Probe { initial_delay_seconds: Some(5), ..ours },
        None => ours,
    }
}
