//! NIMCache: a model downloaded once into a volume, shared by services.
//!
//! [`plan`] reads top to bottom: claim, manifest of the image, profile selection, download Job. Each step waits for the
//! previous one, reported as a condition. A Ready cache stays Ready: its Job is deleted after a while, and no later
//! error may restart the download.

mod access;
mod invalid;
mod job;
mod manifest_pod;
mod names;
mod progress;
mod source;
mod status;

use std::collections::BTreeSet;

use capstan_api::nim::{NimCache, NimCacheStatus};
use capstan_plan::kit::INSTANCE;
use capstan_plan::kit::storage;
use capstan_plan::{Facts, LogPart, Object, Plan, Query};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::{Resource, ResourceExt};
use source::Source;
use status::Step;

use super::layout::{self, ImageProtocol, Protocol};
use super::manifest::{self, Manifest};
use super::profiles;
use crate::pods;

/// Maximum size of a manifest; known ones have a few hundred profiles.
const MANIFEST_BYTES: u32 = 16 << 20;
/// Lines of the log tail that are searched for progress.
const PROGRESS_LINES: u16 = 20;

/// Context of a plan.
struct Cx<'a> {
    cache: &'a NimCache,
    facts: &'a Facts,
    /// GPU products in the cluster.
    products: &'a BTreeSet<String>,
    name: String,
    namespace: String,
}

impl<'a> Cx<'a> {
    fn new(cache: &'a NimCache, facts: &'a Facts, products: &'a BTreeSet<String>) -> Self {
        Self { cache, facts, products, name: cache.name_any(), namespace: cache.namespace().unwrap_or_default() }
    }

    /// The log query of the manifest pod, once it has succeeded and while no manifest is stored.
    fn manifest_log(&self) -> Option<Query> {
        let pod: Pod = self.facts.live.typed(&self.namespace, &names::pod(self))?;
        let ended = pods::phase(&pod) == "Succeeded" && self.kept().is_none();
        ended.then(|| pods::log(&pod, LogPart::Head(MANIFEST_BYTES)))
    }

    /// Its log; an error if it cannot be read.
    fn printed(&self) -> Option<Result<&'a str, &'a str>> {
        pods::printed(self.facts, self.manifest_log()?)
    }

    /// The manifest in its log.
    fn printed_manifest(&self) -> Option<&'a str> {
        self.printed()?.ok()
    }

    /// The log tail query of the download, while it runs.
    fn progress_log(&self) -> Option<Query> {
        let running = self.pods().into_iter().find(|pod| pods::phase(pod) == "Running")?;
        Some(pods::log(&running, LogPart::Tail(PROGRESS_LINES)))
    }

    /// Progress of the download, best effort.
    fn progress(&self) -> Option<String> {
        progress::last(pods::printed(self.facts, self.progress_log()?)?.ok()?)
    }

    fn spec(&self) -> &'a capstan_api::nim::NimCacheSpec {
        &self.cache.spec
    }

    fn status(&self) -> Option<&'a NimCacheStatus> {
        self.cache.status.as_ref()
    }

    fn is_ready(&self) -> bool {
        self.status().is_some_and(|status| status.state.as_deref() == Some(status::READY))
    }

    /// The model type, if known.
    fn type_(&self) -> &'static str {
        let before = self.status().and_then(|status| status.type_.as_deref()).unwrap_or_default();
        match self.image_protocol() {
            ImageProtocol::Known(Protocol::Native) => NATIVE,
            _ if before == NATIVE => NATIVE,
            _ if before == MODEL_FREE => MODEL_FREE,
            _ if self.printed_manifest().is_some_and(manifest_pod::has_none) => MODEL_FREE,
            _ => "",
        }
    }

    /// The registry query, while its result decides how the model is downloaded.
    fn query(&self) -> Option<Query> {
        let Source::Ngc(ngc) = Source::of(self) else { return None };
        let known = self.status().is_some_and(|status| status.type_.as_deref().is_some_and(|type_| !type_.is_empty()));
        let decided = known || self.is_ready() || job::live(self).is_some() || self.kept().is_some();
        let secrets = ngc.pull_secret.as_deref().filter(|name| !name.is_empty());
        let source = Source::Ngc(ngc);
        let asks = !decided && source.endpoint().is_none() && self.facts.registries;
        asks.then(|| layout::query(&self.namespace, source.image(), secrets, self.spec().proxy.as_ref()))
    }

    /// The result of the registry query.
    fn image_protocol(&self) -> ImageProtocol {
        layout::image_protocol(self.facts, self.query().as_ref())
    }

    /// The stored manifest.
    fn kept(&self) -> Option<ConfigMap> {
        self.facts.live.typed(&self.namespace, &names::manifest(self))
    }

    /// `object` owned by the cache.
    fn child(&self, object: Object) -> Object {
        match self.cache.controller_owner_ref(&()) {
            Some(owner) => object.owned_by(&owner),
            None => object,
        }
    }
}

