//! NemoGuardrail: keeps the conversations with a model within rules.

use capstan_api::common::PersistentVolumeClaim;
use capstan_api::nemo::shared::DatabaseConfig;
use capstan_api::nemo::{ConfigStore, NemoGuardrail, NemoGuardrailSpec, NemoServer, NemoStatus, NimEndpoint};
use capstan_api::nim::NimService;
use capstan_plan::kit::env;
use capstan_plan::kit::pod::{at, config, empty_dir_volume};
use capstan_plan::kit::storage::{claim_name, claim_volume};
use capstan_plan::{Facts, Plan, Ref};
use k8s_openapi::api::core::v1::{Container, EnvVar, Volume, VolumeMount};
use serde_json::Value;

use super::service::{
    self, About, Claim, Endpoint, Fault, Form, Health, Parts, Place, Reference, Service, Settings, Weight,
};
use super::{database, otel};

static ABOUT: About = About {
    kind: "NemoGuardrail",
    part_of: "nemo-guardrail-service",
    selector: &["app", "app.kubernetes.io/name", "app.kubernetes.io/instance"],
    ports: &[("api", 8000)],
    startup: Health::new("/v1/health", 30, 1, 10, 30),
    liveness: Health::new("/v1/health", 15, 1, 10, 3),
    readiness: Health::new("/v1/health", 15, 1, 10, 3),
};

/// Key of the Secret with the connection string.
const CONNECTION: &str = "uri";
/// Where the rules are mounted.
const STORE: &str = "/config-store";
/// Directory of a claim when the user names none.
const DIRECTORY: &str = "guardrails-config-store";

/// What this Guardrail should look like.
pub fn plan(object: &NemoGuardrail, facts: &Facts, settings: &Settings) -> Plan<NemoStatus> {
    service::plan(object, facts, settings)
}

/// The answer when something is in the way.
pub fn blocked(
    object: &NemoGuardrail,
    facts: &Facts,
    settings: &Settings,
    reason: &str,
    message: &str,
) -> Plan<NemoStatus> {
    service::blocked(object, facts, settings, reason, message)
}

impl Service for NemoGuardrailSpec {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn server(&self) -> &NemoServer {
        &self.server
    }

    fn database(&self) -> Option<&DatabaseConfig> {
        self.database_config.as_ref()
    }

