//! NIMCache: each source, while its manifest is read and while it downloads.

use std::collections::BTreeSet;

use capstan_operands::nim::nim_cache::{check, plan};
use capstan_plan::{Query, QueryResult};
use serde_json::{Value, json};

use super::{Case, Context, MANIFEST, Observation, assert_alive, facts, object};

/// Both steps of a cache at once: a field may matter to the first pod only, or to the second.
fn observe(value: &Value) -> Observation {
    let cache = serde_json::from_value(value.clone()).unwrap();
    let claim = |name: &str| json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "nim", "uid": "u"}});
    let (products, claims) = (BTreeSet::new(), ["models-pvc", "mine"].map(claim));
    let reading = plan(&cache, &facts(claims.clone(), &[]), &products);
    let reading = Observation::of(&reading, check(&cache), Vec::new());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "models-pod", "namespace": "nim", "uid": "u"},
        "status": {"phase": "Succeeded"},
    });
    let mut facts = facts(claims.into_iter().chain([pod]), &[]);
    let log = plan(&cache, &facts, &products).queries.into_iter().find(|one| matches!(one, Query::PodLog { .. }));
    facts.query_results.extend(log.map(|log| (log, QueryResult::PodLog(Ok(MANIFEST.into())))));
    let loading = Observation::of(&plan(&cache, &facts, &products), check(&cache), Vec::new());
    let mut both = reading.clone();
    both.plan = json!({"status": loading.plan["status"], "reading": reading.plan, "loading": loading.plan});
    both.stopped |= loading.stopped;
    both
}

#[test]
fn every_field_of_a_cache_does_something() {
    let base = |source: Value| {
        let spec = json!({"source": source, "storage": {"pvc": {"create": true, "size": "50Gi"}}});
        object("NIMCache", "models", spec)
    };
    let hub = json!({
        "endpoint": "https://hub.example.com/v1/hf", "namespace": "meta", "modelName": "llama", "authSecret": "hf",
        "modelPuller": "nvcr.io/nim/llm:1", "pullSecret": "pull",
    });
    let samples = [
        ("spec.storage.pvc.size", json!("70Gi")),
        ("spec.storage.pvc.volumeAccessMode", json!("ReadWriteMany")),
        ("spec.storage.pvc.name", json!("mine")),
        ("spec.proxy.httpProxy", json!("http://proxy:3128")),
        ("spec.proxy.httpsProxy", json!("http://proxy:3129")),
        ("spec.proxy.noProxy", json!("example.com")),
        ("model.profiles", json!(["p2"])),
        ("model.precision", json!("fp8")),
        ("model.engine", json!("tensorrt_llm")),
        ("model.tensorParallelism", json!("2")),
        ("model.qosProfile", json!("latency")),
        ("model.gpus.product", json!("l40s")),
        ("model.gpus.ids", json!(["26b5"])),
        ("image.pullPolicy", json!("Always")),
    ];
    let sources = ["spec.source.hf", "spec.source.dataStore", "spec.source.ngc"];
    let others = |own: &str| sources.into_iter().filter(|path| *path != own).collect::<Vec<_>>();
    let dataset = |value: &mut Value| {
        let source = value["spec"]["source"].as_object_mut().unwrap();
        source.values_mut().for_each(|source| {
            source.as_object_mut().unwrap().remove("modelName");
        });
    };
    let model = |value: &mut Value| value["spec"]["source"]["ngc"]["model"] = json!({});
    let named = |value: &mut Value| value["spec"]["storage"]["pvc"] = json!({"name": "mine", "size": "50Gi"});
    let contexts: [Context; 4] = [
        ("spec.storage.pvc.create", named),
        ("spec.source.hf.datasetName", dataset),
        ("spec.source.dataStore.datasetName", dataset),
        ("spec.source.ngc.model", model),
    ];
    let settings = [
        ("NGC", "spec.source.ngc", json!({"ngc": {"authSecret": "ngc", "modelPuller": "nvcr.io/nim/meta/llama3:1.0"}})),
        ("Hugging Face", "spec.source.hf", json!({"hf": hub})),
        ("data store", "spec.source.dataStore", json!({"dataStore": hub})),
    ];
    for (setting, own, source) in settings {
        assert_alive(&[Case {
            kind: "NIMCache",
            setting,
            base: base(source),
            contexts: &contexts,
            samples: &samples,
            refused: &["spec.certConfig"],
            elsewhere: &others(own),
            observe: &observe,
        }]);
    }
}
