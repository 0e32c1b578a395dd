//! A day of creates and deletes: afterwards the cluster holds what it held at the start, and nothing once it is
//! dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_sim::controllers::Settings;
use capstan_sim::node::{Behaviour, Exit, Match};
use capstan_sim::{Cluster, node};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, WatchParams};
use kube::core::GroupVersionKind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

async fn start() -> Cluster {
    let nodes = node::Settings {
        nodes: (0..2).map(|i| node::NodeTemplate::new(format!("node-{i}"))).collect(),
        rules: vec![(
            Match::image("crash:*"),
            Behaviour { exit: Some(Exit::after(Duration::from_secs(60), 1)), ..Behaviour::default() },
        )],
        // Heartbeats are no part of the story, and cost most of the time of a quiet day.
        heartbeat: Duration::from_secs(600),
        ..node::Settings::default()
    };
    let controllers = Settings { node_grace: None, ..Settings::default() };
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let builder = Cluster::builder().start_time(start).seed(7).node_settings(nodes).controller_settings(controllers);
    builder.start().await.unwrap()
}

/// A user who creates and deletes in a namespace.
struct Team<'a> {
    client: &'a kube::Client,
    name: String,
}

impl Team<'_> {
    async fn add<K>(&self, value: Value)
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Serialize
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(value).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap();
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    fn all<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    async fn merge<K>(&self, name: &str, patch: Value)
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn come(&self) {
        let namespace = serde_json::from_value(json!({"metadata": {"name": self.name}})).unwrap();
        self.all::<Namespace>().create(&PostParams::default(), &namespace).await.unwrap();
        // Wait for the ServiceAccount of the namespace, without which no pod is admitted.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.add::<ConfigMap>(json!({"metadata": {"name": "settings"}, "data": {"a": "b"}})).await;
        self.add::<ServiceAccount>(json!({"metadata": {"name": "robot"}})).await;
        let token: TokenRequest = serde_json::from_value(json!({"metadata": {}, "spec": {"audiences": []}})).unwrap();
        self.api::<ServiceAccount>().create_token_request("robot", &PostParams::default(), &token).await.unwrap();
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        self.add::<Role>(json!({"metadata": {"name": "reader"}, "rules": rules})).await;
        self.add::<RoleBinding>(json!({
            "metadata": {"name": "robot"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
        }))
        .await;
        self.add::<Service>(
            json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
        )
        .await;
        self.add::<Deployment>(json!({"metadata": {"name": "web"}, "spec": workload("web", 2, "web:1")})).await;
        let selector = json!({"matchLabels": {"app": "web"}});
        self.add::<PodDisruptionBudget>(
            json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": selector}}),
        )
        .await;
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        self.add::<HorizontalPodAutoscaler>(
            json!({"metadata": {"name": "web"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}}),
        )
        .await;
        let mut set = workload("db", 2, "db:1");
        set["serviceName"] = json!("db");
        set["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}]);
        set["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
        self.add::<StatefulSet>(json!({"metadata": {"name": "db"}, "spec": set})).await;
        let mut agent = workload("agent", 0, "agent:1");
        agent.as_object_mut().unwrap().remove("replicas");
        self.add::<DaemonSet>(json!({"metadata": {"name": "agent"}, "spec": agent})).await;
        self.add::<Pod>(json!({"metadata": {"name": "crashes"}, "spec": pod("crash:1")})).await;
        let job = json!({"ttlSecondsAfterFinished": 100, "template": {"spec": job_pod()}});
        self.add::<Job>(json!({"metadata": {"name": "once"}, "spec": job})).await;
        let template = json!({"spec": {"template": {"spec": job_pod()}}});
        self.add::<CronJob>(
            json!({"metadata": {"name": "often"}, "spec": {"schedule": "*/10 * * * *", "jobTemplate": template}}),
        )
        .await;
    }

    async fn change(&self) {
        self.api::<HorizontalPodAutoscaler>().delete("web", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
        let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}});
        self.merge::<Deployment>("web", image).await;
        self.merge::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
        self.merge::<ConfigMap>("settings", json!({"data": {"a": "c"}})).await;
        self.api::<Pod>().delete("crashes", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;
    }

    async fn go(&self) {
        self.api::<Deployment>().delete("web", &DeleteParams::foreground()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.all::<Namespace>().delete(&self.name, &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(self.all::<Namespace>().get_opt(&self.name).await.unwrap().is_none(), "{} is still there", self.name);
    }

    /// A CRD, a custom object, and a watch.
    async fn define(&self) -> (Api<CustomResourceDefinition>, String) {
        let plural = format!("{}s", self.name.replace('-', ""));
        let (kind, definition) = definition(&plural);
        let crds = self.all::<CustomResourceDefinition>();
        crds.create(&PostParams::default(), &definition).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", &kind), &plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.name, &resource);
        let mut events = api.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        api.create(&PostParams::default(), &DynamicObject::new("one", &resource).data(json!({"spec": {"size": 1}})))
            .await
            .unwrap();
        events.next().await.unwrap().unwrap();
        (crds, format!("{plural}.example.com"))
    }
}

fn definition(plural: &str) -> (String, CustomResourceDefinition) {
    let singular = plural.trim_end_matches('s');
    let kind = format!("{}{}", singular[..1].to_uppercase(), &singular[1..]);
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    let value = json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
    }});
    (kind.clone(), serde_json::from_value(value).unwrap())
}

