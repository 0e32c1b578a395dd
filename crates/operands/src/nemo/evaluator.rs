//! NemoEvaluator: scores models by running evaluation jobs as Argo workflows.

use capstan_api::nemo::shared::DatabaseConfig;
use capstan_api::nemo::{EvaluationImages, LogHandler, NemoEvaluator, NemoEvaluatorSpec, NemoServer, NemoStatus};
use capstan_plan::kit::{env, rbac};
use capstan_plan::{Facts, Plan};
use k8s_openapi::api::core::v1::{Container, EnvVar};
use serde_json::Value;

use super::entitystore::{datastore, entitystore};
use super::service::{self, About, Api, Health, Parts, Place, Service, Settings};
use super::{database, otel};

static ABOUT: About = About {
    kind: "NemoEvaluator",
    part_of: "nemo-evaluator-service",
    selector: &["app.kubernetes.io/name"],
    ports: &[("api", 7331)],
    startup: Health::new("/health", 30, 1, 10, 30),
    liveness: Health::new("/health", 0, 1, 10, 3),
    readiness: Health::new("/health", 0, 1, 10, 3),
};

/// Key of the Secret with the connection string.
const CONNECTION: &str = "uri";

/// Evaluations run as workflows: without Argo the server runs, and every evaluation fails.
const ARGO: Api = Api {
    needed_by: "spec.argoWorkflows",
    crd: "workflows.argoproj.io",
    fix: "install Argo Workflows, unless spec.argoWorkflows.endpoint is in another cluster",
};

/// What this Evaluator should look like.
pub fn plan(object: &NemoEvaluator, facts: &Facts, settings: &Settings) -> Plan<NemoStatus> {
    service::plan(object, facts, settings)
}

/// The answer when something is in the way.
pub fn blocked(
    object: &NemoEvaluator,
    facts: &Facts,
    settings: &Settings,
    reason: &str,
    message: &str,
) -> Plan<NemoStatus> {
    service::blocked(object, facts, settings, reason, message)
}

impl Service for NemoEvaluatorSpec {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn server(&self) -> &NemoServer {
        &self.server
    }

    fn database(&self) -> Option<&DatabaseConfig> {
        Some(&self.database_config)
    }

    fn parts(&self, at: &Place<'_>) -> Parts {
        let mut migration_env = vec![
            env("NAMESPACE", at.namespace),
            env("ARGO_HOST", self.argo_workflows.endpoint.clone()),
            env("EVAL_CONTAINER", service::image(&self.server.image)),
            env("DATA_STORE_URL", self.datastore.endpoint.clone()),
        ];
        migration_env.extend(connection(self, at));
        migration_env.extend(images(&self.evaluation_images));
        let migration = Container {
            name: "evaluator-db-migration".into(),
            image: Some(service::image(&self.server.image)),
            image_pull_policy: service::pull_policy(&self.server.image),
            command: Some(vec!["sh".into(), "-c".into(), "/app/scripts/run-db-migration.sh".into()]),
            env: Some(migration_env),
            resources: Some(database::migration_limits()),
            ..Container::default()
        };
        Parts {
            env: server_env(self, at),
            init: vec![database::wait(&self.database_config, at, &self.server.image, ""), migration],
            security: service::security(&self.server),
            rules: vec![rbac::rule("", &["secrets", "pods"], &["get", "watch", "list", "create"])],
            references: vec![database::secret(&self.database_config, at).decides()],
            connection: Some(CONNECTION),
            endpoints: vec![datastore(&self.datastore.endpoint), entitystore(&self.entitystore.endpoint)],
            apis: vec![ARGO],
            faults: otel::faults(self.otel.as_ref()),
            ..Parts::default()
        }
    }

    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn server_env(spec: &NemoEvaluatorSpec, at: &Place<'_>) -> Vec<EnvVar> {
    let handlers = match spec.log_handlers.unwrap_or_default() {
        LogHandler::Console => "console",
        LogHandler::File => "file",
    };
    let mut list = vec![
        env("NAMESPACE", at.namespace),
        service::host_ip(),
        env("EVALUATOR_HOST", "0.0.0.0"),
        env("EVALUATOR_PORT", "7331"),
        env("ARGO_HOST", spec.argo_workflows.endpoint.clone()),
        env("MILVUS_URL", spec.vector_db.endpoint.clone()),
        env("SERVICE_ACCOUNT", spec.argo_workflows.service_account.clone()),
        env("DATA_STORE_URL", spec.datastore.endpoint.clone()),
        env("ENTITY_STORE_URL", spec.entitystore.endpoint.clone()),
        env("EVAL_CONTAINER", service::image(&spec.server.image)),
        env("LOG_HANDLERS", handlers),
        env("CONSOLE_LOG_LEVEL", otel::level(spec.console_log_level)),
        env("EVAL_LOG_LEVEL", otel::level(spec.eval_log_level)),
    ];
    list.extend((spec.enable_validation != Some(false)).then(|| env("EVAL_ENABLE_VALIDATION", "True")));
    list.extend(connection(spec, at));
    list.extend(images(&spec.evaluation_images));
    list.extend(otel::environment(spec.otel.as_ref()));
    list
}

fn connection(spec: &NemoEvaluatorSpec, at: &Place<'_>) -> [EnvVar; 2] {
    [
        database::password("POSTGRES_DB_PASSWORD", &spec.database_config),
        database::from_secret("POSTGRES_URI", at.name, CONNECTION),
    ]
}

/// Images of evaluation jobs: those that are unset are empty.
fn images(images: &EvaluationImages) -> [EnvVar; 9] {
    [
        ("BIGCODE_EVALUATION_HARNESS", &images.bigcode_eval_harness),
        ("LM_EVAL_HARNESS", &images.lm_eval_harness),
        ("SIMILARITY_METRICS", &images.similarity_metrics),
        ("LLM_AS_A_JUDGE", &images.llm_as_judge),
        ("MT_BENCH", &images.mt_bench),
        ("RETRIEVER", &images.retriever),
        ("RAG", &images.rag),
        ("BFCL", &images.bfcl),
        ("AGENTIC_EVAL", &images.agentic_eval),
    ]
    .map(|(name, image)| env(name, image.clone().unwrap_or_default()))
}
