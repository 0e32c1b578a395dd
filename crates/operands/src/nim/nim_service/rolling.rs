//! Rollout on config changes: pods read Secrets and ConfigMaps once, at their start. See [`capstan_plan::kit::rolling`].

use capstan_plan::Object;
use capstan_plan::kit::rolling::{self, Contents};

use super::Cx;

/// Annotates `object`, whose pod metadata is at `templates`, with the config of its pods.
pub(super) fn remember(cx: &Cx<'_>, object: Object, now: &Contents, templates: &[&str]) -> Object {
    rolling::remember(&cx.facts.live, object, now, templates)
}
