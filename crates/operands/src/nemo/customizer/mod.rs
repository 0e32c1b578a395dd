//! NemoCustomizer: fine-tunes models by training jobs that Volcano or Run:ai schedules.

mod config;

use capstan_api::nemo::shared::DatabaseConfig;
use capstan_api::nemo::{
    NemoCustomizer, NemoCustomizerSpec, NemoServer, NemoStatus, Scheduler, SchedulerType, WeightsAndBiases,
};
use capstan_plan::kit::pod::{Mount, at, config as config_volume};
use capstan_plan::kit::{env, rbac};
use capstan_plan::{Facts, LiveObjects, Plan};
use k8s_openapi::api::core::v1::EnvVar;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::entitystore::{datastore, entitystore};
use super::service::{
    self, About, Api, Claim, Endpoint, FILE, Form, Health, Parts, Place, Reference, Service, Settings, Stop,
};
use super::{database, otel};

static ABOUT: About = About {
    kind: "NemoCustomizer",
    part_of: "nemo-customizer-service",
    selector: &["app.kubernetes.io/name"],
    ports: &[("api", 8000), ("internal", CALLBACK)],
    startup: Health::new("/v1/health/ready", 30, 1, 10, 30),
    liveness: Health::new("/v1/health/live", 10, 10, 10, 5),
    readiness: Health::new("/v1/health/ready", 10, 1, 10, 3),
};

/// Port on which training jobs report.
const CALLBACK: i32 = 9009;
/// Key of the Secret with the connection string.
const CONNECTION: &str = "dsn";

const CHANGE: &[&str] = &["create", "get", "list", "watch", "update", "delete", "patch"];
const MAKE: &[&str] = &["create", "get", "list", "watch", "delete"];
const READ: &[&str] = &["get", "list", "watch"];

/// What this Customizer should look like.
pub fn plan(object: &NemoCustomizer, facts: &Facts, settings: &Settings) -> Plan<NemoStatus> {
    service::plan(object, facts, settings)
}

/// The answer when something is in the way.
pub fn blocked(
    object: &NemoCustomizer,
    facts: &Facts,
    settings: &Settings,
    reason: &str,
    message: &str,
) -> Plan<NemoStatus> {
    service::blocked(object, facts, settings, reason, message)
}

impl Service for NemoCustomizerSpec {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn server(&self) -> &NemoServer {
        &self.server
    }

    fn database(&self) -> Option<&DatabaseConfig> {
        Some(&self.database_config)
    }

    fn parts(&self, place: &Place<'_>) -> Parts {
        let training = &self.training_config;
        Parts {
            env: server_env(self, place),
            volumes: vec![config_volume("config", place.name, None, &[(FILE, FILE)])],
            mounts: vec![at("config", "/app/config").read_only()],
            security: service::security(&self.server),
            rules: rules(scheduler(self)),
            references: references(self, place),
            claim: Some(Claim {
                field: "spec.trainingConfig.modelPVC",
                spec: training.model_pvc.clone(),
                mounted: false,
            }),
            connection: Some(CONNECTION),
            endpoints: endpoints(self),
            apis: apis(scheduler(self)),
            faults: otel::faults(self.otel.as_ref()),
            ..Parts::default()
        }
    }

