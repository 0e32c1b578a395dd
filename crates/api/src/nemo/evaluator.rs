//! NemoEvaluator: scores models by running evaluation jobs as Argo workflows.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::NemoServer;
use super::otel::{LogLevel, OpenTelemetry};
use super::shared::{DatabaseConfig, ENDPOINT, ServiceEndpoint};
use crate::resource::{Column, Handling, Kind, Namespaced, Resource};

/// Runs a NeMo Evaluator.
pub type NemoEvaluator = Resource<NemoEvaluatorSpec>;

/// A NeMo Evaluator, which scores models, retrieval pipelines and agents.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NemoEvaluatorSpec {
    /// The server itself.
    #[serde(flatten, deserialize_with = "crate::wire::flat")]
    pub server: NemoServer,
    /// Argo Workflows, which runs the evaluation jobs.
    pub argo_workflows: ArgoWorkflows,
    /// Milvus vector database, for evaluations of retrieval.
    #[serde(rename = "vectorDB")]
    pub vector_db: ServiceEndpoint,
    /// Data Store that holds datasets and results; the URL usually ends in `/v1/hf`.
    pub datastore: ServiceEndpoint,
    /// Entity Store that knows datasets and models.
    pub entitystore: ServiceEndpoint,
    /// Database of jobs and results.
    pub database_config: DatabaseConfig,
    /// Images of the evaluation jobs.
    pub evaluation_images: EvaluationImages,
    /// Telemetry of the server.
    pub otel: Option<OpenTelemetry>,
    /// Least severe log entries of evaluations.
    #[schemars(extend("default" = "INFO"))]
    pub eval_log_level: Option<LogLevel>,
    /// Least severe log entries on the console.
    #[schemars(extend("default" = "INFO"))]
    pub console_log_level: Option<LogLevel>,
    /// Where log entries go.
    #[schemars(extend("default" = "console"))]
    pub log_handlers: Option<LogHandler>,
    /// Whether requests for evaluations are checked before they run; they are when unset.
    pub enable_validation: Option<bool>,
}

impl Kind for NemoEvaluatorSpec {
    type Status = super::NemoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NemoEvaluator";
    const PLURAL: &'static str = "nemoevaluators";
    const HANDLING: Handling = Handling::Reconciled;
    const COLUMNS: &'static [Column] = super::COLUMNS;
}

/// Where Argo Workflows is reached and as whom its jobs run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArgoWorkflows {
    /// Base URL of the Argo server, starting with `http://` or `https://`.
    #[schemars(length(min = 1), regex(pattern = ENDPOINT))]
    pub endpoint: String,
    /// ServiceAccount that the workflows run as.
    pub service_account: String,
}

/// Images of the evaluation jobs, each with tag; an evaluation whose image is unset cannot run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluationImages {
    /// Code generation, by the BigCode evaluation harness.
    pub bigcode_eval_harness: Option<String>,
    /// Academic benchmarks, by the language model evaluation harness.
    pub lm_eval_harness: Option<String>,
    /// Similarity of answers to references, such as BLEU, ROUGE and F1.
    pub similarity_metrics: Option<String>,
    /// Answers judged by another model.
    pub llm_as_judge: Option<String>,
    /// Conversations, by MT-Bench.
    pub mt_bench: Option<String>,
    /// Retrieval alone.
    pub retriever: Option<String>,
    /// Retrieval and generation together.
    pub rag: Option<String>,
    /// Function calling, by the Berkeley leaderboard.
    pub bfcl: Option<String>,
    /// Agents: tool calls, goals, topics.
    pub agentic_eval: Option<String>,
}

/// Where log entries go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogHandler {
    /// To the standard output of the container.
    #[default]
    Console,
    /// To a file in the container.
    File,
}
