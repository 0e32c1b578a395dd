//! DCGM and its exporter where GPUs come through claims: they see all GPUs through a claim with admin access.

use capstan_plan::Object;
use k8s_openapi::api::core::v1::ServiceSpec;
use serde_json::json;

use super::{Dra, Part, claim_template};
use crate::gpu::policy::access::{Rights, Shares, access, cluster_role, constraints, rule};
use crate::gpu::policy::daemon::Daemon;
use crate::gpu::policy::monitor::{monitor, scraped, service};
use crate::gpu::policy::pod::{env_of, set_env};
use crate::gpu::policy::{Outcome, dcgm, dcgm_exporter, enabled};

pub(super) const DCGM: Part = Part {
    name: "state-dcgm",
    condition: "Dcgm",
    deploy: "dcgm-dra",
    enabled: |dra| enabled(&dra.policy.spec.dcgm.component),
    objects: engine,
};

pub(super) const EXPORTER: Part = Part {
    name: capstan_node::EXPORTER.operand(),
    condition: "DcgmExporter",
    deploy: "dcgm-exporter-dra",
    enabled: |dra| enabled(&dra.policy.spec.dcgm_exporter.component),
    objects: exporter,
};

const ENGINE_NAME: &str = "nvidia-dcgm-dra";
const EXPORTER_NAME: &str = "nvidia-dcgm-exporter-dra";
const EXPORTER_READER: &str = "nvidia-dcgm-exporter-dra-read-pods";
const CLAIM: &str = "admin-gpus";
const READ: &[&str] = &["get", "list", "watch"];

/// Under another name, on the nodes with that label, with GPUs through a claim instead of the runtime.
fn through_claim(daemon: Daemon, name: &str, deploy: &'static str, container: &str, template: &str) -> Daemon {
    let mut new = Daemon::new(name, name, deploy).without_defaults().constrained(name);
    new.strategy = daemon.strategy;
    new.pod_annotations = daemon.pod_annotations;
    let (account, selector) = (new.pod.service_account_name.take(), new.pod.node_selector.take());
    new.pod = daemon.pod;
    new.pod.init_containers = None;
    (new.pod.service_account_name, new.pod.node_selector) = (account, selector);
    new.claims(container, CLAIM, template);
    new
}

/// Nothing is tolerated that the user does not name.
fn tolerated(dra: &Dra<'_>, daemon: &mut Daemon) {
    daemon.pod.tolerations = dra.policy.spec.daemonsets.tolerations.clone().filter(|list| !list.is_empty());
}

fn everything() -> serde_json::Value {
    json!({"allocationMode": "All"})
}

fn engine(dra: &Dra<'_>) -> Outcome<Vec<Object>> {
    let cx = &dra.cx();
    let here = vec![rule("resource.k8s.io", &["resourceclaims"], READ)];
    let mut objects = access(cx, ENGINE_NAME, Rights { here, ..Rights::default() });
    objects.push(claim_template(cx, "nvidia-dcgm-admin", CLAIM, everything()));
    objects.extend(constraints(cx, ENGINE_NAME, Shares { network: true, ports: true, ..Shares::default() }));
    let spec = ServiceSpec {
        type_: Some("ClusterIP".into()),
        internal_traffic_policy: Some("Local".into()),
        ..ServiceSpec::default()
    };
    objects.push(service(cx, ENGINE_NAME, "dcgm", dcgm::PORT, spec));
    let mut daemon = through_claim(dcgm::daemon(cx)?, ENGINE_NAME, DCGM.deploy, dcgm::MAIN, "nvidia-dcgm-admin");
    tolerated(dra, &mut daemon);
    objects.push(daemon.object(cx));
    Ok(objects)
}

fn exporter(dra: &Dra<'_>) -> Outcome<Vec<Object>> {
    let cx = &dra.cx();
    let settings = &cx.spec().dcgm_exporter;
    let here = vec![
        rule("resource.k8s.io", &["resourceclaims"], &["get", "list"]),
        rule("", &["configmaps"], &["get", "list"]),
    ];
    let mut objects = access(cx, EXPORTER_NAME, Rights { here, ..Rights::default() });
    let rules = vec![rule("", &["pods"], READ), rule("resource.k8s.io", &["resourceslices"], READ)];
    objects.extend(cluster_role(cx, EXPORTER_READER, EXPORTER_NAME, rules));
    objects.push(claim_template(cx, "nvidia-dcgm-exporter-admin", CLAIM, everything()));
    let shares = Shares { network: true, pid: true, ports: true, ..Shares::default() };
    objects.extend(constraints(cx, EXPORTER_NAME, shares));
    let asked = settings.service.clone().unwrap_or_default();
    let spec = ServiceSpec {
        type_: Some(asked.type_.filter(|type_| !type_.is_empty()).unwrap_or("ClusterIP".into())),
        internal_traffic_policy: asked.internal_traffic_policy.filter(|policy| !policy.is_empty()),
        ..ServiceSpec::default()
    };
    objects.push(scraped(cx, EXPORTER_NAME, "gpu-metrics", dcgm_exporter::PORT, spec));
    if let Some(settings) = settings.service_monitor.as_ref().filter(|settings| settings.enabled == Some(true)) {
        objects.extend(monitor(cx, EXPORTER_NAME, "gpu-metrics", "app", Some(settings)));
    }
    let mut daemon = through_claim(
        dcgm_exporter::daemon(cx)?,
        EXPORTER_NAME,
        EXPORTER.deploy,
        dcgm_exporter::NAME,
        "nvidia-dcgm-exporter-admin",
    );
    tolerated(dra, &mut daemon);
    let main = daemon.main();
    main.name = EXPORTER_NAME.into();
    set_env(main, "KUBERNETES_ENABLE_DRA", "true");
    // Unless the user named an engine, it is the one beside it.
    if env_of(main, dcgm_exporter::REMOTE) == Some(dcgm_exporter::ENGINE) {
        set_env(main, dcgm_exporter::REMOTE, "nvidia-dcgm-dra:5555");
    }
    daemon.pod.automount_service_account_token = Some(true);
    objects.push(daemon.object(cx));
    Ok(objects)
}
