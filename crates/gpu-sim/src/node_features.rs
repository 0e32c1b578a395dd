//! Node Feature Discovery: turns NodeFeature objects into node labels.

use std::collections::BTreeMap;

use capstan_api::nfd::NodeFeature;
use capstan_sim::UserInfo;
use capstan_sim::node::NodeHandle;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

/// Label of a NodeFeature with its node.
const NODE_NAME: &str = "nfd.node.kubernetes.io/node-name";
/// Annotation of a node with the labels that are removed with their NodeFeatures.
const OURS: &str = "nfd.node.kubernetes.io/feature-labels";

/// Labels a node from its NodeFeatures. Waits while the kind is not served.
pub(crate) async fn label(node: &NodeHandle) {
    let user = UserInfo::new("system:serviceaccount:node-feature-discovery:nfd-master", &["system:masters"]);
    let client = node.client_of(user, "default");
    let config = watcher::Config::default().labels(&format!("{NODE_NAME}={}", node.name()));
    let mut events = watcher(Api::<NodeFeature>::all(client.clone()), config).default_backoff().boxed();
    let nodes: Api<Node> = Api::all(client);
    let mut found: BTreeMap<(String, String), BTreeMap<String, String>> = BTreeMap::new();
    let mut listing = false;
    while let Some(event) = events.next().await {
        let key = |object: &NodeFeature| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Ok(Event::Init) => {
                found.clear();
                listing = true;
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                found.insert(key(&object), object.spec.labels.clone().unwrap_or_default());
            }
            Ok(Event::Delete(object)) => drop(found.remove(&key(&object))),
            Ok(Event::InitDone) => listing = false,
            Err(_) => continue,
        }
        if listing {
            continue;
        }
        let wanted: BTreeMap<&String, &String> = found.values().flatten().collect();
        if let Some(change) = node.object().and_then(|object| change(&object, &wanted)) {
            let params = kube::api::PatchParams::default();
            if let Err(error) = nodes.patch(node.name(), &params, &kube::api::Patch::Merge(change)).await {
                tracing::warn!(node = node.name(), %error, "node not labelled from its NodeFeatures");
            }
        }
    }
}

/// The change of a node, as a merge patch.
fn change(node: &Node, wanted: &BTreeMap<&String, &String>) -> Option<Value> {
    let before = node.annotations().get(OURS).map(String::as_str).unwrap_or_default();
    let names: Vec<&str> = wanted.keys().map(|name| name.as_str()).collect();
    let names = names.join(",");
    let removed = before.split(',').filter(|name| !name.is_empty() && !wanted.contains_key(&(*name).to_owned()));
    let mut labels: BTreeMap<String, Value> = removed.map(|name| (name.to_owned(), Value::Null)).collect();
    let differs = |(name, value): &(&&String, &&String)| node.labels().get(**name) != Some(**value);
    labels.extend(wanted.iter().filter(differs).map(|(name, value)| ((*name).clone(), json!(value))));
    let changed = !labels.is_empty() || before != names;
    changed.then(|| json!({"metadata": {"labels": labels, "annotations": {OURS: names}}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_and_go_with_their_features() {
        let node = |labels: Value, ours: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"labels": labels, "annotations": {OURS: ours}}})).unwrap()
        };
        let (a, one) = ("a".to_owned(), "1".to_owned());
        let wanted = BTreeMap::from([(&a, &one)]);
        let new = change(&node(json!({"mine": "x"}), ""), &wanted).unwrap();
        assert_eq!(new["metadata"]["labels"], json!({"a": "1"}));
        assert_eq!(change(&node(json!({"a": "1"}), "a"), &wanted), None);
        let removed = change(&node(json!({"a": "1", "b": "2"}), "a,b"), &wanted).unwrap();
        assert_eq!(removed["metadata"], json!({"labels": {"b": null}, "annotations": {OURS: "a"}}));
    }
}
