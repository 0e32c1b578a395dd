//! DCGM and its exporter with DRA: they see all GPUs by a claim with admin access.

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::monitoring::{scraped_service, service};
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{env_of, set_env};
use capstan_plan::kit::rbac::{Rights, cluster_role, rule};
use k8s_openapi::api::core::v1::ServiceSpec;
use serde_json::json;

use super::{Dra, Operand, claim_template};
use crate::gpu::components::access::{access, constraints};
use crate::gpu::components::daemon::deployed;
use crate::gpu::components::dcgm_exporter::Engine;
use crate::gpu::components::monitor::monitor;
use crate::gpu::components::{Outcome, dcgm, dcgm_exporter, enabled};

pub(super) const DCGM: Operand = Operand {
    name: "state-dcgm",
    condition: "Dcgm",
    deploy: Some(ENGINE_DEPLOY),
    enabled: |dra| dra.has_engine(),
    objects: engine,
};

pub(super) const EXPORTER: Operand = Operand {
    name: capstan_node::EXPORTER.operand(),
    condition: "DcgmExporter",
    deploy: Some(EXPORTER_DEPLOY),
    enabled: |dra| dra.spec().dcgm_exporter.as_ref().is_some_and(|exporter| enabled(&exporter.component)),
    objects: exporter,
};

const ENGINE_DEPLOY: &str = "dcgm-dra";
const EXPORTER_DEPLOY: &str = "dcgm-exporter-dra";
const ENGINE_NAME: &str = "nvidia-dcgm-dra";
const EXPORTER_NAME: &str = "nvidia-dcgm-exporter-dra";
const EXPORTER_READER: &str = "nvidia-dcgm-exporter-dra-read-pods";
const CLAIM: &str = "admin-gpus";
const READ: &[&str] = &["get", "list", "watch"];

/// Renames a DaemonSet, for nodes with that deploy label, with GPUs by a claim instead of the runtime.
fn through_claim(daemon: Daemon, name: &str, deploy: &str, container: &str, template: &str) -> Daemon {
    let mut new = Daemon::new(name, name, deployed(deploy)).with_scc(name);
    new.strategy = daemon.strategy;
    new.pod_annotations = daemon.pod_annotations;
    let (account, selector) = (new.pod.service_account_name.take(), new.pod.node_selector.take());
    new.pod = daemon.pod;
    new.pod.init_containers = None;
    (new.pod.service_account_name, new.pod.node_selector) = (account, selector);
    new.claims(container, CLAIM, template);
    new
}

/// Only the user's tolerations.
fn tolerated(dra: &Dra<'_>, daemon: &mut Daemon) {
    let named = dra.cx.scope.defaults.tolerations.clone();
    daemon.pod.tolerations = Some(named).filter(|list| !list.is_empty());
}

fn everything() -> serde_json::Value {
    json!({"allocationMode": "All"})
}

fn engine(dra: &Dra<'_>) -> Outcome<Vec<Object>> {
    let cx = &dra.cx;
    let settings = dra.spec().dcgm.clone().unwrap_or_default();
    let here = vec![rule("resource.k8s.io", &["resourceclaims"], READ)];
    let mut objects = access(cx, ENGINE_NAME, Rights { here, ..Rights::default() });
    objects.push(claim_template(cx, "nvidia-dcgm-admin", CLAIM, everything()));
    objects.extend(constraints(cx, ENGINE_NAME, Shares { network: true, ports: true, ..Shares::default() }));
    let spec = ServiceSpec {
        type_: Some("ClusterIP".into()),
        internal_traffic_policy: Some("Local".into()),
        ..ServiceSpec::default()
    };
    objects.push(service(&cx.scope, ENGINE_NAME, "dcgm", dcgm::PORT, spec));
    let mut daemon = through_claim(
        dcgm::daemon(cx, &settings.component)?,
        ENGINE_NAME,
        ENGINE_DEPLOY,
        dcgm::MAIN,
        "nvidia-dcgm-admin",
    );
    tolerated(dra, &mut daemon);
    objects.push(daemon.object(&cx.scope));
    Ok(objects)
}

fn exporter(dra: &Dra<'_>) -> Outcome<Vec<Object>> {
    let cx = &dra.cx;
    let settings = dra.spec().dcgm_exporter.clone().unwrap_or_default();
    let engine = if dra.has_engine() { Engine::Beside } else { Engine::Within };
    let here = vec![
        rule("resource.k8s.io", &["resourceclaims"], &["get", "list"]),
        rule("", &["configmaps"], &["get", "list"]),
    ];
    let mut objects = access(cx, EXPORTER_NAME, Rights { here, ..Rights::default() });
    let rules = vec![rule("", &["pods"], READ), rule("resource.k8s.io", &["resourceslices"], READ)];
    objects.extend(cluster_role(&cx.scope, EXPORTER_READER, EXPORTER_NAME, rules));
    objects.push(claim_template(cx, "nvidia-dcgm-exporter-admin", CLAIM, everything()));
    let shares = Shares { network: true, pid: true, ports: true, ..Shares::default() };
    objects.extend(constraints(cx, EXPORTER_NAME, shares));
    let asked = settings.service.clone().unwrap_or_default();
    let spec = ServiceSpec {
        type_: Some(asked.type_.filter(|type_| !type_.is_empty()).unwrap_or("ClusterIP".into())),
        internal_traffic_policy: asked.internal_traffic_policy.filter(|policy| !policy.is_empty()),
        ..ServiceSpec::default()
    };
    objects.push(scraped_service(&cx.scope, EXPORTER_NAME, "gpu-metrics", dcgm_exporter::PORT, spec));
    if let Some(settings) = settings.service_monitor.as_ref().filter(|settings| settings.enabled == Some(true)) {
        objects.extend(monitor(cx, EXPORTER_NAME, "gpu-metrics", "app", Some(settings)));
    }
    let mut daemon = through_claim(
        dcgm_exporter::daemon(cx, &settings, engine)?,
        EXPORTER_NAME,
        EXPORTER_DEPLOY,
        dcgm_exporter::NAME,
        "nvidia-dcgm-exporter-admin",
    );
    tolerated(dra, &mut daemon);
    let main = daemon.main();
    main.name = EXPORTER_NAME.into();
    set_env(main, "KUBERNETES_ENABLE_DRA", "true");
    // Unless the user sets an engine, it is the standalone one.
    if env_of(main, dcgm_exporter::REMOTE) == Some(dcgm_exporter::ENGINE) {
        set_env(main, dcgm_exporter::REMOTE, "nvidia-dcgm-dra:5555");
    }
    daemon.pod.automount_service_account_token = Some(true);
    objects.push(daemon.object(&cx.scope));
    Ok(objects)
}
