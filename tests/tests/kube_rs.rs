//! kube-rs on the embedded cluster, unchanged: discovery, watcher, reflector, Controller, finalizer, waiting, events.
//! One story, told twice: without a socket in virtual time, and over TLS with a kubeconfig.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::serve::Listen;
use capstan_sim::Cluster;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event as K8sEvent;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalized, finalizer};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{Controller, WatchStreamExt};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

const FINALIZER: &str = "example.com/closing";
const MANAGER: &str = "shop-controller";

/// A controller as people write them: a shop owns a deployment, is painted as a secret says, and closes properly.
struct Shops {
    client: Client,
    kind: ApiResource,
    recorder: Recorder,
}

impl Shops {
    fn api(&self) -> Api<DynamicObject> {
        Api::default_namespaced_with(self.client.clone(), &self.kind)
    }

    async fn open(&self, shop: &DynamicObject) -> kube::Result<Action> {
        let name = shop.name_any();
        let labels = json!({"shop": name});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "ownerReferences": [shop.controller_owner_ref(&self.kind).unwrap()]},
            "spec": {
                "replicas": shop.data["spec"]["clerks"], "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "clerk:1"}]}},
            },
        });
        let apply = PatchParams::apply(MANAGER).force();
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let deployment = deployments.patch(&name, &apply, &Patch::Apply(&deployment)).await?;
        let secrets: Api<Secret> = Api::default_namespaced(self.client.clone());
        let paint = secrets.get_opt("paint").await?.and_then(|secret| secret.data?.remove("colour"));
        let status = json!({
            "apiVersion": "example.com/v1", "kind": "Shop",
            "status": {
                "clerks": deployment.status.and_then(|status| status.ready_replicas).unwrap_or(0),
                "colour": paint.map(|colour| String::from_utf8_lossy(&colour.0).into_owned()),
            },
        });
        self.api().patch_status(&name, &apply, &Patch::Apply(&status)).await?;
        let event = Event {
            type_: EventType::Normal,
            reason: "Opened".into(),
            note: Some(format!("shop {name} is open")),
            action: "Open".into(),
            secondary: None,
        };
        self.recorder.publish(&event, &shop.object_ref(&self.kind)).await?;
        Ok(Action::await_change())
    }

    async fn close(&self, shop: &DynamicObject) -> kube::Result<Action> {
        let mut note = ConfigMap::default();
        note.metadata.name = Some(format!("{}-is-closed", shop.name_any()));
        let notes: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        notes.create(&PostParams::default(), &note).await?;
        Ok(Action::await_change())
    }

    async fn run(self: Arc<Self>) {
        let (shops, kind) = (self.api(), self.kind.clone());
        let config = watcher::Config::default;
        Controller::new_with(shops, config().streaming_lists(), self.kind.clone())
            .owns(Api::<Deployment>::default_namespaced(self.client.clone()), config())
            .watches(Api::<Secret>::default_namespaced(self.client.clone()), config(), move |secret| {
                let shop = secret.labels().get("shop").cloned();
                shop.map(|shop| ObjectRef::new_with(&shop, kind.clone()).within("default"))
            })
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), self)
            .for_each(|_| std::future::ready(()))
            .await;
    }
}

async fn reconcile(
    shop: Arc<DynamicObject>,
    shops: Arc<Shops>,
) -> Result<Action, kube::runtime::finalizer::Error<kube::Error>> {
    finalizer(&shops.api(), FINALIZER, shop, async |event| match event {
        Finalized::Apply(shop) => shops.open(&shop).await,
        Finalized::Cleanup(shop) => shops.close(&shop).await,
    })
    .await
}

fn definition() -> CustomResourceDefinition {
    let object = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": object, "status": object}});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
    });
    let names = json!({"plural": "shops", "singular": "shop", "kind": "Shop"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]});
    serde_json::from_value(json!({"metadata": {"name": "shops.example.com"}, "spec": spec})).unwrap()
}

/// Waits as kube-rs does.
async fn until<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + Resource + 'static,
{
    let waiting = await_condition(api.clone(), name, condition);
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    waited.unwrap_or_else(|_| panic!("{name} is not as wanted after a minute")).unwrap()
}

