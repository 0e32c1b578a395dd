//! NemoDatastore: files of models and datasets, in a Gitea with large files on a volume or in an object store.

use capstan_api::common::PersistentVolumeClaim;
use capstan_api::nemo::shared::DatabaseConfig;
use capstan_api::nemo::{
    DatastoreSecrets, NemoDatastore, NemoDatastoreSpec, NemoServer, NemoStatus, ObjectStoreConfig,
};
use capstan_plan::kit::env;
use capstan_plan::kit::pod::{at, empty_dir_volume};
use capstan_plan::kit::storage::{claim_name, claim_volume};
use capstan_plan::{Facts, Plan};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSecurityContext, SecretVolumeSource, Volume, VolumeMount};
use serde_json::Value;

use super::database::{self, from_secret};
use super::service::{self, About, Claim, Fault, Health, Parts, Place, Reference, Service, Settings, Weight};

static ABOUT: About = About {
    kind: "NemoDatastore",
    part_of: "nemo-datastore-service",
    selector: &["app.kubernetes.io/name", "app.kubernetes.io/instance"],
    ports: &[("api", 3000)],
    startup: Health::new("/v1/health", 30, 1, 10, 30),
    liveness: Health::new("/v1/health", 15, 1, 10, 3),
    readiness: Health::new("/v1/health", 15, 1, 10, 3),
};

/// Group of the volumes when the spec names none.
const GROUP: i64 = 1000;
/// Mode of scripts: 0156, as the NIM Operator writes it.
const SCRIPTS: i32 = 110;
/// Mode of settings: 0644.
const SETTINGS: i32 = 420;

/// What this Data Store should look like.
pub fn plan(object: &NemoDatastore, facts: &Facts, settings: &Settings) -> Plan<NemoStatus> {
    service::plan(object, facts, settings)
}

/// The answer when something is in the way.
pub fn blocked(
    object: &NemoDatastore,
    facts: &Facts,
    settings: &Settings,
    reason: &str,
    message: &str,
) -> Plan<NemoStatus> {
    service::blocked(object, facts, settings, reason, message)
}

impl Service for NemoDatastoreSpec {
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
        Parts {
            env: server_env(self),
            init: init(self),
            volumes: volumes(self, place),
            mounts: vec![at("temp", "/tmp"), data(self)],
            // The image runs as a user of its own.
            security: PodSecurityContext {
                fs_group: Some(self.server.group_id.unwrap_or(GROUP)),
                ..PodSecurityContext::default()
            },
            references: references(self, place),
            claim: own_claim(self).map(|spec| Claim { field: "spec.pvc", spec: spec.clone(), mounted: true }),
            faults: faults(&self.secrets),
            ..Parts::default()
        }
    }

    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The claim that the user filled in.
fn own_claim(spec: &NemoDatastoreSpec) -> Option<&PersistentVolumeClaim> {
    spec.pvc.as_ref().filter(|claim| **claim != PersistentVolumeClaim::default())
}

fn data(spec: &NemoDatastoreSpec) -> VolumeMount {
    let inside = own_claim(spec).and_then(|claim| claim.sub_path.clone()).filter(|path| !path.is_empty());
    VolumeMount { sub_path: inside, ..at("data", "/data") }
}

fn volumes(spec: &NemoDatastoreSpec, place: &Place<'_>) -> Vec<Volume> {
    let secret = |name: &str, secret: &str, mode: i32| {
        let source = SecretVolumeSource {
            secret_name: Some(secret.into()),
            default_mode: Some(mode),
            ..SecretVolumeSource::default()
        };
        Volume { name: name.into(), secret: Some(source), ..Volume::default() }
    };
    let DatastoreSecrets { datastore_init_secret, datastore_config_secret, datastore_inline_config_secret, .. } =
        &spec.secrets;
    vec![
        secret("init", datastore_init_secret, SCRIPTS),
        secret("config", datastore_config_secret, SCRIPTS),
        secret("inline-config-sources", datastore_inline_config_secret, SETTINGS),
        empty_dir_volume("temp"),
        match own_claim(spec) {
            Some(claim) => claim_volume("data", &claim_name(claim, place.name), None),
            None => empty_dir_volume("data"),
        },
    ]
}

fn init(spec: &NemoDatastoreSpec) -> Vec<Container> {
    let mounts = vec![
        at("config", "/usr/sbin"),
        at("temp", "/tmp"),
        at("inline-config-sources", "/env-to-ini-mounts/inlines/"),
        at("init", "/usr/sbin/init"),
        data(spec),
    ];
    let steps: [(&str, &[&str], &[&str]); 3] = [
        ("init-directories", &["/usr/sbin/init/init_directory_structure.sh"], &[]),
        ("init-app-ini", &["/usr/sbin/config_environment.sh"], &[]),
        ("configure-datastore", &["/bin/sh", "-c"], &["/usr/sbin/init/configure_gitea.sh"]),
    ];
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let step = |(name, command, args): (&str, &[&str], &[&str])| Container {
        name: name.into(),
        image: Some(service::image(&spec.server.image)),
        image_pull_policy: service::pull_policy(&spec.server.image),
        command: Some(words(command)),
        args: Some(words(args)).filter(|args| !args.is_empty()),
        env: Some(init_env(spec)),
        volume_mounts: Some(mounts.clone()),
        ..Container::default()
    };
    steps.map(step).into()
}

