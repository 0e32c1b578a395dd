//! What a cache turns into, step by step.

use std::sync::Arc;

use capstan_plan::{Gvk, LiveObjects, Orchestrator, QueryResult, Ref, diff};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::*;

mod details;

const MANIFEST: &str = "
trt-l40s:
  model: meta/llama
  release: 1.8.0
  tags: {llm_engine: tensorrt_llm, precision: fp8, tp: '8', gpu: L40S, feat_lora: false}
  workspace: !workspace {files: [1]}
vllm:
  model: meta/llama
  release: 1.8.0
  tags: {llm_engine: vllm, precision: bf16, tp: '1', feat_lora: false}
";

fn cache(spec: Value) -> NimCache {
    let object = json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache",
        "metadata": {"name": "llama", "namespace": "nim", "uid": "u-llama", "generation": 1},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn ngc() -> Value {
    json!({
        "source": {"ngc": {
            "authSecret": "ngc-api-secret", "modelPuller": "nvcr.io/nim/meta/llama:1.8", "pullSecret": "ngc-secret",
            "model": {"engine": "tensorrt_llm", "precision": "fp8"},
        }},
        "storage": {"pvc": {"create": true, "size": "50Gi", "storageClass": "fast", "volumeAccessMode": "ReadWriteMany"}},
    })
}

fn repository(kind: &str, endpoint: &str, what: Value) -> Value {
    let mut source = json!({
        "endpoint": endpoint, "namespace": "org", "authSecret": "hf", "modelPuller": "puller:1", "pullSecret": "pull",
    });
    source.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
    json!({"source": {kind: source}, "storage": {"pvc": {"name": "store", "subPath": "models"}}})
}

/// A small world that a cache is taken through.
struct World {
    cache: NimCache,
    facts: Facts,
    products: BTreeSet<String>,
}

impl World {
    fn new(spec: Value) -> Self {
        let facts = Facts::at(Timestamp::from_second(1_800_000_000).unwrap());
        Self { cache: cache(spec), facts, products: BTreeSet::new() }
    }

    /// The registry is asked, and says this.
    fn told(&mut self, answer: Result<&[(&str, &str)], &str>) {
        self.facts.registries = true;
        let query = self.plan().queries.remove(0);
        let labels = |all: &[(&str, &str)]| all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let answer = answer.map(|all| vec![labels(all)]).map_err(str::to_owned);
        self.facts.query_results.insert(query, QueryResult::Image(answer));
    }

    /// The manifest pod ends, and has printed this.
    fn print(&mut self, text: &str) {
        if !self.has("Pod", "llama-pod") {
            self.turn();
        }
        self.set("Pod", "llama-pod", |pod| pod["status"] = json!({"phase": "Succeeded"}));
        let queries = self.plan().queries;
        let log = queries.into_iter().find(|one| matches!(one, Query::PodLog { .. })).unwrap();
        self.facts.query_results.insert(log, QueryResult::PodLog(Ok(text.into())));
    }

    fn plan(&self) -> Plan<NimCacheStatus> {
        plan(&self.cache, &self.facts, &self.products)
    }

    /// Plans, and makes it so.
    fn turn(&mut self) -> Plan<NimCacheStatus> {
        let plan = self.plan();
        self.cache.status = Some(plan.status.clone());
        let Some(wanted) = &plan.objects else { return plan };
        let diff = diff("u-llama", wanted, &self.facts.live);
        for object in diff.apply.into_iter().map(|write| write.object) {
            let mut body = object.body;
            body["metadata"]["uid"] = format!("u-{}", object.reference.name).into();
            body["metadata"]["creationTimestamp"] = self.facts.now.to_string().into();
            self.facts.live.insert(object.reference, Arc::new(body));
        }
        let gone: Vec<Ref> = diff.delete.into_iter().map(|deletion| deletion.reference).collect();
        let mut live = LiveObjects::default();
        for (reference, object) in self.facts.live.iter().filter(|(reference, _)| !gone.contains(reference)) {
            live.insert(reference.clone(), object.clone());
        }
        self.facts.live = live;
        plan
    }

    fn set(&mut self, kind: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let find = |reference: &&Ref| reference.gvk.kind == kind && reference.name == name;
        let reference = self.facts.live.iter().map(|(reference, _)| reference).find(find).unwrap().clone();
        let mut body = (**self.facts.live.get(&reference).unwrap()).clone();
        edit(&mut body);
        self.facts.live.insert(reference, Arc::new(body));
    }

    fn claim(&mut self, name: &str) {
        let body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "nim", "uid": "u-claim"}});
        self.facts.live.insert(Ref::of::<PersistentVolumeClaim>("nim", name), Arc::new(body));
    }

    fn has(&self, kind: &str, name: &str) -> bool {
        self.facts.live.iter().any(|(reference, _)| reference.gvk.kind == kind && reference.name == name)
    }

    fn job(&self) -> Job {
        self.facts.live.typed("nim", "llama-job").unwrap()
    }

    fn state(&self) -> &str {
        self.cache.status.as_ref().unwrap().state.as_deref().unwrap()
    }

    fn condition(&self, type_: &str) -> (String, String, String) {
        let list = self.cache.status.as_ref().unwrap().conditions.as_ref().unwrap();
        let found =
            list.iter().find(|condition| condition.type_ == type_).unwrap_or_else(|| panic!("no {type_}: {list:#?}"));
        (found.status.clone(), found.reason.clone(), found.message.clone())
    }

    /// Up to a Job.
    fn with_job(spec: Value) -> Self {
        let mut world = Self::new(spec);
        world.claim("store");
        world.turn();
        world.print(MANIFEST);
        world.turn();
        world.turn();
        world
    }

    fn job_status(&mut self, status: Value) {
        self.set("Job", "llama-job", |job| job["status"] = status);
        self.turn();
    }

    fn complete(&mut self) {
        self.job_status(json!({"startTime": "2027-01-01T00:00:00Z", "succeeded": 1,
            "conditions": [{"type": "Complete", "status": "True"}]}));
    }
}

