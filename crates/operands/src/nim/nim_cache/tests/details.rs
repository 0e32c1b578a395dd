//! What is easily forgotten: placement, odd sources, what stays as it is, and each mistake by itself.

use super::*;

fn pod_of(plan: &Plan<NimCacheStatus>) -> Value {
    let pod = plan.objects.iter().flatten().find(|object| object.reference.gvk.kind == "Pod");
    pod.unwrap().body["spec"].clone()
}

#[test]
fn the_manifest_pod_runs_where_and_as_the_user_says() {
    let usual = pod_of(&World::new(ngc()).plan());
    assert_eq!(usual["securityContext"], json!({"runAsUser": 1000, "fsGroup": 2000, "runAsNonRoot": true}));
    assert_eq!(usual["restartPolicy"], "OnFailure");
    let mut spec = ngc();
    spec["userID"] = 7.into();
    spec["groupID"] = 8.into();
    spec["nodeSelector"] = json!({"pool": "a"});
    spec["runtimeClassName"] = "nvidia".into();
    spec["tolerations"] = json!([{"key": "gpu", "operator": "Exists"}]);
    let own = pod_of(&World::new(spec).plan());
    assert_eq!(own["securityContext"], json!({"runAsUser": 7, "fsGroup": 8, "runAsNonRoot": true}));
    assert_eq!((&own["nodeSelector"], &own["runtimeClassName"]), (&json!({"pool": "a"}), &json!("nvidia")));
    assert_eq!(own["tolerations"][0]["key"], "gpu");
}

#[test]
fn a_kept_manifest_without_its_key_is_told_with_the_way_out() {
    let mut world = World::with_job(ngc());
    world.set("ConfigMap", "llama-manifest", |map| map["data"] = json!({"other": ""}));
    world.turn();
    let (_, reason, message) = world.condition("NIM_CACHE_RECONCILE_FAILED");
    assert_eq!(reason, "BadManifest");
    assert_eq!(message, "ConfigMap llama-manifest has no key model_manifest.yaml: delete it, and it is made anew");
    assert!(world.has("Job", "llama-job"), "the download goes on");
}

#[test]
fn models_and_data_sets_of_every_revision_come_from_both_kinds_of_repositories() {
    for (source, endpoint) in [("hf", "https://huggingface.co"), ("dataStore", "http://store/v1/hf")] {
        for (field, kind) in [("modelName", "model"), ("datasetName", "dataset")] {
            for revision in [None, Some("r")] {
                let mut what = json!({field: "x"});
                what["revision"] = revision.into();
                let job = World::with_job(repository(source, endpoint, what)).job();
                let command = job.spec.unwrap().template.spec.unwrap().containers.remove(0).command.unwrap();
                let mut expected =
                    vec!["huggingface-cli", "download", "org/x", "--local-dir", "/model-store", "--repo-type", kind];
                expected.extend(revision.iter().flat_map(|revision| ["--revision", revision]));
                assert_eq!(command, expected, "{source}");
            }
        }
    }
}

#[test]
fn a_data_set_is_fetched_by_an_image_without_a_manifest_too() {
    let mut world = World::new(repository("hf", "https://hf.co", json!({"datasetName": "d"})));
    world.claim("store");
    world.print("model_manifest.yaml not found");
    world.turn();
    world.turn();
    let command = world.job().spec.unwrap().template.spec.unwrap().containers.remove(0).command.unwrap();
    assert_eq!(command[..3], ["huggingface-cli", "download", "org/d"]);
}

#[test]
fn a_running_download_keeps_its_profiles_whatever_nodes_come() {
    let mut spec = ngc();
    spec["source"]["ngc"]["model"] = json!({});
    let mut world = World::new(spec);
    world.print(MANIFEST);
    world.products = BTreeSet::from(["NVIDIA-L40S".to_owned()]);
    world.turn();
    world.turn();
    let first = world.job();
    assert_eq!(job::selected(&first).unwrap(), ["trt-l40s", "vllm"], "in the order of their names");
    world.products = BTreeSet::from(["NVIDIA-H100".to_owned()]);
    world.turn();
    assert_eq!(world.job(), first);
}

