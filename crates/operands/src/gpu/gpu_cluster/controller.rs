//! The compute domain controller, which runs a daemon on each node of a domain, and the daemon's RBAC.

use std::collections::BTreeMap;

use capstan_plan::Object;
use capstan_plan::kit::pod::{Build, container, set_env};
use capstan_plan::kit::rbac::{Rights, cluster_role, rule};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodAntiAffinity, PodSpec,
    PodTemplateSpec, PreferredSchedulingTerm, Toleration, WeightedPodAffinityTerm,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::Dra;
use super::plugin::ALL;
use crate::gpu::components::Outcome;
use crate::gpu::components::access::access;
use crate::gpu::components::snippets::{requirements, set_all};
use crate::gpu::image;

const NAME: &str = "nvidia-dra-driver-controller";
/// ServiceAccount of the daemons.
pub(super) const DAEMON: &str = "compute-domain-daemon-service-account";
const DAEMON_ROLE: &str = "compute-domain-daemon";
const DOMAINS: &str = "resource.nvidia.com";

pub(super) fn objects(dra: &Dra<'_>) -> Outcome<Vec<Object>> {
    let cx = &dra.cx;
    let change = &["get", "list", "update", "watch"];
    let everywhere = vec![
        rule(DOMAINS, &["computedomains"], change),
        rule(DOMAINS, &["computedomains/status"], &["update"]),
        rule("resource.k8s.io", &["resourceclaimtemplates"], &["create", "delete", "get", "list", "update", "watch"]),
        rule("", &["nodes"], change),
        rule("", &["pods"], &["get", "list", "watch"]),
    ];
    // It may only use its own Lease in this namespace.
    let lease = |verbs: &[&str]| rule("coordination.k8s.io", &["leases"], verbs);
    let here = vec![
        rule("apps", &["daemonsets"], ALL),
        rule(DOMAINS, &["computedomaincliques"], change),
        lease(&["create"]),
        PolicyRule { resource_names: Some(vec![NAME.into()]), ..lease(&["get", "update"]) },
    ];
    let mut objects = access(cx, NAME, Rights { here, everywhere });
    let write = &["get", "list", "patch", "update", "watch"];
    let everywhere = vec![
        rule(DOMAINS, &["computedomains", "computedomains/status"], write),
        rule(DOMAINS, &["computedomaincliques"], &["create", "get", "list", "patch", "update", "watch"]),
        rule("", &["pods"], &["get", "list", "patch", "watch"]),
    ];
    let daemon = access(cx, DAEMON, Rights::default());
    objects.extend(daemon);
    objects.extend(cluster_role(&cx.scope, DAEMON_ROLE, DAEMON, everywhere));
    objects.push(deployment(dra)?);
    Ok(objects)
}

fn deployment(dra: &Dra<'_>) -> Outcome<Object> {
    let cx = &dra.cx;
    let image = &dra.spec().dra_driver.image;
    let path = dra.image()?;
    let settings = dra.compute_domains().and_then(|domains| domains.controller.clone()).unwrap_or_default();
    let lease = "LEADER_ELECTION";
    let mut main = container("compute-domain")
        .runs(&["compute-domain-controller", "-v", "$(LOG_VERBOSITY)"], &[])
        .with("HTTP_ENDPOINT", ":8080")
        .with("METRICS_PATH", "/metrics")
        .with("PPROF_PATH", "")
        .with("LOG_VERBOSITY", "4")
        .with("LOG_VERBOSITY_CD_DAEMON", "4")
        .field("POD_NAME", "metadata.name")
        .field("NAMESPACE", "metadata.namespace")
        .with("IMAGE_NAME", &path)
        .with("NVIDIA_VISIBLE_DEVICES", "void")
        .with(&format!("{lease}_ENABLED"), "false")
        .with(&format!("{lease}_LEASE_LOCK_NAME"), NAME)
        .with(&format!("{lease}_LEASE_LOCK_NAMESPACE"), cx.namespace())
        .with(&format!("{lease}_LEASE_DURATION"), "15s")
        .with(&format!("{lease}_RENEW_DEADLINE"), "10s")
        .with(&format!("{lease}_RETRY_PERIOD"), "2s");
    main.image = Some(path);
    main.image_pull_policy = Some(image::pull_policy(image).into());
    if let Some(features) = dra.features() {
        set_env(&mut main, "FEATURE_GATES", &features);
    }
    set_all(&mut main, settings.env.as_ref());
    main.resources = settings.resources.as_ref().map(requirements);
    let all = dra.spec().daemonsets.clone().unwrap_or_default();
    let app = BTreeMap::from([("app".to_owned(), NAME.to_owned())]);
    let mut labels = app.clone();
    labels.insert("app.kubernetes.io/name".into(), "nvidia-dra-driver".into());
    labels.insert("app.kubernetes.io/component".into(), "controller".into());
    let more = all.labels.iter().flatten().filter(|(key, _)| !labels.contains_key(*key)).collect::<Vec<_>>();
    let mut labels = labels.clone();
    labels.extend(more.into_iter().map(|(key, value)| (key.clone(), value.clone())));
    let mut metadata = cx.scope.meta(NAME);
    metadata.annotations.clone_from(&all.annotations);
    let ours = metadata.labels.take().unwrap_or_default();
    metadata.labels = Some(labels.clone().into_iter().chain(ours).collect());
    let secrets = image.image_pull_secrets.iter().flatten();
    let secrets: Vec<_> =
        secrets.map(|name| k8s_openapi::api::core::v1::LocalObjectReference { name: name.clone() }).collect();
    let pod = PodSpec {
        service_account_name: Some(NAME.into()),
        priority_class_name: Some(all.priority_class_name.clone().unwrap_or("system-node-critical".into())),
        affinity: Some(affinity(&app)),
        tolerations: Some(tolerations().chain(all.tolerations.clone().unwrap_or_default()).collect()),
        image_pull_secrets: (!secrets.is_empty()).then_some(secrets),
        containers: vec![main],
        ..PodSpec::default()
    };
    Ok(Object::new(&Deployment {
        metadata,
        spec: DeploymentSpec {
            replicas: Some(1),
            selector: LabelSelector { match_labels: Some(app), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    annotations: all.annotations.clone(),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    }))
}

fn tolerations() -> impl Iterator<Item = Toleration> {
    let table = [
        ("node-role.kubernetes.io/control-plane", Some("NoSchedule")),
        ("node-role.kubernetes.io/master", Some("NoSchedule")),
        ("CriticalAddonsOnly", None),
    ];
    table.into_iter().map(|(key, effect)| Toleration {
        key: Some(key.into()),
        operator: Some("Exists".into()),
        effect: effect.map(Into::into),
        ..Toleration::default()
    })
}

/// Prefers control plane nodes, with anti-affinity to itself.
fn affinity(app: &BTreeMap<String, String>) -> Affinity {
    let requirement = NodeSelectorRequirement {
        key: "node-role.kubernetes.io/control-plane".into(),
        operator: "Exists".into(),
        values: None,
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), ..NodeSelectorTerm::default() };
    let others = PodAffinityTerm {
        label_selector: Some(LabelSelector { match_labels: Some(app.clone()), ..LabelSelector::default() }),
        topology_key: "kubernetes.io/hostname".into(),
        ..PodAffinityTerm::default()
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![PreferredSchedulingTerm {
                weight: 1,
                preference: term,
            }]),
            ..NodeAffinity::default()
        }),
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: others,
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}
