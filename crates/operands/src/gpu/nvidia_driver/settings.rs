//! Driver settings of an NVIDIADriver.

use std::borrow::Cow;

use capstan_api::gpu::NvidiaDriverSpec;
use capstan_api::gpu::component::{Component, Image};
use capstan_api::gpu::daemonsets::Daemonsets;
use k8s_openapi::api::core::v1::{Container, Probe};

use crate::gpu::components::context::{enabled_sidecar, given};
use crate::gpu::components::driver::settings::{DriverSettings, Licence, config_map};

/// Settings of the driver. Arguments and the startup probe are merged in another way than those of a ClusterPolicy.
pub(super) fn of(spec: &NvidiaDriverSpec) -> DriverSettings<'_> {
    let component = Component {
        image: Image {
            repository: spec.repository.clone(),
            image: given(Some(&spec.image)).map(Into::into),
            version: spec.version.clone(),
            image_pull_policy: spec.image_pull_policy.clone(),
            image_pull_secrets: spec.image_pull_secrets.clone(),
        },
        resources: spec.resources.clone(),
        env: spec.env.clone(),
        host_network: spec.host_network,
        ..Component::default()
    };
    let licence = spec.licensing_config.as_ref().map(|licence| Licence {
        secret: given(licence.secret_name.as_ref()),
        config_map: given(licence.name.as_ref()),
        token: licence.nls_enabled.unwrap_or(true),
    });
    DriverSettings {
        component: Cow::Owned(component),
        kernel_module_type: Some(spec.kernel_module_type.unwrap_or_default()),
        rdma: spec.rdma.as_ref(),
        manager: spec.manager.as_ref(),
        repositories: config_map(spec.repo_config.as_ref()),
        certificates: config_map(spec.cert_config.as_ref()),
        kernel_modules: config_map(spec.kernel_module_config.as_ref()),
        topology: config_map(spec.virtual_topology_config.as_ref()),
        licence: licence.unwrap_or_default(),
        secret_env: given(spec.secret_env.as_ref()),
        startup_probe: None,
        liveness_probe: spec.liveness_probe.as_ref(),
        readiness_probe: spec.readiness_probe.as_ref(),
        gds: enabled_sidecar(spec.gds.as_ref()),
        gdrcopy: enabled_sidecar(spec.gdrcopy.as_ref()),
    }
}

/// Common settings of all DaemonSets of the driver. Ownership labels cannot be overridden.
pub(super) fn daemonsets(spec: &NvidiaDriverSpec) -> Daemonsets {
    let ours = |key: &str| key == "app" || key.starts_with("app.kubernetes.io/");
    let labels = spec.labels.clone();
    Daemonsets {
        labels: labels.map(|labels| labels.into_iter().filter(|(key, _)| !ours(key)).collect()),
        annotations: spec.annotations.clone(),
        priority_class_name: spec.priority_class_name.clone(),
        pod_security_context: spec.pod_security_context.clone(),
        ..Daemonsets::default()
    }
}

/// The startup probe: the user's timings replace ours as a whole. Precompiled drivers start faster.
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
