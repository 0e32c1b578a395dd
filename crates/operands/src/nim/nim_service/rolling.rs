//! Pods read Secrets and ConfigMaps once, at their start: when one changes, they must be replaced.
//!
//! What was seen is remembered on the workload itself. Only a change of something that was seen before reaches the pod
//! template, so that neither a Secret that appears nor our taking over restarts a model.

use std::collections::BTreeMap;

use capstan_plan::Object;
use capstan_plan::kit::hash;

use super::Cx;
use super::references::Contents;

/// On the workload: what its pods were started with.
const SEEN: &str = "nvidia.com/seen-config";
/// On the pods: changes whenever they must be replaced.
const ROLLED: &str = "nvidia.com/config-hash";

/// `object`, whose pods have their metadata at `templates`, with what its pods read.
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
            meta["annotations"][ROLLED] = rolled.into();
        }
    }
    object.annotated(SEEN, &text)
}
