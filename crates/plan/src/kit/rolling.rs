//! Pods read Secrets and ConfigMaps once, at their start: when one changes, they must be replaced.
//!
//! What was seen is remembered on the workload itself. Only a change of something that was seen before reaches the pod
//! template, so that neither a Secret that appears nor our taking over restarts a server.

use std::collections::BTreeMap;

use serde_json::Value;

use super::hash;
use crate::{LiveObjects, Object, Ref};

/// On the workload: what its pods were started with.
const SEEN: &str = "nvidia.com/seen-config";
/// On the pods: changes whenever they must be replaced.
const ROLLED: &str = "nvidia.com/config-hash";

/// What pods read, by kind and name, with a hash of its content if it is there.
pub type Contents = BTreeMap<String, Option<String>>;

/// The content of those of `named` that pods read as Secrets and ConfigMaps.
pub fn contents(live: &LiveObjects, named: impl IntoIterator<Item = Ref>) -> Contents {
    let read = named.into_iter().filter(|one| ["Secret", "ConfigMap"].contains(&&*one.gvk.kind));
    let content = |one: &Ref| {
        let live = live.get(one)?;
        Some(hash(&[&live["data"], &live["binaryData"]].map(ToString::to_string).concat()))
    };
    read.map(|one| (format!("{}/{}", one.gvk.kind, one.name), content(&one))).collect()
}

/// `object`, whose pods have their metadata at `templates`, with what its pods read.
pub fn remember(live: &LiveObjects, mut object: Object, now: &Contents, templates: &[&str]) -> Object {
    let live = live.get(&object.reference);
    let annotation = |pointer: &str, key: &str| {
        let found = live.and_then(|live| live.pointer(pointer)).and_then(|meta| meta["annotations"][key].as_str());
        found.map(str::to_owned)
    };
    let before = annotation("/metadata", SEEN).unwrap_or_default();
    let before: BTreeMap<&str, &str> = before.split(',').filter_map(|entry| entry.split_once('=')).collect();
    let mut seen = BTreeMap::new();
    for (name, content) in now {
        // Something that went away may come back with another content.
        let known = content.as_deref().or_else(|| before.get(name.as_str()).copied());
        seen.extend(known.map(|content| (name.as_str(), content)));
    }
    if seen.is_empty() {
        return object;
    }
    let changed = seen.iter().any(|(name, content)| before.get(name).is_some_and(|before| before != content));
    let text = seen.iter().map(|(name, content)| format!("{name}={content}")).collect::<Vec<_>>().join(",");
    for pointer in templates {
        let rolled = if changed { Some(hash(&text)) } else { annotation(pointer, ROLLED) };
        if let (Some(rolled), Some(meta)) = (rolled, object.body.pointer_mut(pointer)) {
            annotate(meta, &rolled);
        }
    }
    object.annotated(SEEN, &text)
}

fn annotate(meta: &mut Value, rolled: &str) {
    meta["annotations"][ROLLED] = rolled.into();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::*;

    fn deployment() -> Object {
        let body = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"selector": {}, "template": {"metadata": {"annotations": {}}}},
        });
        let typed: Deployment = serde_json::from_value(body).unwrap();
        Object::new(&typed)
    }

    fn with_secret(live: &mut LiveObjects, content: &str) -> Contents {
        let secret = Ref::of::<Secret>("n", "s");
        live.insert(secret.clone(), Arc::new(json!({"data": {"k": content}})));
        contents(live, [secret])
    }

    #[test]
    fn only_a_change_of_what_was_seen_reaches_the_pods() {
        let rolled = |object: &Object| object.body["spec"]["template"]["metadata"]["annotations"][ROLLED].clone();
        let mut live = LiveObjects::default();
        let now = with_secret(&mut live, "one");
        let first = remember(&live, deployment(), &now, &["/spec/template/metadata"]);
        assert!(rolled(&first).is_null(), "what is seen for the first time restarts nothing");
        live.insert(first.reference.clone(), Arc::new(first.body.clone()));
        let same = remember(&live, deployment(), &now, &["/spec/template/metadata"]);
        assert_eq!(same.body, first.body);
        let now = with_secret(&mut live, "two");
        let second = remember(&live, deployment(), &now, &["/spec/template/metadata"]);
        assert!(rolled(&second).is_string());
        live.insert(second.reference.clone(), Arc::new(second.body.clone()));
        assert_eq!(remember(&live, deployment(), &now, &["/spec/template/metadata"]).body, second.body);
    }
}
