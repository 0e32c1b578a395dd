//! NIM: inference services, the model caches that feed them, pipelines of services and engine builds.
//!
//! Start with [`service`]; [`pipeline`] embeds its spec, [`cache`] and [`build`] prepare the models that it serves.

pub mod build;
pub mod cache;
pub mod cache_source;
pub mod dra;
pub mod expose;
pub mod multi_node;
pub mod pipeline;
pub mod service;
pub mod service_status;

pub use build::{NimBuild, NimBuildSpec, NimBuildStatus};
pub use cache::{NimCache, NimCacheSpec, NimCacheStatus, NimProfile};
pub use pipeline::{NimPipeline, NimPipelineSpec, NimPipelineStatus};
pub use service::{NimService, NimServiceSpec};
pub use service_status::NimServiceStatus;

use crate::crd::Entry;

/// API group of the NIM kinds.
pub const GROUP: &str = "apps.nvidia.com";

/// Kinds of this domain.
pub const KINDS: &[Entry] = &[
    Entry::of::<NimServiceSpec>(),
    Entry::of::<NimCacheSpec>(),
    Entry::of::<NimPipelineSpec>(),
    Entry::of::<NimBuildSpec>(),
];

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn round_trip(object: Value) -> Value {
        let entry = KINDS.iter().find(|entry| object["kind"] == entry.kind).unwrap();
        entry.round_trip(object).unwrap()
    }

    fn object(kind: &str, spec: Value) -> Value {
        json!({"apiVersion": "apps.nvidia.com/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec})
    }

    #[test]
    fn what_the_user_wrote_survives() {
        let image = json!({"repository": "nvcr.io/nim/meta/llama3-8b-instruct", "tag": "1.0"});
        let service = json!({
            "image": image,
            "authSecret": "ngc",
            "userID": 0,
            "env": [],
            "replicas": 0,
            "inferencePlatform": "kserve",
            "startupProbe": {"enabled": false},
            "storage": {"nimCache": {"name": "c", "profile": ""}, "readOnly": false, "emptyDir": {}},
            "draResources": [{"claimCreationSpec": {"devices": [{
                "name": "gpu", "count": 2, "deviceClassName": "gpu.nvidia.com",
                "attributeSelectors": [{"key": "productName", "op": "NotEqual", "value": {"stringValue": "T4"}}],
                "capacitySelectors": [{"key": "memory", "op": "GreaterThanOrEqual", "value": "1.5Gi"}],
            }]}}],
            "multiNode": {"parallelism": {"pipeline": 2}, "mpi": {"mpiStartTimeout": 300}, "computeDomain": {"create": true}},
            "expose": {"service": {}, "router": {
                "gateway": {"namespace": "g", "name": "g", "httpRoutesEnabled": false},
                "eppConfig": {
                    "containerSpec": {"name": "epp", "image": image},
                    "config": {
                        "plugins": [{"type": "queue-scorer", "parameters": {"deep": [1, 2.5, null]}}],
                        "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": "queue-scorer", "weight": 2}]}],
                        "saturationDetector": {"kvCacheUtilThreshold": 0.8},
                        "flowControl": {"unknown": "here"},
                    },
                },
            }},
        });
        let pipeline = json!({"services": [
            {"name": "llm", "spec": service, "dependencies": [{"name": "embed", "port": 8000, "envName": "E"}]},
        ]});
        let cache = json!({
            "source": {"ngc": {"authSecret": "ngc", "modelPuller": "p", "model": {"lora": false, "gpus": [{"ids": ["26b5"]}]}}},
            "storage": {},
            "resources": {"cpu": "4"},
        });
        let build =
            json!({"image": image, "nimCache": {"name": "c"}, "resources": {"limits": {"nvidia.com/gpu": "1"}}});
        for (kind, spec) in
            [("NIMService", service), ("NIMPipeline", pipeline), ("NIMCache", cache), ("NIMBuild", build)]
        {
            let object = object(kind, spec);
            assert_eq!(round_trip(object.clone()), object);
        }
    }

    #[test]
    fn numbers_are_quantities() {
        let build = object(
            "NIMBuild",
            json!({
                "image": {"repository": "r", "tag": "t"},
                "nimCache": {"name": "c"},
                "resources": {"limits": {"nvidia.com/gpu": 2}},
            }),
        );
        assert_eq!(round_trip(build)["spec"]["resources"]["limits"]["nvidia.com/gpu"], "2");
    }

    #[test]
    fn a_pipeline_has_no_rules_on_former_values() {
        let pipeline = KINDS.iter().find(|entry| entry.kind == "NIMPipeline").unwrap();
        let definition = serde_json::to_string(&pipeline.definition()).unwrap();
        assert!(definition.contains("x-kubernetes-validations"));
        assert!(!definition.contains("oldSelf"));
    }
}
