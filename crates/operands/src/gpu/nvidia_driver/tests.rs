//! NVIDIADriver: which DaemonSets there are, and what they say.

use capstan_api::gpu::nvidia_driver::NvidiaDriverState;
use capstan_plan::{Write, diff};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::gpu::Fleet;

fn driver(more: Value) -> NvidiaDriver {
    let mut spec = json!({
        "default": true, "driverType": "gpu", "repository": "nvcr.io/nvidia", "image": "driver", "version": "580.65.06",
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "spec": spec,
        "metadata": {"name": "default", "uid": "bfac7359-6033-45ce-88d6-53db0078526e", "generation": 1},
    }))
    .unwrap()
}

fn node(name: &str, os: (&str, &str), kernel: &str) -> Value {
    let feature = |name: &str| format!("feature.node.kubernetes.io/{name}");
    json!({"metadata": {"name": name, "labels": {
        "nvidia.com/gpu.present": "true", "nvidia.com/gpu-operator.driver.owner": "default",
        feature("system-os_release.ID"): os.0, feature("system-os_release.VERSION_ID"): os.1,
        feature("kernel-version.full"): kernel,
    }}})
}

fn cluster(nodes: &[Value]) -> Cluster {
    let mut fleet = Fleet::default();
    nodes.iter().for_each(|node| fleet.add(node));
    let images = [("DRIVER_MANAGER_IMAGE".to_owned(), "manager:1".to_owned())].into();
    Cluster { namespace: "gpu-operator".into(), images, fleet, ..Cluster::default() }
}

fn facts() -> Facts {
    Facts::at(Timestamp::from_second(1_800_000_000).unwrap())
}

fn planned(driver: &NvidiaDriver, nodes: &[Value]) -> Plan<NvidiaDriverStatus> {
    plan(driver, &facts(), &cluster(nodes), &DriverContext { root: "/".into(), ..DriverContext::default() })
}

fn daemon_sets(plan: &Plan<NvidiaDriverStatus>) -> Vec<&Object> {
    plan.objects.iter().flatten().filter(|object| object.reference.gvk.kind == "DaemonSet").collect()
}

fn error(plan: &Plan<NvidiaDriverStatus>) -> (&str, &str) {
    let one = plan.status.conditions.as_ref().unwrap().iter().find(|one| one.type_ == "Error").unwrap();
    (&one.reason, &one.message)
}

#[test]
fn nodes_that_share_an_image_share_a_daemon_set() {
    let nodes =
        [node("a", ("rhel", "9.4"), "k1"), node("b", ("rhel", "9.5"), "k2"), node("c", ("ubuntu", "22.04"), "k3")];
    let plan = planned(&driver(json!({})), &nodes);
    let sets = daemon_sets(&plan);
    assert_eq!(sets.len(), 2);
    let selector = |set: &Object| set.body["spec"]["template"]["spec"]["nodeSelector"].clone();
    let version = "feature.node.kubernetes.io/system-os_release.VERSION_ID";
    assert!(sets.iter().any(|set| selector(set)[format!("{version}.major")] == "9"));
    assert!(sets.iter().any(|set| selector(set)[version] == "22.04"));
    for set in sets {
        assert_eq!(selector(set)["nvidia.com/gpu-operator.driver.owner"], "default");
        assert_eq!(set.body["spec"]["updateStrategy"]["type"], "OnDelete");
    }
}

