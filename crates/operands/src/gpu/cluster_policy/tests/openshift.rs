//! What is different on OpenShift.

use super::*;

const NAME: &str = "nvidia-driver-daemonset";
const MAIN: &str = "nvidia-driver-ctr";
const TOOLKIT: &str = "openshift-driver-toolkit-ctr";

#[test]
fn drivers_are_built_per_version_of_the_node_system() {
    let plan = fresh(&policy(json!({"gds": {"enabled": true}})), &openshift(&["9.6.1", "9.6.2"]));
    for version in ["9.6.1", "9.6.2"] {
        let name = format!("{NAME}-{version}");
        let daemon = daemon(&plan, &name);
        for labels in [&daemon["metadata"]["labels"], &daemon["spec"]["template"]["metadata"]["labels"]] {
            assert_eq!((&labels["app"], &labels["openshift.driver-toolkit"]), (&json!(name), &json!("true")));
        }
        assert_eq!(daemon["metadata"]["labels"]["openshift.driver-toolkit.rhcos"], version);
        assert_eq!(daemon["spec"]["selector"]["matchLabels"]["app"], json!(name));
        assert_eq!(pod(daemon)["nodeSelector"][OSTREE], version);
        let toolkit = container(daemon, TOOLKIT).unwrap();
        assert_eq!(toolkit["image"], format!("r.io/dtk:{version}"));
        let env = env(toolkit);
        assert_eq!(
            (env["RHCOS_VERSION"], env["NVIDIA_VISIBLE_DEVICES"], env["GDS_ENABLED"]),
            (version, "void", "true")
        );
        assert!(!env.contains_key("RHCOS_IMAGE_MISSING") && !env.contains_key("GDRCOPY_ENABLED"));
        assert_eq!(words(container(daemon, MAIN).unwrap()), ["ocp_dtk_entrypoint", "nv-ctr-run-with-dtk"]);
        assert_eq!(
            words(container(daemon, "nvidia-fs-ctr").unwrap()),
            ["ocp_dtk_entrypoint", "nv-fs-ctr-run-with-dtk"]
        );
        let shared = "shared-nvidia-driver-toolkit /mnt/shared-nvidia-driver-toolkit".to_owned();
        for name in [MAIN, "nvidia-fs-ctr", TOOLKIT] {
            assert!(mounts(container(daemon, name).unwrap()).contains(&shared), "{name}");
        }
        let shared = volumes(daemon).into_iter().filter(|one| one.starts_with("shared-")).collect::<Vec<_>>();
        assert_eq!(shared, ["shared-nvidia-driver-toolkit emptyDir"]);
    }
    assert!(find(&plan, "DaemonSet", NAME).is_none());
}

#[test]
fn a_version_without_a_toolkit_image_builds_with_the_driver_image_and_says_so() {
    let mut cluster = openshift(&["9.6.1"]);
    cluster.openshift.as_mut().unwrap().toolkits = Some(BTreeMap::new());
    let plan = fresh(&policy(json!({})), &cluster);
    let daemon = daemon(&plan, "nvidia-driver-daemonset-9.6.1");
    let label = "openshift.driver-toolkit.rhcos-image-missing";
    assert_eq!(daemon["metadata"]["labels"][label], "true");
    assert_eq!(daemon["spec"]["template"]["metadata"]["labels"][label], "true");
    let (main, toolkit) = (container(daemon, MAIN).unwrap(), container(daemon, TOOLKIT).unwrap());
    assert_eq!(main["image"], toolkit["image"]);
    assert_eq!((env(main)["RHCOS_IMAGE_MISSING"], env(main)["RHCOS_VERSION"]), ("true", "9.6.1"));
    assert_eq!(env(toolkit)["RHCOS_IMAGE_MISSING"], "true");
}

