//! What a build turns into, step by step.

use std::sync::Arc;

use capstan_plan::{LiveObjects, QueryResult, Ref, diff};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const MANIFEST: &str = "built:\n  model: meta/llama\n  release: 1.8.0\n  tags: {model_name: tuned, tp: '2'}\n";

struct World {
    build: NimBuild,
    facts: Facts,
}

fn profile(name: &str, tags: Value) -> Value {
    json!({"name": name, "model": "meta/llama", "config": tags})
}

impl World {
    fn new(spec: Value) -> Self {
        let mut whole = json!({
            "nimCache": {"name": "cache"}, "modelName": "tuned",
            "image": {"repository": "nvcr.io/nim/meta/llama", "tag": "1.8", "pullSecrets": ["ngc-secret"]},
        });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let build = json!({
            "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMBuild",
            "metadata": {"name": "b", "namespace": "nim", "uid": "u-b", "generation": 1}, "spec": whole,
        });
        let facts = Facts::at(Timestamp::from_second(1_800_000_000).unwrap());
        Self { build: serde_json::from_value(build).unwrap(), facts }
    }

    fn cache(mut self, state: &str, profiles: Value) -> Self {
        let cache = json!({
            "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache",
            "metadata": {"name": "cache", "namespace": "nim", "uid": "u-cache"},
            "spec": {
                "source": {"ngc": {"authSecret": "ngc-api-secret", "modelPuller": "p"}},
                "storage": {"pvc": {"name": "store"}}, "userID": 7,
            },
            "status": {"state": state, "profiles": profiles},
        });
        self.facts.live.insert(Ref::of::<NimCache>("nim", "cache"), Arc::new(cache));
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "cache-manifest", "namespace": "nim", "uid": "u-map", "labels": {
                "app": "k8s-nim-operator", "app.kubernetes.io/managed-by": "k8s-nim-operator"}, "ownerReferences": [
                {"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache", "name": "cache", "uid": "u-cache", "controller": true}]},
            "data": {"model_manifest.yaml": "in: {}"},
        });
        self.facts.live.insert(Ref::of::<ConfigMap>("nim", "cache-manifest"), Arc::new(map));
        self
    }

    fn one_profile(self) -> Self {
        self.cache("Ready", json!([profile("in", json!({"trtllm_buildable": "true", "tp": "2", "feat_lora": "true"}))]))
    }

    fn turn(&mut self) -> Plan<NimBuildStatus> {
        let plan = plan(&self.build, &self.facts);
        let diff = diff("u-b", plan.objects.as_deref().unwrap(), &self.facts.live);
        for object in diff.apply.into_iter().map(|write| write.object) {
            let mut body = object.body;
            body["metadata"]["creationTimestamp"] = self.facts.now.to_string().into();
            self.facts.live.insert(object.reference, Arc::new(body));
        }
        let gone: Vec<Ref> = diff.delete.into_iter().map(|deletion| deletion.reference).collect();
        let mut live = LiveObjects::default();
        self.facts.live.iter().filter(|(r, _)| !gone.contains(r)).for_each(|(r, o)| live.insert(r.clone(), o.clone()));
        self.facts.live = live;
        self.build.status = Some(plan.status.clone());
        plan
    }

    /// The manifest pod ends, and has printed this.
    fn print(&mut self, text: &str) {
        if !self.has("b-local-manifest-pod") {
            self.turn();
        }
        self.pod_status("b-local-manifest-pod", json!({"phase": "Succeeded"}));
        let log = plan(&self.build, &self.facts).queries.remove(0);
        self.facts.query_results.insert(log, QueryResult::PodLog(Ok(text.into())));
    }

    fn pod_status(&mut self, name: &str, status: Value) {
        let reference = Ref::of::<Pod>("nim", name);
        let mut pod = (**self.facts.live.get(&reference).unwrap()).clone();
        pod["status"] = status;
        self.facts.live.insert(reference, Arc::new(pod));
    }

    fn state(&self) -> &str {
        self.build.status.as_ref().unwrap().state.as_deref().unwrap()
    }

    fn condition(&self, type_: &str) -> Option<(String, String, String)> {
        let list = self.build.status.as_ref()?.conditions.as_ref()?;
        let found = list.iter().find(|condition| condition.type_ == format!("NIM_BUILD_{type_}"))?;
        Some((found.status.clone(), found.reason.clone(), found.message.clone()))
    }

    fn has(&self, name: &str) -> bool {
        self.facts.live.get(&Ref::of::<Pod>("nim", name)).is_some()
    }
}