#[test]
fn precompiled_drivers_have_a_daemon_set_per_kernel() {
    let nodes = [node("a", ("ubuntu", "22.04"), "5.15.0-70-generic"), node("b", ("ubuntu", "22.04"), "6.8.0-1")];
    let plan = planned(&driver(json!({"usePrecompiled": true})), &nodes);
    let images: Vec<String> = daemon_sets(&plan)
        .iter()
        .map(|set| set.body["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned())
        .collect();
    assert!(images.contains(&"nvcr.io/nvidia/driver:580.65.06-5.15.0-70-generic-ubuntu22.04".to_owned()), "{images:?}");
    assert_eq!(images.len(), 2);
}

#[test]
fn without_nodes_of_its_own_a_driver_is_ready_and_makes_nothing() {
    let plan = planned(&driver(json!({})), &[]);
    assert_eq!((plan.status.state, plan.objects.unwrap().len()), (NvidiaDriverState::Ready, 0));
}

#[test]
fn a_policy_with_drivers_of_its_own_disables_it() {
    let context = DriverContext { disabled: true, ..DriverContext::default() };
    let plan = plan(&driver(json!({})), &facts(), &cluster(&[]), &context);
    assert_eq!((plan.status.state, plan.objects), (NvidiaDriverState::Disabled, None));
}

#[test]
fn what_can_never_work_is_refused_with_the_field() {
    let table = [
        (json!({"repository": "", "version": "", "image": "nvcr.io/nvidia/driver"}), "spec.image is"),
        (json!({"usePrecompiled": true, "version": "sha256:ab"}), "digest is not supported"),
        (json!({"usePrecompiled": true, "gds": {"enabled": true}}), "not supported along with"),
        (json!({"gds": {"enabled": true, "version": "v2.17.5"}}), "spec.kernelModuleType"),
        (json!({"repoConfig": {"name": "gone"}}), "spec.driver.repoConfig"),
        (json!({"secretEnv": "gone"}), "secretEnv"),
    ];
    for (more, expected) in table {
        let plan = planned(&driver(more.clone()), &[node("a", ("ubuntu", "22.04"), "k")]);
        let (reason, message) = error(&plan);
        assert_eq!(reason, "ReconcileFailed", "{more}");
        assert!(message.contains(expected), "{more}: {message}");
    }
}

#[test]
fn a_newer_operator_alone_rolls_no_driver() {
    let (driver, nodes) = (driver(json!({})), [node("a", ("ubuntu", "22.04"), "k")]);
    let first = planned(&driver, &nodes);
    let mut facts = facts();
    for Write { object, .. } in
        diff("bfac7359-6033-45ce-88d6-53db0078526e", first.objects.as_deref().unwrap(), &facts.live).apply
    {
        facts.live.insert(object.reference.clone(), std::sync::Arc::new(object.body.clone()));
    }
    let mut newer = cluster(&nodes);
    newer.images.insert("DRIVER_MANAGER_IMAGE".into(), "manager:2".into());
    let context = DriverContext { root: "/".into(), ..DriverContext::default() };
    let uid = "bfac7359-6033-45ce-88d6-53db0078526e";
    let kept = plan(&driver, &facts, &newer, &context);
    assert!(diff(uid, kept.objects.as_deref().unwrap(), &facts.live).is_empty());
    let mut changed = driver.clone();
    changed.spec.version = Some("595.1".into());
    let rolled = plan(&changed, &facts, &newer, &context);
    let manager = &daemon_sets(&rolled)[0].body["spec"]["template"]["spec"]["initContainers"][0]["image"];
    assert_eq!(manager, "manager:2");
}

/// The pod of the only DaemonSet that `more` makes of one Ubuntu node.
fn pod_of(more: Value) -> Value {
    let plan = planned(&driver(more), &[node("a", ("ubuntu", "22.04"), "5.15.0-70-generic")]);
    let sets = daemon_sets(&plan);
    assert_eq!(sets.len(), 1, "{:?}", plan.status);
    sets[0].body["spec"]["template"]["spec"].clone()
}

fn main_of(pod: &Value) -> &Value {
    let is_main = |one: &&Value| one["name"] == MAIN;
    pod["containers"].as_array().unwrap().iter().find(is_main).unwrap()
}

fn value<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    container["env"].as_array()?.iter().find(|one| one["name"] == name)?["value"].as_str()
}

#[test]
fn images_are_named_in_parts_or_as_a_whole() {
    let parts = |repository: &str, image: &str, version: &str| json!({"repository": repository, "image": image, "version": version});
    let table = [
        (parts("nvcr.io/nvidia", "driver", "580"), Ok("nvcr.io/nvidia/driver:580-ubuntu22.04")),
        (parts("", "r.io/driver:580", ""), Ok("r.io/driver:580-ubuntu22.04")),
        (parts("r.io", "driver", "sha256:ab"), Ok("r.io/driver@sha256:ab")),
        (parts("", "r.io/driver@sha256:ab", ""), Ok("r.io/driver@sha256:ab")),
        (parts("r.io", "driver", ""), Err("invalid image specification")),
        (parts("", "driver", "580"), Err("invalid image specification")),
        (parts("", "r.io/driver", ""), Err("without a tag")),
    ];
    for (image, expected) in table {
        let plan = planned(&driver(image.clone()), &[node("a", ("ubuntu", "22.04"), "k")]);
        match expected {
            Ok(path) => {
                let pod = &daemon_sets(&plan)[0].body["spec"]["template"]["spec"];
                assert_eq!(main_of(pod)["image"], path, "{image}");
            }
            Err(text) => assert!(error(&plan).1.contains(text), "{image}: {}", error(&plan).1),
        }
    }
}

#[test]
fn selectors_of_users_cannot_take_nodes_of_others() {
    let owner = "nvidia.com/gpu-operator.driver.owner";
    let pod = pod_of(json!({"default": false, "nodeSelector": {"pool": "a", "nvidia.com/gpu.present": "false"}}));
    assert_eq!(pod["nodeSelector"]["pool"], "a");
    assert_eq!(
        (&pod["nodeSelector"][owner], &pod["nodeSelector"]["nvidia.com/gpu.present"]),
        (&json!("default"), &json!("true"))
    );
}

#[test]
fn nodes_that_lack_a_label_are_in_no_pool() {
    let mut bare = node("b", ("ubuntu", "22.04"), "k");
    bare["metadata"]["labels"]["feature.node.kubernetes.io/kernel-version.full"] = Value::Null;
    let nodes = [node("a", ("ubuntu", "22.04"), "k"), bare.clone()];
    assert_eq!(daemon_sets(&planned(&driver(json!({"usePrecompiled": true})), &nodes)).len(), 1);
    assert_eq!(daemon_sets(&planned(&driver(json!({"usePrecompiled": true})), &[bare])).len(), 0);
}

#[test]
fn labels_by_which_drivers_are_known_are_not_the_users() {
    let labels = json!({"labels": {"app": "mine", "app.kubernetes.io/component": "mine", "team": "a"}});
    let plan = planned(&driver(labels), &[node("a", ("ubuntu", "22.04"), "k")]);
    for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
        let labels = daemon_sets(&plan)[0].body.pointer(labels).unwrap();
        assert_eq!((&labels["team"], &labels["app.kubernetes.io/component"]), (&json!("a"), &json!("nvidia-driver")));
        assert!(labels["app"].as_str().unwrap().starts_with("nvidia-gpu-driver-ubuntu22.04-"));
    }
}

