//! Each kind by itself: its objects, and the cases that its description is made for.

use super::*;

macro_rules! snapshots {
    ($($name:ident: $spec:ty, $usual:ident;)*) => {$(
        #[test]
        fn $name() {
            let plan = case::<$spec>($usual).planned(|_| {});
            insta::assert_yaml_snapshot!(bodies(&plan));
        }
    )*};
}

snapshots! {
    customizer_objects: NemoCustomizerSpec, customizer_spec;
    datastore_objects: NemoDatastoreSpec, datastore_spec;
    entitystore_objects: NemoEntitystoreSpec, entitystore_spec;
    evaluator_objects: NemoEvaluatorSpec, evaluator_spec;
    guardrail_objects: NemoGuardrailSpec, guardrail_spec;
}

fn datastore(edit: impl FnOnce(&mut Value)) -> Plan<NemoStatus> {
    case::<NemoDatastoreSpec>(datastore_spec).planned(edit)
}

fn evaluator(edit: impl FnOnce(&mut Value)) -> Plan<NemoStatus> {
    case::<NemoEvaluatorSpec>(evaluator_spec).planned(edit)
}

fn guardrail(edit: impl FnOnce(&mut Value)) -> Plan<NemoStatus> {
    case::<NemoGuardrailSpec>(guardrail_spec).planned(edit)
}

#[test]
fn a_datastore_has_three_init_containers_five_volumes_and_a_claim_of_its_own() {
    let plan = datastore(|_| {});
    let pod = &template(&plan)["spec"];
    assert_eq!((pod["initContainers"].as_array().unwrap().len(), pod["volumes"].as_array().unwrap().len()), (3, 5));
    assert_eq!(child(&plan, "PersistentVolumeClaim")["metadata"]["ownerReferences"][0]["uid"], UID);
    assert_eq!(plan.status.state.as_deref(), Some("NotReady"));
    let port = &child(&plan, "Service")["spec"]["ports"][0];
    assert_eq!(
        (&port["port"], &port["targetPort"], &container(&plan)["ports"][0]["containerPort"]),
        (&json!(8000), &json!("api"), &json!(3000))
    );
}

#[test]
fn a_datastore_without_a_claim_keeps_files_in_a_directory_of_the_pod() {
    let plan = datastore(|spec| _ = spec.as_object_mut().unwrap().remove("pvc"));
    assert!(!kinds(&plan).contains(&"PersistentVolumeClaim"));
    assert!(template(&plan)["spec"]["volumes"][4]["emptyDir"].is_object());
}

#[test]
fn a_datastore_serves_large_files_itself_when_configured_so() {
    let store = json!({
        "credentials": {"user": "minio", "secretName": "s3", "passwordKey": "key"}, "serveDirect": false,
        "endpoint": "minio:9000", "bucketName": "lfs", "region": "eu", "ssl": false,
    });
    let plan = datastore(|spec| spec["objectStoreConfig"] = store);
    let init = &template(&plan)["spec"]["initContainers"][0];
    assert_eq!(variable(init, "GITEA__LFS__SERVE_DIRECT")["value"], "false");
    let once = names(init).into_iter().filter(|name| *name == "GITEA__LFS__MINIO_LOCATION").count();
    assert_eq!(once, 1, "the region is there once");
    assert_eq!(names(container(&plan)).last(), Some(&"GITEA__LFS__MINIO_SECRET_ACCESS_KEY"));
    let (_, _, message) = condition(&plan, "MissingReferences");
    assert_eq!(
        message,
        "Secret nemo/s3, which spec.objectStoreConfig.credentials names, does not exist: create it with key key, and the \
         service goes on by itself"
    );
}

#[test]
fn a_datastore_runs_as_the_user_of_its_image() {
    let plan = datastore(|spec| (spec["groupID"], spec["userID"]) = (3000.into(), 7.into()));
    let context = &template(&plan)["spec"]["securityContext"];
    assert_eq!((&context["fsGroup"], &context["runAsUser"]), (&json!(3000), &Value::Null));
    assert!(container(&plan)["securityContext"].is_null());
    let (_, _, message) = condition(&plan, "IgnoredFields");
    assert_eq!(message, "these fields are set but have no effect: spec.userID");
}

