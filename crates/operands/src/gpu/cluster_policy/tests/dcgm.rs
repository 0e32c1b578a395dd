//! DCGM, its exporter, and how Prometheus finds them.

use super::*;

const NAME: &str = "nvidia-dcgm-exporter";

fn exporter(more: Value) -> Value {
    daemon(&on_ubuntu(json!({"dcgmExporter": more})), NAME).clone()
}

fn main_env(daemon: &Value) -> BTreeMap<&str, &str> {
    env(container(daemon, NAME).unwrap())
}

fn with_env(name: &str, value: &str) -> Value {
    exporter(json!({"env": [{"name": name, "value": value}]}))
}

#[test]
fn the_exporter_asks_the_engine_where_there_is_one() {
    assert_eq!(main_env(&exporter(json!({})))["DCGM_REMOTE_HOSTENGINE_INFO"], "nvidia-dcgm:5555");
    let plan = on_ubuntu(json!({"dcgm": {"enabled": false}}));
    assert!(!main_env(daemon(&plan, NAME)).contains_key("DCGM_REMOTE_HOSTENGINE_INFO"));
}

#[test]
fn an_engine_of_the_node_is_reached_through_its_network() {
    let local = with_env("DCGM_REMOTE_HOSTENGINE_INFO", "localhost:5555");
    assert_eq!(
        (&pod(&local)["hostNetwork"], &pod(&local)["dnsPolicy"]),
        (&json!(true), &json!("ClusterFirstWithHostNet"))
    );
    let remote = with_env("DCGM_REMOTE_HOSTENGINE_INFO", "elsewhere:5555");
    assert!(pod(&remote)["hostNetwork"].is_null());
}

#[test]
fn processes_of_the_node_are_seen_when_asked_for() {
    for (wanted, expected) in
        [(json!({}), Value::Null), (json!({"hostPID": false}), Value::Null), (json!({"hostPID": true}), json!(true))]
    {
        assert_eq!(pod(&exporter(wanted))["hostPID"], expected);
    }
}

#[test]
fn jobs_are_read_from_a_directory() {
    for (given, directory) in [
        (json!({"enabled": true}), "/var/lib/dcgm-exporter/job-mapping"),
        (json!({"enabled": true, "directory": "/jobs"}), "/jobs"),
    ] {
        let daemon = exporter(json!({"hpcJobMapping": given}));
        assert_eq!(main_env(&daemon)["DCGM_HPC_JOB_MAPPING_DIR"], directory);
        assert!(mounts(container(&daemon, NAME).unwrap()).contains(&format!("hpc-job-mapping {directory} ro")));
        assert!(volumes(&daemon).contains(&format!("hpc-job-mapping {directory} DoC")));
    }
    assert!(volume(&exporter(json!({"hpcJobMapping": {"directory": "/jobs"}})), "hpc-job-mapping").is_none());
}

#[test]
fn annotations_reach_the_pods() {
    let daemon = exporter(json!({"annotations": {"a": "b"}}));
    assert_eq!(daemon["spec"]["template"]["metadata"]["annotations"]["a"], "b");
    assert!(daemon["metadata"]["annotations"]["a"].is_null());
}

#[test]
fn reading_pods_needs_a_token_and_a_role() {
    let labels = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS";
    let uid = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID";
    let reads = |more: Value| {
        let plan = on_ubuntu(json!({"dcgmExporter": more}));
        let role = find(&plan, "ClusterRole", "nvidia-dcgm-exporter-read-pods").is_some();
        assert_eq!(role, find(&plan, "ClusterRoleBinding", "nvidia-dcgm-exporter-read-pods").is_some());
        (pod(daemon(&plan, NAME))["automountServiceAccountToken"].as_bool().unwrap(), role)
    };
    assert_eq!(reads(json!({})), (false, false));
    assert_eq!(reads(json!({"enablePodLabels": true})), (true, true));
    assert_eq!(reads(json!({"enablePodUID": true})), (true, true));
    assert_eq!(reads(json!({"env": [{"name": labels, "value": "True"}]})), (true, true));
    assert_eq!(reads(json!({"env": [{"name": uid, "value": "no"}]})), (false, false));
    assert_eq!(reads(json!({"env": [{"name": "DCGM_EXPORTER_CONFIGMAP_DATA", "value": "ns:map"}]})), (true, false));
    assert_eq!(reads(json!({"env": [{"name": "DCGM_EXPORTER_CONFIGMAP_DATA", "value": "none"}]})), (false, false));
    let daemon =
        exporter(json!({"enablePodLabels": true, "enablePodUID": true, "podLabelAllowlistRegex": ["^a$", "^b"]}));
    let env = main_env(&daemon);
    assert_eq!((env[labels], env[uid]), ("true", "true"));
    assert_eq!(env["DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"], "^a$,^b");
}