#[test]
fn arguments_and_tolerations_come_after_ours() {
    let pod = pod_of(json!({"args": ["8", "true"], "tolerations": [{"key": "mine", "operator": "Exists"}]}));
    assert_eq!(main_of(&pod)["args"], json!(["init", "8", "true"]));
    assert_eq!(
        (&pod["tolerations"][0]["key"], &pod["tolerations"][1]["key"]),
        (&json!("nvidia.com/gpu"), &json!("mine"))
    );
}

#[test]
fn variables_are_text_whatever_they_look_like() {
    let pod = pod_of(json!({"env": [{"name": "Y", "value": "on"}, {"name": "N", "value": "8"}]}));
    let main = main_of(&pod);
    assert_eq!((value(main, "Y"), value(main, "N")), (Some("on"), Some("8")));
}

#[test]
fn the_numbers_of_a_startup_probe_replace_ours_as_a_whole() {
    let delay = |more: Value| main_of(&pod_of(more))["startupProbe"]["initialDelaySeconds"].clone();
    assert_eq!((delay(json!({})), delay(json!({"usePrecompiled": true}))), (json!(60), json!(5)));
    let pod = pod_of(json!({"startupProbe": {"periodSeconds": 7}}));
    let probe = &main_of(&pod)["startupProbe"];
    assert_eq!(
        (&probe["periodSeconds"], &probe["initialDelaySeconds"], &probe["failureThreshold"]),
        (&json!(7), &Value::Null, &Value::Null)
    );
}

#[test]
fn managers_of_vgpu_hosts_run_where_their_label_is() {
    let pod = pod_of(json!({"driverType": "vgpu-host-manager"}));
    assert_eq!(pod["nodeSelector"]["nvidia.com/gpu.deploy.vgpu-manager"], "true");
    let main = main_of(&pod);
    assert!(main["startupProbe"].is_null() && main["lifecycle"].is_null());
    assert_eq!(pod["terminationGracePeriodSeconds"], 120);
    let mounts: Vec<&str> =
        main["volumeMounts"].as_array().unwrap().iter().filter_map(|one| one["mountPath"].as_str()).collect();
    assert!(mounts.contains(&"/dev/vfio") && mounts.contains(&"/sys/fs/cgroup"), "{mounts:?}");
}

