//! How the serving image wants its model laid out, for services without a cache: its registry is asked.
//!
//! The answer is remembered on the workload, so that a registry is asked once per image and not after every restart.
//! What runs keeps its layout for as long as nobody says otherwise.

use capstan_api::foreign::InferenceService;
use capstan_api::nim::service::InferencePlatform;
use capstan_plan::{Object, Question, Ref};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;

use super::super::layout::{self, Protocol, RegistryAnswer};
use super::parts::Stop;
use super::{Cx, containers, storage};

/// On the workload: what the registry said about the image of its pods.
const REMEMBERED: &str = "nvidia.com/model-download-protocol";

/// Condition while the registry does not say.
pub(super) const UNKNOWN: &str = "ImageUnknown";

/// Reason while the registry is asked.
pub(super) const INSPECTING: &str = "InspectingImage";

/// The question, where its answer matters. Pods that span nodes know one layout only.
pub(super) fn question(cx: &Cx<'_>) -> Option<Question> {
    let matters = storage::cache_name(cx.spec()).is_none() && cx.multi_node().is_none();
    if !matters || !cx.facts.registries || remembered(cx).is_some() {
        return None;
    }
    let image = &cx.spec().image;
    let secrets = image.pull_secrets.iter().flatten().map(String::as_str).filter(|name| !name.is_empty());
    Some(layout::question(&cx.namespace, &containers::reference(image), secrets, cx.spec().proxy.as_ref()))
}

/// Whether the image has the newer layout.
pub(super) fn is_native(cx: &Cx<'_>) -> bool {
    let protocol = remembered(cx).or_else(|| match layout::told(cx.facts, question(cx).as_ref()) {
        RegistryAnswer::As(protocol) => Some(protocol),
        _ => None,
    });
    protocol.map_or_else(|| runs_native(cx), |protocol| protocol == Protocol::Native)
}

/// What keeps the workload from being decided on: nothing where one with this image runs.
pub(super) fn waits(cx: &Cx<'_>) -> Option<Stop> {
    let pending = layout::told(cx.facts, question(cx).as_ref()) == RegistryAnswer::Pending && live(cx).is_none();
    let image = containers::reference(&cx.spec().image);
    pending.then(|| Stop::wait(INSPECTING, format!("asking the registry how image {image} gets its model")))
}

/// Why the registry does not say.
pub(super) fn unknown(cx: &Cx<'_>) -> Option<String> {
    match layout::told(cx.facts, question(cx).as_ref()) {
        RegistryAnswer::Unknown(why) => Some(format!("{why}; the model is laid out as for images that do not say")),
        // Whoever led before us was told so.
        RegistryAnswer::Pending => cx.said(UNKNOWN),
        _ => None,
    }
}

/// The workload, with what was said about its image.
pub(super) fn remember(cx: &Cx<'_>, object: Object) -> Object {
    let told = match layout::told(cx.facts, question(cx).as_ref()) {
        RegistryAnswer::As(protocol) => Some(protocol),
        _ => remembered(cx),
    };
    match told {
        Some(Protocol::Native) => object.annotated(REMEMBERED, "native"),
        Some(Protocol::Legacy) => object.annotated(REMEMBERED, "legacy"),
        None => object,
    }
}

/// What was said about the image when its workload was made.
fn remembered(cx: &Cx<'_>) -> Option<Protocol> {
    let (live, _) = live(cx)?;
    match live["metadata"]["annotations"][REMEMBERED].as_str()? {
        "native" => Some(Protocol::Native),
        "legacy" => Some(Protocol::Legacy),
        _ => None,
    }
}

/// Whether what runs has the newer layout, whoever made it.
fn runs_native(cx: &Cx<'_>) -> bool {
    let Some((_, container)) = live(cx) else { return false };
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    mounts.into_iter().any(|mount| mount["name"] == "model-store" && mount["mountPath"] == "/model")
}

/// The workload with this image, if it is there, and its serving container.
fn live<'a>(cx: &Cx<'a>) -> Option<(&'a Value, &'a Value)> {
    let (reference, pod) = match cx.platform() {
        InferencePlatform::Standalone => (Ref::of::<Deployment>(&cx.namespace, &cx.name), "/spec/template/spec"),
        InferencePlatform::KServe => (Ref::of::<InferenceService>(&cx.namespace, &cx.name), "/spec/predictor"),
    };
    let live: &Value = cx.facts.live.get(&reference)?;
    let container = &live.pointer(pod)?["containers"][0];
    (container["image"] == containers::reference(&cx.spec().image).as_str()).then_some((live, container))
}
