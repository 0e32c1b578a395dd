//! Publishes labels through the API server: in a NodeFeature object, from which Node Feature Discovery labels the node,
//! or on the Node itself.

use std::collections::BTreeMap;

use capstan_api::nfd::{NodeFeature, NodeFeatureSpec};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::publish::{NodeReport, Publisher};
use crate::{Error, Result};

const MANAGER: &str = "capstan-feature-discovery";
/// Label of a NodeFeature with its node.
const NODE_NAME: &str = "nfd.node.kubernetes.io/node-name";

/// The NodeFeature object of this node.
pub struct FeatureObject {
    api: Api<NodeFeature>,
    node: String,
    owners: Vec<OwnerReference>,
}

impl FeatureObject {
    /// A NodeFeature for a node; owned by our pod and its DaemonSet, or else by the Node.
    pub async fn new(client: Client, node: &str, namespace: &str, pod: &str) -> Self {
        let owners = match owners(&client, namespace, pod).await {
            Ok(owners) if !owners.is_empty() => owners,
            Ok(_) => node_owner(&client, node).await.into_iter().collect(),
            Err(error) => {
                tracing::warn!(%error, "NodeFeature has no owner reference and outlives this pod");
                Vec::new()
            }
        };
        Self { api: Api::namespaced(client, namespace), node: node.to_owned(), owners }
    }

    fn name(&self) -> String {
        format!("nvidia-features-for-{}", self.node)
    }

    async fn put(&self, report: &NodeReport) -> Result<()> {
        let desired = desired(&self.name(), &self.node, &self.owners, report);
        let external = |error: kube::Error| Error::External(format!("NodeFeature {}: {error}", self.name()));
        let Some(live) = self.api.get_opt(&self.name()).await.map_err(external)? else {
            return self.api.create(&PostParams::default(), &desired).await.map(drop).map_err(external);
        };
        let Some(change) = change(&live, &desired) else { return Ok(()) };
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        self.api.patch(&self.name(), &params, &Patch::Merge(change)).await.map(drop).map_err(external)
    }
}

impl Publisher for FeatureObject {
    fn publish<'a>(&'a self, report: &'a NodeReport) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.put(report))
    }

    fn withdraw(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            match self.api.delete(&self.name(), &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                done => done.map(drop).map_err(|error| Error::External(error.to_string())),
            }
        })
    }
}

/// The desired object.
pub(super) fn desired(name: &str, node: &str, owners: &[OwnerReference], report: &NodeReport) -> NodeFeature {
    let features = report.node.as_ref().map(|node| node.features.clone()).unwrap_or_default();
    let spec = NodeFeatureSpec { features: Some(features), labels: Some(report.all()) };
    let mut object = NodeFeature::new(name, spec);
    object.metadata.labels = Some([(NODE_NAME.to_owned(), node.to_owned())].into());
    object.metadata.owner_references = (!owners.is_empty()).then(|| owners.to_vec());
    object
}

/// The merge patch from live to desired object, with a resourceVersion precondition; `None` if nothing changed.
pub(super) fn change(live: &NodeFeature, desired: &NodeFeature) -> Option<Value> {
    let labels = |object: &NodeFeature| object.spec.labels.clone().unwrap_or_default();
    let (have, want) = (labels(live), labels(desired));
    let same = have == want
        && live.spec.features.clone().unwrap_or_default() == desired.spec.features.clone().unwrap_or_default()
        && live.labels().get(NODE_NAME) == desired.labels().get(NODE_NAME)
        && live.owner_references() == desired.owner_references();
    if same {
        return None;
    }
    let gone = have.keys().filter(|key| !want.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let labels: BTreeMap<String, Value> =
        want.iter().map(|(key, value)| (key.clone(), json!(value))).chain(gone).collect();
    Some(json!({
        "metadata": {
            "resourceVersion": live.metadata.resource_version,
            "labels": desired.metadata.labels,
            "ownerReferences": desired.metadata.owner_references,
        },
        "spec": {"labels": labels, "features": desired.spec.features},
    }))
}

/// Owner references to the pod and its DaemonSet, for garbage collection; none for other pods.
pub(super) async fn owners(client: &Client, namespace: &str, pod: &str) -> Result<Vec<OwnerReference>> {
    if pod.is_empty() {
        return Ok(Vec::new());
    }
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = api.get(pod).await.map_err(|error| Error::External(format!("pod {pod}: {error}")))?;
    Ok(owners_of(&pod))
}

/// Owner references to this pod and its DaemonSet.
pub(super) fn owners_of(pod: &Pod) -> Vec<OwnerReference> {
    let Some(set) = pod.owner_references().iter().find(|owner| owner.kind == "DaemonSet") else { return Vec::new() };
    let set = OwnerReference {
        api_version: set.api_version.clone(),
        kind: set.kind.clone(),
        name: set.name.clone(),
        uid: set.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    vec![set, reference("Pod", &pod.name_any(), pod.uid())]
}

fn reference(kind: &str, name: &str, uid: Option<String>) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: kind.into(),
        name: name.into(),
        uid: uid.unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}

async fn node_owner(client: &Client, node: &str) -> Option<OwnerReference> {
    let found = Api::<Node>::all(client.clone()).get_metadata(node).await.ok()?;
    Some(reference("Node", node, found.uid()))
}

/// Labels on the Node, by server-side apply: labels that we no longer set are removed, others are left alone.
pub struct NodeLabels {
    /// API of Nodes; only our own is patched.
    pub api: Api<Node>,
    /// Name of our Node.
    pub node: String,
}

impl NodeLabels {
    async fn put(&self, labels: BTreeMap<String, String>) -> Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels}});
        let params = PatchParams::apply(MANAGER).force();
        let done = self.api.patch_metadata(&self.node, &params, &Patch::Apply(body)).await;
        done.map(drop).map_err(|error| Error::External(format!("node {}: {error}", self.node)))
    }
}

impl Publisher for NodeLabels {
    fn publish<'a>(&'a self, report: &'a NodeReport) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.put(report.all()))
    }

    fn withdraw(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.put(BTreeMap::new()))
    }
}