fn yaml(plan: &Plan<NimCacheStatus>) -> Vec<&Value> {
    plan.objects.as_ref().unwrap().iter().map(|object| &object.body).collect()
}

#[test]
fn from_the_claim_to_ready_and_the_job_may_go() {
    let mut world = World::new(ngc());
    let first = world.turn();
    insta::assert_yaml_snapshot!("first_objects", yaml(&first));
    assert_eq!(world.state(), "NotReady");
    world.turn();
    assert_eq!(world.state(), "PVC-Created");
    assert_eq!(world.condition("NIM_CACHE_JOB_PENDING").1, "WaitingForManifest");

    world.print(MANIFEST);
    let third = world.turn();
    insta::assert_yaml_snapshot!("download_objects", yaml(&third));
    assert!(!world.has("Pod", "llama-pod"), "the pod that printed the manifest is gone");
    world.turn();
    assert_eq!(world.state(), "Started");
    world.job_status(json!({"startTime": "2027-01-01T00:00:00Z", "active": 1}));
    assert_eq!(world.state(), "InProgress");
    world.complete();
    insta::assert_yaml_snapshot!("ready_status", world.cache.status);

    let job: Vec<Ref> = world.facts.live.iter().map(|(r, _)| r.clone()).filter(|r| r.gvk.kind == "Job").collect();
    let mut live = LiveObjects::default();
    world.facts.live.iter().filter(|(r, _)| !job.contains(r)).for_each(|(r, o)| live.insert(r.clone(), o.clone()));
    world.facts.live = live;
    let before = world.cache.status.clone();
    world.turn();
    assert_eq!(world.cache.status, before, "Ready outlives the Job");
    assert!(!world.has("Job", "llama-job"), "nothing is downloaded again");
}