#[test]
fn from_the_cache_to_a_profile_that_was_built() {
    let mut world = World::new(
        json!({"env": [{"name": "A", "value": "1"}], "labels": {"team": "a"}, "annotations": {"note": "b"}}),
    )
    .one_profile();
    let first = world.turn();
    insta::assert_yaml_snapshot!("build_pod", first.objects.unwrap()[0].body);
    world.turn();
    assert_eq!(world.state(), "InProgress");
    assert_eq!(world.condition("ENGINE_BUILD_POD_PENDING").unwrap().1, "PodRunning");
    world.pod_status(
        "b-engine-build-pod",
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
    );
    let plan = world.turn();
    assert!(world.has("b-engine-build-pod"), "it goes only after its end is stored");
    assert_eq!(plan.requeue, Some(std::time::Duration::ZERO));
    world.turn();
    assert!(!world.has("b-engine-build-pod"));
    assert!(world.has("b-local-manifest-pod"));
    world.print(MANIFEST);
    world.turn();
    assert_eq!(world.state(), "Ready");
    assert!(!world.has("b-local-manifest-pod"));
    insta::assert_yaml_snapshot!("ready_status", world.build.status);
    let map: ConfigMap = world.facts.live.typed("nim", "cache-manifest").unwrap();
    let data = map.data.unwrap();
    assert_eq!(data["model_manifest.yaml"], "in: {}", "what the cache wrote stays");
    assert!(data["local_model_manifest.yaml"].contains("model_name: tuned"));
    let before = world.build.status.clone();
    world.turn();
    assert_eq!(world.build.status, before);
}

#[test]
fn the_cache_decides_whether_there_is_anything_to_build() {
    let buildable = |name| profile(name, json!({"trtllm_buildable": "true", "tp": "1"}));
    let cases = [
        (World::new(json!({})), "Failed", "NIM_CACHE_NOT_FOUND", "NIMCacheNotFound"),
        (World::new(json!({})).cache("Failed", json!([])), "Failed", "NIM_CACHE_FAILED", "NIMCacheFailed"),
        (
            World::new(json!({})).cache("InProgress", json!([])),
            "Pending",
            "WAIT_FOR_NIM_CACHE_READY",
            "WaitForNIMCache",
        ),
        (
            World::new(json!({})).cache("Ready", json!([profile("x", json!({}))])),
            "Failed",
            "NO_BUILDABLE_PROFILE_FOUND",
            "NoBuildableProfilesFound",
        ),
        (
            World::new(json!({})).cache("Ready", json!([buildable("a"), buildable("b")])),
            "Failed",
            "MULTIPLE_BUILDABLE_PROFILES_FOUND",
            "MultipleBuildableProfilesFound",
        ),
        (
            World::new(json!({"nimCache": {"name": "cache", "profile": "c"}})).cache("Ready", json!([buildable("a")])),
            "Failed",
            "NO_BUILDABLE_PROFILE_FOUND",
            "NoBuildableProfilesFound",
        ),
    ];
    for (mut world, state, condition, reason) in cases {
        world.turn();
        assert_eq!(world.state(), state, "{condition}");
        assert_eq!(world.condition(condition).unwrap().1, reason);
        assert!(!world.has("b-engine-build-pod"), "{condition}");
    }
    let mut named = World::new(json!({"nimCache": {"name": "cache", "profile": "b"}}))
        .cache("Ready", json!([buildable("a"), buildable("b")]));
    named.turn();
    assert_eq!(named.build.status.as_ref().unwrap().input_profile.as_ref().unwrap().name.as_deref(), Some("b"));
}

#[test]
fn a_build_goes_on_when_its_cache_is_ready_and_forgets_what_it_waited_for() {
    let mut world = World::new(json!({}));
    world.turn();
    assert!(world.condition("NIM_CACHE_NOT_FOUND").is_some());
    let mut world = world.one_profile();
    world.turn();
    assert!(world.condition("NIM_CACHE_NOT_FOUND").is_none());
    assert!(world.has("b-engine-build-pod"));
}

#[test]
fn a_failed_pod_is_a_failed_build_with_its_reason() {
    let mut world = World::new(json!({})).one_profile();
    world.turn();
    world.pod_status(
        "b-engine-build-pod",
        json!({"phase": "Failed", "containerStatuses": [{
            "name": "nim-build-ctr", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        }]}),
    );
    world.turn();
    assert_eq!(world.state(), "Failed");
    let (status, reason, message) = world.condition("ENGINE_BUILD_POD_COMPLETED").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "PodFailed"));
    assert!(message.contains("OOMKilled (exit code 137)"), "{message}");
}