#[test]
fn sidecars_and_networks_are_those_that_were_asked_for() {
    let names = |pod: &Value| -> Vec<String> {
        pod["containers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&pod_of(json!({}))), [MAIN]);
    let sidecar = |name: &str| json!({"enabled": true, "repository": "r.io", "image": name, "version": "v2.0.0"});
    let all = json!({"rdma": {"enabled": true}, "gds": sidecar("fs"), "gdrcopy": sidecar("gdr"), "hostNetwork": true});
    let pod = pod_of(all);
    assert_eq!(names(&pod).len(), 4);
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!("ClusterFirstWithHostNet")));
}

#[test]
fn each_driver_has_a_probe_of_its_own() {
    let probe = |name: &str| {
        let mut driver = driver(json!({}));
        driver.metadata.name = Some(name.into());
        let mut node = node("a", ("ubuntu", "22.04"), "k");
        node["metadata"]["labels"]["nvidia.com/gpu-operator.driver.owner"] = name.into();
        let plan = planned(&driver, &[node]);
        let maps = plan.objects.iter().flatten().filter(|object| object.reference.gvk.kind == "ConfigMap");
        maps.map(|object| object.reference.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(probe("a").len(), 1);
    assert_ne!(probe("a"), probe("b"));
}

#[test]
fn a_mistake_of_all_drivers_is_told_by_each() {
    let refusal = Some(("ConflictingNodeSelector", "multiple NVIDIADrivers match the same node n: [a b]".to_owned()));
    let context = DriverContext { refusal, ..DriverContext::default() };
    let plan = plan(&driver(json!({})), &facts(), &cluster(&[]), &context);
    assert_eq!(error(&plan), ("ConflictingNodeSelector", "multiple NVIDIADrivers match the same node n: [a b]"));
    assert_eq!((plan.status.state, plan.objects), (NvidiaDriverState::NotReady, None));
}

#[test]
fn precompiled_drivers_of_suse_see_the_modules_of_the_host() {
    let suse = |precompiled: bool| {
        let driver = driver(json!({"usePrecompiled": precompiled}));
        let plan = planned(&driver, &[node("a", ("sles", "15.6"), "6.4.0-150600.21-default")]);
        daemon_sets(&plan)[0].body["spec"]["template"]["spec"].clone()
    };
    let modules = |pod: &Value| main_of(pod)["volumeMounts"].to_string().contains("/run/host/lib/modules");
    assert!(modules(&suse(true)) && !modules(&suse(false)));
}

#[test]
fn the_proxy_of_openshift_reaches_drivers_that_are_built_without_its_toolkit() {
    let nodes = [node("a", ("rhcos", "4.19"), "5.14.0")];
    let mut context = cluster(&nodes);
    context.openshift = Some(crate::gpu::OpenShift {
        version: "4.19".into(),
        proxy: vec![("HTTPS_PROXY".into(), "http://proxy:3128".into())],
        trusted_ca: Some("ca".into()),
        ..Default::default()
    });
    let root = DriverContext { root: "/".into(), ..DriverContext::default() };
    let plan = plan(&driver(json!({})), &facts(), &context, &root);
    let pod = daemon_sets(&plan)[0].body["spec"]["template"]["spec"].clone();
    let main = main_of(&pod).to_string();
    assert!(main.contains("http://proxy:3128") && main.contains("OPENSHIFT_VERSION"), "{main}");
    let maps = plan.objects.iter().flatten().filter(|object| object.reference.gvk.kind == "ConfigMap");
    assert!(maps.into_iter().any(|map| map.body.to_string().contains("inject-trusted-cabundle")));
}

#[test]
fn a_secret_that_is_gone_is_not_ready_whatever_was_said_before() {
    let mut one = driver(json!({"secretEnv": "gone"}));
    one.status = planned(&driver(json!({})), &[]).status.into();
    assert_eq!(one.status.as_ref().map(|status| status.state), Some(NvidiaDriverState::Ready));
    let plan = planned(&one, &[node("a", ("ubuntu", "22.04"), "k")]);
    assert_eq!(plan.status.state, NvidiaDriverState::NotReady);
}

/// Everything that a DaemonSet says, a line for each value. Items of lists are known by their names.
fn lines(at: &str, value: &Value, to: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| lines(&format!("{at}/{name}"), value, to)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let named = ["mountPath", "name", "key"].iter().find_map(|name| item[name].as_str());
                lines(&format!("{at}[{}]", named.map_or(index.to_string(), str::to_owned)), item, to);
            }
        }
        value => {
            to.insert(format!("{at} = {value}"));
        }
    }
}

