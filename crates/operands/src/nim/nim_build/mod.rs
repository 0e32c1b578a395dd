//! NIMBuild: an engine built from a cached model, for the GPUs of this cluster.
//!
//! Two pods in sequence: the first builds, and is ready when done; the second prints the manifest of the profiles in
//! the volume. The cache then lists the new one.

mod pods;
mod status;

use std::collections::BTreeMap;

use capstan_api::nim::cache::NimProfile;
use capstan_api::nim::{NimBuild, NimBuildStatus, NimCache};
use capstan_plan::{Facts, LogPart, Object, Plan, Query};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use status::Step;

use super::manifest::Manifest;
use super::nim_service::MANAGED_BY;
use crate::pods::{log, phase, printed};

/// ConfigMap key of the manifest of local builds.
const LOCAL_MANIFEST: &str = "local_model_manifest.yaml";
const BUILDABLE: &str = "trtllm_buildable";

/// Maximum size of a manifest.
const MANIFEST_BYTES: u32 = 16 << 20;

struct Cx<'a> {
    build: &'a NimBuild,
    facts: &'a Facts,
    name: String,
    namespace: String,
}

impl<'a> Cx<'a> {
    fn new(build: &'a NimBuild, facts: &'a Facts) -> Self {
        Self { build, facts, name: build.name_any(), namespace: build.namespace().unwrap_or_default() }
    }

    fn spec(&self) -> &'a capstan_api::nim::NimBuildSpec {
        &self.build.spec
    }

    fn model_name(&self) -> String {
        self.spec().model_name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| self.name.clone())
    }

    fn is(&self, condition: &str) -> bool {
        let list = self.build.status.as_ref().and_then(|status| status.conditions.as_ref());
        list.into_iter().flatten().any(|one| one.type_ == condition && one.status == "True")
    }

    fn pod(&self, name: &str) -> Option<Pod> {
        self.facts.live.typed(&self.namespace, name)
    }

    /// The log query of the manifest pod, once it has succeeded.
    fn manifest_log(&self) -> Option<Query> {
        let pod = self.pod(&pods::manifest_name(self)).filter(|pod| phase(pod) == "Succeeded")?;
        Some(log(&pod, LogPart::Head(MANIFEST_BYTES)))
    }

    /// Its log; an error if it cannot be read.
    fn printed(&self) -> Option<Result<&'a str, &'a str>> {
        printed(self.facts, self.manifest_log()?)
    }

    fn child(&self, object: Object) -> Object {
        match self.build.controller_owner_ref(&()) {
            Some(owner) => object.owned_by(&owner),
            None => object,
        }
    }
}

/// The plan while blocked from outside: no objects are written.
pub fn blocked(build: &NimBuild, facts: &Facts, reason: &str, message: &str) -> Plan<NimBuildStatus> {
    status::show(&Cx::new(build, facts), Step::Blocked(reason.into(), message.into()))
}

/// Plans a build.
pub fn plan(build: &NimBuild, facts: &Facts) -> Plan<NimBuildStatus> {
    let cx = Cx::new(build, facts);
    let mut objects = Vec::new();
    let step = advance(&cx, &mut objects);
    let queries =
        cx.manifest_log().filter(|_| matches!(step, Step::Manifest(_) | Step::Built(_) | Step::NoManifest(_)));
    Plan { objects: Some(objects), queries: queries.into_iter().collect(), ..status::show(&cx, step) }
}

/// Adds the objects of the next step, and returns the step.
fn advance(cx: &Cx<'_>, objects: &mut Vec<Object>) -> Step {
    if cx.is(status::MANIFEST_COMPLETED) {
        return Step::Done;
    }
    let cache = match ready_cache(cx) {
        Ok(cache) => cache,
        Err(step) => return step,
    };
    if !cx.is(status::BUILD_COMPLETED) {
        return build(cx, &cache, objects);
    }
    let kept: Option<ConfigMap> = cx.facts.live.typed(&cx.namespace, &format!("{}-manifest", cache.name_any()));
    let Some(kept) = kept else {
        return Step::NoManifest(format!("ConfigMap {}-manifest is not there", cache.name_any()));
    };
    let Some(Ok(text)) = cx.printed() else {
        let pod = cx.pod(&pods::manifest_name(cx));
        if pod.as_ref().is_none_or(|pod| phase(pod) != "Failed") {
            objects.push(cx.child(pods::manifest(cx, &cache).create_once()));
        }
        return Step::Manifest(pod.map(Box::new));
    };
    match Manifest::parse(text) {
        Ok(manifest) => {
            let model = cx.model_name();
            let output = manifest.profiles.iter().find(|profile| profile.tags.get("model_name") == Some(&model));
            let Some(output) = output else {
                return Step::NoManifest(format!("the build has left no profile with the tag model_name {model:?}"));
            };
            objects.push(with_local_manifest(cx, &cache, &kept, &manifest));
            Step::Built(NimProfile {
                name: Some(output.id.clone()),
                model: Some(output.model.clone()).filter(|model| !model.is_empty()),
                release: Some(output.release.clone()).filter(|release| !release.is_empty()),
                config: Some(output.tags.clone()),
            })
        }
        Err(message) => Step::NoManifest(message),
    }
}