fn pod(image: &str) -> Value {
    json!({"containers": [{"name": "main", "image": image, "resources": {"requests": {"cpu": "10m"}}}]})
}

fn job_pod() -> Value {
    let mut spec = pod("work:1");
    spec["restartPolicy"] = json!("Never");
    spec
}

fn workload(app: &str, replicas: i32, image: &str) -> Value {
    let labels = json!({"app": app});
    let template = json!({"metadata": {"labels": labels}, "spec": pod(image)});
    json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template})
}

fn counts(cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut counts = cluster.counts();
    counts.insert("tasks of the runtime".to_owned(), tokio::runtime::Handle::current().metrics().num_alive_tasks());
    counts
}

/// A team creates, updates and deletes its objects.
async fn round(client: &kube::Client, number: u32, measure: impl FnOnce()) {
    let team = Team { client, name: format!("team-{number}") };
    let watch = Api::<Pod>::all(client.clone()).watch(&WatchParams::default(), "0").await.unwrap();
    team.come().await;
    let (crds, name) = team.define().await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    measure();
    team.change().await;
    crds.delete(&name, &DeleteParams::default()).await.unwrap();
    team.go().await;
    drop(watch);
}

#[tokio::test(start_paused = true)]
async fn a_day_of_coming_and_going_leaves_nothing_behind() {
    let cluster = start().await;
    let client = cluster.client();
    let class = json!({
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "disks.example.com",
    });
    let class = serde_json::from_value(class).unwrap();
    Api::<StorageClass>::all(client.clone()).create(&PostParams::default(), &class).await.unwrap();
    // The first round allocates what remains: tables of kinds that were not used before.
    round(&client, 0, || {}).await;
    // Events live for an hour, and the watch history of a table until a write after it has expired.
    tokio::time::sleep(12 * HOUR).await;
    let (before, revision) = (counts(&cluster), cluster.server.store().revision());

    let start = tokio::time::Instant::now();
    let mut most = before.clone();
    for number in 1..=12 {
        let measure = || {
            for (name, count) in counts(&cluster) {
                let entry = most.entry(name).or_default();
                *entry = count.max(*entry);
            }
        };
        round(&client, number, measure).await;
        tokio::time::sleep_until(start + 2 * HOUR * number).await;
    }
    assert_eq!(start.elapsed(), 24 * HOUR);
    tokio::time::sleep(12 * HOUR).await;

    let after = counts(&cluster);
    println!("{} writes", cluster.server.store().revision() - revision);
    for (name, count) in after.iter().filter(|(name, count)| **count > 0 || most[*name] > 0) {
        println!("{name:60} {:6} at first, {:6} at most, {count:6} at last", before[name], most[name]);
    }
    assert_eq!(after, before);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_dropped_is_gone() {
    let cluster = start().await;
    let client = cluster.client();
    let team = Team { client: &client, name: "team".to_owned() };
    team.come().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let caches = Arc::downgrade(&cluster.context().caches);
    drop((cluster, client));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0, "tasks still run");
    assert!(caches.upgrade().is_none(), "somebody holds the caches");
}