#[test]
fn a_claim_that_is_missing_is_named_and_nothing_runs() {
    let plan = datastore(|spec| spec["pvc"] = json!({"name": "elsewhere"}));
    assert!(!kinds(&plan).contains(&"Deployment") && kinds(&plan).contains(&"Service"));
    let (status, reason, message) = condition(&plan, "Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "PVCNotFound"));
    assert_eq!(
        message,
        "PersistentVolumeClaim nemo/elsewhere, which spec.pvc names, does not exist: create it, or set create: true with \
         a size"
    );
}

#[test]
fn secrets_of_a_datastore_that_are_empty_are_a_mistake() {
    let plan = datastore(|spec| spec["secrets"]["lfsJwtSecret"] = "".into());
    assert_eq!(plan.status.state.as_deref(), Some("Failed"));
    let (_, _, message) = condition(&plan, "Failed");
    assert_eq!(message, "spec.secrets.lfsJwtSecret is empty: name the Secret that Gitea starts from");
}

#[test]
fn an_evaluator_validates_unless_that_is_disabled() {
    assert_eq!(variable(container(&evaluator(|_| {})), "EVAL_ENABLE_VALIDATION")["value"], "True");
    let plan = evaluator(|spec| spec["enableValidation"] = false.into());
    assert!(variable(container(&plan), "EVAL_ENABLE_VALIDATION").is_null());
}

#[test]
fn an_evaluator_names_all_nine_images_and_reads_its_uri_from_its_own_secret() {
    let plan = evaluator(|_| {});
    let main = container(&plan);
    for name in [
        "BIGCODE_EVALUATION_HARNESS",
        "LM_EVAL_HARNESS",
        "SIMILARITY_METRICS",
        "LLM_AS_A_JUDGE",
        "MT_BENCH",
        "RETRIEVER",
        "RAG",
        "BFCL",
        "AGENTIC_EVAL",
    ] {
        assert!(variable(main, name)["value"].is_string(), "{name}");
    }
    assert_eq!(variable(main, "POSTGRES_URI")["valueFrom"]["secretKeyRef"], json!({"name": "one", "key": "uri"}));
    let init: Vec<&Value> = template(&plan)["spec"]["initContainers"].as_array().unwrap().iter().collect();
    assert_eq!((&init[0]["name"], &init[1]["name"]), (&json!("wait-for-postgres"), &json!("evaluator-db-migration")));
    assert_eq!(init[1]["command"], json!(["sh", "-c", "/app/scripts/run-db-migration.sh"]));
}

#[test]
fn the_secret_of_an_evaluator_is_found_by_the_label_of_its_manager() {
    let plan = evaluator(|_| {});
    assert_eq!(child(&plan, "Secret")["metadata"]["labels"]["app.kubernetes.io/managed-by"], "k8s-nim-operator");
    assert!(
        child(&plan, "Secret")["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].is_null()
    );
}

#[test]
fn without_argo_the_evaluator_runs_and_says_what_is_missing() {
    let facts = {
        let mut facts =
            with(surroundings().into_iter().filter(|one| one["metadata"]["name"] != "workflows.argoproj.io"));
        answer(&mut facts, "h1", "secret");
        facts
    };
    let plan = planned::<NemoEvaluatorSpec>(&object("NemoEvaluator", evaluator_spec()), &facts);
    assert!(kinds(&plan).contains(&"Deployment"));
    let (_, _, message) = condition(&plan, "MissingAPI");
    assert!(
        message.contains("needs CRD workflows.argoproj.io, which is not in this cluster: install Argo"),
        "{message}"
    );
}

#[test]
fn a_guardrail_with_rules_in_a_config_map_needs_nothing_else() {
    let plan = guardrail(|_| {});
    assert_eq!(kinds(&plan), ["ServiceAccount", "Role", "RoleBinding", "Service", "Deployment"]);
    let pod = &template(&plan)["spec"];
    assert!(pod["initContainers"].is_null());
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "rules");
}

#[test]
fn a_claim_of_a_guardrail_has_one_name_in_claim_and_volume() {
    let claim = json!({"create": true, "size": "1Gi", "volumeAccessMode": "ReadWriteOnce"});
    let plan = guardrail(|spec| spec["configStore"] = json!({"pvc": claim}));
    assert_eq!(child(&plan, "PersistentVolumeClaim")["metadata"]["name"], "one-pvc");
    assert_eq!(template(&plan)["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "one-pvc");
    assert_eq!(container(&plan)["volumeMounts"][0]["subPath"], "guardrails-config-store");
    let plan = guardrail(|spec| {
        spec["configStore"] = json!({"pvc": {"name": "mine", "create": true, "size": "1Gi", "subPath": "rails"}})
    });
    assert_eq!(container(&plan)["volumeMounts"][0]["subPath"], "rails");
}

#[test]
fn a_guardrail_without_rules_starts_with_an_empty_directory() {
    for store in [json!({}), Value::Null] {
        let plan = guardrail(|spec| spec["configStore"] = store);
        assert!(template(&plan)["spec"]["volumes"][0]["emptyDir"].is_object());
    }
}

#[test]
fn a_guardrail_with_a_database_migrates_and_without_one_loses_its_secret() {
    let mut facts = furnished();
    let with_database = object("NemoGuardrail", {
        let mut spec = guardrail_spec();
        spec["databaseConfig"] = database("guardraildb");
        spec
    });
    let plan = planned::<NemoGuardrailSpec>(&with_database, &facts);
    assert_eq!(template(&plan)["spec"]["initContainers"].as_array().unwrap().len(), 2);
    assert_eq!(variable(container(&plan), "DB_URI")["valueFrom"]["secretKeyRef"]["name"], "one");
    applied(&mut facts, &plan);
    let plan = planned::<NemoGuardrailSpec>(&object("NemoGuardrail", guardrail_spec()), &facts);
    let diff = diff(UID, plan.objects.as_deref().unwrap(), &facts.live);
    let deleted: Vec<String> = diff.delete.iter().map(|one| one.reference.to_string()).collect();
    assert_eq!(deleted, ["Secret nemo/one"]);
    assert!(template(&plan)["spec"]["initContainers"].is_null());
}

#[test]
fn telemetry_of_a_guardrail_names_its_real_namespace() {
    let plan = guardrail(|spec| spec["otel"] = json!({"enabled": true, "exporterOtlpEndpoint": "http://c:4317"}));
    let names = names(container(&plan));
    let place = |name: &str| names.iter().position(|one| *one == name).unwrap();
    assert!(place("NAMESPACE") < place("OTEL_RESOURCE_ATTRIBUTES"));
    assert_eq!(variable(container(&plan), "NAMESPACE")["value"], "nemo");
}

#[test]
fn telemetry_follows_its_settings() {
    let plan = guardrail(|_| {});
    assert_eq!(variable(container(&plan), "OTEL_SDK_DISABLED")["value"], "true");
    let plan = guardrail(|spec| {
        spec["otel"] = json!({
            "enabled": true, "exporterOtlpEndpoint": "http://c:4317", "excludedUrls": [], "disableLogging": true,
            "exporterConfig": {"logsExporter": "none"}, "logLevel": "DEBUG",
        });
    });
    let main = container(&plan);
    assert!(variable(main, "OTEL_PYTHON_EXCLUDED_URLS").is_null(), "an empty list traces all");
    assert_eq!(variable(main, "OTEL_LOGS_EXPORTER")["value"], "none");
    assert_eq!(variable(main, "OTEL_TRACES_EXPORTER")["value"], "otlp");
    assert_eq!(variable(main, "OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED")["value"], "false");
}

#[test]
fn an_api_key_is_read_from_the_key_that_is_named() {
    let plan = guardrail(|spec| spec["nimEndpoint"]["apiKeySecret"] = "nim-key".into());
    let key = &variable(container(&plan), "NIM_ENDPOINT_API_KEY")["valueFrom"]["secretKeyRef"];
    assert_eq!(*key, json!({"name": "nim-key", "key": "NIM_ENDPOINT_API_KEY"}));
}