#[test]
fn without_a_pull_secret_none_is_named_and_without_resources_none_is_limited() {
    let mut spec = ngc();
    spec["source"]["ngc"]["pullSecret"] = "".into();
    let pod = World::with_job(spec).job().spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.image_pull_secrets, None);
    assert_eq!(pod.containers[0].resources, None);
    assert_eq!(pod.init_containers, None);
}

#[test]
fn no_later_mistake_takes_a_model_away_or_downloads_it_again() {
    type Break = fn(&mut World);
    let breaks: [(Break, Break); 2] = [
        (
            |world| world.cache.spec.storage.pvc = None,
            |world| world.cache.spec.storage.pvc = cache(ngc()).spec.storage.pvc,
        ),
        (
            |world| world.set("ConfigMap", "llama-manifest", |map| map["data"] = json!({})),
            |world| {
                world.set("ConfigMap", "llama-manifest", |map| map["data"] = json!({"model_manifest.yaml": MANIFEST}))
            },
        ),
    ];
    for (spoil, mend) in breaks {
        let mut world = World::with_job(ngc());
        world.complete();
        let before = world.cache.status.clone().unwrap();
        let mut live = LiveObjects::default();
        let kept = world.facts.live.iter().filter(|(reference, _)| reference.gvk.kind != "Job");
        kept.for_each(|(reference, object)| live.insert(reference.clone(), object.clone()));
        world.facts.live = live;
        spoil(&mut world);
        world.turn();
        let status = world.cache.status.clone().unwrap();
        assert_eq!((&status.state, &status.pvc, &status.profiles), (&before.state, &before.pvc, &before.profiles));
        assert_eq!(world.condition("NIM_CACHE_RECONCILE_FAILED").0, "True");
        mend(&mut world);
        world.turn();
        world.turn();
        assert_eq!(world.state(), "Ready");
        assert_eq!(world.condition("NIM_CACHE_RECONCILE_FAILED").0, "False");
        assert!(!world.has("Job", "llama-job"));
    }
}

#[test]
fn a_claim_of_the_user_that_vanished_takes_ready_with_it() {
    let mut world = World::with_job(repository("hf", "https://hf.co", json!({"modelName": "m"})));
    world.complete();
    let mut live = LiveObjects::default();
    let kept = world.facts.live.iter().filter(|(reference, _)| reference.gvk.kind != "PersistentVolumeClaim");
    kept.for_each(|(reference, object)| live.insert(reference.clone(), object.clone()));
    world.facts.live = live;
    world.turn();
    assert_eq!(world.state(), "NotReady");
    assert_eq!(world.cache.status.as_ref().unwrap().pvc, None);
}

fn errors(edit: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut spec = ngc();
    edit(&mut spec);
    check(&cache(spec))
}

#[test]
fn all_beside_other_profiles_with_filters_and_without_secrets_is_five_mistakes() {
    let errors = errors(|spec| {
        spec["source"]["ngc"] = json!({
            "authSecret": "", "modelPuller": "",
            "model": {"profiles": ["all", "wrong"], "precision": "fp16", "qosProfile": "latency"},
        });
    });
    let fields = ["authSecret", "modelPuller", "model.profiles", "model.precision", "model.qosProfile"];
    assert_eq!(errors.len(), fields.len(), "{errors:#?}");
    for (error, field) in errors.iter().zip(fields) {
        assert!(error.starts_with(&format!("spec.source.ngc.{field} ")), "{error}");
    }
}

#[test]
fn every_filter_beside_named_profiles_is_a_mistake() {
    let filters = [
        ("precision", json!("fp8")),
        ("engine", json!("vllm")),
        ("tensorParallelism", json!("2")),
        ("qosProfile", json!("throughput")),
        ("gpus", json!([{"product": "H100"}])),
        ("lora", json!(false)),
        ("buildable", json!(true)),
    ];
    for (field, value) in filters {
        let beside = errors(|spec| spec["source"]["ngc"]["model"] = json!({"profiles": ["p"], field: value.clone()}));
        assert!(
            beside.len() == 1 && beside[0].starts_with(&format!("spec.source.ngc.model.{field} is set beside")),
            "{beside:?}"
        );
        assert_eq!(errors(|spec| spec["source"]["ngc"]["model"] = json!({field: value})), [""; 0]);
    }
}

