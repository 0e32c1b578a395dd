//! Tests of the admission plugins.

use serde_json::{Value, json};

use crate::admit::Settings;
use crate::admit::tests::{Bench, pod, refused};
use crate::auth::UserInfo;

#[tokio::test]
async fn pods_get_the_token_of_their_account() {
    let bench = Bench::new(Settings::default()).await;
    assert_eq!(
        refused(bench.create("pods", pod("p")).await),
        (403, "pods \"p\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not found".into())
    );
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "pull"}]});
    bench.create("serviceaccounts", account).await.unwrap();
    let pod = bench.create("pods", pod("p")).await.unwrap();
    let spec = &pod["spec"];
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
    let name = spec["volumes"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
    let mount = json!({"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount]));
    let token = json!({"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}});
    assert_eq!(spec["volumes"][0]["projected"]["sources"][0], token);
}

#[tokio::test]
async fn tokens_are_mounted_unless_somebody_says_no() {
    let bench = Bench::new(Settings::default()).await;
    let account = |name: &str, mount: Value| json!({"metadata": {"name": name}, "automountServiceAccountToken": mount});
    bench.create("serviceaccounts", account("yes", json!(true))).await.unwrap();
    bench.create("serviceaccounts", account("no", json!(false))).await.unwrap();
    let cases = [
        ("yes", Value::Null, true),
        ("no", Value::Null, false),
        ("no", json!(true), true),
        ("yes", json!(false), false),
    ];
    for (at, (account, mount, mounted)) in cases.into_iter().enumerate() {
        let mut body = pod(&format!("p{at}"));
        body["spec"]["serviceAccountName"] = account.into();
        body["spec"]["automountServiceAccountToken"] = mount;
        let pod = bench.create("pods", body).await.unwrap();
        assert_eq!(pod["spec"]["volumes"].is_array(), mounted, "case {at}");
    }
}

#[tokio::test]
async fn priorities_come_from_classes() {
    let bench = Bench::new(Settings::alone()).await;
    let with = |name: &str, class: &str| {
        let mut pod = pod(name);
        pod["spec"]["priorityClassName"] = class.into();
        pod
    };
    let plain = bench.create("pods", pod("a")).await.unwrap();
    assert_eq!(
        (&plain["spec"]["priority"], &plain["spec"]["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
    assert_eq!(
        refused(bench.create("pods", with("b", "high")).await).1,
        "pods \"b\" is forbidden: no PriorityClass with name high was found"
    );
    let class = |name: &str, value: i64, default: bool| json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "Never"});
    bench.create("priorityclasses", class("high", 7, false)).await.unwrap();
    let high = bench.create("pods", with("b", "high")).await.unwrap();
    assert_eq!((&high["spec"]["priority"], &high["spec"]["preemptionPolicy"]), (&json!(7), &json!("Never")));
    let critical = bench.create("pods", with("c", "system-node-critical")).await.unwrap();
    assert_eq!(critical["spec"]["priority"], 2_000_001_000);
    let mut own = with("d", "high");
    own["spec"]["priority"] = json!(9);
    assert_eq!(
        refused(bench.create("pods", own).await).1,
        "pods \"d\" is forbidden: the integer value of priority (9) must not be provided in pod spec; priority admission controller computed 7 from the given PriorityClass name"
    );
    bench.create("priorityclasses", class("usual", 3, true)).await.unwrap();
    assert_eq!(bench.create("pods", pod("e")).await.unwrap()["spec"]["priorityClassName"], "usual");
    assert_eq!(
        refused(bench.create("priorityclasses", class("second", 4, true)).await).1,
        "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass usual is already marked as default. Only one default can exist"
    );
}

#[tokio::test]
async fn pods_tolerate_nodes_that_are_not_well_for_a_while() {
    let bench = Bench::new(Settings::alone()).await;
    let mut body = pod("p");
    body["spec"]["tolerations"] = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
    let pod = bench.create("pods", body).await.unwrap();
    assert_eq!(
        pod["spec"]["tolerations"],
        json!([
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ])
    );
}

#[tokio::test]
async fn claims_get_the_default_class_and_grow_where_it_lets_them() {
    let bench = Bench::new(Settings::default()).await;
    let class = json!({
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "x.io/y",
    });
    bench.create("storageclasses", class).await.unwrap();
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let claim = bench.create("persistentvolumeclaims", claim).await.unwrap();
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    bench.patch_status("persistentvolumeclaims", "c", json!({"status": {"phase": "Bound"}})).await.unwrap();
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    assert_eq!(
        refused(bench.patch("persistentvolumeclaims", "c", more.clone()).await).1,
        "persistentvolumeclaims \"c\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
    );
    bench.patch("storageclasses", "fast", json!({"allowVolumeExpansion": true})).await.unwrap();
    bench.patch("persistentvolumeclaims", "c", more).await.unwrap();
}

#[tokio::test]
async fn runtime_classes_must_exist_and_add_their_share() {
    let bench = Bench::new(Settings::alone()).await;
    let mut body = pod("p");
    body["spec"]["runtimeClassName"] = "nvidia".into();
    assert_eq!(
        refused(bench.create("pods", body.clone()).await).1,
        "pods \"p\" is forbidden: pod rejected: RuntimeClass \"nvidia\" not found"
    );
    let class = json!({
        "metadata": {"name": "nvidia"}, "handler": "nvidia", "overhead": {"podFixed": {"cpu": "10m"}},
        "scheduling": {"nodeSelector": {"gpu": "yes"}},
    });
    bench.create("runtimeclasses", class).await.unwrap();
    let pod = bench.create("pods", body).await.unwrap();
    assert_eq!(pod["spec"]["overhead"], json!({"cpu": "10m"}));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"gpu": "yes"}));
}

#[tokio::test]
async fn a_kubelet_writes_only_what_is_its_own() {
    let bench = Bench::new(Settings::default()).await;
    let kubelet = bench.user(UserInfo::new("system:node:n1", &["system:nodes"]));
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    assert_eq!(
        refused(kubelet.create("nodes", node("n2", json!({}))).await).1,
        "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\""
    );
    assert_eq!(
        refused(
            kubelet.create("nodes", node("n1", json!({"node-role.kubernetes.io/master": "", "my": "label"}))).await
        )
        .1,
        "nodes \"n1\" is forbidden: node \"n1\" is not allowed to set the following labels: node-role.kubernetes.io/master"
    );
    let made = kubelet.create("nodes", node("n1", json!({"kubernetes.io/hostname": "n1"}))).await.unwrap();
    assert_eq!(made["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
    assert_eq!(
        refused(kubelet.patch("nodes", "n1", json!({"spec": {"taints": null}})).await).1,
        "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints"
    );
    kubelet.patch_status("nodes", "n1", json!({"status": {"capacity": {"cpu": "4"}}})).await.unwrap();
    bench.create("serviceaccounts", json!({"metadata": {"name": "default"}})).await.unwrap();
    let mut other = pod("p");
    other["spec"]["nodeName"] = "n2".into();
    bench.create("pods", other).await.unwrap();
    assert_eq!(
        refused(kubelet.patch_status("pods", "p", json!({"status": {"phase": "Running"}})).await).1,
        "pods \"p\" is forbidden: node \"n1\" can only update pod status for pods with spec.nodeName set to itself"
    );
    assert_eq!(
        refused(kubelet.delete("pods", "p").await).1,
        "pods \"p\" is forbidden: node \"n1\" can only delete pods with spec.nodeName set to itself"
    );
}

#[tokio::test]
async fn limit_ranges_fill_and_bound() {
    let bench = Bench::new(Settings::alone()).await;
    let item = json!({
        "type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}, "min": {"cpu": "100m"},
    });
    bench.create("limitranges", json!({"metadata": {"name": "r"}, "spec": {"limits": [item]}})).await.unwrap();
    let made = bench.create("pods", pod("a")).await.unwrap();
    let resources = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], resources);
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let mut greedy = pod("b");
    greedy["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "3"}, "requests": {"cpu": "50m"}});
    assert_eq!(
        refused(bench.create("pods", greedy).await).1,
        "pods \"b\" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container is 2, but limit is 3]"
    );
}
