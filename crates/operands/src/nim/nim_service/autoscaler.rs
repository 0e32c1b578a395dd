//! The HorizontalPodAutoscaler.

use capstan_plan::kit::autoscaler::autoscaler;

use super::parts::Parts;
use super::{Cx, names};

/// Adds it if autoscaling is enabled.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    let scale = cx.spec().scale.as_ref();
    let metadata = names::annotated(cx, scale.and_then(|scale| scale.annotations.as_ref()));
    if let Some(autoscaler) = autoscaler(metadata, scale, &cx.name) {
        parts.add(&autoscaler);
    }
}
