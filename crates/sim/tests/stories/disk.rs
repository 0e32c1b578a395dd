//! A cluster on disk that is killed and restarted: in real time, as disk I/O does not follow virtual time.

use std::path::Path;

use capstan_apiserver::serve::Listen;
use capstan_apiserver::store::{Retention, Store};
use capstan_sim::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams, WatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

async fn start(file: &Path) -> Cluster {
    let store = Store::open(file, Retention::default()).unwrap();
    Cluster::builder().nodes(1).listen(Listen::default()).store(store).start().await.unwrap()
}

async fn create<K>(api: Api<K>, value: Value) -> K
where
    K: kube::Resource + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(value).unwrap()).await.unwrap()
}

fn widgets(client: Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    Api::default_namespaced_with(client, &kind)
}

fn ready(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count
}

async fn furnish(client: &Client) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    create(definitions.clone(), definition).await;
    await_condition(definitions, "widgets.example.com", conditions::is_crd_established()).await.unwrap();
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": 0.1});
    create(widgets(client.clone()), widget).await;
    let pod = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "web:1"}]},
    });
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pod});
    create::<Deployment>(Api::default_namespaced(client.clone()), json!({"metadata": {"name": "web"}, "spec": spec}))
        .await;
}

#[tokio::test]
async fn a_cluster_that_is_cut_off_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (file, copy) = (dir.path().join("cluster"), dir.path().join("copy"));
    let cluster = start(&file).await;
    let client = cluster.client();
    furnish(&client).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let available = |web: Option<&Deployment>| {
        web.and_then(|web| web.status.as_ref()).is_some_and(|status| status.available_replicas == Some(1))
    };
    await_condition(Api::default_namespaced(client.clone()), "web", available).await.unwrap();
    let before = pods.list(&ListParams::default()).await.unwrap().items.remove(0);
    let name = before.name_any();
    let widget = widgets(client.clone()).get("w").await.unwrap();
    let node = Api::<Node>::all(client.clone()).get("node-0").await.unwrap();
    let kubeconfig = cluster.kubeconfig().unwrap();
    // A copy of the file while the cluster runs, as a crash leaves it.
    cluster.server.store().saved().await.unwrap();
    std::fs::copy(&file, &copy).unwrap();
    let seen = cluster.server.store().revision();
    drop((cluster, client, pods));

    let cluster = start(&copy).await;
    let after = cluster.kubeconfig().unwrap();
    assert_eq!((&after.ca_pem, &after.token), (&kubeconfig.ca_pem, &kubeconfig.token));
    let client = cluster.client();
    assert_eq!(widgets(client.clone()).get("w").await.unwrap(), widget, "untouched, its resourceVersion included");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let again = |pod: Option<&Pod>| ready(pod) && pod.is_some_and(|pod| restarts(pod) == 1);
    let pod = await_condition(pods.clone(), &name, again).await.unwrap().unwrap();
    assert_eq!(pod.uid(), before.uid());
    let ip = |pod: &Pod| pod.status.as_ref().unwrap().pod_ip.clone();
    assert_eq!(ip(&pod), ip(&before));
    let node_now = Api::<Node>::all(client.clone()).get("node-0").await.unwrap();
    assert_eq!(node_now.uid(), node.uid());
    let boot = |node: &Node| node.status.as_ref().unwrap().node_info.as_ref().unwrap().boot_id.clone();
    assert_ne!(boot(&node_now), boot(&node));
    let late = pods.watch(&WatchParams::default(), &seen.to_string()).await;
    assert!(late.is_err() || expired(late.unwrap()).await, "a watch from before goes on");
    let revision: u64 = pod.resource_version().unwrap().parse().unwrap();
    assert!(revision > seen);
}

/// Whether a watch reports 410 `Expired`.
async fn expired(events: impl futures::Stream<Item = kube::Result<kube::core::WatchEvent<Pod>>>) -> bool {
    let first = futures::StreamExt::next(&mut Box::pin(events)).await;
    matches!(first, Some(Ok(kube::core::WatchEvent::Error(status))) if status.code == 410)
}
