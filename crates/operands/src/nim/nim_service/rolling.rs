//! Rollout on config changes: pods read Secrets and ConfigMaps once, at their start, so a change must restart them.
//!
//! The observed hashes are stored on the workload. Only a change of a known one reaches the pod template, so that
//! neither a new Secret nor a takeover restarts a model.

use std::collections::BTreeMap;

use capstan_plan::Object;
use capstan_plan::kit::hash;

use super::Cx;
use super::references::Contents;

/// Annotation of the workload: config hashes of its pods.
const SEEN: &str = "nvidia.com/seen-config";
/// Annotation of the pods: changes when they must restart.
const ROLLED: &str = "nvidia.com/config-hash";

/// Annotates `object`, whose pod metadata is at `templates`, with the config of its pods.
pub(super) fn remember(cx: &Cx<'_>, mut object: Object, now: &Contents, templates: &[&str]) -> Object {
    let live = cx.facts.live.get(&object.reference);
    let annotation = |pointer: &str, key: &str| {
        let found = live.and_then(|live| live.pointer(pointer)).and_then(|meta| meta["annotations"][key].as_str());
        found.map(str::to_owned)
    };
    let before = annotation("/metadata", SEEN).unwrap_or_default();
    let before: BTreeMap<&str, &str> = before.split(',').filter_map(|entry| entry.split_once('=')).collect();
    let mut seen = BTreeMap::new();
    for (name, content) in now {
        // A deleted object may be recreated with other content.
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
            meta["annotations"][ROLLED] = rolled.into();
        }
    }
    object.annotated(SEEN, &text)
}
