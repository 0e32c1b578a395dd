//! Pods read Secrets and ConfigMaps once, at their start: see [`capstan_plan::kit::rolling`].

use capstan_plan::Object;
use capstan_plan::kit::rolling::{self, Contents};

use super::Cx;

/// `object`, whose pods have their metadata at `templates`, with what its pods read.
pub(super) fn remember(cx: &Cx<'_>, object: Object, now: &Contents, templates: &[&str]) -> Object {
    rolling::remember(&cx.facts.live, object, now, templates)
}