#[test]
fn a_list_of_metrics_is_a_file_and_a_change_of_it_makes_other_pods() {
    let policy = policy(json!({"dcgmExporter": {"config": {"name": "list"}}}));
    let with = |text: &str| {
        let plan = plan(&policy, &with_files(&[("ConfigMap", "list", json!({"dcgm-metrics.csv": text}))]), &ubuntu());
        daemon(&plan, NAME).clone()
    };
    let daemon = with("a");
    let path = "/etc/dcgm-exporter/dcgm-metrics.csv";
    assert_eq!(main_env(&daemon)["DCGM_EXPORTER_COLLECTORS"], path);
    assert!(
        mounts(container(&daemon, NAME).unwrap()).contains(&format!("metrics-config {path} ro sub=dcgm-metrics.csv"))
    );
    assert!(volumes(&daemon).contains(&"metrics-config ConfigMap=list dcgm-metrics.csv:dcgm-metrics.csv".into()));
    assert_ne!(daemon["spec"]["template"], with("b")["spec"]["template"]);
}

#[test]
fn variables_of_the_user_come_last() {
    let daemon = with_env("DCGM_EXPORTER_LISTEN", ":9500");
    assert_eq!(main_env(&daemon)["DCGM_EXPORTER_LISTEN"], ":9500");
}

#[test]
fn the_engine_takes_settings_and_no_address() {
    let more = json!({"dcgm": {"image": "r.io/dcgm:2", "args": ["-x"], "env": [{"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": "localhost:1"}]}});
    let plan = on_ubuntu(more);
    let daemon = daemon(&plan, "nvidia-dcgm");
    let main = container(daemon, "nvidia-dcgm-ctr").unwrap();
    assert_eq!((&main["image"], words(main)), (&json!("r.io/dcgm:2"), vec!["-x"]));
    assert!(pod(daemon)["hostNetwork"].is_null() && pod(daemon)["runtimeClassName"] == "nvidia");
    let usual = on_ubuntu(json!({}));
    assert!(variables(container(super::daemon(&usual, "nvidia-dcgm"), "nvidia-dcgm-ctr").unwrap()).is_empty());
}

#[test]
fn services_stand_in_front_of_both() {
    let plan = on_ubuntu(json!({}));
    let engine = find(&plan, "Service", "nvidia-dcgm").unwrap();
    assert_eq!(
        (&engine["spec"]["type"], &engine["spec"]["internalTrafficPolicy"]),
        (&json!("ClusterIP"), &json!("Local"))
    );
    assert_eq!(
        (&engine["spec"]["ports"][0]["name"], &engine["spec"]["ports"][0]["port"]),
        (&json!("dcgm"), &json!(5555))
    );
    // What listens there speaks no HTTP.
    assert!(engine["metadata"]["annotations"].is_null());
    for (name, port, number) in [(NAME, "gpu-metrics", 9400), ("gpu-operator", "gpu-operator-metrics", 8080)] {
        let service = find(&plan, "Service", name).unwrap();
        assert_eq!(service["metadata"]["annotations"]["prometheus.io/scrape"], "true");
        assert_eq!(
            (&service["metadata"]["labels"]["app"], &service["spec"]["selector"]),
            (&json!(name), &json!({"app": name}))
        );
        assert_eq!(
            service["spec"]["ports"],
            json!([{"name": port, "port": number, "targetPort": number, "protocol": "TCP"}])
        );
        assert!(service["spec"]["type"].is_null() && service["spec"]["clusterIP"].is_null());
    }
    let plan = on_ubuntu(json!({"dcgmExporter": {"service": {"type": "NodePort", "internalTrafficPolicy": "Local"}}}));
    let service = find(&plan, "Service", NAME).unwrap();
    assert_eq!(
        (&service["spec"]["type"], &service["spec"]["internalTrafficPolicy"]),
        (&json!("NodePort"), &json!("Local"))
    );
}

