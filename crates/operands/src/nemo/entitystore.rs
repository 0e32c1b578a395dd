//! NemoEntitystore: the registry of models, datasets and projects.

use capstan_api::nemo::shared::DatabaseConfig;
use capstan_api::nemo::{NemoDatastore, NemoEntitystore, NemoEntitystoreSpec, NemoServer, NemoStatus};
use capstan_plan::kit::env;
use capstan_plan::{Facts, Plan, Ref};
use k8s_openapi::api::core::v1::{Container, EnvVar};
use serde_json::Value;

use super::database;
use super::service::{self, About, Endpoint, Health, Parts, Place, Service, Settings};

static ABOUT: About = About {
    kind: "NemoEntitystore",
    part_of: "nemo-entitystore-service",
    selector: &["app", "app.kubernetes.io/name", "app.kubernetes.io/instance"],
    ports: &[("api", 8000)],
    startup: Health::new("/health", 30, 1, 10, 30),
    liveness: Health::new("/health", 3, 20, 10, 10),
    readiness: Health::new("/health", 10, 20, 10, 20),
};

/// What this Entity Store should look like.
pub fn plan(object: &NemoEntitystore, facts: &Facts, settings: &Settings) -> Plan<NemoStatus> {
    service::plan(object, facts, settings)
}

/// The answer when something is in the way.
pub fn blocked(
    object: &NemoEntitystore,
    facts: &Facts,
    settings: &Settings,
    reason: &str,
    message: &str,
) -> Plan<NemoStatus> {
    service::blocked(object, facts, settings, reason, message)
}

impl Service for NemoEntitystoreSpec {
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
        let connection = connection(&self.database_config);
        let first = [
            env("APP_VERSION", self.server.image.tag.clone()),
            env("BASE_URL_DATASTORE", self.datastore.endpoint.clone()),
        ];
        let migration = Container {
            name: "entitystore-db-migration".into(),
            image: Some(service::image(&self.server.image)),
            image_pull_policy: service::pull_policy(&self.server.image),
            command: Some(vec!["/app/.venv/bin/python3".into()]),
            args: Some(vec!["-m".into(), "scripts.run_db_migration".into()]),
            env: Some(connection.clone()),
            working_dir: Some("/app/services/entity-store".into()),
            resources: Some(database::migration_limits()),
            ..Container::default()
        };
        Parts {
            env: first.into_iter().chain(connection).collect(),
            init: vec![database::wait(&self.database_config, at, &self.server.image, ";"), migration],
            security: service::security(&self.server),
            references: vec![database::secret(&self.database_config, at)],
            endpoints: vec![datastore(&self.datastore.endpoint)],
            ..Parts::default()
        }
    }

    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The Data Store as what a service calls.
pub(super) fn datastore(url: &str) -> Endpoint {
    Endpoint {
        field: "spec.datastore.endpoint",
        url: url.into(),
        candidate: |namespace, name| Ref::of::<NemoDatastore>(namespace, name),
    }
}

/// The Entity Store as what a service calls.
pub(super) fn entitystore(url: &str) -> Endpoint {
    Endpoint {
        field: "spec.entitystore.endpoint",
        url: url.into(),
        candidate: |namespace, name| Ref::of::<NemoEntitystore>(namespace, name),
    }
}

fn connection(config: &DatabaseConfig) -> Vec<EnvVar> {
    vec![
        database::password("POSTGRES_PASSWORD", config),
        env("POSTGRES_USER", config.credentials.user.clone()),
        env("POSTGRES_HOST", config.host.clone()),
        env("POSTGRES_PORT", database::port(config).to_string()),
        env("POSTGRES_DB", config.database_name.clone()),
    ]
}