    fn parts(&self, place: &Place<'_>) -> Parts {
        let store = self.config_store.clone().unwrap_or_default();
        let database = self.database_config.as_ref();
        let claim =
            own_claim(&store).map(|spec| Claim { field: "spec.configStore.pvc", spec: spec.clone(), mounted: true });
        let (volume, mount) = rules(&store, place);
        let mut references: Vec<Reference> =
            database.map(|database| database::secret(database, place).decides()).into_iter().collect();
        references
            .extend(map_name(&store).map(|name| Reference::config_map("spec.configStore.configMap", place, name)));
        references.extend(self.nim_endpoint.as_ref().and_then(|endpoint| api_key(endpoint, place)));
        let endpoint = |endpoint: &NimEndpoint| Endpoint {
            field: "spec.nimEndpoint.baseURL",
            url: endpoint.base_url.clone(),
            candidate: |namespace, name| Ref::of::<NimService>(namespace, name),
        };
        let mut faults = otel::faults(self.otel.as_ref());
        if store.config_map.is_some() && store.pvc.is_some() {
            let message = "spec.configStore has both configMap and pvc: remove one of them";
            faults.push(Fault { weight: Weight::Refused, message: message.into() });
        }
        Parts {
            env: server_env(self, place),
            init: database.map(|database| init(self, database, place)).unwrap_or_default(),
            volumes: vec![volume],
            mounts: vec![mount],
            security: service::security(&self.server),
            references,
            claim,
            connection: database.map(|_| CONNECTION),
            endpoints: self.nim_endpoint.iter().map(endpoint).collect(),
            faults,
            ..Parts::default()
        }
    }

    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn map_name(store: &ConfigStore) -> Option<&str> {
    store.config_map.as_ref().map(|map| map.name.as_str()).filter(|name| !name.is_empty())
}

/// The claim that the user filled in, unless the rules are in a ConfigMap.
fn own_claim(store: &ConfigStore) -> Option<&PersistentVolumeClaim> {
    let claim = store.pvc.as_ref().filter(|claim| **claim != PersistentVolumeClaim::default());
    claim.filter(|_| map_name(store).is_none())
}

/// The rules: in a ConfigMap, on a claim, or in a directory that lives as long as the pod.
fn rules(store: &ConfigStore, place: &Place<'_>) -> (Volume, VolumeMount) {
    let name = "config-store";
    if let Some(map) = map_name(store) {
        return (config(name, map, None, &[]), at(name, STORE));
    }
    let Some(claim) = own_claim(store) else { return (empty_dir_volume(name), at(name, STORE)) };
    let inside = claim.sub_path.clone().filter(|path| !path.is_empty()).unwrap_or_else(|| DIRECTORY.into());
    let mount = VolumeMount { sub_path: Some(inside), ..at(name, STORE) };
    (claim_volume(name, &claim_name(claim, place.name), None), mount)
}

fn key_of(endpoint: &NimEndpoint) -> &str {
    endpoint.api_key_key.as_deref().filter(|key| !key.is_empty()).unwrap_or("NIM_ENDPOINT_API_KEY")
}

fn secret_of(endpoint: &NimEndpoint) -> Option<&str> {
    endpoint.api_key_secret.as_deref().filter(|name| !name.is_empty())
}

fn api_key(endpoint: &NimEndpoint, place: &Place<'_>) -> Option<Reference> {
    let secret = secret_of(endpoint)?;
    Some(Reference::secret("spec.nimEndpoint.apiKeySecret", place, secret, &[key_of(endpoint)]))
}

fn server_env(spec: &NemoGuardrailSpec, place: &Place<'_>) -> Vec<EnvVar> {
    let mut list = vec![
        env("CONFIG_STORE_PATH", STORE),
        env("DEFAULT_CONFIG_ID", "default"),
        env("DEFAULT_LLM_PROVIDER", "nim"),
        env("NEMO_GUARDRAILS_SERVER_ENABLE_CORS", "False"),
        env("NEMO_GUARDRAILS_SERVER_ALLOWED_ORIGINS", "*"),
        env("GUARDRAILS_HOST", "0.0.0.0"),
        env("GUARDRAILS_PORT", "8000"),
        env("DEMO", "False"),
    ];
    if let Some(endpoint) = &spec.nim_endpoint {
        list.push(env("NIM_ENDPOINT_URL", endpoint.base_url.clone()));
        let key = secret_of(endpoint);
        list.extend(key.map(|secret| database::from_secret("NIM_ENDPOINT_API_KEY", secret, key_of(endpoint))));
    }
    if let Some(database) = &spec.database_config {
        list.extend(connection(database, place));
    }
    let telemetry = otel::environment(spec.otel.as_ref());
    if spec.otel.as_ref().is_some_and(|otel| otel.enabled == Some(true)) {
        // A variable must stand before the one that uses it. The NIM Operator forgets it.
        list.extend((place.form == Form::Own).then(|| env("NAMESPACE", place.namespace)));
        list.extend(telemetry);
        list.push(env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=$(NAMESPACE)"));
    } else {
        list.extend(telemetry);
    }
    list
}

fn connection(config: &DatabaseConfig, place: &Place<'_>) -> [EnvVar; 3] {
    let uri = |variable: &str| database::from_secret(variable, place.name, CONNECTION);
    [database::password("POSTGRES_DB_PASSWORD", config), uri("POSTGRES_URI"), uri("DB_URI")]
}

fn init(spec: &NemoGuardrailSpec, config: &DatabaseConfig, place: &Place<'_>) -> Vec<Container> {
    let home = "/app/services/guardrails";
    let mut variables = vec![env("NAMESPACE", place.namespace), env("PYTHONPATH", home)];
    variables.extend(connection(config, place));
    let migration = Container {
        name: "guardrail-db-migration".into(),
        image: Some(service::image(&spec.server.image)),
        image_pull_policy: service::pull_policy(&spec.server.image),
        command: Some(vec!["/app/.venv/bin/alembic".into()]),
        args: Some(vec!["upgrade".into(), "head".into()]),
        env: Some(variables),
        working_dir: Some(home.into()),
        resources: Some(database::migration_limits()),
        ..Container::default()
    };
    vec![database::wait(config, place, &spec.server.image, ""), migration]
}
