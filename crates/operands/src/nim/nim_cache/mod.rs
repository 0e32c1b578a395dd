//! NIMCache: a model downloaded once into a volume, for services to share.
//!
//! [`plan`] reads top to bottom: a claim, the image's own list of profiles, the choice among them, the Job that downloads.
//! Each step waits for the one before it; what it waits for is a condition. A cache that is Ready stays so: its Job goes
//! after a while, and no later mistake may start the download again.

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
use capstan_plan::{Facts, LogPart, Object, Plan, Question};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::{Resource, ResourceExt};
use source::Source;
use status::Step;

use super::layout::{self, Protocol, RegistryAnswer};
use super::manifest::{self, Manifest};
use super::profiles;
use crate::pods;

/// No manifest is longer: the largest that are known have a few hundred profiles.
const MANIFEST_BYTES: u32 = 16 << 20;
/// Where a download prints its progress.
const PROGRESS_LINES: u16 = 20;

/// What every part of the plan needs.
struct Cx<'a> {
    cache: &'a NimCache,
    facts: &'a Facts,
    /// Products of the GPUs in the cluster.
    products: &'a BTreeSet<String>,
    name: String,
    namespace: String,
}

impl<'a> Cx<'a> {
    fn new(cache: &'a NimCache, facts: &'a Facts, products: &'a BTreeSet<String>) -> Self {
        Self { cache, facts, products, name: cache.name_any(), namespace: cache.namespace().unwrap_or_default() }
    }

    /// The log of the pod that prints the manifest, to be read once it has ended well and while nothing is kept.
    fn manifest_log(&self) -> Option<Question> {
        let pod: Pod = self.facts.live.typed(&self.namespace, &names::pod(self))?;
        let ended = pods::phase(&pod) == "Succeeded" && self.kept().is_none();
        ended.then(|| pods::log(&pod, LogPart::Head(MANIFEST_BYTES)))
    }

    /// What it printed; an error if that cannot be read.
    fn printed(&self) -> Option<Result<&'a str, &'a str>> {
        pods::printed(self.facts, self.manifest_log()?)
    }

    /// The manifest that it printed.
    fn printed_manifest(&self) -> Option<&'a str> {
        self.printed()?.ok()
    }

    /// The end of the log of the download, while it runs.
    fn progress_log(&self) -> Option<Question> {
        let running = self.pods().into_iter().find(|pod| pods::phase(pod) == "Running")?;
        Some(pods::log(&running, LogPart::Tail(PROGRESS_LINES)))
    }

    /// How far the download is, as far as it says. A courtesy: it goes on though its log cannot be read.
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

    /// The layout of the model, as far as it is known.
    fn type_(&self) -> &'static str {
        let before = self.status().and_then(|status| status.type_.as_deref()).unwrap_or_default();
        match self.told() {
            RegistryAnswer::As(Protocol::Native) => NATIVE,
            _ if before == NATIVE => NATIVE,
            _ if before == MODEL_FREE => MODEL_FREE,
            _ if self.printed_manifest().is_some_and(manifest_pod::has_none) => MODEL_FREE,
            _ => "",
        }
    }

    /// What to ask the registry, while that decides how the model is downloaded.
    fn question(&self) -> Option<Question> {
        let Source::Ngc(ngc) = Source::of(self) else { return None };
        let known = self.status().is_some_and(|status| status.type_.as_deref().is_some_and(|type_| !type_.is_empty()));
        let decided = known || self.is_ready() || job::live(self).is_some() || self.kept().is_some();
        let secrets = ngc.pull_secret.as_deref().filter(|name| !name.is_empty());
        let source = Source::Ngc(ngc);
        let asks = !decided && source.endpoint().is_none() && self.facts.registries;
        asks.then(|| layout::question(&self.namespace, source.image(), secrets, self.spec().proxy.as_ref()))
    }

    /// What the registry says about the image.
    fn told(&self) -> RegistryAnswer {
        layout::told(self.facts, self.question().as_ref())
    }

    /// The manifest that is kept.
    fn kept(&self) -> Option<ConfigMap> {
        self.facts.live.typed(&self.namespace, &names::manifest(self))
    }

    /// `object` as a child of the cache.
    fn child(&self, object: Object) -> Object {
        match self.cache.controller_owner_ref(&()) {
            Some(owner) => object.owned_by(&owner),
            None => object,
        }
    }
}

const NATIVE: &str = "native";
const MODEL_FREE: &str = "model-free";