/// The cache, once it is ready.
fn ready_cache(cx: &Cx<'_>) -> Result<NimCache, Step> {
    let name = &cx.spec().nim_cache.name;
    let Some(cache) = cx.facts.live.typed::<NimCache>(&cx.namespace, name) else {
        return Err(Step::NoCache(name.clone()));
    };
    match cache.status.as_ref().and_then(|status| status.state.as_deref()) {
        Some("Ready") => Ok(cache),
        Some("Failed") => Err(Step::CacheFailed(name.clone())),
        state => Err(Step::WaitForCache(name.clone(), state.unwrap_or("new").to_owned())),
    }
}

/// The build pod: selected and created once.
fn build(cx: &Cx<'_>, cache: &NimCache, objects: &mut Vec<Object>) -> Step {
    let profile = match input(cx, cache) {
        Ok(profile) => profile,
        Err(step) => return step,
    };
    let gpus = match pods::resources(cx, &profile) {
        Ok(gpus) => gpus,
        Err(message) => return Step::NoGpus(message),
    };
    let pod = cx.pod(&pods::build_name(cx));
    // A missing pod is recreated: nothing proves that it finished.
    objects.push(cx.child(pods::build(cx, cache, &profile, gpus).create_once()));
    Step::Build(profile, pod.map(Box::new))
}

/// The profile to build from.
fn input(cx: &Cx<'_>, cache: &NimCache) -> Result<NimProfile, Step> {
    let all = cache.status.as_ref().and_then(|status| status.profiles.clone()).unwrap_or_default();
    let buildable = |profile: &NimProfile| {
        profile.config.as_ref().and_then(|config| config.get(BUILDABLE)).is_some_and(|value| value == "true")
    };
    let mut buildable: Vec<NimProfile> = all.into_iter().filter(buildable).collect();
    if let Some(wanted) = cx.spec().nim_cache.profile.as_deref().filter(|profile| !profile.is_empty()) {
        let found = buildable.into_iter().find(|profile| profile.name.as_deref() == Some(wanted));
        return found.ok_or_else(|| {
            Step::NoProfile(format!(
                "profile {wanted} of NIMCache {} cannot be built: it is not cached or has no tag {BUILDABLE}: true",
                cache.name_any()
            ))
        });
    }
    match buildable.len() {
        1 => Ok(buildable.remove(0)),
        0 => Err(Step::NoProfile(format!("NIMCache {} has no profile that can be built", cache.name_any()))),
        _ => {
            let names: Vec<String> = buildable.into_iter().filter_map(|profile| profile.name).collect();
            Err(Step::ManyProfiles(format!(
                "NIMCache {} has {} profiles that can be built: set spec.nimCache.profile to one of {}",
                cache.name_any(),
                names.len(),
                names.join(", ")
            )))
        }
    }
}

/// The cache's ConfigMap with one more key; all other content is preserved.
fn with_local_manifest(cx: &Cx<'_>, cache: &NimCache, kept: &ConfigMap, manifest: &Manifest) -> Object {
    let mut data = kept.data.clone().unwrap_or_default();
    data.insert(LOCAL_MANIFEST.into(), manifest.to_yaml());
    let mut labels = kept.metadata.labels.clone().unwrap_or_default();
    labels.insert("app".into(), cache.name_any());
    Object::new(&ConfigMap {
        metadata: ObjectMeta {
            name: kept.metadata.name.clone(),
            namespace: Some(cx.namespace.clone()),
            labels: Some(labels),
            owner_references: kept.metadata.owner_references.clone(),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    })
    .shared()
}

/// Labels of the pods.
fn labels(cx: &Cx<'_>) -> BTreeMap<String, String> {
    let own = [
        ("app", MANAGED_BY),
        ("app.kubernetes.io/name", cx.name.as_str()),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
    ];
    let mut labels = cx.build.metadata.labels.clone().unwrap_or_default();
    labels.extend(cx.spec().labels.clone().unwrap_or_default());
    labels.extend(own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    labels
}

/// Validates a build for admission.
pub fn check(build: &NimBuild) -> Vec<String> {
    let mut faults = Vec::new();
    if build.spec.nim_cache.name.is_empty() {
        faults.push("spec.nimCache.name is empty: name the NIMCache to build from".into());
    }
    for (field, value) in [("repository", &build.spec.image.repository), ("tag", &build.spec.image.tag)] {
        if value.is_empty() {
            faults.push(format!("spec.image.{field} is empty: name the NIM image that builds"));
        }
    }
    faults
}

#[cfg(test)]
mod tests;
