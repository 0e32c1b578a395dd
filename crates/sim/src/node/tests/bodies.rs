//! Containers with a body in Rust.

use std::time::Duration;

use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;

use crate::Cluster;
use crate::Pod;
use crate::node::{
    Behaviour, Body, ContainerContext, ExitCode, HostService, Match, NodeHandle, NodeTemplate, Settings,
};
use crate::testing::{Story, gone, phase, ready, wait};

fn body(body: Body) -> Behaviour {
    Behaviour { body: Some(body), ..Behaviour::default() }
}

fn restarts(pod: Option<&Pod>) -> i32 {
    let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
    statuses.map_or(0, |statuses| statuses[0].restart_count)
}

#[tokio::test(start_paused = true)]
async fn a_body_sees_its_environment_arguments_and_files() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let config =
        json!({"metadata": {"name": "config", "namespace": "default"}, "data": {"mode": "fast", "LEVEL": "3"}});
    story.create::<ConfigMap>(config).await;
    let check = Body::new(async |context: ContainerContext| {
        let seen = [
            context.var("NODE").unwrap_or_default().to_owned(),
            context.var("LEVEL").unwrap_or_default().to_owned(),
            context.args.join(" "),
            context.files.read_text("/etc/config/mode").unwrap_or_default(),
        ];
        context.log.line(seen.join("|"));
        context.files.write("/host/ready", "yes").map_err(|error| context.log.line(error.to_string()))
    });
    story.cluster.nodes().rule(Match::image("probe"), body(check));
    let env = json!([{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]);
    story
        .pod(
            "p",
            json!({
                "restartPolicy": "Never",
                "volumes": [
                    {"name": "config", "configMap": {"name": "config"}},
                    {"name": "host", "hostPath": {"path": "/run/validations"}},
                ],
                "containers": [{
                    "name": "c",
                    "image": "probe",
                    "args": ["--node=$(NODE)"],
                    "env": env,
                    "envFrom": [{"configMapRef": {"name": "config"}}],
                    "volumeMounts": [
                        {"name": "config", "mountPath": "/etc/config"},
                        {"name": "host", "mountPath": "/host"},
                    ],
                }],
            }),
        )
        .await;
    story.until("p", phase("Succeeded")).await;
    let node = story.cluster.nodes().get("node-0").unwrap();
    assert_eq!(node.host().read("/run/validations/ready").as_deref(), Some(&b"yes"[..]));
    let log = read_log(&story, "p").await;
    assert_eq!(log, "node-0|3|--node=node-0|fast\n");
}

#[tokio::test(start_paused = true)]
async fn a_body_finds_the_token_of_its_account_though_caches_leave_it_out() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let check = Body::new(async |context: ContainerContext| {
        let token = context.files.read_text("/var/run/secrets/kubernetes.io/serviceaccount/token").unwrap_or_default();
        let volumes = context.pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).map_or(0, Vec::len);
        context.log.line(format!("{token}, {volumes} volume"));
    });
    story.cluster.nodes().rule(Match::image("probe"), body(check));
    let pod = story.pod("p", json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "probe"}]})).await;
    assert_eq!(pod.spec.as_ref().unwrap().volumes, None);
    story.until("p", phase("Succeeded")).await;
    assert_eq!(read_log(&story, "p").await, "system:serviceaccount:default:default, 1 volume\n");
}

