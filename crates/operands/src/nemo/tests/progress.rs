//! How a service says how it is doing.

use super::*;

fn entitystore() -> Value {
    object("NemoEntitystore", entitystore_spec())
}

fn planned_now(one: &Value, facts: &Facts) -> Plan<NemoStatus> {
    planned::<NemoEntitystoreSpec>(one, facts)
}

/// Facts in which everything was applied, with that status of the Deployment.
fn rolled_out(status: Value) -> Facts {
    let mut facts = furnished();
    let plan = planned_now(&entitystore(), &facts);
    applied(&mut facts, &plan);
    let deployment = Ref::of::<k8s_openapi::api::apps::v1::Deployment>("nemo", "one");
    let mut live = (**facts.live.get(&deployment).unwrap()).clone();
    live["status"] = status;
    live["metadata"]["generation"] = 2.into();
    add(&mut facts, live);
    facts
}

fn available() -> Value {
    json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1})
}

#[test]
fn a_service_is_ready_when_its_deployment_is_and_says_for_which_generation() {
    let plan = planned_now(&entitystore(), &rolled_out(available()));
    assert_eq!((plan.status.state.as_deref(), plan.status.available_replicas), (Some("Ready"), Some(1)));
    let conditions = plan.status.conditions.as_deref().unwrap();
    assert_eq!((conditions[0].type_.as_str(), conditions[1].type_.as_str()), ("Ready", "Failed"));
    assert_eq!(conditions[0].observed_generation, Some(3));
    assert_eq!(conditions[0].message, "deployment \"one\" successfully rolled out");
    assert_eq!(plan.events.len(), 1);
}

#[test]
fn an_older_generation_of_the_deployment_is_not_ready() {
    let mut status = available();
    status["observedGeneration"] = 1.into();
    let plan = planned_now(&entitystore(), &rolled_out(status));
    assert_eq!(plan.status.state.as_deref(), Some("NotReady"));
    let (_, reason, _) = condition(&plan, "Failed");
    assert_eq!(reason, "Progressing");
}

#[test]
fn a_deadline_that_passed_has_a_reason_of_its_own() {
    let stuck = json!({"observedGeneration": 2, "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]});
    let plan = planned_now(&entitystore(), &rolled_out(stuck));
    assert_eq!(plan.status.state.as_deref(), Some("NotReady"));
    assert_eq!(condition(&plan, "Ready").1, "ProgressDeadlineExceeded");
    assert_eq!(plan.events[0].reason, "ProgressDeadlineExceeded");
}

#[test]
fn an_event_is_recorded_on_a_change_only() {
    let facts = rolled_out(available());
    let mut one = entitystore();
    one["status"] = serde_json::to_value(planned_now(&one, &facts).status).unwrap();
    assert!(planned_now(&one, &facts).events.is_empty());
}

#[test]
fn a_password_that_is_missing_is_named_with_secret_and_key() {
    for case in cases().into_iter().filter(|case| ["NemoCustomizer", "NemoEvaluator"].contains(&case.kind)) {
        let without = with(surroundings().into_iter().filter(|one| one["metadata"]["name"] != "pg"));
        let plan = (case.plan)(&case.object(|_| {}), &without);
        assert_eq!(plan.status.state.as_deref(), Some("NotReady"), "{}", case.kind);
        let (_, reason, message) = condition(&plan, "Ready");
        assert_eq!(reason, "SecretNotFound");
        assert_eq!(
            message,
            "Secret nemo/pg, which spec.databaseConfig.credentials names, does not exist: create it with key password, and \
             the service goes on by itself"
        );
        assert!(!kinds(&plan).contains(&"Deployment") && kinds(&plan).contains(&"Service"));
        assert_eq!(plan.events[0].reason, "SecretNotFound");
        let mut facts = without;
        add(&mut facts, secret("pg", &["other"]));
        let plan = (case.plan)(&case.object(|_| {}), &facts);
        let (_, reason, message) = condition(&plan, "Ready");
        assert_eq!(reason, "SecretKeyNotFound");
        assert!(message.contains("has no key password"), "{message}");
    }
}

#[test]
fn secrets_that_only_pods_read_do_not_hold_the_deployment_up() {
    let facts = with(surroundings().into_iter().filter(|one| one["metadata"]["name"] != "pg"));
    let plan = planned_now(&entitystore(), &facts);
    assert!(kinds(&plan).contains(&"Deployment"));
    assert_eq!(condition(&plan, "Ready").1, "SecretNotFound");
    assert!(condition(&plan, "MissingReferences").2.contains("Secret nemo/pg"));
}

/// A pod of the service in that state of the container that waits for the database.
fn pod(state: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "one-x", "namespace": "nemo", "labels": {"app": "one", "app.kubernetes.io/part-of": "nemo-entitystore-service"}},
        "spec": {"containers": []},
        "status": {"phase": "Pending", "initContainerStatuses": [
            {"name": "wait-for-postgres", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state},
        ]},
    })
}