#[test]
fn without_the_toolkit_there_is_one_driver_that_builds_itself() {
    let no_stream = Cluster {
        openshift: Some(OpenShift { version: "4.19".into(), ..OpenShift::default() }),
        ..openshift(&["9.6.1"])
    };
    let cases = [
        (json!({}), no_stream),
        (json!({"operator": {"use_ocp_driver_toolkit": false}}), openshift(&["9.6.1"])),
        (json!({}), Cluster { fleet: ubuntu().fleet, ..openshift(&[]) }),
    ];
    for (more, cluster) in cases {
        let plan = fresh(&policy(more.clone()), &cluster);
        assert!(container(daemon(&plan, NAME), TOOLKIT).is_none(), "{more}");
    }
}

#[test]
fn precompiled_drivers_need_no_toolkit_but_the_proxy() {
    let mut cluster = openshift(&["9.6.1"]);
    cluster.openshift.as_mut().unwrap().proxy = vec![("HTTP_PROXY".into(), "http://p".into())];
    let more = json!({"driver": {"usePrecompiled": true, "image": "r.io/driver:550"}});
    let plan = fresh(&policy(more), &cluster);
    let daemon = daemon(&plan, "nvidia-driver-daemonset-5.14.0-570.el9.6-rhcos4.19");
    assert!(container(daemon, TOOLKIT).is_none());
    let env = env(container(daemon, MAIN).unwrap());
    assert_eq!((env["HTTP_PROXY"], env["OPENSHIFT_VERSION"]), ("http://p", "4.19"));
}