async fn read_log(story: &Story, pod: &str) -> String {
    use capstan_apiserver::serve::{LogOptions, Runtime};
    use futures::StreamExt;
    let table = capstan_apiserver::store::TableKey::new("", "pods");
    let object = story.cluster.server.store().get(&table, "default", pod).unwrap();
    let options = LogOptions { container: "c".into(), ..LogOptions::default() };
    let log: Vec<bytes::Bytes> = story.cluster.nodes().logs(&object, options).await.unwrap().collect().await;
    String::from_utf8(log.concat()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_body_ends_a_container_and_is_run_again() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let failing = Body::new(async |context: ContainerContext| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        context.log.line("giving up");
        ExitCode(3)
    });
    story.cluster.nodes().rule(Match::default(), body(failing));
    story.pod("p", json!({"containers": [{"name": "c", "image": "img"}]})).await;
    story.until("p", |pod| restarts(pod) == 3).await;
    assert_eq!(story.elapsed(), 5 + 5 + 10 + 5 + 20);
    let last = story.get("p").unwrap().status.clone().unwrap().container_statuses.unwrap()[0].last_state.clone();
    assert_eq!(last.unwrap().terminated.unwrap().exit_code, 3);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_log_is_the_message_of_a_failure_for_who_asks() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let failing = Body::new(async |context: ContainerContext| {
        (0..100).for_each(|number| context.log.line(format!("line {number}")));
        ExitCode(1)
    });
    story.cluster.nodes().rule(Match::default(), body(failing));
    for (name, policy) in [("asks", "FallbackToLogsOnError"), ("silent", "File")] {
        let container = json!({"name": "c", "image": "img", "terminationMessagePolicy": policy});
        story.pod(name, json!({"restartPolicy": "Never", "containers": [container]})).await;
        story.until(name, phase("Failed")).await;
    }
    let message = |name: &str| {
        let status = story.get(name).unwrap().status.clone().unwrap().container_statuses.unwrap()[0].clone();
        status.state.unwrap().terminated.unwrap().message
    };
    let said = message("asks").unwrap();
    assert_eq!((said.lines().count(), said.lines().last()), (80, Some("line 99")));
    assert_eq!(message("silent"), None);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_told_to_stop_and_killed_if_it_does_not() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let polite = Body::new(async |context: ContainerContext| {
        context.stopped().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    });
    let stubborn = Body::new(async |_: ContainerContext| std::future::pending::<()>().await);
    story.cluster.nodes().rule(Match::image("polite"), body(polite));
    story.cluster.nodes().rule(Match::image("stubborn"), body(stubborn));
    for (name, seconds) in [("polite", 3), ("stubborn", 30)] {
        story.pod(name, json!({"containers": [{"name": "c", "image": name}]})).await;
        story.until(name, ready).await;
        let before = story.elapsed();
        story.admin.delete(&*story.get(name).unwrap(), DeleteOptions::default()).await.unwrap();
        story.until(name, gone).await;
        assert_eq!(story.elapsed() - before, seconds, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_says_when_it_is_ready() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let slow = Body::new(async |context: ContainerContext| {
        context.set_ready(false);
        context.files.wait_for("/run/go").await;
        context.set_ready(true);
        context.stopped().await;
    });
    story.cluster.nodes().rule(Match::default(), body(slow));
    let volume = json!({"name": "run", "hostPath": {"path": "/run"}});
    let mount = json!({"name": "run", "mountPath": "/run"});
    let container = json!({"name": "c", "image": "img", "volumeMounts": [mount]});
    story.pod("p", json!({"volumes": [volume], "containers": [container]})).await;
    wait(60).await;
    assert!(!ready(story.get("p").as_deref()));
    story.cluster.nodes().get("node-0").unwrap().host().write("/run/go", "");
    story.until("p", ready).await;
}

#[tokio::test(start_paused = true)]
async fn containers_of_a_pod_share_a_directory() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let writer = Body::new(async |context: ContainerContext| context.files.write("/data/x", "1"));
    let reader = Body::new(async |context: ContainerContext| {
        if context.files.read_text("/data/x").as_deref() == Some("1") { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    });
    story.cluster.nodes().rule(Match::container("w"), body(writer));
    story.cluster.nodes().rule(Match::container("r"), body(reader));
    let mount = json!([{"name": "d", "mountPath": "/data"}]);
    story
        .pod(
            "p",
            json!({
                "restartPolicy": "Never",
                "volumes": [{"name": "d", "emptyDir": {}}],
                "initContainers": [{"name": "w", "image": "img", "volumeMounts": mount}],
                "containers": [{"name": "r", "image": "img", "volumeMounts": mount}],
            }),
        )
        .await;
    story.until("p", phase("Succeeded")).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_fails_its_container_only() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let broken = Body::new(async |context: ContainerContext| assert!(context.container.is_empty(), "broken"));
    story.cluster.nodes().rule(Match::image("broken"), body(broken));
    story.pod("p", json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "broken"}]})).await;
    story.until("p", phase("Failed")).await;
    let status = story.get("p").unwrap().status.clone().unwrap();
    assert_eq!(status.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap().exit_code, 134);
    story.pod("q", json!({"containers": [{"name": "c", "image": "img"}]})).await;
    story.until("q", ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_runs_beside_containers_while_the_kubelet_does() {
    let starts = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = starts.clone();
    let service = HostService::new(move |node: NodeHandle| {
        let run = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        async move {
            node.set_capacity("example.com/device", Some(&run.to_string())).await.unwrap();
            std::future::pending().await
        }
    });
    let settings = Settings { nodes: vec![NodeTemplate::new("n")], service: Some(service), ..Settings::default() };
    let story = Story::start(Cluster::builder().node_settings(settings)).await;
    let node = story.cluster.nodes().get("n").unwrap();
    let offers = |count: &'static str| {
        move |node: &Node| {
            node.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("example.com/device"))
                == Some(&Quantity(count.into()))
        }
    };
    node.until(offers("1")).await;
    node.stop_kubelet();
    node.up().await.unwrap();
    node.until(offers("2")).await;
    node.down();
    node.up().await.unwrap();
    node.until(offers("3")).await;
    assert_eq!(starts.load(std::sync::atomic::Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_body_has_a_client_with_the_rights_of_its_account() {
    let story = Story::start(Cluster::builder().nodes(1)).await;
    let check = Body::new(async |context: ContainerContext| {
        let nodes: kube::Api<Node> = kube::Api::all(context.client());
        let refused = nodes.get("node-0").await.unwrap_err().to_string();
        context.log.line(refused.contains("system:serviceaccount:default:default").to_string());
    });
    story.cluster.nodes().rule(Match::image("probe"), body(check));
    story.pod("p", json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "probe"}]})).await;
    story.until("p", phase("Succeeded")).await;
    assert_eq!(read_log(&story, "p").await, "true\n");
}
