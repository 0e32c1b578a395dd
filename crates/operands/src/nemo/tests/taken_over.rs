//! Deployments of the NIM Operator: their pods stay as they are until they are replaced for another reason.

use super::*;

/// What the NIM Operator runs for the usual Entity Store.
fn reference_pod() -> Value {
    let secret = json!({"valueFrom": {"secretKeyRef": {"name": "pg", "key": "password"}}});
    let mut password = json!({"name": "POSTGRES_PASSWORD"});
    password["valueFrom"] = secret["valueFrom"].clone();
    let connection = vec![
        password,
        json!({"name": "POSTGRES_USER", "value": "nemo"}),
        json!({"name": "POSTGRES_HOST", "value": "pg.nemo.svc.cluster.local"}),
        json!({"name": "POSTGRES_PORT", "value": "5432"}),
        json!({"name": "POSTGRES_DB", "value": "nesdb"}),
    ];
    let first = vec![
        json!({"name": "APP_VERSION", "value": "25.08"}),
        json!({"name": "BASE_URL_DATASTORE", "value": "http://datastore.nemo.svc.cluster.local:8000"}),
    ];
    let all = [first, connection.clone()].concat();
    let image = "nvcr.io/nvidia/nemo-microservices/entity-store:25.08";
    let wait = "until nc -z pg.nemo.svc.cluster.local 5432; do echo \"Waiting for Postgres to start \"; sleep 5; done;";
    let probe = |delay: i32, timeout: i32, failures: i32| {
        json!({
            "httpGet": {"path": "/health", "port": "api", "scheme": "HTTP"}, "initialDelaySeconds": delay,
            "timeoutSeconds": timeout, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": failures,
        })
    };
    json!({
        "metadata": {
            "labels": {
                "app": "one", "app.kubernetes.io/name": "one", "app.kubernetes.io/instance": "one",
                "app.kubernetes.io/operator-version": "", "app.kubernetes.io/part-of": "nemo-entitystore-service",
                "app.kubernetes.io/managed-by": "k8s-nim-operator",
            },
            "annotations": {"openshift.io/required-scc": "nonroot"},
        },
        "spec": {
            "initContainers": [
                {"name": "wait-for-postgres", "image": "busybox", "command": ["sh", "-c", wait], "imagePullPolicy": "Always"},
                {
                    "name": "entitystore-db-migration", "image": image, "command": ["/app/.venv/bin/python3"],
                    "args": ["-m", "scripts.run_db_migration"], "env": connection, "workingDir": "/app/services/entity-store",
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                },
            ],
            "containers": [{
                "name": "one-ctr", "image": image, "env": all,
                "ports": [{"name": "api", "containerPort": 8000, "protocol": "TCP"}],
                "startupProbe": probe(30, 1, 30), "livenessProbe": probe(3, 20, 10), "readinessProbe": probe(10, 20, 20),
            }],
            "serviceAccountName": "one", "imagePullSecrets": [{"name": "ngc-secret"}], "restartPolicy": "Always",
            "securityContext": {"runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 2000}, "dnsPolicy": "ClusterFirst",
        },
    })
}

fn taken_over(facts: &mut Facts) {
    let owner = json!([{"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NemoEntitystore", "name": "one", "uid": UID, "controller": true}]);
    add(
        facts,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "one", "namespace": "nemo", "uid": "u-d", "ownerReferences": owner},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "one"}}, "template": reference_pod()},
        }),
    );
}

#[test]
fn a_deployment_of_the_nim_operator_keeps_its_pods() {
    let mut facts = furnished();
    taken_over(&mut facts);
    let plan = planned::<NemoEntitystoreSpec>(&object("NemoEntitystore", entitystore_spec()), &facts);
    assert!(capstan_plan::is_subset(template(&plan), &reference_pod()), "{}", template(&plan));
}

#[test]
fn a_change_of_the_spec_brings_the_fixes_along() {
    let mut facts = furnished();
    taken_over(&mut facts);
    let mut spec = entitystore_spec();
    spec["image"]["tag"] = "25.10".into();
    let plan = planned::<NemoEntitystoreSpec>(&object("NemoEntitystore", spec), &facts);
    assert_eq!(template(&plan)["spec"]["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(template(&plan)["spec"]["initContainers"][0]["image"], "busybox:1.37");
}

#[test]
fn a_password_that_changes_replaces_pods_that_were_taken_over() {
    let mut facts = furnished();
    taken_over(&mut facts);
    let one = object("NemoEntitystore", entitystore_spec());
    let plan = planned::<NemoEntitystoreSpec>(&one, &facts);
    applied(&mut facts, &plan);
    let mut changed = secret("pg", &["password"]);
    changed["data"]["password"] = "h2".into();
    add(&mut facts, changed);
    let plan = planned::<NemoEntitystoreSpec>(&one, &facts);
    assert!(template(&plan)["metadata"]["annotations"]["nvidia.com/config-hash"].is_string());
}

#[test]
fn a_configuration_that_says_the_same_stays_as_it_was_written() {
    let mut facts = furnished();
    let one = object("NemoCustomizer", customizer_spec());
    let plan = planned::<NemoCustomizerSpec>(&one, &facts);
    applied(&mut facts, &plan);
    // The same in another style, and with the hash of whoever wrote it.
    let value = super::super::yaml::parse(child(&plan, "ConfigMap")["data"]["config.yaml"].as_str().unwrap()).unwrap();
    let mut map = child(&plan, "ConfigMap").clone();
    map["data"]["config.yaml"] = value.to_string().into();
    let mut deployment = child(&plan, "Deployment").clone();
    deployment["spec"]["template"]["metadata"]["annotations"]["apps.nvidia.com/training-config-hash"] = "theirs".into();
    add(&mut facts, map);
    add(&mut facts, deployment);
    let plan = planned::<NemoCustomizerSpec>(&one, &facts);
    assert_eq!(child(&plan, "ConfigMap")["data"]["config.yaml"], value.to_string());
    assert_eq!(template(&plan)["metadata"]["annotations"]["apps.nvidia.com/training-config-hash"], "theirs");
}
