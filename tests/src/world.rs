//! A cluster with an operator on it, in virtual time.

use std::time::Duration;

use capstan_apiserver::auth::UserInfo;
use capstan_apiserver::serve::Api as Server;
use capstan_operator::Options;
use capstan_runtime::Clock;
use capstan_sim::{Cluster, NodeTemplate, node};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::wire::{Fault, Wire};

/// Longest that anything may take, in virtual time.
const DEADLINE: Duration = Duration::from_secs(600);

/// When every world begins.
fn beginning() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A cluster with two nodes of eight GPUs, a storage class and the CRD of NIMServices.
pub struct World {
    /// The cluster.
    pub cluster: Cluster,
    /// Its API.
    pub server: Server,
    /// A client of the administrator.
    pub admin: Client,
}

/// A running operator.
pub struct Operator {
    /// Its wire.
    pub wire: Wire,
    stop: CancellationToken,
}

impl Operator {
    /// Ends it without a farewell: nothing that it sends from now on arrives.
    pub fn kill(&self) {
        self.wire.cut();
        self.stop.cancel();
    }
}

impl World {
    /// A new one. Call it with paused time.
    pub async fn start() -> Self {
        let gpus = || [("nvidia.com/gpu".to_owned(), "8".to_owned())].into();
        let nodes =
            (0..2).map(|i| NodeTemplate { name: format!("gpu-{i}"), capacity: gpus(), ..NodeTemplate::default() });
        let soon = node::Behaviour {
            started_after: Some(Duration::from_secs(1)),
            ready_after: Some(Duration::from_secs(1)),
            ..node::Behaviour::default()
        };
        let settings = node::Settings {
            nodes: nodes.collect(),
            rules: vec![(node::Match::default(), soon)],
            ..node::Settings::default()
        };
        let builder = Cluster::builder().start_time(beginning()).seed(7).node_settings(settings);
        let cluster = builder.start().await.expect("the cluster starts");
        let server = cluster.api().as_user(UserInfo::admin());
        let world = Self { admin: server.client("default"), cluster, server };
        let kind = capstan_api::kinds().find(|kind| kind.kind == "NIMService").expect("NIMService is a kind of ours");
        let crds: Api<CustomResourceDefinition> = Api::all(world.admin.clone());
        let params = PatchParams::apply("test").force();
        crds.patch(&kind.crd_name(), &params, &Patch::Apply(kind.definition())).await.expect("the CRD is accepted");
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "example.com/virtual",
        });
        world.apply(class).await;
        world
    }

    /// An operator whose wire has a fault. It is ready when this returns, unless it died before.
    pub async fn operator(&self, fault: Fault) -> Operator {
        let wire = Wire::new(self.server.clone(), fault);
        let client = Client::new(wire.clone(), "default");
        let stop = CancellationToken::new();
        let clock = self.cluster.server.clock();
        let options = Options { apply_crds: false, clock: Clock::starting_at(clock.now()), ..Options::in_process() };
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        tokio::spawn(capstan_operator::run(client, options, stop.clone(), ready));
        tokio::select! {
            _ = is_ready => {}
            () = wire.died() => {}
        }
        Operator { wire, stop }
    }

    /// Applies an object as a user does.
    pub async fn apply(&self, object: Value) {
        let (api, name) = self.api(&object).await;
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let params = PatchParams::apply("kubectl").force();
        api.patch(&name, &params, &Patch::Apply(&object)).await.unwrap_or_else(|error| panic!("apply {name}: {error}"));
    }

    async fn api(&self, object: &Value) -> (Api<DynamicObject>, String) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let gvk = GroupVersionKind::gvk(group, version, &text(&object["kind"]));
        let (resource, capabilities) =
            kube::discovery::pinned_kind(&self.admin, &gvk).await.unwrap_or_else(|error| panic!("{gvk:?}: {error}"));
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let api = match capabilities.scope {
            kube::discovery::Scope::Cluster => Api::all_with(self.admin.clone(), &resource),
            kube::discovery::Scope::Namespaced => Api::namespaced_with(self.admin.clone(), namespace, &resource),
        };
        (api, text(&object["metadata"]["name"]))
    }

    /// All objects of a kind in `default`, as JSON.
    pub async fn list(&self, api_version: &str, kind: &str) -> Vec<Value> {
        let (api, _) = self.api(&json!({"apiVersion": api_version, "kind": kind, "metadata": {}})).await;
        let list = api.list(&ListParams::default()).await.unwrap_or_else(|error| panic!("list {kind}: {error}"));
        list.items.into_iter().filter_map(|object| serde_json::to_value(object).ok()).collect()
    }

    /// One object as soon as it is as wanted.
    pub async fn until(&self, api_version: &str, kind: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let look = async {
            loop {
                let all = self.list(api_version, kind).await;
                if let Some(found) = all.into_iter().find(|object| object["metadata"]["name"] == name && wanted(object))
                {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, look).await {
            Ok(found) => found,
            Err(_) => panic!("{kind} {name} is not as wanted: {:#?}", self.list(api_version, kind).await),
        }
    }

    /// Waits until `operator` has not written for a while, and says how many writes it made by then.
    pub async fn settled(&self, operator: &Operator) -> usize {
        let mut before = usize::MAX;
        while before != operator.wire.writes() {
            before = operator.wire.writes();
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        before
    }

    /// What the story leaves behind: our objects without identities and times, and how many others there are.
    pub async fn end_state(&self) -> Value {
        let mut state = serde_json::Map::new();
        let ours = [
            ("apps.nvidia.com/v1alpha1", "NIMService"),
            ("apps/v1", "Deployment"),
            ("v1", "Service"),
            ("v1", "ServiceAccount"),
            ("v1", "PersistentVolumeClaim"),
            ("rbac.authorization.k8s.io/v1", "Role"),
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ];
        for (api_version, kind) in ours {
            let mut all = self.list(api_version, kind).await;
            all.iter_mut().for_each(forget);
            state.insert(kind.into(), all.into());
        }
        for (api_version, kind) in [("apps/v1", "ReplicaSet"), ("v1", "Pod")] {
            state.insert(kind.into(), self.list(api_version, kind).await.len().into());
        }
        Value::Object(state)
    }
}

/// Drops what differs between two runs of one story.
fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "managedFields",
                "generation",
                "clusterIP",
                "clusterIPs",
                "volumeName",
                "clusterEndpoint",
                "lastTransitionTime",
                "lastUpdateTime",
                "observedGeneration",
                "deployment.kubernetes.io/revision",
            ] {
                fields.remove(name);
            }
            fields.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}
