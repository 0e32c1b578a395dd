//! The claim of a service: made when absent, grown when the spec asks for more, never shrunk or replaced.

use capstan_plan::kit::{quantity, storage};
use capstan_plan::{Object, Ref};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::Value;

use super::description::{Claim, Parts};
use super::{Cx, names};

/// Name of a claim.
pub(super) fn name(cx: &Cx<'_>, claim: &Claim) -> String {
    storage::claim_name(&claim.spec, &cx.name)
}

/// The live claim of that name, whoever made it.
pub(super) fn live<'a>(cx: &Cx<'a>, claim: &Claim) -> Option<&'a Value> {
    let reference = Ref::of::<PersistentVolumeClaim>(&cx.namespace, &name(cx, claim));
    cx.live().get(&reference).map(|live| &**live)
}

/// The claim, where we are asked to make it.
pub(super) fn object(cx: &Cx<'_>, parts: &Parts) -> Option<Object> {
    let claim = parts.claim.as_ref().filter(|claim| claim.spec.create == Some(true))?;
    let made = Object::new(&storage::claim(&claim.spec, &cx.name, &cx.namespace, names::labels(cx)));
    let grows = cx.own(&made.reference).is_some_and(|live| {
        let asked = |object: &Value| {
            let text = object["spec"]["resources"]["requests"]["storage"].as_str()?;
            Some(quantity::Quantity::parse(text).ok()?.units())
        };
        asked(&made.body).zip(asked(live)).is_some_and(|(wanted, there)| wanted > there)
    });
    // Most of a claim cannot change: it is touched only to grow.
    Some(if grows { made } else { made.create_once() })
}

/// Whether the claim stays when the custom resource goes.
pub(super) fn is_retained(cx: &Cx<'_>) -> bool {
    names::annotation(cx, names::RETENTION) == Some("Retain")
}

/// `objects` with a claim that is to stay as nobody's.
pub(super) fn kept(cx: &Cx<'_>, mut objects: Vec<Object>) -> Vec<Object> {
    if is_retained(cx) {
        let claims = objects.iter_mut().filter(|one| one.reference.gvk.kind == "PersistentVolumeClaim");
        for claim in claims {
            if let Some(meta) = claim.body["metadata"].as_object_mut() {
                meta.remove("ownerReferences");
            }
        }
    }
    objects
}

/// Whether pods of several nodes may not share the claim though several are wanted.
pub(super) fn is_narrow(cx: &Cx<'_>, parts: &Parts) -> Option<String> {
    let claim = parts.claim.as_ref().filter(|claim| claim.mounted)?;
    let mode = claim.spec.volume_access_mode.as_deref().filter(|mode| !mode.is_empty()).unwrap_or("ReadWriteOnce");
    let server = cx.service.server();
    let many = cx.autoscaled() || server.replicas.is_some_and(|replicas| replicas > 1);
    let narrow = ["ReadWriteOnce", "ReadWriteOncePod"].contains(&mode);
    (many && narrow).then(|| {
        let field = claim.field;
        format!(
            "{field}.volumeAccessMode is {mode}, but several replicas are wanted: pods on another node than the first \
             cannot mount the claim; use ReadWriteMany, or one replica without autoscaling"
        )
    })
}