/// What an OpenShift cluster with that node looks like.
fn openshift(node: &mut Value) -> crate::gpu::OpenShift {
    let version = "419.96.202509";
    node["metadata"]["labels"]["feature.node.kubernetes.io/system-os_release.OSTREE_VERSION"] = version.into();
    crate::gpu::OpenShift {
        version: "4.19".into(),
        toolkits: Some([(version.to_owned(), "r.io/dtk:419".to_owned())].into()),
        ..Default::default()
    }
}

/// The DaemonSet that `more` makes of one node.
fn rendered(more: Value, on_openshift: bool) -> Value {
    let mut node =
        if on_openshift { node("a", ("rhcos", "4.19"), "5.14.0") } else { node("a", ("ubuntu", "22.04"), "5.15.0-70") };
    let openshift = on_openshift.then(|| openshift(&mut node));
    let context = Cluster { openshift, ..cluster(&[node]) };
    let mut facts = facts();
    for (kind, name, data) in [
        ("ConfigMap", "repos", json!({"a.list": "deb x"})),
        ("ConfigMap", "certs", json!({"ca.pem": "x"})),
        ("ConfigMap", "modules", json!({"nvidia.conf": "x"})),
        ("Secret", "secret", json!({"TOKEN": "x"})),
    ] {
        let gvk = capstan_plan::Gvk { group: "".into(), version: "v1".into(), kind: kind.to_owned().into() };
        let body = json!({"apiVersion": "v1", "kind": kind, "data": data, "metadata": {"name": name, "namespace": "gpu-operator"}});
        let reference = Ref { gvk, namespace: "gpu-operator".into(), name: name.into() };
        facts.live.insert(reference, std::sync::Arc::new(body));
    }
    let root = DriverContext { root: "/".into(), ..DriverContext::default() };
    let plan = plan(&driver(more.clone()), &facts, &context, &root);
    let sets = daemon_sets(&plan);
    assert_eq!(sets.len(), 1, "{more}: {:?}", plan.status);
    sets[0].body.clone()
}

#[test]
fn the_smallest_driver_is_known_to_the_letter() {
    insta::assert_yaml_snapshot!(rendered(json!({}), false));
}