    fn config(&self, place: &Place<'_>, live: &LiveObjects) -> Option<Result<Value, Stop>> {
        Some(config::file(self, place, live))
    }

    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn scheduler(spec: &NemoCustomizerSpec) -> SchedulerType {
    let Scheduler { type_ } = spec.scheduler.clone().unwrap_or_default();
    type_.unwrap_or_default()
}

fn endpoints(spec: &NemoCustomizerSpec) -> Vec<Endpoint> {
    vec![datastore(&spec.datastore.endpoint), entitystore(&spec.entitystore.endpoint)]
}

/// What schedules training jobs; the server runs without, and every training fails.
fn apis(scheduler: SchedulerType) -> Vec<Api> {
    let volcano = "install Volcano, or set spec.scheduler.type to runai";
    match scheduler {
        SchedulerType::Volcano => vec![
            Api { needed_by: "spec.scheduler.type volcano", crd: "jobs.batch.volcano.sh", fix: volcano },
            Api { needed_by: "spec.scheduler.type volcano", crd: "queues.scheduling.volcano.sh", fix: volcano },
            Api { needed_by: "spec.scheduler.type volcano", crd: "podgroups.scheduling.volcano.sh", fix: volcano },
            Api {
                needed_by: "spec.trainingConfig",
                crd: "nemotrainingjobs.nvidia.com",
                fix: "install NVIDIA's NeMo training operator",
            },
        ],
        SchedulerType::Runai => vec![Api {
            needed_by: "spec.scheduler.type runai",
            crd: "trainingworkloads.run.ai",
            fix: "install Run:ai, or set spec.scheduler.type to volcano",
        }],
    }
}

fn rules(scheduler: SchedulerType) -> Vec<PolicyRule> {
    let mut rules = vec![
        rbac::rule("batch", &["jobs"], CHANGE),
        rbac::rule("batch", &["jobs/status"], READ),
        rbac::rule("", &["pods", "persistentvolumeclaims", "services", "configmaps"], MAKE),
        rbac::rule("", &["events"], &["create", "get", "list", "watch"]),
        rbac::rule("nvidia.com", &["nemotrainingjobs", "nemotrainingjobs/status", "nemoentityhandlers"], CHANGE),
    ];
    match scheduler {
        SchedulerType::Volcano => {
            let queues = rbac::rule("scheduling.volcano.sh", &["queues", "queues/status", "podgroups"], READ);
            let groups = ["scheduling.incubator.k8s.io", "scheduling.volcano.sh"].map(str::to_owned);
            rules.extend([
                rbac::rule("batch.volcano.sh", &["jobs"], CHANGE),
                rbac::rule("batch.volcano.sh", &["jobs/status"], READ),
                rbac::rule("nodeinfo.volcano.sh", &["numatopologies"], READ),
                PolicyRule { api_groups: Some(groups.into()), ..queues },
            ]);
        }
        SchedulerType::Runai => {
            rules.push(rbac::rule("run.ai", &["trainingworkloads", "runaijobs"], CHANGE));
        }
    }
    rules
}

fn references(spec: &NemoCustomizerSpec, place: &Place<'_>) -> Vec<Reference> {
    let (wandb, jobs) = (&spec.wandb, &spec.model_download_jobs);
    let mut list = vec![
        database::secret(&spec.database_config, place).decides(),
        Reference::config_map("spec.modelConfig", place, &spec.model_config.name).decides().not_at_start(),
    ];
    if let Some(training) = &spec.training_config.config_map {
        let map = Reference::config_map("spec.trainingConfig.configMap", place, &training.name);
        list.push(Reference { keys: vec![config::TRAINING.into()], ..map.decides().not_at_start() });
    }
    list.push(Reference::secret("spec.wandb.secretName", place, &wandb.secret_name, &[api_key(wandb)]).for_jobs());
    // Pods read the key that encrypts; it may be absent.
    list.push(Reference::secret("spec.wandb.secretName", place, &wandb.secret_name, &[]).optional());
    if let Some(ngc) = &jobs.ngc_api_secret {
        let key = config::ngc_key(ngc);
        list.push(Reference::secret("spec.modelDownloadJobs.ngcAPISecret", place, &ngc.name, &[key]).for_jobs());
    }
    if let Some(hub) = &jobs.hf_secret {
        let key = config::hub_key(hub);
        list.push(Reference::secret("spec.modelDownloadJobs.hfSecret", place, &hub.name, &[key]).for_jobs());
    }
    list
}

fn api_key(wandb: &WeightsAndBiases) -> &str {
    wandb.api_key_key.as_deref().filter(|key| !key.is_empty()).unwrap_or("apiKey")
}

fn server_env(spec: &NemoCustomizerSpec, place: &Place<'_>) -> Vec<EnvVar> {
    let (database, wandb) = (&spec.database_config, &spec.wandb);
    let encryption = wandb.encryption_key.as_deref().filter(|key| !key.is_empty()).unwrap_or("encryptionKey");
    let mut encryption = database::from_secret("WANDB_ENCRYPTION_KEY", &wandb.secret_name, encryption);
    // The domain of the cluster need not be the usual one, and the key need not be there.
    let domain = match place.form {
        Form::Reference => "svc.cluster.local",
        Form::Own => "svc",
    };
    if let Some(key) = encryption.value_from.as_mut().and_then(|source| source.secret_key_ref.as_mut()) {
        key.optional = (place.form == Form::Own).then_some(true);
    }
    let callback = format!("http://{}.{}.{domain}:{CALLBACK}", place.name, place.namespace);
    let mut list = vec![
        env("NAMESPACE", place.namespace),
        service::host_ip(),
        env("CONFIG_PATH", format!("/app/config/{FILE}")),
        env("CUSTOMIZATIONS_CALLBACK_URL", callback),
        env("LOG_LEVEL", "INFO"),
        encryption,
        env("WANDB_SECRET_NAME", wandb.secret_name.clone()),
        env("WANDB_SECRET_KEY", api_key(wandb)),
        database::password("POSTGRES_DB_PASSWORD", database),
        database::from_secret("POSTGRES_DB_DSN", place.name, CONNECTION),
        env("POSTGRES_SECRET_NAME", database.credentials.secret_name.clone()),
    ];
    list.extend(otel::environment(spec.otel.as_ref()));
    list
}