#[test]
fn each_mistake_of_a_cache_is_one_error() {
    type Edit = fn(&mut Value);
    let cases: [(Edit, &str); 9] = [
        (|spec| spec["source"]["ngc"]["authSecret"] = "".into(), "spec.source.ngc.authSecret is empty"),
        (|spec| spec["source"]["ngc"]["modelPuller"] = "".into(), "spec.source.ngc.modelPuller is empty"),
        (
            |spec| spec["source"]["ngc"]["model"] = json!({"qosProfile": "fast"}),
            "spec.source.ngc.model.qosProfile is \"fast\": use latency or throughput",
        ),
        (|spec| spec["storage"] = json!({"pvc": {}}), "spec.storage.pvc is empty"),
        (|spec| spec["storage"] = json!({"pvc": {"size": "1Gi"}}), "spec.storage.pvc has neither create nor name"),
        (|spec| spec["storage"]["pvc"]["size"] = "much".into(), "spec.storage.pvc.size is \"much\""),
        (
            |spec| spec["storage"]["pvc"]["volumeAccessMode"] = "RWX".into(),
            "spec.storage.pvc.volumeAccessMode is \"RWX\"",
        ),
        (|spec| spec["proxy"] = json!({"httpsProxy": "ftp://p"}), "spec.proxy.httpsProxy is \"ftp://p\""),
        (|spec| spec["proxy"] = json!({"noProxy": "a.b,, [::1"}), "spec.proxy.noProxy[2] is \"[::1\""),
    ];
    for (edit, expected) in cases {
        let errors = errors(edit);
        assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:?}");
    }
    assert_eq!(errors(|_| {}), [""; 0]);
}

#[test]
fn a_download_is_asked_how_far_it_is_while_it_runs() {
    let mut world = World::with_job(ngc());
    world.job_status(json!({"startTime": "2027-01-01T00:00:00Z", "active": 1}));
    assert_eq!(world.plan().queries, [], "there is no pod to ask");
    let pod = Ref::of::<Pod>("nim", "llama-job-x");
    let labels = json!({"batch.kubernetes.io/job-name": "llama-job"});
    let running = json!({
        "metadata": {"name": "llama-job-x", "namespace": "nim", "uid": "u-x", "labels": labels},
        "status": {"phase": "Running"},
    });
    world.facts.live.insert(pod.clone(), Arc::new(running));
    let log = Query::PodLog { pod, uid: "u-x".into(), part: LogPart::Tail(20) };
    assert_eq!(world.plan().queries, std::slice::from_ref(&log));
    world
        .facts
        .query_results
        .insert(log.clone(), QueryResult::PodLog(Ok("Fetching 12 files:  25%|██▌  | 3/12 [00:02<00:06]".into())));
    world.turn();
    assert_eq!(world.condition("NIM_CACHE_JOB_PENDING").2, "Job llama-job is downloading: 3 of 12 files");
    world.facts.query_results.insert(log, QueryResult::PodLog(Err("no".into())));
    world.turn();
    assert_eq!(world.condition("NIM_CACHE_JOB_PENDING").2, "Job llama-job is downloading");
}

#[test]
fn a_manifest_that_cannot_be_read_says_why_and_is_waited_for() {
    let mut world = World::new(ngc());
    world.print(MANIFEST);
    let log = world.facts.query_results.keys().next().unwrap().clone();
    world.facts.query_results.insert(log, QueryResult::PodLog(Err("forbidden".into())));
    world.turn();
    let told = world.condition("NIM_CACHE_JOB_PENDING").2;
    assert_eq!(told, "the log of pod llama-pod cannot be read: forbidden");
    assert!(world.has("Pod", "llama-pod"));
}