/// What each setting changes of the smallest driver: lines that go, and lines that come.
#[test]
fn what_each_setting_changes_is_known_to_the_letter() {
    let sidecar = |name: &str| json!({"enabled": true, "repository": "r.io", "image": name, "version": "v2.0.0"});
    let full = json!({
        "labels": {"app": "mine", "app.kubernetes.io/part-of": "mine", "team": "a"}, "annotations": {"note": "a"},
        "priorityClassName": "high", "args": ["--extra"], "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"cpu": "1"}}, "tolerations": [{"key": "mine", "operator": "Exists"}],
        "imagePullPolicy": "Always", "imagePullSecrets": ["one"], "kernelModuleType": "open",
        "manager": {"repository": "r.io", "image": "manager", "version": "2", "env": [{"name": "C", "value": "d"}]},
        "startupProbe": {"periodSeconds": 7}, "nodeSelector": {"pool": "a"},
    });
    let cases: Vec<(&str, Value, bool)> = vec![
        ("full", full, false),
        ("rdma", json!({"rdma": {"enabled": true}}), false),
        ("host_mofed", json!({"rdma": {"enabled": true, "useHostMofed": true}}), false),
        ("gds", json!({"gds": sidecar("fs")}), false),
        ("gdrcopy", json!({"gdrcopy": sidecar("gdr")}), false),
        ("openshift", json!({}), true),
        ("precompiled", json!({"usePrecompiled": true}), false),
        ("host_manager", json!({"driverType": "vgpu-host-manager"}), false),
        ("host_manager_on_openshift", json!({"driverType": "vgpu-host-manager"}), true),
        ("licence_in_a_config_map", json!({"licensingConfig": {"name": "licence"}}), false),
        ("licence_in_a_secret", json!({"licensingConfig": {"secretName": "licence", "nlsEnabled": false}}), false),
        ("secret_env", json!({"secretEnv": "secret"}), false),
        ("host_network", json!({"hostNetwork": true}), false),
        (
            "more_files",
            json!({"repoConfig": {"name": "repos"}, "certConfig": {"name": "certs"},
                "kernelModuleConfig": {"name": "modules"}, "virtualTopologyConfig": {"name": "topology"}}),
            false,
        ),
    ];
    let of = |value: &Value| {
        let mut all = std::collections::BTreeSet::new();
        lines("", value, &mut all);
        all
    };
    let smallest = of(&rendered(json!({}), false));
    for (name, more, on_openshift) in cases {
        let other = of(&rendered(more, on_openshift));
        let gone = smallest.difference(&other).map(|line| format!("- {line}"));
        let come = other.difference(&smallest).map(|line| format!("+ {line}"));
        let text = gone.chain(come).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn images_of_sidecars_follow_the_same_table() {
    let table = [
        (("nvcr.io/nvidia", "fs", "v2.0.0"), Ok("nvcr.io/nvidia/fs:v2.0.0-ubuntu22.04")),
        (("", "r.io/fs:v2.0.0", ""), Ok("r.io/fs:v2.0.0-ubuntu22.04")),
        (("r.io", "fs", "sha256:ab"), Ok("r.io/fs@sha256:ab")),
        (("", "r.io/fs@sha256:ab", ""), Ok("r.io/fs@sha256:ab")),
        (("r.io", "fs", ""), Err("invalid image specification")),
        (("", "fs", "v2.0.0"), Err("invalid image specification")),
        (("", "r.io/fs", ""), Err("without a tag")),
    ];
    for (field, container) in [("gds", "nvidia-fs-ctr"), ("gdrcopy", "nvidia-gdrcopy-ctr")] {
        for ((repository, image, version), expected) in table {
            let sidecar = json!({"enabled": true, "repository": repository, "image": image, "version": version});
            let driver = driver(json!({field: sidecar, "kernelModuleType": "open"}));
            let plan = planned(&driver, &[node("a", ("ubuntu", "22.04"), "k")]);
            match expected {
                Ok(path) => {
                    let pod = &daemon_sets(&plan)[0].body["spec"]["template"]["spec"];
                    let one = pod["containers"].as_array().unwrap().iter().find(|one| one["name"] == container);
                    assert_eq!(one.unwrap()["image"], path, "{field}: {sidecar}");
                }
                Err(text) => assert!(error(&plan).1.contains(text), "{field} {sidecar}: {}", error(&plan).1),
            }
        }
    }
}

#[test]
fn managers_of_vgpu_hosts_share_a_node_with_no_driver_and_are_upgraded_like_them() {
    let components = |more: Value| {
        let pod = pod_of(more);
        let terms = "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector";
        pod.pointer(terms).unwrap()["matchExpressions"][0]["values"].clone()
    };
    for kind in ["gpu", "vgpu-host-manager"] {
        let values = components(json!({"driverType": kind}));
        for component in ["nvidia-driver", "nvidia-vgpu-host-manager"] {
            assert!(values.as_array().unwrap().contains(&component.into()), "{kind}: {values}");
        }
    }
    let mut set = rendered(json!({"driverType": "vgpu-host-manager"}), false);
    set["metadata"]["uid"] = "ds".into();
    let mut here = node("a", ("ubuntu", "22.04"), "5.15.0-70");
    let revision = json!({
        "metadata": {"name": "r", "labels": {"controller-revision-hash": "h"}, "ownerReferences": [{"uid": "ds"}]},
        "revision": 1, "data": {"spec": {"template": set["spec"]["template"]}},
    });
    let driver_revisions = crate::gpu::upgrade::DriverRevisions::of([&set], [&revision]);
    let wanted = |node: &Value| {
        driver_revisions.wanted(&crate::gpu::nodes::Node::of(node)).map(|target| target.revision.to_owned())
    };
    assert_eq!(wanted(&here), None, "the node does not ask for it");
    here["metadata"]["labels"]["nvidia.com/gpu.deploy.vgpu-manager"] = "true".into();
    assert_eq!(wanted(&here).as_deref(), Some("h"));
}
