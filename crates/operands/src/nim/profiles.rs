//! Profile selection of a cache.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::nim::cache_source::{GpuFilter, ModelFilter};
use fancy_regex::Regex;

use super::manifest::{Layout, Manifest, Profile};

/// Sorted ids of the profiles that `filter` selects. `products` are the cluster's GPUs; they count only if the filter
/// names none.
pub(super) fn select(manifest: &Manifest, filter: &ModelFilter, products: &BTreeSet<String>) -> Vec<String> {
    let none = BTreeSet::new();
    let gpus: &[GpuFilter] = filter.gpus.as_deref().unwrap_or_default();
    let products = if gpus.is_empty() { products } else { &none };
    let matches = |profile: &&Profile| match manifest.layout {
        Layout::First => first(&profile.tags, filter, gpus, products),
        Layout::Second => second(&profile.tags, filter, gpus, products),
    };
    manifest.profiles.iter().filter(matches).map(|profile| profile.id.clone()).collect()
}

type Tags = BTreeMap<String, String>;

fn tag<'a>(tags: &'a Tags, name: &str) -> &'a str {
    tags.get(name).map_or("", String::as_str)
}

fn given(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|value| !value.is_empty())
}

/// Matching in the first layout: exact.
fn first(tags: &Tags, filter: &ModelFilter, gpus: &[GpuFilter], products: &BTreeSet<String>) -> bool {
    let pairs =
        [(&filter.precision, "precision"), (&filter.tensor_parallelism, "tp"), (&filter.qos_profile, "profile")];
    if pairs.iter().any(|(wanted, name)| given(wanted).is_some_and(|wanted| wanted != tag(tags, name))) {
        return false;
    }
    let lora = tag(tags, "feat_lora");
    if filter.lora.map_or(lora == "true", |wanted| lora != wanted.to_string()) {
        return false;
    }
    let backend = if tags.contains_key("llm_engine") { tag(tags, "llm_engine") } else { tag(tags, "backend") };
    let engine = given(&filter.engine);
    if engine.is_some_and(|engine| !backend.contains(engine.trim_end_matches("_llm"))) {
        return false;
    }
    let optimized = engine.is_some_and(|engine| engine.to_lowercase().contains("tensorrt"));
    if !optimized && gpus.is_empty() {
        return true;
    }
    if !backend.contains("tensorrt") {
        return false;
    }
    (gpus.is_empty() && products.is_empty()) || first_gpu(tags, gpus, products)
}

/// Once a product matched, the ids of entries with a product decide.
fn first_gpu(tags: &Tags, gpus: &[GpuFilter], products: &BTreeSet<String>) -> bool {
    let mut matched = false;
    for gpu in gpus {
        let Some(product) = given(&gpu.product) else { continue };
        matched |= names(tags, product);
        let ids = gpu.ids.as_deref().unwrap_or_default();
        if matched && !ids.is_empty() && !ids.iter().any(|id| id == device(tags)) {
            return false;
        }
    }
    matched || discovered(tags, products)
}

/// Matching in the second layout: case-insensitive.
fn second(tags: &Tags, filter: &ModelFilter, gpus: &[GpuFilter], products: &BTreeSet<String>) -> bool {
    let same = |wanted: &str, name: &str| tag(tags, name).eq_ignore_ascii_case(wanted);
    let pairs =
        [(&filter.precision, "precision"), (&filter.tensor_parallelism, "tp"), (&filter.qos_profile, "profile")];
    if pairs.iter().any(|(wanted, name)| given(wanted).is_some_and(|wanted| !same(wanted, name))) {
        return false;
    }
    let switches = [(filter.lora, "feat_lora"), (filter.buildable, "trtllm_buildable")];
    if switches.iter().any(|(wanted, name)| wanted.is_some_and(|wanted| !same(&wanted.to_string(), name))) {
        return false;
    }
    if let Some(engine) = given(&filter.engine) {
        let backend = ["llm_engine", "model_type", "backend"].into_iter().find(|name| !tag(tags, name).is_empty());
        let backend = backend.map_or("", |name| tag(tags, name)).to_lowercase().replace("triton", "tensorrt");
        if !backend.contains(engine.to_lowercase().trim_end_matches("_llm")) {
            return false;
        }
    }
    second_gpu(tags, gpus, products) || same("true", "trtllm_buildable")
}

