//! Model sources of a NIMCache.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Origin of a model: exactly one field is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.ngc) ? 1 : 0) + (has(self.dataStore) ? 1 : 0) + (has(self.hf) ? 1 : 0) == 1",
    "message": "source: set exactly one of ngc, dataStore and hf",
}]))]
pub struct NimSource {
    /// NVIDIA's NGC catalog.
    pub ngc: Option<NgcSource>,
    /// A NeMo data store.
    pub data_store: Option<DataStoreSource>,
    /// Hugging Face, or a hub that speaks its protocol.
    pub hf: Option<HuggingFaceSource>,
}

/// A model of the NGC catalog.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.model) && has(self.modelEndpoint))",
    "message": "ngc: model and modelEndpoint are both set; keep one of them",
}]))]
pub struct NgcSource {
    /// Secret whose keys become the environment of the download; must hold `NGC_API_KEY`.
    pub auth_secret: String,
    /// NIM image that downloads its own model. Cannot change after creation.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "source.ngc.modelPuller cannot change after creation; create a new NIMCache instead",
    }]))]
    pub model_puller: String,
    /// Registry secret for that image.
    pub pull_secret: Option<String>,
    /// Which profiles of the model to download; those that fit the cluster's GPUs when unset.
    pub model: Option<ModelFilter>,
    /// URL of the model, for images that serve any model.
    pub model_endpoint: Option<String>,
}

/// Which profiles of a model to download: those that pass all filters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelFilter {
    /// Ids of the profiles, or `all`; the other filters are then not looked at.
    pub profiles: Option<Vec<String>>,
    /// Precision: `fp8`, `bf16` …
    pub precision: Option<String>,
    /// Inference engine: `tensorrt_llm`, `vllm` …
    pub engine: Option<String>,
    /// Number of GPUs over which tensors are split.
    pub tensor_parallelism: Option<String>,
    /// What the profile is tuned for: `latency` or `throughput`.
    pub qos_profile: Option<String>,
    /// GPUs for which profiles are wanted.
    pub gpus: Option<Vec<GpuFilter>>,
    /// Whether the profile can load LoRA adapters.
    pub lora: Option<bool>,
    /// Whether an engine can be built from the profile.
    pub buildable: Option<bool>,
}

/// GPUs for which profiles are wanted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuFilter {
    /// Product: `h100`, `l40s` …
    pub product: Option<String>,
    /// PCI device ids.
    pub ids: Option<Vec<String>>,
}

/// A model or a dataset in a NeMo data store.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.modelName) ? 1 : 0) + (has(self.datasetName) ? 1 : 0) == 1",
    "message": "dataStore: set exactly one of modelName and datasetName",
}]))]
pub struct DataStoreSource {
    /// URL of the store's Hugging Face API, which ends in `/v1/hf`.
    #[schemars(regex(pattern = r"^https?://.*/v1/hf/?$"))]
    pub endpoint: String,
    /// Namespace in the store.
    #[schemars(extend("default" = "default"))]
    pub namespace: String,
    /// Model to download.
    pub model_name: Option<String>,
    /// Dataset to download.
    pub dataset_name: Option<String>,
    /// Secret with the key `HF_TOKEN`.
    #[schemars(length(min = 1))]
    pub auth_secret: String,
    /// Image with the Hugging Face command line, which downloads.
    #[schemars(length(min = 1))]
    pub model_puller: String,
    /// Registry secret for that image.
    #[schemars(length(min = 1))]
    pub pull_secret: String,
    /// Branch, tag or commit to download; the main branch when unset.
    #[schemars(length(min = 1))]
    pub revision: Option<String>,
}

/// A model or a dataset on a Hugging Face hub.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.modelName) ? 1 : 0) + (has(self.datasetName) ? 1 : 0) == 1",
    "message": "hf: set exactly one of modelName and datasetName",
}]))]
pub struct HuggingFaceSource {
    /// URL of the hub: `https://huggingface.co`.
    #[schemars(regex(pattern = r"^https?://.*$"))]
    pub endpoint: String,
    /// User or organization that owns the repository.
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// Model to download.
    pub model_name: Option<String>,
    /// Dataset to download.
    pub dataset_name: Option<String>,
    /// Secret with the key `HF_TOKEN`.
    #[schemars(length(min = 1))]
    pub auth_secret: String,
    /// Image with the Hugging Face command line, which downloads.
    #[schemars(length(min = 1))]
    pub model_puller: String,
    /// Registry secret for that image.
    #[schemars(length(min = 1))]
    pub pull_secret: String,
    /// Branch, tag or commit to download; the main branch when unset.
    #[schemars(length(min = 1))]
    pub revision: Option<String>,
}
