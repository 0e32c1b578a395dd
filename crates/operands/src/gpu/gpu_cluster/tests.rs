//! GPUCluster: what it deploys, what it says, and how it goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_api::gpu::gpu_cluster::GpuClusterState::{NotReady, Ready};
use capstan_plan::{Gvk, PropagationPolicy, Write, diff};
use jiff::Timestamp;

use super::*;
use crate::gpu::{Fleet, IMAGES, OpenShift};

fn cluster(dra_driver: Value, more: Value) -> GpuCluster {
    let mut spec = json!({"draDriver": dra_driver});
    for (section, value) in more.as_object().unwrap() {
        spec[section] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster",
        "metadata": {"name": "gpu-cluster", "uid": "u1", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

fn around() -> Cluster {
    let mut fleet = Fleet::default();
    fleet.add(&json!({"metadata": {"name": "n", "labels": {
        "nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.dra-driver": "true",
        "nvidia.com/gpu.deploy.dra-validator": "true",
    }}}));
    Cluster {
        namespace: "gpu-operator".into(),
        images: IMAGES.iter().map(|name| ((*name).into(), format!("r.io/{}:v1", name.to_lowercase()))).collect(),
        fleet,
        gpu_clusters: vec!["gpu-cluster".into()],
        ..Cluster::default()
    }
}

/// A server with claims, and the labelled namespace.
fn facts() -> Facts {
    let mut facts = Facts::at(Timestamp::from_second(1_800_000_000).unwrap());
    facts.served.extend([Gvk::of::<DeviceClass>(), Gvk::of::<ResourceClaimTemplate>()]);
    let labels = json!({"metadata": {"name": "gpu-operator", "labels": {namespace::ADMIN_ACCESS: "true"}}});
    facts.live.insert(Ref::of::<Namespace>("", "gpu-operator"), Arc::new(labels));
    facts
}

fn fresh(cluster: &GpuCluster) -> Plan<GpuClusterStatus> {
    plan(cluster, &facts(), &around())
}

fn count(plan: &Plan<GpuClusterStatus>) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for object in plan.objects.iter().flatten() {
        *counts.entry(&*object.reference.gvk.kind).or_default() += 1;
    }
    counts
}

fn find<'a>(plan: &'a Plan<GpuClusterStatus>, kind: &str, name: &str) -> &'a Value {
    let is = |object: &&Object| object.reference.gvk.kind == kind && object.reference.name == name;
    let found = plan.objects.iter().flatten().find(is).map(|object| &object.body);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

fn container<'a>(workload: &'a Value, name: &str) -> &'a Value {
    let pod = &workload["spec"]["template"]["spec"];
    let all = [&pod["initContainers"], &pod["containers"]].into_iter().filter_map(Value::as_array).flatten();
    all.into_iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("there is no container {name}"))
}

fn env<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    container["env"].as_array()?.iter().find(|one| one["name"] == name)?["value"].as_str()
}

fn condition<'a>(plan: &'a Plan<GpuClusterStatus>, type_: &str) -> (&'a str, &'a str, &'a str) {
    let list = plan.status.conditions.as_ref().unwrap();
    let one = list.iter().find(|one| one.type_ == type_).unwrap_or_else(|| panic!("there is no condition {type_}"));
    (&one.status, &one.reason, &one.message)
}

/// What is there once the plan was carried out, and so many pods run.
fn applied(plan: &Plan<GpuClusterStatus>, available: i64) -> Facts {
    let mut facts = facts();
    for Write { object, .. } in diff("u1", plan.objects.as_ref().unwrap(), &facts.live).apply {
        let mut body = object.body.clone();
        body["metadata"]["uid"] = object.reference.to_string().into();
        body["metadata"]["resourceVersion"] = "1".into();
        body["metadata"]["generation"] = 1.into();
        body["status"] = json!({
            "observedGeneration": 1, "desiredNumberScheduled": 1, "updatedNumberScheduled": available,
            "numberAvailable": available, "availableReplicas": available,
        });
        facts.live.mark_complete(object.reference.gvk.clone());
        facts.live.insert(object.reference.clone(), Arc::new(body));
    }
    facts
}

const PLUGIN: &str = "nvidia-dra-driver-kubelet-plugin";