#[test]
fn gpus_come_from_the_user_or_from_the_profile() {
    let build = |resources: Value, tags: Value| {
        let mut world = World::new(json!({"resources": resources})).cache("Ready", json!([profile("in", tags)]));
        world.turn();
        let pod: Option<Pod> = world.facts.live.typed("nim", "b-engine-build-pod");
        pod.map(|pod| json!(pod.spec.unwrap().containers[0].resources))
            .unwrap_or_else(|| world.condition("RECONCILE_FAILED").unwrap().2.into())
    };
    let tags = |tp: &str| json!({"trtllm_buildable": "true", "tp": tp});
    let two = json!({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}});
    assert_eq!(build(json!({}), tags("2")), two);
    assert_eq!(build(json!({"requests": {"nvidia.com/gpu": 2}}), tags("8")), two);
    assert_eq!(build(json!({"limits": {"nvidia.com/gpu": 2}}), tags("")), two);
    assert_eq!(
        build(json!({}), tags("")),
        "profile in does not say how many GPUs it needs: set spec.resources.limits[\"nvidia.com/gpu\"]"
    );
}

#[test]
fn a_build_that_left_nothing_is_not_ready() {
    let mut world = World::new(json!({"modelName": "other"})).one_profile();
    world.turn();
    world.pod_status(
        "b-engine-build-pod",
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
    );
    world.turn();
    world.print(MANIFEST);
    world.turn();
    assert_eq!(world.state(), "Failed");
    assert_eq!(
        world.condition("RECONCILE_FAILED").unwrap().2,
        "the build has left no profile with the tag model_name \"other\""
    );
}

#[test]
fn a_build_that_takes_too_long_is_failed() {
    let mut world = World::new(json!({})).one_profile();
    world.turn();
    let begin = world.facts.now;
    for (hours, state) in [(5, "InProgress"), (6, "Failed")] {
        world.facts.now = begin + jiff::SignedDuration::from_hours(hours);
        world.turn();
        assert_eq!(world.state(), state);
    }
    assert_eq!(world.condition("RECONCILE_FAILED").unwrap().1, "BuildTimeout");
}

#[test]
fn a_manifest_pod_of_a_build_that_tells_nothing_is_failed() {
    let mut world = World::new(json!({})).one_profile();
    world.turn();
    world.pod_status(
        "b-engine-build-pod",
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
    );
    world.turn();
    world.turn();
    assert!(world.has("b-local-manifest-pod"));
    world.facts.now += jiff::SignedDuration::from_mins(15);
    world.turn();
    assert_eq!(world.state(), "Failed");
    assert_eq!(world.condition("RECONCILE_FAILED").unwrap().1, "ManifestTimeout");
}

fn env_of(spec: Value, tags: Value) -> Vec<Value> {
    let mut world = World::new(spec).cache("Ready", json!([profile("in", tags)]));
    world.turn();
    let pod: Pod = world.facts.live.typed("nim", "b-engine-build-pod").unwrap();
    json!(pod.spec.unwrap().containers[0].env).as_array().unwrap().clone()
}

#[test]
fn a_user_may_replace_every_variable_by_a_value_or_a_reference() {
    let secret = json!({"secretKeyRef": {"name": "own", "key": "k"}});
    let env = json!([{"name": "NIM_SERVER_PORT", "value": "9"}, {"name": "NGC_API_KEY", "valueFrom": secret}]);
    let all = env_of(json!({"env": env}), json!({"trtllm_buildable": "true", "tp": "1"}));
    assert_eq!(all[..2], *env.as_array().unwrap());
    let names: Vec<&str> = all.iter().map(|one| one["name"].as_str().unwrap()).collect();
    let rest = ["NIM_CACHE_PATH", "NIM_HTTP_API_PORT", "NIM_CUSTOM_MODEL_NAME", "NIM_MODEL_PROFILE"];
    assert_eq!(names[2..], rest);
}