#[test]
fn a_settled_cache_plans_nothing_new() {
    let mut world = World::with_job(ngc());
    world.complete();
    let plan = world.plan();
    assert!(diff("u-llama", plan.objects.as_deref().unwrap(), &world.facts.live).is_empty());
    assert_eq!(Some(plan.status), world.cache.status);
    assert_eq!(plan.events, []);
}

#[test]
fn what_each_source_runs() {
    let hf = "https://huggingface.co";
    let store = "http://store/v1/hf";
    let endpoint = json!({"source": {"ngc": {"authSecret": "a", "modelPuller": "p:1", "modelEndpoint": "ngc://m"}},
        "storage": {"pvc": {"name": "store"}}});
    let profiles = |profiles: Value| {
        let mut spec = ngc();
        spec["source"]["ngc"]["model"] = json!({"profiles": profiles});
        spec
    };
    let cases = [
        ("one profile", profiles(json!(["vllm"])), json!([["download-to-cache"], ["--profiles", "vllm"]])),
        ("two profiles", profiles(json!(["b", "a"])), json!([["download-to-cache"], ["--profiles", "b", "a"]])),
        ("all profiles", profiles(json!(["all"])), json!([["download-to-cache"], ["--all"]])),
        (
            "model endpoint",
            endpoint,
            json!([["create-model-store"], ["--model-repo", "ngc://m", "--model-store", "/model-store"]]),
        ),
        (
            "model of a repository",
            repository("hf", hf, json!({"modelName": "m"})),
            json!([
                ["huggingface-cli", "download", "org/m", "--local-dir", "/model-store", "--repo-type", "model"],
                null
            ]),
        ),
        (
            "revision of a model",
            repository("hf", hf, json!({"modelName": "m", "revision": "r"})),
            json!([
                [
                    "huggingface-cli",
                    "download",
                    "org/m",
                    "--local-dir",
                    "/model-store",
                    "--repo-type",
                    "model",
                    "--revision",
                    "r"
                ],
                null
            ]),
        ),
        (
            "data set of a repository",
            repository("hf", hf, json!({"datasetName": "d"})),
            json!([
                ["huggingface-cli", "download", "org/d", "--local-dir", "/model-store", "--repo-type", "dataset"],
                null
            ]),
        ),
        (
            "model of a data store",
            repository("dataStore", store, json!({"modelName": "m"})),
            json!([
                ["huggingface-cli", "download", "org/m", "--local-dir", "/model-store", "--repo-type", "model"],
                null
            ]),
        ),
        (
            "data set of a data store",
            repository("dataStore", store, json!({"datasetName": "d", "revision": "r"})),
            json!([
                [
                    "huggingface-cli",
                    "download",
                    "org/d",
                    "--local-dir",
                    "/model-store",
                    "--repo-type",
                    "dataset",
                    "--revision",
                    "r"
                ],
                null
            ]),
        ),
    ];
    for (case, spec, expected) in cases {
        let job = World::with_job(spec).job();
        let container = &job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0];
        assert_eq!(json!([container.command, container.args]), expected, "{case}");
    }
}

#[test]
fn the_job_of_a_repository() {
    let spec = repository("hf", "https://huggingface.co", json!({"modelName": "m"}));
    insta::assert_yaml_snapshot!(World::with_job(spec).job().spec.unwrap().template.spec);
}

#[test]
fn an_image_without_a_manifest_downloads_by_address() {
    let mut world = World::new(repository("hf", "https://hf.co", json!({"modelName": "m"})));
    world.claim("store");
    world.turn();
    world.print("model_manifest.yaml not found\n");
    world.turn();
    world.turn();
    assert_eq!(world.cache.status.as_ref().unwrap().type_.as_deref(), Some("model-free"));
    let command = world.job().spec.unwrap().template.spec.unwrap().containers.remove(0).command.unwrap();
    assert_eq!(
        command,
        ["download-to-cache", "--model-uri", "hf://org/m", "--manifest-file", "/model-store/model_manifest.json"]
    );
    assert!(!world.has("Pod", "llama-pod") && !world.has("ConfigMap", "llama-manifest"));
    world.complete();
    assert_eq!(world.state(), "Ready");
}

