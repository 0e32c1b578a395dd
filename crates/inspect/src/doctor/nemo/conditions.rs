//! What services say themselves, in the words of their conditions, and pods that wait for a database.

use capstan_operands::nemo::WAIT_CONTAINER;
use serde_json::Value;

use super::services;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::index::{Index, condition, reference, short, text};
use crate::snapshot::named;

/// What programs say that cannot reach PostgreSQL.
const UNREACHABLE: &[&str] = &[
    "could not connect to server",
    "connection to server at",
    "failed to connect to `host",
    "could not translate host name",
    "failed to ping database",
    "orm engine initialization attempt",
    "password authentication failed",
];

fn said<'a>(service: &'a Value, type_: &str) -> Option<&'a Value> {
    condition(service, type_).filter(|one| one["status"] == "True")
}

fn finding(service: &Value, type_: &str) -> Option<Finding> {
    let found = said(service, type_)?;
    let line = format!("{}, condition {type_}", reference(service));
    Some(Finding::about(service, text(&found["message"])).evidence(line))
}

/// Secrets, keys, ConfigMaps and claims that are not there.
pub(super) fn references(index: &Index<'_>) -> Vec<Finding> {
    let found = services(index).filter_map(|service| {
        let found = finding(service, "MissingReferences")?;
        // A service that runs will miss it in its jobs.
        let ready = service["status"]["state"] == "Ready";
        let namespace = named(service).0;
        let fix = format!(
            "create what is named in namespace {namespace}, or correct the field: the service goes on by itself"
        );
        Some(found.severity(if ready { Severity::Warning } else { Severity::Error }).fix(fix))
    });
    found.collect()
}

/// Kinds of others that are not in the cluster.
pub(super) fn apis(index: &Index<'_>) -> Vec<Finding> {
    let found = services(index).filter_map(|service| {
        let fix = "install what is named; the service runs meanwhile, and what needs it does not";
        Some(finding(service, "MissingAPI")?.severity(Severity::Warning).fix(fix))
    });
    found.collect()
}

/// Databases that do not answer.
pub(super) fn database(index: &Index<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for service in services(index) {
        let database = &service["spec"]["databaseConfig"];
        let host = text(&database["host"]);
        let fix = format!(
            "see that PostgreSQL runs at {host}:{} and takes user {} with the password in Secret {}, or correct \
             spec.databaseConfig",
            database["port"].as_i64().unwrap_or(5432),
            text(&database["credentials"]["user"]),
            text(&database["credentials"]["secretName"]),
        );
        if let Some(finding) = finding(service, "DatabaseUnreachable") {
            found.push(finding.fix(fix));
            continue;
        }
        let (namespace, name) = named(service);
        let own = index.pods.iter().filter(|pod| {
            pod.namespace == namespace
                && pod.label("app") == name
                && pod.label("app.kubernetes.io/part-of").starts_with("nemo-")
                && !pod.is_ready()
        });
        for pod in own {
            let waits = pod.containers().find(|one| {
                one.name == WAIT_CONTAINER && one.running().is_some_and(|since| index.exceeds_grace_period(since))
            });
            let line = match (waits, index.find_output(pod, UNREACHABLE)) {
                (_, Some((container, line))) => format!("{}, container {container}: {}", pod.reference(), short(line)),
                (Some(_), None) => format!("{} waits in container {WAIT_CONTAINER}", pod.reference()),
                (None, None) => continue,
            };
            let what = format!("the database at {host} does not answer");
            found.push(Finding::about(service, what).object(pod.reference()).evidence(line).fix(fix.clone()));
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn service(state: &str, conditions: Value) -> Value {
        let credentials = json!({"user": "nemo", "secretName": "pg"});
        json!({
            "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NemoEntitystore",
            "metadata": {"name": "entities", "namespace": "nim"},
            "spec": {"databaseConfig": {"host": "pg.nemo", "databaseName": "d", "credentials": credentials}},
            "status": {"state": state, "conditions": conditions},
        })
    }

    fn says(type_: &str, message: &str) -> Value {
        json!([{"type": type_, "status": "True", "reason": type_, "message": message}])
    }

    #[test]
    fn a_service_that_is_ready_is_healthy() {
        assert_healthy(&Cluster::healthy().add(service("Ready", json!([]))));
    }

    #[test]
    fn a_secret_that_is_missing_is_told_in_the_words_of_the_condition() {
        let message = "Secret nim/pg, which spec.databaseConfig.credentials names, does not exist: create it";
        let cluster = Cluster::healthy().add(service("NotReady", says("MissingReferences", message)));
        let report = assert_only(&cluster, "nemo-reference-missing");
        assert_eq!(report.causes[0].title, format!("NemoEntitystore nim/entities: {message}"));
    }

    #[test]
    fn a_kind_that_is_missing_is_a_warning() {
        let message = "spec.argoWorkflows needs CRD workflows.argoproj.io, which is not in this cluster";
        assert_only(&Cluster::healthy().add(service("Ready", says("MissingAPI", message))), "nemo-api-missing");
    }

    #[test]
    fn a_database_that_does_not_answer_is_told_by_condition_or_by_the_pod() {
        let message = "PostgreSQL at pg.nemo:5432 does not answer: pod entities-x waits for it";
        let cluster = Cluster::healthy().add(service("NotReady", says("DatabaseUnreachable", message)));
        let report = assert_only(&cluster, "nemo-database");
        assert!(report.causes[0].fix.contains("pg.nemo:5432"), "{report:?}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "entities-x", "namespace": "nim", "labels": {
                "app": "entities", "app.kubernetes.io/part-of": "nemo-entitystore-service",
            }},
            "spec": {"nodeName": "gpu-0", "containers": [{"name": "entities-ctr"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [{
                "name": "wait-for-postgres", "ready": false, "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}},
            }]},
        });
        let cluster = Cluster::healthy().add(service("NotReady", json!([]))).add(pod);
        assert_only(&cluster, "nemo-database");
    }
}