#[test]
fn an_address_that_the_server_gave_to_a_service_stays() {
    let (policy, cluster) = (policy(json!({})), ubuntu());
    let mut live = applied(&fresh(&policy, &cluster), 1, 1);
    let (reference, body) = live.live.iter().find(|(one, _)| one.gvk.kind == "Service" && one.name == NAME).unwrap();
    let (reference, mut body) = (reference.clone(), (**body).clone());
    body["spec"]["clusterIP"] = "10.0.0.9".into();
    live.live.insert(reference, Arc::new(body));
    assert!(diff("u1", objects(&plan(&policy, &live, &cluster)), &live.live).apply.is_empty());
}

/// Names of the ServiceMonitors of a policy, in a cluster with or without the Prometheus operator.
fn monitors(more: Value, served: bool) -> Vec<String> {
    let mut facts = facts();
    if served {
        facts.served.insert(Gvk::of::<capstan_api::foreign::ServiceMonitor>());
    }
    let plan = plan(&policy(more), &facts, &ubuntu());
    let all = objects(&plan).iter().filter(|one| one.reference.gvk.kind == "ServiceMonitor");
    all.map(|one| one.reference.name.clone()).collect()
}

#[test]
fn monitors_are_there_where_prometheus_is_and_they_are_wanted() {
    let on = json!({"serviceMonitor": {"enabled": true}});
    assert_eq!(monitors(json!({"dcgmExporter": on, "nodeStatusExporter": {"enabled": true}}), false), [""; 0]);
    assert_eq!(monitors(json!({}), true), ["gpu-operator"]);
    assert_eq!(
        monitors(json!({"operator": {"metrics": {"serviceMonitor": {"enabled": false}}}}), true),
        ["gpu-operator"]
    );
    assert_eq!(monitors(json!({"dcgmExporter": {"serviceMonitor": {"enabled": false}}}), true), ["gpu-operator"]);
    assert_eq!(monitors(json!({"dcgmExporter": on}), true), ["gpu-operator", NAME]);
    assert_eq!(
        monitors(json!({"dcgmExporter": {"enabled": false, "serviceMonitor": {"enabled": true}}}), true),
        ["gpu-operator"]
    );
    assert_eq!(
        monitors(json!({"nodeStatusExporter": {"enabled": true}}), true),
        ["gpu-operator", "nvidia-node-status-exporter"]
    );
}

#[test]
fn a_monitor_is_what_the_policy_says() {
    let mut facts = facts();
    facts.served.insert(Gvk::of::<capstan_api::foreign::ServiceMonitor>());
    let settings = json!({"enabled": true, "interval": "15s", "scrapeTimeout": "10s", "honorLabels": true,
        "additionalLabels": {"release": "p"}, "relabelings": [{"sourceLabels": ["a"], "targetLabel": "b"}]});
    let more =
        json!({"dcgmExporter": {"serviceMonitor": settings}, "operator": {"metrics": {"serviceMonitor": settings}}});
    let plan = plan(&policy(more), &facts, &ubuntu());
    for (name, port, job) in [(NAME, "gpu-metrics", "app"), ("gpu-operator", "gpu-operator-metrics", "operator")] {
        let monitor = find(&plan, "ServiceMonitor", name).unwrap();
        assert_eq!(
            (&monitor["metadata"]["labels"]["release"], &monitor["metadata"]["labels"]["app"]),
            (&json!("p"), &json!(name))
        );
        assert_eq!(monitor["spec"]["namespaceSelector"]["matchNames"], json!(["gpu-operator"]));
        assert_eq!(
            (&monitor["spec"]["selector"]["matchLabels"], &monitor["spec"]["jobLabel"]),
            (&json!({"app": name}), &json!(job))
        );
        let endpoint = &monitor["spec"]["endpoints"][0];
        assert_eq!((&endpoint["port"], &endpoint["path"]), (&json!(port), &json!("/metrics")));
        assert_eq!(
            (&endpoint["interval"], &endpoint["scrapeTimeout"], &endpoint["honorLabels"]),
            (&json!("15s"), &json!("10s"), &json!(true))
        );
        assert_eq!(endpoint["relabelings"][0]["targetLabel"], "b");
    }
}