/// Where Gitea keeps what, and its secrets.
fn common(spec: &NemoDatastoreSpec) -> Vec<EnvVar> {
    vec![
        env("GITEA_APP_INI", "/data/gitea/conf/app.ini"),
        env("GITEA_CUSTOM", "/data/gitea"),
        env("GITEA_WORK_DIR", "/data"),
        env("TMPDIR", "/tmp/gitea"),
        env("GITEA_TEMP", "/tmp/gitea"),
        env("HOME", "/data/gitea/git"),
        from_secret("GITEA__SERVER__LFS_JWT_SECRET", &spec.secrets.lfs_jwt_secret, "jwtSecret"),
        database::password("GITEA__DATABASE__PASSWD", &spec.database_config),
    ]
}

fn server_env(spec: &NemoDatastoreSpec) -> Vec<EnvVar> {
    let mut list = vec![env("SSH_LISTEN_PORT", "2222"), env("SSH_PORT", "22")];
    list.extend(common(spec));
    list.extend(spec.object_store_config.iter().flat_map(keys));
    list
}

fn init_env(spec: &NemoDatastoreSpec) -> Vec<EnvVar> {
    let (admin, database) = (&spec.secrets.gitea_admin_secret, &spec.database_config);
    let mut list = common(spec);
    list.extend(["GITEA_ADMIN_USERNAME", "GITEA_ADMIN_PASSWORD"].map(|key| from_secret(key, admin, key)));
    list.extend([
        env("GITEA__DATABASE__SSL_MODE", "disable"),
        env("GITEA__DATABASE__NAME", database.database_name.clone()),
        env("GITEA__DATABASE__HOST", database::address(database)),
        env("GITEA__DATABASE__USER", database.credentials.user.clone()),
    ]);
    if let Some(store) = &spec.object_store_config {
        list.extend([
            env("GITEA__LFS__SERVE_DIRECT", store.serve_direct.unwrap_or(true).to_string()),
            env("GITEA__LFS__STORAGE_TYPE", "minio"),
            env("GITEA__LFS__MINIO_ENDPOINT", store.endpoint.clone()),
            env("GITEA__LFS__MINIO_BUCKET", store.bucket_name.clone()),
            env("GITEA__LFS__MINIO_LOCATION", store.region.clone()),
            env("GITEA__LFS__MINIO_USE_SSL", store.ssl.to_string()),
        ]);
        list.extend(keys(store));
    }
    list
}

/// The access key of the object store.
fn keys(store: &ObjectStoreConfig) -> [EnvVar; 2] {
    let access = &store.credentials;
    [
        env("GITEA__LFS__MINIO_ACCESS_KEY_ID", access.user.clone()),
        from_secret("GITEA__LFS__MINIO_SECRET_ACCESS_KEY", &access.secret_name, &access.password_key),
    ]
}

fn references(spec: &NemoDatastoreSpec, place: &Place<'_>) -> Vec<Reference> {
    let secrets = &spec.secrets;
    let mut list = vec![database::secret(&spec.database_config, place)];
    let needed: [(&'static str, &str, &[&str]); 5] = [
        (
            "spec.secrets.giteaAdminSecret",
            &secrets.gitea_admin_secret,
            &["GITEA_ADMIN_USERNAME", "GITEA_ADMIN_PASSWORD"],
        ),
        ("spec.secrets.lfsJwtSecret", &secrets.lfs_jwt_secret, &["jwtSecret"]),
        (
            "spec.secrets.datastoreInitSecret",
            &secrets.datastore_init_secret,
            &["init_directory_structure.sh", "configure_gitea.sh"],
        ),
        ("spec.secrets.datastoreConfigSecret", &secrets.datastore_config_secret, &["config_environment.sh"]),
        ("spec.secrets.datastoreInlineConfigSecret", &secrets.datastore_inline_config_secret, &[]),
    ];
    list.extend(needed.map(|(field, name, keys)| Reference::secret(field, place, name, keys)));
    if let Some(store) = &spec.object_store_config {
        let (field, access) = ("spec.objectStoreConfig.credentials", &store.credentials);
        list.push(Reference::secret(field, place, &access.secret_name, &[&access.password_key]));
    }
    list
}

fn faults(secrets: &DatastoreSecrets) -> Vec<Fault> {
    let named = [
        ("giteaAdminSecret", &secrets.gitea_admin_secret),
        ("lfsJwtSecret", &secrets.lfs_jwt_secret),
        ("datastoreInitSecret", &secrets.datastore_init_secret),
        ("datastoreConfigSecret", &secrets.datastore_config_secret),
        ("datastoreInlineConfigSecret", &secrets.datastore_inline_config_secret),
    ];
    let empty = named.into_iter().filter(|(_, name)| name.is_empty());
    empty
        .map(|(field, _)| Fault {
            weight: Weight::Fatal,
            message: format!("spec.secrets.{field} is empty: name the Secret that Gitea starts from"),
        })
        .collect()
}