#[test]
fn an_image_without_a_manifest_and_with_named_profiles_ends_with_their_names() {
    let mut spec = ngc();
    spec["source"]["ngc"]["model"] = json!({"profiles": ["p1"]});
    let mut world = World::new(spec);
    world.print("model_manifest.yaml not found");
    world.turn();
    world.turn();
    world.turn();
    world.complete();
    let profiles = world.cache.status.unwrap().profiles.unwrap();
    assert_eq!(json!(profiles), json!([{"name": "p1"}]));
}

#[test]
fn a_native_image_downloads_by_itself() {
    let mut spec = ngc();
    spec["env"] = json!([{"name": "NIM_ENGINE_MODEL_PATH", "value": "/elsewhere"}, {"name": "A", "value": "1"}]);
    let mut world = World::new(spec);
    world.told(Ok(&[("com.nvidia.nim.model_download_protocol", "native-v1")]));
    world.turn();
    world.turn();
    assert!(!world.has("Pod", "llama-pod"));
    let pod = world.job().spec.unwrap().template.spec.unwrap();
    insta::assert_yaml_snapshot!(pod.containers);
    assert_eq!(world.plan().queries, [], "one answer is enough");
    world.facts.query_results.clear();
    world.complete();
    assert_eq!(world.cache.status.as_ref().unwrap().type_.as_deref(), Some("native"));
    assert_eq!(world.cache.status.as_ref().unwrap().profiles, None);
}

#[test]
fn proxies_certificates_and_init_containers() {
    let mut spec = ngc();
    spec["proxy"] = json!({"httpsProxy": "http://proxy:3128", "noProxy": ".svc", "certConfigMap": "certs"});
    spec["env"] = json!([{"name": "HTTPS_PROXY", "value": "user"}, {"name": "A", "value": "1"}]);
    spec["initContainers"] =
        json!([{"name": "first", "image": {"repository": "busybox", "tag": "1"}, "command": ["true"]}]);
    spec["resources"] = json!({"cpu": "2", "memory": 0});
    spec["runtimeClassName"] = "nvidia".into();
    spec["nodeSelector"] = json!({"pool": "a"});
    let mut world = World::with_job(spec);
    world.facts.orchestrator = Orchestrator::OpenShift;
    insta::assert_yaml_snapshot!(yaml(&world.plan()).last().unwrap());
}

#[test]
fn gpus_of_the_cluster_choose_the_profile() {
    let mut spec = ngc();
    spec["source"]["ngc"]["model"] = json!({"engine": "tensorrt_llm"});
    let mut world = World::new(spec);
    world.print(MANIFEST);
    world.products = BTreeSet::from(["NVIDIA-H100".to_owned()]);
    world.turn();
    let plan = world.turn();
    assert_eq!(world.state(), "NotReady");
    assert_eq!(plan.requeue, Some(std::time::Duration::from_secs(60)));
    let (_, reason, message) = world.condition("NIM_CACHE_RECONCILE_FAILED");
    assert_eq!(reason, "NoProfileSelected");
    assert_eq!(
        message,
        "no profiles are selected for caching: none of the 2 profiles in ConfigMap llama-manifest fits \
         spec.source.ngc.model {\"engine\":\"tensorrt_llm\"} (GPUs of the cluster: NVIDIA-H100); \
         loosen the wishes or name the profiles"
    );
    world.products = BTreeSet::from(["NVIDIA-L40S".to_owned()]);
    world.turn();
    world.turn();
    assert_eq!(job::selected(&world.job()).unwrap(), ["trt-l40s"]);
    assert_eq!(world.condition("NIM_CACHE_RECONCILE_FAILED").0, "False");
}