const NATIVE: &str = "native";
const MODEL_FREE: &str = "model-free";

/// Plans a cache.
pub fn plan(cache: &NimCache, facts: &Facts, products: &BTreeSet<String>) -> Plan<NimCacheStatus> {
    let cx = Cx::new(cache, facts, products);
    let faults = invalid::faults(&cx);
    if !faults.is_empty() {
        return Plan { objects: None, ..status::show(&cx, Step::Invalid(faults.join("; "))) };
    }
    let mut objects = access::objects(&cx);
    objects.extend(cx.claim());
    let step = advance(&cx, &mut objects);
    // An unreadable manifest can be fixed by the user: existing objects stay until then, a running download too.
    let objects = Some(objects).filter(|_| !matches!(step, Step::BadManifest(_)));
    let queries = [cx.query(), cx.manifest_log(), cx.progress_log()].into_iter().flatten().collect();
    Plan { objects, queries, ..status::show(&cx, step) }
}

/// Adds the objects of the next step, and returns the step.
fn advance(cx: &Cx<'_>, objects: &mut Vec<Object>) -> Step {
    if !cx.makes_claim() && !has_claim(cx) {
        return Step::NoClaim(claim_name(cx.cache));
    }
    let kept = cx.kept();
    let manifest = match manifest_of(cx, kept.as_ref()) {
        Ok(manifest) => manifest,
        Err(message) => return Step::BadManifest(message),
    };
    if let Some(manifest) = manifest.as_ref().filter(|_| kept.is_some() || !cx.is_ready()) {
        objects.push(cx.child(manifest_pod::config_map(cx, manifest).create_once()));
    }
    if cx.is_ready() {
        objects.extend(job::live(cx).map(|_| cx.child(job::object(cx, &[]).create_once())));
        return Step::Ready;
    }
    let source = Source::of(cx);
    if manifest.is_none() && cx.type_().is_empty() {
        let pod = cx.facts.live.typed::<Pod>(&cx.namespace, &names::pod(cx));
        // A pod that an earlier leader created is kept.
        if cx.image_protocol() == ImageProtocol::Pending && pod.is_none() {
            return Step::Inspect(source.image().to_owned());
        }
        if !pod.as_ref().is_some_and(manifest_pod::is_spent) {
            objects.push(cx.child(manifest_pod::object(cx).create_once()));
        }
        return Step::Manifest(pod.map(Box::new));
    }
    // The Job records the uid of its claim, so the claim must exist first.
    if !has_claim(cx) {
        return Step::Download(None, None);
    }
    let selected = match selection(cx, &source, manifest.as_ref()) {
        Ok(selected) => selected,
        Err(message) => return Step::NoProfile(message),
    };
    // Jobs are immutable: an outdated one is replaced.
    if job::is_outdated(cx) {
        return Step::Download(None, None);
    }
    objects.push(cx.child(job::object(cx, &selected).create_once()));
    Step::Download(job::live(cx).map(Box::new), manifest)
}

/// The stored manifest, or the one in the pod log.
fn manifest_of(cx: &Cx<'_>, kept: Option<&ConfigMap>) -> Result<Option<Manifest>, String> {
    if let Some(kept) = kept {
        let text = kept.data.as_ref().and_then(|data| data.get(manifest::KEY));
        let name = names::manifest(cx);
        let text = text
            .ok_or_else(|| format!("ConfigMap {name} has no key {}: delete it, and it is made anew", manifest::KEY))?;
        return Manifest::parse(text).map(Some).map_err(|error| format!("ConfigMap {name}: {error}"));
    }
    match cx.printed_manifest() {
        Some(text) if !manifest_pod::has_none(text) => Manifest::parse(text).map(Some),
        _ => Ok(None),
    }
}