/// What this cache should look like.
pub fn plan(cache: &NimCache, facts: &Facts, products: &BTreeSet<String>) -> Plan<NimCacheStatus> {
    let cx = Cx::new(cache, facts, products);
    let faults = invalid::faults(&cx);
    if !faults.is_empty() {
        return Plan { objects: None, ..status::show(&cx, Step::Invalid(faults.join("; "))) };
    }
    let mut objects = access::objects(&cx);
    objects.extend(cx.claim());
    let step = advance(&cx, &mut objects);
    // A list that cannot be read can be mended: what was made of it stays until then, a running download too.
    let objects = Some(objects).filter(|_| !matches!(step, Step::BadManifest(_)));
    let questions = [cx.question(), cx.manifest_log(), cx.progress_log()].into_iter().flatten().collect();
    Plan { objects, questions, ..status::show(&cx, step) }
}

/// Adds what the next step needs, and says which one it is.
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
        // With a pod that was decided on before, maybe by who led before us: it goes on.
        if cx.told() == RegistryAnswer::Pending && pod.is_none() {
            return Step::Inspect(source.image().to_owned());
        }
        if !pod.as_ref().is_some_and(manifest_pod::is_spent) {
            objects.push(cx.child(manifest_pod::object(cx).create_once()));
        }
        return Step::Manifest(pod.map(Box::new));
    }
    // The Job remembers the claim that it fills, so the claim must be there first.
    if !has_claim(cx) {
        return Step::Download(None, None);
    }
    let selected = match selection(cx, &source, manifest.as_ref()) {
        Ok(selected) => selected,
        Err(message) => return Step::NoProfile(message),
    };
    // A Job cannot change: one that was made for another spec makes room for a new one.
    if job::is_outdated(cx) {
        return Step::Download(None, None);
    }
    objects.push(cx.child(job::object(cx, &selected).create_once()));
    Step::Download(job::live(cx).map(Box::new), manifest)
}

/// The manifest: the one that is kept, or what the pod just printed.
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

/// Which profiles to download; none where the source has no profiles.
fn selection(cx: &Cx<'_>, source: &Source<'_>, manifest: Option<&Manifest>) -> Result<Vec<String>, String> {
    let Source::Ngc(ngc) = source else { return Ok(Vec::new()) };
    if cx.type_() == NATIVE || source.endpoint().is_some() {
        return Ok(Vec::new());
    }
    // What a running download was started with stands, whatever nodes come and go meanwhile.
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

/// The answer when something outside the spec is in the way: nothing more is written until it is gone.
pub fn blocked(
    cache: &NimCache,
    facts: &Facts,
    products: &BTreeSet<String>,
    reason: &str,
    message: &str,
) -> Plan<NimCacheStatus> {
    status::show(&Cx::new(cache, facts, products), Step::Blocked(reason.into(), message.into()))
}

/// What is wrong with a cache before it is stored.
pub fn check(cache: &NimCache) -> Vec<String> {
    let facts = Facts::at(jiff::Timestamp::UNIX_EPOCH);
    invalid::faults(&Cx::new(cache, &facts, &BTreeSet::new()))
}

/// The claim that holds the model of a cache.
pub fn claim_name(cache: &NimCache) -> String {
    storage::claim_name(&cache.spec.storage.pvc.clone().unwrap_or_default(), &cache.name_any())
}

/// Whether the claim of `cache` is there.
fn has_claim(cx: &Cx<'_>) -> bool {
    cx.facts.live.typed::<PersistentVolumeClaim>(&cx.namespace, &claim_name(cx.cache)).is_some()
}

impl Cx<'_> {
    /// Whether we are asked to make the claim.
    fn makes_claim(&self) -> bool {
        self.spec().storage.pvc.as_ref().is_some_and(|claim| claim.create == Some(true))
    }

    /// The claim, where we make it. It goes with the cache unless its user asked to keep it.
    fn claim(&self) -> Option<Object> {
        let spec = self.spec().storage.pvc.as_ref().filter(|_| self.makes_claim())?;
        let mut labels = names::labels(self);
        labels.insert(INSTANCE.into(), self.name.clone());
        labels.insert("app.kubernetes.io/part-of".into(), "nim-cache".into());
        let claim = Object::new(&storage::claim(spec, &self.name, &self.namespace, labels)).create_once();
        let kept = self.cache.annotations().get(names::RETENTION).is_some_and(|value| value == "Retain");
        Some(if kept { claim } else { self.child(claim) })
    }

    /// What holds the download up, in the words of Kubernetes.
    fn pod_trouble(&self) -> Option<String> {
        self.pods().iter().filter(|pod| pods::phase(pod) != "Failed").find_map(pods::trouble)
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