#[test]
fn the_proxy_of_the_cluster_reaches_the_driver_and_what_the_user_set_stays() {
    let mut cluster = openshift(&["9.6.1"]);
    let openshift = cluster.openshift.as_mut().unwrap();
    openshift.proxy = [("HTTPS_PROXY", "https://p"), ("HTTP_PROXY", "http://p"), ("NO_PROXY", ".svc")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    openshift.trusted_ca = Some("user-ca".into());
    let plan = fresh(&policy(json!({"driver": {"env": [{"name": "no_proxy", "value": "mine"}]}})), &cluster);
    let daemon = daemon(&plan, "nvidia-driver-daemonset-9.6.1");
    let variables = variables(container(daemon, MAIN).unwrap());
    let start = variables.iter().position(|one| one == "OPENSHIFT_VERSION=4.19").unwrap();
    assert_eq!(
        variables[start + 1..start + 6],
        [
            "HTTPS_PROXY=https://p",
            "https_proxy=https://p",
            "HTTP_PROXY=http://p",
            "http_proxy=http://p",
            "NO_PROXY=.svc"
        ]
    );
    assert_eq!(variables.iter().filter(|one| one.starts_with("no_proxy=")).collect::<Vec<_>>(), ["no_proxy=mine"]);
    let map = find(&plan, "ConfigMap", "gpu-operator-trusted-ca").unwrap();
    assert_eq!(map["metadata"]["labels"]["config.openshift.io/inject-trusted-cabundle"], "true");
    let mount = "gpu-operator-trusted-ca /etc/pki/ca-trust/extracted/pem ro".to_owned();
    assert!(mounts(container(daemon, MAIN).unwrap()).contains(&mount));
    let volume = "gpu-operator-trusted-ca ConfigMap=gpu-operator-trusted-ca ca-bundle.crt:tls-ca-bundle.pem".to_owned();
    assert!(volumes(daemon).contains(&volume));
}

#[test]
fn certificates_that_openshift_injects_are_left_alone() {
    let mut cluster = openshift(&["9.6.1"]);
    cluster.openshift.as_mut().unwrap().trusted_ca = Some("user-ca".into());
    let policy = policy(json!({}));
    let mut live = applied(&fresh(&policy, &cluster), 1, 1);
    let (reference, body) = live.live.iter().find(|(one, _)| one.name == "gpu-operator-trusted-ca").unwrap();
    let (reference, mut body) = (reference.clone(), (**body).clone());
    body["data"]["ca-bundle.crt"] = "---".into();
    live.live.insert(reference, Arc::new(body));
    assert!(diff("u1", objects(&plan(&policy, &live, &cluster)), &live.live).apply.is_empty());
}

#[test]
fn feature_discovery_writes_files_there() {
    let of = |cluster: &Cluster, more: Value| {
        let plan = fresh(&policy(more), cluster);
        let main = container(daemon(&plan, "gpu-feature-discovery"), "gpu-feature-discovery").unwrap().clone();
        env(&main).get("USE_NODE_FEATURE_API").map(|value| (*value).to_owned())
    };
    assert_eq!(of(&ubuntu(), json!({})), None);
    assert_eq!(of(&openshift(&["1"]), json!({})).as_deref(), Some("false"));
    let mine = json!({"gfd": {"env": [{"name": "USE_NODE_FEATURE_API", "value": "true"}]}});
    assert_eq!(of(&openshift(&["1"]), mine).as_deref(), Some("true"));
}

#[test]
fn its_prometheus_may_look_at_us() {
    let plan = fresh(&policy(json!({})), &openshift(&["1"]));
    let (role, binding) =
        (find(&plan, "Role", "prometheus-k8s").unwrap(), find(&plan, "RoleBinding", "prometheus-k8s").unwrap());
    assert_eq!(
        role["rules"],
        json!([{"apiGroups": [""], "resources": ["services", "endpoints", "pods"], "verbs": ["get", "list", "watch"]}])
    );
    assert_eq!(binding["subjects"][0]["namespace"], "openshift-monitoring");
    assert_eq!(
        (&role["metadata"]["labels"]["app"], &binding["metadata"]["labels"]["app"]),
        (&json!("gpu-operator"), &json!("gpu-operator"))
    );
    assert!(find(&on_ubuntu(json!({})), "Role", "prometheus-k8s").is_none());
}

#[test]
fn rules_are_for_openshift_with_prometheus_and_for_operands_that_are_on() {
    let rules = |more: Value, cluster: &Cluster, served: bool| {
        let mut facts = facts();
        if served {
            facts.served.insert(Gvk::of::<capstan_api::foreign::PrometheusRule>());
        }
        let plan = plan(&policy(more), &facts, cluster);
        let all = objects(&plan).iter().filter(|one| one.reference.gvk.kind == "PrometheusRule");
        all.map(|one| one.reference.name.clone()).collect::<Vec<_>>()
    };
    let cluster = openshift(&["1"]);
    assert_eq!(rules(json!({}), &ubuntu(), true), [""; 0]);
    assert_eq!(rules(json!({}), &cluster, false), [""; 0]);
    assert_eq!(rules(json!({}), &cluster, true), ["nvidia-gpu-operator-metrics", "nvidia-dcgm-exporter"]);
    let other = json!({"dcgmExporter": {"enabled": false}, "nodeStatusExporter": {"enabled": true}});
    assert_eq!(rules(other, &cluster, true), ["nvidia-gpu-operator-metrics", "nvidia-node-status-exporter-alerts"]);
}

#[test]
fn recorded_metrics_have_the_units_of_their_names() {
    let mut facts = facts();
    facts.served.insert(Gvk::of::<capstan_api::foreign::PrometheusRule>());
    let plan = plan(&policy(json!({})), &facts, &openshift(&["1"]));
    let rule = find(&plan, "PrometheusRule", "nvidia-dcgm-exporter").unwrap();
    let group = &rule["spec"]["groups"][0];
    assert_eq!((&group["name"], &group["interval"]), (&json!("dcgm.accelerator.metrics"), &json!("30s")));
    let of = |name: &str| {
        let rules = group["rules"].as_array().unwrap();
        rules.iter().find(|one| one["record"] == name).unwrap()["expr"].as_str().unwrap()
    };
    assert_eq!(of("accelerator_memory_used_bytes"), "DCGM_FI_DEV_FB_USED * 1024 * 1024");
    assert_eq!(of("accelerator_sm_clock_hertz"), "DCGM_FI_DEV_SM_CLOCK * 1000000");
    assert_eq!(of("accelerator_gpu_utilization"), "DCGM_FI_DEV_GPU_UTIL");
}