#[test]
fn a_failure_is_failed_only_when_it_is_final_and_says_why() {
    let mut world = World::with_job(ngc());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "llama-job-x", "namespace": "nim", "labels": {"batch.kubernetes.io/job-name": "llama-job"}},
        "spec": {"containers": []},
        "status": {"phase": "Failed", "containerStatuses": [{
            "name": "nim-cache-ctr", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "..\n401 Unauthorized"}},
        }]},
    });
    world.facts.live.insert(Ref::of::<Pod>("nim", "llama-job-x"), Arc::new(pod));
    world.job_status(json!({"startTime": "2027-01-01T00:00:00Z", "active": 1, "failed": 1}));
    assert_eq!(world.state(), "InProgress");
    world.job_status(json!({"startTime": "2027-01-01T00:00:00Z", "active": 0, "failed": 1}));
    assert_eq!(world.state(), "Pending", "the Job waits before it tries again");
    world.job_status(json!({"startTime": "2027-01-01T00:00:00Z", "failed": 6,
        "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}));
    assert_eq!(world.state(), "Failed");
    let (status, reason, message) = world.condition("Failed");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "JobFailed"));
    assert_eq!(
        message,
        "Job llama-job has failed: container nim-cache-ctr: Error: 401 Unauthorized (exit code 1); \
         it is tried again when Kubernetes removes the Job"
    );
    let again = world.turn();
    assert_eq!(again.events, [], "told once");
    assert_eq!(world.state(), "Failed", "and stays so");
}

#[test]
fn a_pod_that_cannot_start_is_the_reason_that_is_shown() {
    let mut world = World::new(ngc());
    world.turn();
    world.turn();
    world.set("Pod", "llama-pod", |pod| {
        pod["status"] = json!({"phase": "Pending", "containerStatuses": [{
            "name": "nim-cache-ctr", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
        }]});
    });
    world.turn();
    assert_eq!(
        world.condition("NIM_CACHE_JOB_PENDING").2,
        "pod llama-pod: container nim-cache-ctr: ImagePullBackOff: no such image"
    );
    world.facts.now = Timestamp::from_second(1_800_000_000 + 900).unwrap();
    world.turn();
    assert_eq!(world.state(), "Failed");
    assert_eq!(
        world.condition("NIM_CACHE_RECONCILE_FAILED").2,
        "the list of profiles could not be read for 15 minutes: pod llama-pod: container nim-cache-ctr: ImagePullBackOff: no such image"
    );
}

#[test]
fn a_claim_of_the_user_is_waited_for() {
    let mut world = World::new(repository("hf", "https://hf.co", json!({"modelName": "m"})));
    world.turn();
    assert_eq!(
        world.condition("NIM_CACHE_RECONCILE_FAILED").2,
        "PersistentVolumeClaim store is not there: create it, or set spec.storage.pvc.create: true"
    );
    world.claim("store");
    world.turn();
    assert!(world.has("Pod", "llama-pod"));
}

#[test]
fn a_claim_that_vanished_takes_ready_with_it_and_the_model_is_downloaded_again() {
    let mut world = World::with_job(ngc());
    world.complete();
    let mut live = LiveObjects::default();
    let keep = |reference: &Ref| reference.gvk.kind != "PersistentVolumeClaim";
    world.facts.live.iter().filter(|(r, _)| keep(r)).for_each(|(r, o)| live.insert(r.clone(), o.clone()));
    world.facts.live = live;
    world.turn();
    assert_eq!(world.state(), "NotReady");
    world.set("PersistentVolumeClaim", "llama-pvc", |claim| claim["metadata"]["uid"] = "u-second".into());
    world.turn();
    assert!(!world.has("Job", "llama-job"), "the old Job filled another claim");
    world.turn();
    assert!(world.has("Job", "llama-job"));
    assert_eq!(world.state(), "PVC-Created");
}

#[test]
fn a_corrected_spec_replaces_the_job() {
    let mut world = World::with_job(ngc());
    world.cache.spec.source.ngc.as_mut().unwrap().auth_secret = "other".into();
    world.turn();
    assert!(!world.has("Job", "llama-job"));
    world.turn();
    let secret = world.job().spec.unwrap().template.spec.unwrap().containers.remove(0).env_from.unwrap().remove(0);
    assert_eq!(secret.secret_ref.unwrap().name, "other");
}