fn second_gpu(tags: &Tags, gpus: &[GpuFilter], products: &BTreeSet<String>) -> bool {
    if gpus.is_empty() {
        let identified = ["gpu", "key", "product_name_regex"].iter().any(|name| !tag(tags, name).is_empty());
        return !identified || products.is_empty() || discovered(tags, products);
    }
    let ids: Vec<&String> = gpus.iter().flat_map(|gpu| gpu.ids.iter().flatten()).collect();
    let id = ids.is_empty() || ids.iter().any(|id| id.eq_ignore_ascii_case(device(tags)) && !id.is_empty());
    let wanted: Vec<&str> = gpus.iter().filter_map(|gpu| given(&gpu.product)).collect();
    let product = wanted.is_empty() || wanted.iter().any(|product| names(tags, product));
    id && product
}

/// Whether the tags name this product.
fn names(tags: &Tags, product: &str) -> bool {
    let product = product.to_lowercase();
    ["gpu", "key"].iter().any(|name| tag(tags, name).to_lowercase().contains(&product))
}

/// The PCI device id that the tags name, without NVIDIA's vendor id.
fn device(tags: &Tags) -> &str {
    let id = tag(tags, "gpu_device");
    id.strip_suffix(":10de").unwrap_or(id)
}

/// Whether the tags match a GPU of the cluster. Node labels look like `NVIDIA-L40S-48C`.
fn discovered(tags: &Tags, products: &BTreeSet<String>) -> bool {
    // Manifests use look-ahead, as in `H100(?!.*NVL)`. An invalid regular expression matches nothing.
    let pattern = given(&tags.get("product_name_regex").cloned()).and_then(|pattern| Regex::new(pattern).ok());
    products.iter().any(|product| {
        let label = product.to_lowercase();
        let named = ["gpu", "key"].iter().map(|name| tag(tags, name).to_lowercase());
        named.filter(|name| !name.is_empty()).any(|name| label.contains(&name))
            || pattern.as_ref().is_some_and(|pattern| pattern.is_match(product).unwrap_or(false))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const FIRST: &str = "
l40s-trt:
  tags: {llm_engine: tensorrt_llm, precision: fp8, tp: '8', profile: throughput, gpu: L40S, gpu_device: '26b5:10de', feat_lora: false}
l40s-lora:
  tags: {llm_engine: tensorrt_llm, precision: fp16, tp: '8', profile: throughput, gpu: L40S, gpu_device: '26b5:10de', feat_lora: true}
vllm:
  tags: {llm_engine: vllm, precision: fp16, tp: '1', feat_lora: false}
riva:
  tags: {backend: tensorrt, key: nvidia-a10g, precision: fp16}
";

    const SECOND: &str = "
schema_version: 2.0
profiles:
- {id: h100, tags: {llm_engine: tensorrt_llm, gpu: h100, gpu_device: '2330:10de', tp: '2', precision: FP8}}
- {id: any, tags: {llm_engine: vllm, tp: '1', precision: bf16}}
- {id: build, tags: {llm_engine: tensorrt_llm, trtllm_buildable: 'true', gpu: b200, tp: '1', precision: bf16}}
- {id: sxm, tags: {model_type: triton, product_name_regex: 'H200(?!.*NVL)', tp: '4', precision: bf16}}
";

    fn ids(manifest: &str, filter: Value, products: &[&str]) -> Vec<String> {
        let filter: ModelFilter = serde_json::from_value(filter).unwrap();
        let products = products.iter().map(|product| (*product).to_owned()).collect();
        select(&Manifest::parse(manifest).unwrap(), &filter, &products)
    }

    #[test]
    fn profiles_of_the_first_layout() {
        let trt = |gpus: Value| json!({"engine": "tensorrt_llm", "precision": "fp8", "tensorParallelism": "8", "qosProfile": "throughput", "gpus": gpus});
        let cases: [(&str, Value, &[&str], &[&str]); 9] = [
            ("the device id of the product", trt(json!([{"product": "l40s", "ids": ["26b5"]}])), &[], &["l40s-trt"]),
            ("another device id", trt(json!([{"product": "l40s", "ids": ["abcd"]}])), &[], &[]),
            ("a GPU of the cluster", trt(json!([])), &["NVIDIA-L40S-48C"], &["l40s-trt"]),
            ("no such GPU in the cluster", trt(json!([])), &["NVIDIA-H100"], &[]),
            ("adapters wanted", json!({"engine": "tensorrt_llm", "lora": true}), &[], &["l40s-lora"]),
            (
                "adapters not mentioned",
                json!({"engine": "tensorrt_llm", "precision": "fp16", "qosProfile": "throughput"}),
                &[],
                &[],
            ),
            ("another engine's product", json!({"gpus": [{"product": "A10G"}]}), &[], &["riva"]),
            (
                "an engine that is no LLM engine",
                json!({"engine": "tensorrt", "gpus": [{"product": "A10G"}]}),
                &[],
                &["riva"],
            ),
            ("an engine for every GPU", json!({"engine": "vllm"}), &["NVIDIA-H100"], &["vllm"]),
        ];
        for (case, filter, products, expected) in cases {
            assert_eq!(ids(FIRST, filter, products), expected, "{case}");
        }
    }

    #[test]
    fn profiles_of_the_second_layout() {
        let cases: [(&str, Value, &[&str], &[&str]); 8] = [
            ("no wish and no GPU", json!({}), &[], &["any", "build", "h100", "sxm"]),
            ("no wish, one GPU", json!({}), &["NVIDIA-H100-80GB-HBM3"], &["any", "build", "h100"]),
            ("an expression with look-ahead", json!({"engine": "tensorrt_llm"}), &["NVIDIA-H200"], &["build", "sxm"]),
            ("what look-ahead excludes", json!({"engine": "tensorrt"}), &["NVIDIA-H200-NVL"], &["build"]),
            ("case does not matter", json!({"precision": "fp8"}), &["NVIDIA-H100"], &["h100"]),
            ("a device id", json!({"gpus": [{"ids": ["2330"]}], "buildable": false}), &[], &[]),
            (
                "a device id of a profile",
                json!({"gpus": [{"product": "H100", "ids": ["2330"]}]}),
                &[],
                &["build", "h100"],
            ),
            ("what can be built", json!({"buildable": true}), &["NVIDIA-H100"], &["build"]),
        ];
        for (case, filter, products, expected) in cases {
            assert_eq!(ids(SECOND, filter, products), expected, "{case}");
        }
    }

    #[test]
    fn patterns_with_look_around_are_understood_in_both_layouts() {
        let cases = [
            ("H100(?!.*NVL)", "NVIDIA-H100-80GB-HBM3", true),
            ("H100(?!.*NVL)", "NVIDIA-H100-NVL", false),
            ("A10(?!0)", "NVIDIA-A10G", true),
            ("A10(?!0)", "NVIDIA-A100-SXM4-80GB", false),
            ("(?<!G)H200", "NVIDIA-H200", true),
            ("(?<!G)H200", "NVIDIA-GH200-480GB", false),
            ("H100(", "NVIDIA-H100", false),
        ];
        for (pattern, product, expected) in cases {
            let tags = format!("{{llm_engine: tensorrt_llm, product_name_regex: '{pattern}'}}");
            let first = format!("p: {{tags: {tags}}}");
            let second = format!("schema_version: 2.0\nprofiles:\n- {{id: p, tags: {tags}}}");
            for manifest in [first, second] {
                let found = ids(&manifest, json!({"engine": "tensorrt_llm"}), &[product]);
                assert_eq!(!found.is_empty(), expected, "{pattern} and {product}: {manifest}");
            }
        }
    }

    #[test]
    fn an_empty_gpu_tag_matches_no_gpu_by_itself() {
        let manifest = "p: {tags: {llm_engine: tensorrt_llm, gpu: ''}}";
        assert!(ids(manifest, json!({"engine": "tensorrt_llm"}), &["NVIDIA-H100"]).is_empty());
    }
}