#[test]
fn only_a_profile_with_adapters_looks_for_them() {
    let has = |lora: Value| {
        let tags = json!({"trtllm_buildable": "true", "tp": "1", "feat_lora": lora});
        let env = json!([{"name": "NIM_PEFT_SOURCE", "value": "mine"}]);
        let all = env_of(json!({"env": env}), tags);
        all.into_iter().find(|one| one["name"] == "NIM_PEFT_SOURCE").unwrap()["value"].clone()
    };
    assert_eq!((has(json!("true")), has(json!("false"))), (json!("/tmp"), json!("mine")));
    let plain = env_of(json!({}), json!({"trtllm_buildable": "true", "tp": "1"}));
    assert!(plain.iter().all(|one| one["name"] != "NIM_PEFT_SOURCE"));
}

#[test]
fn without_a_name_the_model_is_called_like_the_build() {
    let all = env_of(json!({"modelName": null}), json!({"trtllm_buildable": "true", "tp": "1"}));
    assert!(all.contains(&json!({"name": "NIM_CUSTOM_MODEL_NAME", "value": "b"})), "{all:?}");
}

#[test]
fn a_cache_that_is_not_from_ngc_is_built_from_without_its_key() {
    let mut world = World::new(json!({})).one_profile();
    let reference = Ref::of::<NimCache>("nim", "cache");
    let mut cache = (**world.facts.live.get(&reference).unwrap()).clone();
    cache["spec"]["source"] = json!({"hf": {
        "endpoint": "https://hf.co", "namespace": "meta", "modelName": "m", "authSecret": "hf", "modelPuller": "p",
        "pullSecret": "s",
    }});
    world.facts.live.insert(reference, Arc::new(cache));
    world.turn();
    let pod: Pod = world.facts.live.typed("nim", "b-engine-build-pod").unwrap();
    let env = pod.spec.unwrap().containers.remove(0).env.unwrap();
    assert!(env.iter().all(|one| one.name != "NGC_API_KEY"));
}

#[test]
fn every_step_is_a_condition_with_its_reason_and_state() {
    let mut world = World::new(json!({})).one_profile();
    let seen = |world: &World, type_: &str| {
        let (status, reason, _) = world.condition(type_).unwrap();
        format!("{type_} {status} {reason}, {}", world.state())
    };
    world.turn();
    assert_eq!(
        seen(&world, "SINGLE_BUILDABLE_PROFILE_FOUND"),
        "SINGLE_BUILDABLE_PROFILE_FOUND True BuildableProfileFound, NotReady"
    );
    world.turn();
    for expected in [
        "ENGINE_BUILD_POD_CREATED True EngineBuildPodCreated, InProgress",
        "ENGINE_BUILD_POD_PENDING True PodRunning, InProgress",
    ] {
        assert_eq!(seen(&world, expected.split(' ').next().unwrap()), expected);
    }
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    world.pod_status("b-engine-build-pod", ready);
    world.turn();
    let built = "ENGINE_BUILD_POD_COMPLETED True PodReady, InProgress";
    assert_eq!(seen(&world, "ENGINE_BUILD_POD_COMPLETED"), built);
    world.turn();
    world.print(MANIFEST);
    world.turn();
    let done = "MODEL_MANIFEST_POD_COMPLETED True PodCompleted, Ready";
    assert_eq!(seen(&world, "MODEL_MANIFEST_POD_COMPLETED"), done);
    let refused = blocked(&world.build, &world.facts, "PodFailed", "no");
    world.build.status = Some(refused.status);
    assert_eq!(seen(&world, "RECONCILE_FAILED"), "RECONCILE_FAILED True PodFailed, Failed");
}

#[test]
fn both_pods_go_with_the_build() {
    let mut world = World::new(json!({})).one_profile();
    world.turn();
    let owner = |world: &World, name: &str| {
        let pod: Pod = world.facts.live.typed("nim", name).unwrap();
        pod.metadata.owner_references.unwrap().remove(0).uid
    };
    assert_eq!(owner(&world, "b-engine-build-pod"), "u-b");
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    world.pod_status("b-engine-build-pod", ready);
    world.turn();
    world.turn();
    assert_eq!(owner(&world, "b-local-manifest-pod"), "u-b");
}

#[test]
fn mistakes_name_field_and_fix() {
    let good = World::new(json!({})).build;
    assert_eq!(check(&good), [""; 0]);
    let bad = World::new(json!({"nimCache": {"name": ""}, "image": {"repository": "", "tag": ""}})).build;
    assert_eq!(
        check(&bad),
        [
            "spec.nimCache.name is empty: name the NIMCache to build from",
            "spec.image.repository is empty: name the NIM image that builds",
            "spec.image.tag is empty: name the NIM image that builds",
        ]
    );
}