#[test]
fn caches_of_a_namespace_share_the_union_of_their_rights() {
    let mut world = World::new(ngc());
    let mut other = cache(ngc());
    other.metadata.name = Some("another".into());
    other.metadata.uid = Some("u-another".into());
    other.spec.proxy = Some(capstan_api::common::Proxy::default());
    world.facts.live.insert(Ref::of::<NimCache>("nim", "another"), Arc::new(serde_json::to_value(&other).unwrap()));
    let plan = world.plan();
    let objects = plan.objects.unwrap();
    let role = &objects.iter().find(|object| object.reference.gvk.kind == "Role").unwrap().body;
    assert_eq!(role["rules"][0]["resourceNames"], json!(["anyuid", "nonroot"]));
    let owners = role["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.iter().map(|owner| &owner["uid"]).collect::<Vec<_>>(), ["u-another", "u-llama"]);
}

#[test]
fn a_claim_may_outlive_its_cache() {
    let mut world = World::new(ngc());
    world.cache.metadata.annotations = Some([("nvidia.com/pvc-retention".to_owned(), "Retain".to_owned())].into());
    let plan = world.plan();
    let objects = plan.objects.unwrap();
    let claim = &objects.iter().find(|object| object.reference.gvk.kind == "PersistentVolumeClaim").unwrap().body;
    assert!(claim["metadata"]["ownerReferences"].is_null());
}

#[test]
fn what_a_build_adds_is_among_the_profiles() {
    let mut world = World::with_job(ngc());
    world.complete();
    let build = json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMBuild", "metadata": {"name": "b", "namespace": "nim"},
        "spec": {"nimCache": {"name": "llama"}, "image": {"repository": "r", "tag": "t"}},
        "status": {"inputProfile": {"name": "trt-l40s"}, "outputProfile": {"name": "built", "config": {"tp": "1"}}},
    });
    let reference = Ref { gvk: Gvk::of::<capstan_api::nim::NimBuild>(), namespace: "nim".into(), name: "b".into() };
    world.facts.live.insert(reference, Arc::new(build));
    world.turn();
    let profiles = world.cache.status.as_ref().unwrap().profiles.clone().unwrap();
    assert_eq!(json!(profiles[1]), json!({"name": "built", "config": {"tp": "1", "input_profile": "trt-l40s"}}));
    let before = world.cache.status.clone();
    world.turn();
    assert_eq!(world.cache.status, before);
}

#[test]
fn mistakes_name_field_value_and_fix() {
    let mut bad = ngc();
    bad["source"]["ngc"]["authSecret"] = "".into();
    bad["source"]["ngc"]["modelPuller"] = "".into();
    bad["source"]["ngc"]["model"] = json!({"profiles": ["all", "x"], "precision": "fp8", "qosProfile": "fast"});
    bad["storage"]["pvc"] = json!({"create": true, "size": "", "volumeAccessMode": "Sometimes"});
    bad["certConfig"] = json!({"name": "c", "mountPath": "/c"});
    bad["proxy"] = json!({"httpProxy": "proxy:3128"});
    let world = World::new(bad);
    insta::assert_yaml_snapshot!(check(&world.cache));
    assert!(world.plan().objects.is_none());
}

#[test]
fn the_registry_is_asked_first_and_with_what_the_pods_have() {
    let mut spec = ngc();
    spec["source"]["ngc"]["pullSecret"] = "pull".into();
    spec["proxy"] = json!({"httpsProxy": "http://proxy:3128", "noProxy": ".svc", "certConfigMap": "certs"});
    let mut world = World::new(spec);
    world.facts.registries = true;
    let plan = world.turn();
    assert!(!world.has("Pod", "llama-pod"));
    let [Query::Image(image)] = plan.queries.as_slice() else { panic!("{:?}", plan.queries) };
    assert_eq!(image.secrets, [Ref::of::<k8s_openapi::api::core::v1::Secret>("nim", "pull")]);
    assert_eq!((image.proxy.https.as_str(), image.proxy.none.as_str()), ("http://proxy:3128", ".svc"));
    assert_eq!(image.certificates, Some(Ref::of::<ConfigMap>("nim", "certs")));
    world.told(Ok(&[]));
    world.turn();
    assert!(world.has("Pod", "llama-pod"));
}