async fn discover(client: &Client) -> ApiResource {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Shop");
    let plain = Discovery::new(client.clone()).run().await.unwrap();
    let aggregated = Discovery::new(client.clone()).run_aggregated().await.unwrap();
    let [one, other] = [plain, aggregated].map(|discovery| discovery.resolve_gvk(&kind).unwrap());
    for (resource, capabilities) in [&one, &other] {
        assert_eq!((resource.plural.as_str(), &capabilities.scope), ("shops", &Scope::Namespaced));
        assert!(capabilities.supports_operation(verbs::WATCH));
    }
    one.0
}

async fn story(client: Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &definition()).await.unwrap();
    until(&crds, "shops.example.com", conditions::is_crd_established()).await;
    let kind = discover(&client).await;

    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let (reader, writer) = reflector::store::<Deployment>();
    let cache = reflector::reflector(writer, watcher(deployments.clone(), watcher::Config::default()));
    let cache = tokio::spawn(cache.default_backoff().applied_objects().for_each(|_| std::future::ready(())));
    let reporter = Reporter { controller: MANAGER.into(), instance: None };
    let shops = Arc::new(Shops {
        client: client.clone(),
        kind: kind.clone(),
        recorder: Recorder::new(client.clone(), reporter),
    });
    let api = shops.api();
    let controller = tokio::spawn(shops.run());

    let mut shop = DynamicObject::new("corner", &kind).data(json!({"spec": {"clerks": 2}}));
    shop.metadata.labels = Some([("street".to_owned(), "high".to_owned())].into());
    api.create(&PostParams::default(), &shop).await.unwrap();
    let has = |field: &'static str, wanted: Value| {
        move |shop: Option<&DynamicObject>| shop.is_some_and(|shop| shop.data["status"][field] == wanted)
    };
    until_dynamic(&api, has("clerks", json!(2))).await;
    let first = until(&deployments, "corner", conditions::is_deployment_completed()).await.unwrap();
    reader.wait_until_ready().await.unwrap();
    assert_eq!(reader.get(&ObjectRef::new("corner").within("default")).unwrap().uid(), first.uid());

    // What is owned comes back.
    deployments.delete("corner", &DeleteParams::background()).await.unwrap();
    let uid = first.uid().unwrap();
    let again = |deployment: Option<&Deployment>| deployment.is_some_and(|d| d.uid().is_some_and(|new| new != uid));
    until(&deployments, "corner", again).await;
    // What is watched is heard of.
    let secret =
        json!({"metadata": {"name": "paint", "labels": {"shop": "corner"}}, "stringData": {"colour": "green"}});
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    until_dynamic(&api, has("colour", json!("green"))).await;
    let events: Api<K8sEvent> = Api::default_namespaced(client.clone());
    let opened = events.list(&ListParams::default().fields("regarding.name=corner,reason=Opened")).await.unwrap();
    assert_eq!(opened.items.len(), 1, "repeats are counted: {opened:#?}");
    assert_eq!(opened.items[0].note.as_deref(), Some("shop corner is open"));

    // The finalizer holds the shop until it is closed; then what it owned goes.
    let shop = api.get("corner").await.unwrap();
    assert_eq!(shop.finalizers(), [FINALIZER]);
    api.delete("corner", &DeleteParams::default()).await.unwrap();
    until_dynamic(&api, |shop: Option<&DynamicObject>| shop.is_none()).await;
    let notes: Api<ConfigMap> = Api::default_namespaced(client.clone());
    assert!(notes.get_opt("corner-is-closed").await.unwrap().is_some());
    until(&deployments, "corner", |deployment: Option<&Deployment>| deployment.is_none()).await;
    controller.abort();
    cache.abort();
}

/// Waits for the shop. `await_condition` needs a kind that is known when it is compiled.
async fn until_dynamic(api: &Api<DynamicObject>, condition: impl Fn(Option<&DynamicObject>) -> bool) {
    let shops =
        watcher::watch_object(api.clone(), "corner").try_filter(|shop| std::future::ready(condition(shop.as_ref())));
    let waited = tokio::time::timeout(Duration::from_secs(60), std::pin::pin!(shops).try_next()).await;
    waited.expect("the shop is as wanted within a minute").unwrap();
}

#[tokio::test(start_paused = true)]
async fn kube_rs_runs_without_a_socket() {
    let cluster = Cluster::builder().nodes(2).start().await.unwrap();
    story(cluster.client()).await;
}

#[tokio::test]
async fn kube_rs_runs_over_tls() {
    let cluster = Cluster::builder().nodes(2).listen(Listen::default()).start().await.unwrap();
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&cluster.kubeconfig().unwrap().text()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    story(Client::try_from(config).unwrap()).await;
}