#[test]
fn gpus_alone_are_three_classes_and_one_plugin() {
    let plan = fresh(&cluster(json!({}), json!({})));
    let counts = count(&plan);
    assert_eq!((counts["DeviceClass"], counts.get("Deployment")), (3, None));
    let plugin = find(&plan, "DaemonSet", PLUGIN);
    assert_eq!(plugin["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(plugin["spec"]["template"]["spec"]["tolerations"], Value::Null);
    assert_eq!(plugin["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], "100%");
    let gpu = &find(&plan, "DeviceClass", "mig.nvidia.com")["spec"]["selectors"][0]["cel"]["expression"];
    assert_eq!(gpu, "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'");
    assert!(plan.objects.iter().flatten().all(|object| object.body["metadata"]["labels"][STATE].is_string()));
}

#[test]
fn compute_domains_add_a_controller_classes_and_a_container() {
    let plan = fresh(&cluster(json!({"computeDomains": {}}), json!({})));
    let counts = count(&plan);
    assert_eq!((counts["DeviceClass"], counts["Deployment"]), (5, 1));
    let domains = container(find(&plan, "DaemonSet", PLUGIN), "compute-domains");
    assert_eq!((env(domains, "HTTP_ENDPOINT"), env(domains, "HEALTHCHECK_PORT")), (Some(":8081"), Some("51515")));
    assert_eq!((env(domains, "HOST_ROOT"), env(domains, "IMAGE_NAME")), (None, None));
    let off = fresh(&cluster(json!({"computeDomains": {"enabled": false}}), json!({})));
    assert_eq!(count(&off).get("Deployment"), None);
}

#[test]
fn what_is_switched_off_goes_with_all_of_its_objects() {
    let on = fresh(&cluster(
        json!({"computeDomains": {}, "featureGates": {"MPSSupport": true}}),
        json!({"dcgm": {"enabled": true}}),
    ));
    let live = applied(&on, 1);
    let off = plan(&cluster(json!({}), json!({})), &live, &around());
    let gone = diff("u1", off.objects.as_ref().unwrap(), &live.live).delete;
    let gone: Vec<String> = gone.iter().map(|one| one.reference.to_string()).collect();
    for name in [
        "Deployment gpu-operator/nvidia-dra-driver-controller",
        "DeviceClass compute-domain-daemon.nvidia.com",
        "Role gpu-operator/nvidia-dra-driver-kubeletplugin-mps",
        "ClusterRole compute-domain-daemon",
        "DaemonSet gpu-operator/nvidia-dcgm-dra",
        "ResourceClaimTemplate gpu-operator/nvidia-dcgm-admin",
    ] {
        assert!(gone.iter().any(|one| one == name), "{name} stays: {gone:?}");
    }
}

#[test]
fn health_ports_are_the_users_and_without_health_there_are_no_probes() {
    let health = |health: Value| json!({"gpus": {"kubeletPlugin": {"healthcheck": health}}});
    let probed = fresh(&cluster(health(json!({"port": 4000})), json!({})));
    let gpus = container(find(&probed, "DaemonSet", PLUGIN), "gpus");
    assert_eq!(env(gpus, "HEALTHCHECK_PORT"), Some("4000"));
    assert_eq!(
        (&gpus["livenessProbe"]["grpc"]["port"], &gpus["startupProbe"]["failureThreshold"]),
        (&json!(4000), &json!(600))
    );
    let silent = fresh(&cluster(health(json!({"enabled": false})), json!({})));
    let gpus = container(find(&silent, "DaemonSet", PLUGIN), "gpus");
    assert_eq!(env(gpus, "HEALTHCHECK_PORT"), Some("-1"));
    assert!(gpus["livenessProbe"].is_null() && gpus["startupProbe"].is_null());
}

#[test]
fn the_check_of_the_driver_may_use_as_much_as_the_plugins() {
    let asks = |memory: &str| json!({"resources": {"limits": {"memory": memory}}});
    let dra = json!({"gpus": {"kubeletPlugin": asks("512Mi")}, "computeDomains": {"kubeletPlugin": asks("1Gi")}});
    let plan = fresh(&cluster(dra, json!({})));
    let check = container(find(&plan, "DaemonSet", PLUGIN), "driver-validation");
    assert_eq!(check["resources"]["limits"]["memory"], "1Gi");
    assert_eq!(env(check, "DRIVER_VALIDATION_SKIP_GPU_INIT"), Some("true"));
}

#[test]
fn features_reach_the_driver_in_order() {
    let plan = fresh(&cluster(json!({"featureGates": {"B": true, "A": false}}), json!({})));
    assert_eq!(env(container(find(&plan, "DaemonSet", PLUGIN), "gpus"), "FEATURE_GATES"), Some("A=false,B=true"));
}

#[test]
fn directories_of_nodes_are_the_users() {
    let paths = json!({"hostPaths": {"kubeletRootDir": "/k", "driverInstallDir": "/d"}, "dcgmExporter": {}});
    let plan = fresh(&cluster(json!({}), paths));
    let plugin = find(&plan, "DaemonSet", PLUGIN);
    assert_eq!(env(container(plugin, "gpus"), "KUBELET_PLUGINS_DIRECTORY_PATH"), Some("/k/plugins"));
    let check = container(plugin, "driver-validation");
    let dirs = (env(check, "DRIVER_INSTALL_DIR"), env(check, "DRIVER_INSTALL_DIR_CTR_PATH"));
    assert_eq!(dirs, (Some("/d"), Some("/driver-root")));
    let volumes =
        find(&plan, "DaemonSet", "nvidia-dcgm-exporter-dra")["spec"]["template"]["spec"]["volumes"].to_string();
    assert!(volumes.contains("/k/pod-resources"), "{volumes}");
}

#[test]
fn monitoring_is_off_unless_asked_for_and_sees_gpus_through_claims() {
    assert!(!count(&fresh(&cluster(json!({}), json!({"dcgm": {}})))).contains_key("Service"));
    let plan = fresh(&cluster(json!({}), json!({"dcgm": {"enabled": true}, "dcgmExporter": {}})));
    let exporter = find(&plan, "DaemonSet", "nvidia-dcgm-exporter-dra");
    let pod = &exporter["spec"]["template"]["spec"];
    assert_eq!(pod["resourceClaims"][0]["resourceClaimTemplateName"], "nvidia-dcgm-exporter-admin");
    assert!(pod["runtimeClassName"].is_null() && pod["initContainers"].is_null());
    let main = container(exporter, "nvidia-dcgm-exporter-dra");
    assert_eq!(env(main, "DCGM_REMOTE_HOSTENGINE_INFO"), Some("nvidia-dcgm-dra:5555"));
    assert_eq!(
        (env(main, "KUBERNETES_ENABLE_DRA"), &main["resources"]["claims"][0]["name"]),
        (Some("true"), &json!("admin-gpus"))
    );
    let template = find(&plan, "ResourceClaimTemplate", "nvidia-dcgm-admin");
    let request = &template["spec"]["spec"]["devices"]["requests"][0]["exactly"];
    assert_eq!((&request["adminAccess"], &request["allocationMode"]), (&json!(true), &json!("All")));
}

#[test]
fn the_validator_is_found_by_upgrades_of_drivers() {
    let plan = fresh(&cluster(json!({}), json!({})));
    let validator = find(&plan, "DaemonSet", "nvidia-dra-validator");
    assert_eq!(validator["spec"]["template"]["metadata"]["labels"]["app"], "nvidia-operator-validator");
    assert_eq!(validator["spec"]["selector"]["matchLabels"], json!({"app.kubernetes.io/name": "nvidia-dra-validator"}));
    assert_eq!(container(validator, "gpu-validation")["command"], json!(["nvidia-smi", "-L"]));
}

#[test]
fn settings_of_all_daemon_sets_reach_every_one() {
    let all = json!({
        "daemonsets": {
            "updateStrategy": "OnDelete", "priorityClassName": "high", "labels": {"team": "a", "app": "no"},
            "podSecurityContext": {"fsGroup": 5}, "tolerations": [{"operator": "Exists"}],
        },
        "dcgm": {"enabled": true}, "dcgmExporter": {},
    });
    let plan = fresh(&cluster(json!({}), all));
    for name in [PLUGIN, "nvidia-dcgm-dra", "nvidia-dcgm-exporter-dra", "nvidia-dra-validator"] {
        let daemon = find(&plan, "DaemonSet", name);
        let pod = &daemon["spec"]["template"]["spec"];
        assert_eq!(daemon["spec"]["updateStrategy"]["type"], "OnDelete", "{name}");
        assert_eq!(
            (&pod["priorityClassName"], &pod["securityContext"]["fsGroup"]),
            (&json!("high"), &json!(5)),
            "{name}"
        );
        assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]), "{name}");
        let labels = &daemon["spec"]["template"]["metadata"]["labels"];
        assert_eq!((&labels["team"], labels["app"] == "no"), (&json!("a"), false), "{name}");
    }
}

#[test]
fn constraints_are_made_on_openshift_only() {
    let plain = fresh(&cluster(json!({}), json!({})));
    assert_eq!(count(&plain).get("SecurityContextConstraints"), None);
    let around = Cluster { openshift: Some(OpenShift::default()), ..around() };
    let plan = plan(&cluster(json!({}), json!({})), &facts(), &around);
    let scc = find(&plan, "SecurityContextConstraints", "nvidia-dra-driver");
    assert_eq!((&scc["groups"], scc["users"].as_array().unwrap().len()), (&Value::Null, 2));
}

#[test]
fn a_cluster_policy_is_in_the_way() {
    let around = Cluster { policies: vec![("t".into(), "cluster-policy".into())], ..around() };
    let plan = plan(&cluster(json!({}), json!({})), &facts(), &around);
    let message = "A ClusterPolicy CR \"cluster-policy\" exists; a ClusterPolicy CR and GPUCluster CR may not exist at the same time";
    assert_eq!(condition(&plan, "Error"), ("True", "PrerequisiteNotMet", message));
    assert!(plan.objects.is_none() && plan.requeue.is_none());
}

#[test]
fn a_server_without_claims_is_named() {
    let facts = Facts::at(Timestamp::from_second(1_800_000_000).unwrap());
    let plan = plan(&cluster(json!({}), json!({})), &facts, &around());
    assert!(condition(&plan, "Error").2.contains("resource.k8s.io/v1"), "{:?}", condition(&plan, "Error"));
}

#[test]
fn nothing_is_made_before_the_namespace_admits_claims_for_all_gpus() {
    let mut facts = facts();
    facts.live = capstan_plan::LiveObjects::default();
    let plan = plan(&cluster(json!({}), json!({})), &facts, &around());
    assert_eq!(condition(&plan, "Error"), ("True", "OperandNotReady", "namespace gpu-operator is being labelled"));
    assert!(plan.objects.is_none());
}

#[test]
fn it_is_ready_when_every_part_runs_everywhere() {
    let one = cluster(json!({"computeDomains": {}}), json!({}));
    let made = fresh(&one);
    assert_eq!(made.status.state, NotReady);
    assert_eq!(plan(&one, &applied(&made, 0), &around()).status.state, NotReady);
    let ready = plan(&one, &applied(&made, 1), &around());
    assert_eq!(condition(&ready, "Ready"), ("True", "Reconciled", "All resources have been successfully reconciled"));
    assert_eq!((ready.status.state, condition(&ready, "DraDriver").2), (Ready, "1 of 1 nodes"));
    let live = applied(&made, 1).live;
    assert!(diff("u1", ready.objects.as_ref().unwrap(), &live).is_empty());
}

#[test]
fn a_part_that_cannot_be_decided_takes_nothing_away() {
    let one = cluster(json!({}), json!({"dcgm": {"enabled": true}}));
    let live = applied(&fresh(&one), 1);
    let mistake = cluster(json!({}), json!({"dcgm": {"enabled": true, "repository": "r.io"}}));
    let plan = plan(&mistake, &live, &around());
    assert!(condition(&plan, "Error").2.starts_with("Error syncing state state-dcgm: invalid image specification"));
    assert!(diff("u1", plan.objects.as_ref().unwrap(), &live.live).delete.is_empty());
}

#[test]
fn consumers_of_claims_go_before_the_driver() {
    let one = cluster(json!({}), json!({"dcgmExporter": {}}));
    let live = applied(&fresh(&one), 1);
    let first = teardown(&live);
    assert_eq!(first.draining, ["nvidia-dcgm-exporter-dra", "nvidia-dra-validator"]);
    assert!(first.event.unwrap().message.contains("nvidia-dcgm-exporter-dra, nvidia-dra-validator"));
    let gone = diff("u1", &first.objects, &live.live).delete;
    assert_eq!(gone.len(), 2);
    assert!(gone.iter().all(|one| one.propagation == PropagationPolicy::Foreground));
    let mut later = facts();
    for (reference, body) in live.live.iter().filter(|(one, _)| !first.draining.contains(&one.name)) {
        later.live.insert(reference.clone(), body.clone());
    }
    let last = teardown(&later);
    assert!(last.draining.is_empty() && last.event.is_none());
}
