//! NemoCustomizer: fine-tunes models by running training jobs.

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::PodSecurityContext;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::NemoServer;
use super::otel::OpenTelemetry;
use super::shared::{ConfigMapRef, DatabaseConfig, ServiceEndpoint};
use super::training::TrainingConfig;
use crate::common::PullPolicy;
use crate::resource::{Column, Handling, Kind, Namespaced, Resource};

/// Runs a NeMo Customizer.
pub type NemoCustomizer = Resource<NemoCustomizerSpec>;

/// A NeMo Customizer, which fine-tunes models.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NemoCustomizerSpec {
    /// The server itself.
    #[serde(flatten, deserialize_with = "crate::wire::flat")]
    pub server: NemoServer,
    /// Data Store that holds datasets and trained models.
    pub datastore: ServiceEndpoint,
    /// Entity Store that knows datasets and models.
    pub entitystore: ServiceEndpoint,
    /// MLflow, which records the training runs.
    pub mlflow: ServiceEndpoint,
    /// Weights & Biases, which records the training runs too.
    pub wandb: WeightsAndBiases,
    /// Database of jobs and results.
    pub database_config: DatabaseConfig,
    /// Telemetry of the server.
    pub otel: Option<OpenTelemetry>,
    /// Who schedules the pods of a training job.
    pub scheduler: Option<Scheduler>,
    /// ConfigMap with the models that can be fine-tuned: keys `customizationTargets` and `customizationConfigTemplates`,
    /// or `models` for servers up to release 25.04.
    pub model_config: ConfigMapRef,
    /// Jobs that download models.
    pub model_download_jobs: ModelDownloadJobs,
    /// Tools that copy files from and to the Data Store.
    pub nemo_datastore_tools: DatastoreTools,
    /// Training jobs.
    pub training_config: TrainingConfig,
}

impl Kind for NemoCustomizerSpec {
    type Status = super::NemoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NemoCustomizer";
    const PLURAL: &'static str = "nemocustomizers";
    const HANDLING: Handling = Handling::Reconciled;
    const COLUMNS: &'static [Column] = super::COLUMNS;
}

/// Account of Weights & Biases.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeightsAndBiases {
    /// Secret in the same namespace with the keys.
    #[schemars(length(min = 1))]
    pub secret_name: String,
    /// Key of that Secret with the API key.
    // Required, but the API server fills in the default: only objects that never passed one lack it.
    #[schemars(required, length(min = 1), extend("default" = "apiKey"))]
    pub api_key_key: Option<String>,
    /// Key of that Secret with the key that encrypts users' API keys.
    #[schemars(extend("default" = "encryptionKey"))]
    pub encryption_key: Option<String>,
    /// User or team that owns the runs; `null` is the owner of the API key.
    #[schemars(extend("default" = "null"))]
    pub entity: Option<String>,
    /// Project that runs are filed under.
    #[schemars(extend("default" = "nvidia-nemo-customizer"))]
    pub project_name: Option<String>,
}

/// Who schedules the pods of a training job.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    /// The scheduler, which must be installed.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "volcano"))]
    pub type_: Option<SchedulerType>,
}

/// A scheduler that starts all pods of a job together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerType {
    /// Volcano.
    #[default]
    Volcano,
    /// Run:ai.
    Runai,
}

/// Jobs that download models to the model volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelDownloadJobs {
    /// Image of the jobs, with tag.
    #[schemars(length(min = 1))]
    pub image: String,
    /// When the kubelet pulls the image.
    #[schemars(extend("default" = "IfNotPresent"))]
    pub image_pull_policy: Option<PullPolicy>,
    /// API key of NVIDIA's registry NGC; models there cannot be downloaded when unset.
    #[serde(rename = "ngcAPISecret")]
    pub ngc_api_secret: Option<NgcSecret>,
    /// Token of Hugging Face; models there cannot be downloaded when unset.
    pub hf_secret: Option<HuggingFaceSecret>,
    /// Security context of the jobs' pods.
    pub security_context: Option<PodSecurityContext>,
    /// Seconds after which a finished job is deleted.
    #[schemars(range(min = 60))]
    pub ttl_seconds_after_finished: i64,
    /// Seconds between two looks at a running job.
    #[schemars(range(min = 15))]
    pub poll_interval_seconds: i64,
}

/// API key of NVIDIA's registry NGC.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NgcSecret {
    /// Secret in the same namespace.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Key of that Secret with the API key.
    #[schemars(required, extend("default" = "NGC_API_KEY"))]
    pub key: Option<String>,
}

/// Token of Hugging Face.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HuggingFaceSecret {
    /// Secret in the same namespace.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Key of that Secret with the token.
    #[schemars(required, extend("default" = "HF_TOKEN"))]
    pub key: Option<String>,
}

/// Tools that copy files from and to the Data Store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreTools {
    /// Image of the tools, with tag.
    #[schemars(length(min = 1))]
    pub image: String,
}