/// The profiles to download; empty if the source has none.
fn selection(cx: &Cx<'_>, source: &Source<'_>, manifest: Option<&Manifest>) -> Result<Vec<String>, String> {
    let Source::Ngc(ngc) = source else { return Ok(Vec::new()) };
    if cx.type_() == NATIVE || source.endpoint().is_some() {
        return Ok(Vec::new());
    }
    // The selection of a running download is kept, whatever nodes join or leave meanwhile.
    if let Some(selected) = job::live(cx).filter(|_| !job::is_outdated(cx)).and_then(|job| job::selected(&job)) {
        return Ok(selected);
    }
    let filter = ngc.model.clone().unwrap_or_default();
    if let Some(named) = filter.profiles.as_ref().filter(|named| !named.is_empty()) {
        return Ok(named.clone());
    }
    if let Some(chosen) = names::chosen(cx)? {
        return Ok(chosen);
    }
    let selected = manifest.map(|manifest| profiles::select(manifest, &filter, cx.products)).unwrap_or_default();
    if selected.is_empty() {
        return Err(names::no_profile(cx, &filter, manifest));
    }
    Ok(selected)
}

/// The plan while blocked from outside: no objects are written.
pub fn blocked(
    cache: &NimCache,
    facts: &Facts,
    products: &BTreeSet<String>,
    reason: &str,
    message: &str,
) -> Plan<NimCacheStatus> {
    status::show(&Cx::new(cache, facts, products), Step::Blocked(reason.into(), message.into()))
}

/// Validates a cache for admission.
pub fn check(cache: &NimCache) -> Vec<String> {
    let facts = Facts::at(jiff::Timestamp::UNIX_EPOCH);
    invalid::faults(&Cx::new(cache, &facts, &BTreeSet::new()))
}

/// The claim that holds the model of a cache.
pub fn claim_name(cache: &NimCache) -> String {
    storage::claim_name(&cache.spec.storage.pvc.clone().unwrap_or_default(), &cache.name_any())
}

/// Whether the claim of the cache exists.
fn has_claim(cx: &Cx<'_>) -> bool {
    cx.facts.live.typed::<PersistentVolumeClaim>(&cx.namespace, &claim_name(cx.cache)).is_some()
}

impl Cx<'_> {
    /// Whether we create the claim.
    fn makes_claim(&self) -> bool {
        self.spec().storage.pvc.as_ref().is_some_and(|claim| claim.create == Some(true))
    }

    /// The claim, if we create it. Owned by the cache unless the user wants to retain it.
    fn claim(&self) -> Option<Object> {
        let spec = self.spec().storage.pvc.as_ref().filter(|_| self.makes_claim())?;
        let mut labels = names::labels(self);
        labels.insert(INSTANCE.into(), self.name.clone());
        labels.insert("app.kubernetes.io/part-of".into(), "nim-cache".into());
        let claim = Object::new(&storage::claim(spec, &self.name, &self.namespace, labels)).create_once();
        let kept = self.cache.annotations().get(names::RETENTION).is_some_and(|value| value == "Retain");
        Some(if kept { claim } else { self.child(claim) })
    }

    /// What the download pod waits for, from its status.
    fn pod_waiting_reason(&self) -> Option<String> {
        self.pods().iter().filter(|pod| pods::phase(pod) != "Failed").find_map(pods::waiting_reason)
    }

    /// Pods of the Job.
    fn pods(&self) -> Vec<Pod> {
        let prefix = format!("{}-job", self.name);
        let ours = |pod: &Pod| {
            let labels = pod.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get("batch.kubernetes.io/job-name")).is_some_and(|job| *job == prefix)
        };
        let all = self.facts.live.iter().filter(|(reference, _)| reference.gvk.kind == "Pod");
        let all = all.filter_map(|(reference, _)| self.facts.live.typed::<Pod>(&reference.namespace, &reference.name));
        all.filter(ours).collect()
    }
}

#[cfg(test)]
mod tests;