#[test]
fn a_database_that_does_not_answer_is_named_with_host_and_port() {
    let mut facts = rolled_out(json!({"observedGeneration": 2}));
    let since = |seconds: i64| {
        let at = Timestamp::from_second(1_800_000_000 - seconds).unwrap();
        pod(json!({"running": {"startedAt": at.to_string()}}))
    };
    add(&mut facts, since(10));
    let plan = planned_now(&entitystore(), &facts);
    assert!(condition(&plan, "DatabaseUnreachable").0.is_empty(), "a database may take a moment");
    assert_eq!(plan.requeue, Some(std::time::Duration::from_secs(51)));
    for waits in [since(90), pod(json!({"terminated": {"exitCode": 1}}))] {
        add(&mut facts, waits);
        let plan = planned_now(&entitystore(), &facts);
        let (_, reason, message) = condition(&plan, "Ready");
        assert_eq!(reason, "DatabaseUnreachable");
        assert!(
            message.starts_with("PostgreSQL at pg.nemo.svc.cluster.local:5432 does not answer: pod one-x"),
            "{message}"
        );
        assert_eq!(plan.events[0].reason, "DatabaseUnreachable");
    }
}

#[test]
fn waiting_for_a_database_ends_and_its_image_can_be_chosen() {
    let one: Resource<NemoEntitystoreSpec> = read(&entitystore());
    let settings = Settings { wait_image: "registry.example.com/busybox@sha256:1".into() };
    let plan = service::plan(&one, &furnished(), &settings);
    let waits = &template(&plan)["spec"]["initContainers"][0];
    assert_eq!((&waits["name"], &waits["image"]), (&json!("wait-for-postgres"), &json!(settings.wait_image)));
    let script = waits["command"][2].as_str().unwrap();
    assert!(script.contains("seq 60") && script.ends_with("exit 1"), "{script}");
}

#[test]
fn services_that_are_called_and_not_ready_are_a_hint_and_hold_nothing_up() {
    let datastore = |state: &str| {
        json!({
            "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NemoDatastore", "status": {"state": state},
            "metadata": {"name": "datastore", "namespace": "nemo"},
        })
    };
    let mut facts = furnished();
    assert!(condition(&planned_now(&entitystore(), &facts), "DependenciesReady").0.is_empty());
    add(&mut facts, datastore("NotReady"));
    let plan = planned_now(&entitystore(), &facts);
    let (status, reason, message) = condition(&plan, "DependenciesReady");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "DependencyNotReady"));
    assert_eq!(message, "spec.datastore.endpoint is NemoDatastore nemo/datastore, which is NotReady");
    assert!(kinds(&plan).contains(&"Deployment"));
    add(&mut facts, datastore("Ready"));
    assert_eq!(condition(&planned_now(&entitystore(), &facts), "DependenciesReady").0, "True");
}

#[test]
fn several_replicas_on_a_claim_of_one_node_are_a_warning() {
    let case = case::<NemoDatastoreSpec>(datastore_spec);
    let plan = case.planned(|spec| spec["replicas"] = 2.into());
    let (_, _, message) = condition(&plan, "VolumeNotShared");
    assert!(
        message.starts_with("spec.pvc.volumeAccessMode is ReadWriteOnce, but several replicas are wanted"),
        "{message}"
    );
    let plan = case.planned(|spec| {
        spec["replicas"] = 2.into();
        spec["pvc"]["volumeAccessMode"] = "ReadWriteMany".into();
    });
    assert!(condition(&plan, "VolumeNotShared").0.is_empty());
}

#[test]
fn a_spec_that_cannot_be_acted_on_leaves_what_runs_alone() {
    let mut one = entitystore();
    one["spec"]["image"]["tag"] = "".into();
    let plan = planned_now(&one, &furnished());
    assert!(plan.objects.is_none());
}

#[test]
fn a_refusal_of_the_server_is_a_failure_with_its_reason() {
    let one: Resource<NemoEntitystoreSpec> = read(&entitystore());
    let plan = service::blocked(&one, &furnished(), &Settings::default(), "RoleFailed", "rules: no");
    assert_eq!(plan.status.state.as_deref(), Some("Failed"));
    assert_eq!(condition(&plan, "Failed"), ("True".into(), "RoleFailed".into(), "rules: no".into()));
}