#[test]
fn a_registry_that_cannot_be_asked_is_told_and_holds_nothing_up() {
    let mut world = World::new(ngc());
    world.told(Err("no route to host"));
    world.turn();
    assert!(world.has("Pod", "llama-pod"));
    let conditions = world.cache.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let unknown = conditions.iter().find(|condition| condition.type_ == "ImageUnknown").unwrap();
    assert_eq!(unknown.message, "no route to host; the image counts as one with a manifest");
}

#[test]
fn sources_without_profiles_ask_no_registry() {
    for spec in [repository("hf", "https://h", json!({"modelName": "m"})), {
        let mut spec = ngc();
        spec["source"]["ngc"]["modelEndpoint"] = "https://api.ngc.nvidia.com/v2/models/x".into();
        spec
    }] {
        let mut world = World::new(spec);
        world.facts.registries = true;
        assert_eq!(world.plan().queries, []);
    }
}

#[test]
fn a_ready_cache_stays_ready_when_something_gets_in_the_way() {
    let mut world = World::new(ngc());
    world.cache.status =
        serde_json::from_value(json!({"state": "Ready", "pvc": "llama-pvc", "profiles": [{"name": "p"}]})).unwrap();
    let told = blocked(&world.cache, &world.facts, &world.products, "RoleFailed", "no");
    assert_eq!(told.status.state.as_deref(), Some("Ready"));
    assert_eq!(told.status.profiles.unwrap().len(), 1);
    let failed = told.status.conditions.unwrap();
    assert!(failed.iter().any(|one| one.type_ == "NIM_CACHE_RECONCILE_FAILED" && one.reason == "RoleFailed"));
}

#[test]
fn who_leads_next_goes_on_with_the_pod_that_is_there() {
    let mut world = World::new(ngc());
    world.told(Err("no route to host"));
    world.turn();
    world.turn();
    let before = world.cache.status.clone();
    world.facts.query_results.clear();
    world.turn();
    assert!(world.has("Pod", "llama-pod"));
    assert_eq!(world.cache.status, before, "nobody has been asked yet");
}

#[test]
fn a_manifest_pod_that_tells_nothing_fails_after_a_while_and_is_still_listened_to() {
    let mut world = World::new(ngc());
    world.turn();
    world.turn();
    world.set("Pod", "llama-pod", |pod| pod["status"] = json!({"phase": "Running"}));
    world.facts.now = Timestamp::from_second(1_800_000_000 + 899).unwrap();
    world.turn();
    assert_ne!(world.state(), "Failed");
    world.facts.now = Timestamp::from_second(1_800_000_000 + 900).unwrap();
    world.turn();
    assert_eq!(world.state(), "Failed");
    assert_eq!(world.condition("NIM_CACHE_RECONCILE_FAILED").1, "ManifestTimeout");
    assert!(world.has("Pod", "llama-pod"), "it may print its list yet");
    world.print(MANIFEST);
    world.turn();
    world.turn();
    assert!(world.has("Job", "llama-job"));
}

#[test]
fn a_refused_account_is_told_and_the_cache_is_not_ready() {
    let world = World::new(ngc());
    let told = blocked(&world.cache, &world.facts, &world.products, "ServiceAccountFailed", "no");
    assert_eq!(told.status.state.as_deref(), Some("NotReady"));
    let conditions = told.status.conditions.unwrap();
    let failed = conditions.iter().find(|one| one.type_ == "NIM_CACHE_RECONCILE_FAILED").unwrap();
    assert_eq!((failed.reason.as_str(), failed.message.as_str()), ("ServiceAccountFailed", "no"));
}
