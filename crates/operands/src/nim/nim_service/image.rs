//! The model layout of the serving image, for services without a cache: a registry query.
//!
//! The result is stored on the workload, so that a registry is queried once per image and not after every restart. A
//! running workload keeps its layout until the result differs.

use capstan_api::foreign::InferenceService;
use capstan_api::nim::service::InferencePlatform;
use capstan_plan::{Object, Query, Ref};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;

use super::super::layout::{self, ImageProtocol, Protocol};
use super::parts::Stop;
use super::{Cx, containers, storage};

/// Annotation of the workload: the download protocol of its image.
const PROTOCOL_ANNOTATION: &str = "nvidia.com/model-download-protocol";

/// Condition while the protocol is unknown.
pub(super) const UNKNOWN: &str = "ImageUnknown";

/// Reason while the query is pending.
pub(super) const INSPECTING: &str = "InspectingImage";

/// The query, if its result matters. Multi-node pods support one layout only.
pub(super) fn query(cx: &Cx<'_>) -> Option<Query> {
    let matters = storage::cache_name(cx.spec()).is_none() && cx.multi_node().is_none();
    if !matters || !cx.facts.registries || stored_protocol(cx).is_some() {
        return None;
    }
    let image = &cx.spec().image;
    let secrets = image.pull_secrets.iter().flatten().map(String::as_str).filter(|name| !name.is_empty());
    Some(layout::query(&cx.namespace, &containers::reference(image), secrets, cx.spec().proxy.as_ref()))
}

/// Whether the image has the native layout.
pub(super) fn is_native(cx: &Cx<'_>) -> bool {
    let protocol = stored_protocol(cx).or_else(|| match layout::image_protocol(cx.facts, query(cx).as_ref()) {
        ImageProtocol::Known(protocol) => Some(protocol),
        _ => None,
    });
    protocol.map_or_else(|| runs_native(cx), |protocol| protocol == Protocol::Native)
}

/// Why the workload cannot be planned yet: never if one with this image runs.
pub(super) fn blocked_by(cx: &Cx<'_>) -> Option<Stop> {
    let pending = layout::image_protocol(cx.facts, query(cx).as_ref()) == ImageProtocol::Pending && live(cx).is_none();
    let image = containers::reference(&cx.spec().image);
    pending.then(|| Stop::wait(INSPECTING, format!("asking the registry how image {image} gets its model")))
}

/// Why the protocol is unknown.
pub(super) fn unknown(cx: &Cx<'_>) -> Option<String> {
    match layout::image_protocol(cx.facts, query(cx).as_ref()) {
        ImageProtocol::Unknown(why) => Some(format!("{why}; the model is laid out as for images that do not say")),
        // Keep the message that an earlier leader wrote.
        ImageProtocol::Pending => cx.condition_message(UNKNOWN),
        _ => None,
    }
}

/// The workload, annotated with the protocol of its image.
pub(super) fn annotate(cx: &Cx<'_>, object: Object) -> Object {
    let protocol = match layout::image_protocol(cx.facts, query(cx).as_ref()) {
        ImageProtocol::Known(protocol) => Some(protocol),
        _ => stored_protocol(cx),
    };
    match protocol {
        Some(Protocol::Native) => object.annotated(PROTOCOL_ANNOTATION, "native"),
        Some(Protocol::Legacy) => object.annotated(PROTOCOL_ANNOTATION, "legacy"),
        None => object,
    }
}

/// The stored protocol of the workload's image.
fn stored_protocol(cx: &Cx<'_>) -> Option<Protocol> {
    let (live, _) = live(cx)?;
    match live["metadata"]["annotations"][PROTOCOL_ANNOTATION].as_str()? {
        "native" => Some(Protocol::Native),
        "legacy" => Some(Protocol::Legacy),
        _ => None,
    }
}

/// Whether the running workload has the native layout, whoever created it.
fn runs_native(cx: &Cx<'_>) -> bool {
    let Some((_, container)) = live(cx) else { return false };
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    mounts.into_iter().any(|mount| mount["name"] == "model-store" && mount["mountPath"] == "/model")
}

/// The live workload with this image and its serving container, if it exists.
fn live<'a>(cx: &Cx<'a>) -> Option<(&'a Value, &'a Value)> {
    let (reference, pod) = match cx.platform() {
        InferencePlatform::Standalone => (Ref::of::<Deployment>(&cx.namespace, &cx.name), "/spec/template/spec"),
        InferencePlatform::KServe => (Ref::of::<InferenceService>(&cx.namespace, &cx.name), "/spec/predictor"),
    };
    let live: &Value = cx.facts.live.get(&reference)?;
    let container = &live.pointer(pod)?["containers"][0];
    (container["image"] == containers::reference(&cx.spec().image).as_str()).then_some((live, container))
}
