//! PostgreSQL: the connection string, the variables that pods get it by, and the container that waits for it.

use capstan_api::common::Image;
use capstan_api::nemo::shared::DatabaseConfig;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ResourceRequirements, SecretKeySelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::service::{Form, Place, Reference, pull_policy};

/// Name of the container that waits for a database.
pub const WAIT_CONTAINER: &str = "wait-for-postgres";

/// Port when the user names none.
const PORT: i32 = 5432;

/// How often a new pod looks for its database, five seconds apart, before it gives up and is started again.
const TRIES: u32 = 60;

pub(super) fn port(database: &DatabaseConfig) -> i32 {
    database.port.unwrap_or(PORT)
}

/// Key of the password.
pub(super) fn password_key(database: &DatabaseConfig) -> &str {
    database.credentials.password_key.as_deref().filter(|key| !key.is_empty()).unwrap_or("password")
}

/// Host and port; an IPv6 address in brackets.
pub(super) fn address(database: &DatabaseConfig) -> String {
    let host = &database.host;
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.clone() };
    format!("{host}:{}", port(database))
}

/// The connection string.
pub(super) fn uri(database: &DatabaseConfig, password: &str) -> String {
    let (user, name) = (encoded(&database.credentials.user), encoded(&database.database_name));
    format!("postgresql://{user}:{}@{}/{name}", encoded(password), address(database))
}

/// A part of a URL: what would be read as its punctuation is percent-encoded.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The Secret with the password.
pub(super) fn secret(database: &DatabaseConfig, at: &Place<'_>) -> Reference {
    let field = "spec.databaseConfig.credentials";
    Reference::secret(field, at, &database.credentials.secret_name, &[password_key(database)])
}

/// The password as a variable.
pub(super) fn password(variable: &str, database: &DatabaseConfig) -> EnvVar {
    from_secret(variable, &database.credentials.secret_name, password_key(database))
}

/// A key of a Secret as a variable.
pub(super) fn from_secret(variable: &str, secret: &str, key: &str) -> EnvVar {
    let selector = SecretKeySelector { name: secret.into(), key: key.into(), optional: None };
    let source = EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: variable.into(), value_from: Some(source), ..EnvVar::default() }
}

/// The init container that waits until the database takes connections. `end` closes the line of the reference's script,
/// which differs between kinds.
pub(super) fn wait(database: &DatabaseConfig, at: &Place<'_>, image: &Image, end: &str) -> Container {
    let (host, port) = (&database.host, port(database));
    let shown = address(database);
    let (wait_image, script, policy) = match at.form {
        Form::Reference => (
            "busybox".to_owned(),
            format!("until nc -z {host} {port}; do echo \"Waiting for Postgres to start \"; sleep 5; done{end}"),
            None,
        ),
        Form::Own => (
            at.settings.wait_image.clone(),
            format!(
                "for try in $(seq {TRIES}); do nc -z {} {port} && exit 0; echo 'waiting for PostgreSQL at {}'; sleep 5; \
                 done; echo 'PostgreSQL at {} does not answer' >&2; exit 1",
                quoted(host),
                inside(&shown),
                inside(&shown)
            ),
            // So that the last line is in the status of the pod.
            Some("FallbackToLogsOnError".to_owned()),
        ),
    };
    Container {
        name: WAIT_CONTAINER.into(),
        image: Some(wait_image),
        image_pull_policy: pull_policy(image),
        command: Some(vec!["sh".into(), "-c".into(), script]),
        termination_message_policy: policy,
        ..Container::default()
    }
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if text.chars().all(plain) { text.into() } else { format!("'{}'", inside(text)) }
}

/// A text within single quotes of a shell.
fn inside(text: &str) -> String {
    text.replace('\'', "'\\''")
}

/// What a migration may use.
pub(super) fn migration_limits() -> ResourceRequirements {
    let limits = [("cpu", "1"), ("memory", "1Gi")];
    let limits = limits.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
    ResourceRequirements { limits: Some(limits.into()), ..ResourceRequirements::default() }
}

#[cfg(test)]
mod tests {
    use capstan_api::nemo::shared::DatabaseCredentials;

    use super::*;

    fn database(host: &str, user: &str, name: &str) -> DatabaseConfig {
        DatabaseConfig {
            host: host.into(),
            port: None,
            database_name: name.into(),
            credentials: DatabaseCredentials { user: user.into(), secret_name: "s".into(), password_key: None },
        }
    }

    #[test]
    fn a_password_with_punctuation_survives_in_the_connection_string() {
        let plain = database("pg.nemo.svc.cluster.local", "ncsuser", "ncsdb");
        assert_eq!(uri(&plain, "secret"), "postgresql://ncsuser:secret@pg.nemo.svc.cluster.local:5432/ncsdb");
        let odd = database("fd00::1", "a@b", "x/y");
        assert_eq!(uri(&odd, "p@:/?#%é"), "postgresql://a%40b:p%40%3A%2F%3F%23%25%C3%A9@[fd00::1]:5432/x%2Fy");
    }

    #[test]
    fn a_host_cannot_add_to_the_script_that_waits() {
        assert_eq!(quoted("pg.nemo"), "pg.nemo");
        assert_eq!(quoted("a; rm -rf '/'"), "'a; rm -rf '\\''/'\\'''");
    }
}
