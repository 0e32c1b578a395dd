//! The Customizer: its configuration file, its rights, and what it needs around it.

use super::super::yaml;
use super::*;

fn customizer(edit: impl FnOnce(&mut Value)) -> Plan<NemoStatus> {
    case::<NemoCustomizerSpec>(customizer_spec).planned(edit)
}

fn file(plan: &Plan<NemoStatus>) -> Value {
    let text = child(plan, "ConfigMap")["data"]["config.yaml"].as_str().unwrap();
    yaml::parse(text).unwrap()
}

#[test]
fn the_configuration_file_in_full() {
    let plan = customizer(|spec| spec["trainingConfig"]["sharedMemorySizeLimit"] = "16Gi".into());
    insta::assert_snapshot!(child(&plan, "ConfigMap")["data"]["config.yaml"].as_str().unwrap());
}

#[test]
fn targets_and_templates_are_passed_on_untouched_and_models_are_absent() {
    let file = file(&customizer(|_| {}));
    let target = &file["customizationTargets"]["targets"]["llama"];
    assert_eq!(*target, json!({"num_parameters": 70_000_000_000_u64, "version": "1.0", "enabled": true}));
    assert!(file["customizationConfigTemplates"]["templates"].is_object());
    assert!(file["models"].is_null());
    let jobs = &file["model_download_jobs"];
    for name in ["ngcAPISecret", "ngcSecretName"] {
        assert_eq!(jobs[name], "ngc-api-secret");
    }
}

#[test]
fn models_of_older_servers_are_passed_on() {
    let mut facts = furnished();
    add(&mut facts, config_map("model-config", json!({"models": "llama: {enabled: true}\n"})));
    let plan = planned::<NemoCustomizerSpec>(&object("NemoCustomizer", customizer_spec()), &facts);
    let file = file(&plan);
    assert_eq!(file["models"], json!({"llama": {"enabled": true}}));
    assert!(file["customizationTargets"].is_null());
}

#[test]
fn settings_of_the_spec_win_over_those_of_the_config_map() {
    let mut facts = furnished();
    add(&mut facts, config_map("training-config", json!({"training": "workspace_dir: /mine\nextra: 1\n"})));
    let plan = planned::<NemoCustomizerSpec>(&object("NemoCustomizer", customizer_spec()), &facts);
    let training = &file(&plan)["training"];
    assert_eq!((&training["workspace_dir"], &training["extra"]), (&json!("/pvc/workspace"), &json!(1)));
}

#[test]
fn without_a_config_map_the_configuration_is_that_of_the_spec() {
    let plan = customizer(|spec| _ = spec["trainingConfig"].as_object_mut().unwrap().remove("configMap"));
    assert_eq!(file(&plan)["training"]["use_run_ai_executor"], false);
}

#[test]
fn the_owner_of_runs_is_passed_on() {
    assert_eq!(file(&customizer(|_| {}))["wandb"]["entity"], "null");
    let plan = customizer(|spec| spec["wandb"]["entity"] = "my-team".into());
    assert_eq!(file(&plan)["wandb"]["entity"], "my-team");
}

#[test]
fn without_pull_secrets_the_lists_are_empty() {
    let plan = customizer(|spec| {
        for image in ["/image", "/trainingConfig/image"] {
            spec.pointer_mut(image).unwrap().as_object_mut().unwrap().remove("pullSecrets");
        }
    });
    let file = file(&plan);
    assert_eq!(file["model_download_jobs"]["imagePullSecrets"], json!([]));
    assert_eq!(file["training"]["imagePullSecrets"], json!([]));
    assert!(file["nemo_data_store_tools"]["imagePullSecret"].is_null());
}

#[test]
fn each_image_has_its_own_pull_policy_and_secrets_and_falls_back_to_those_of_the_server() {
    let plan = customizer(|spec| {
        spec["image"]["pullPolicy"] = "Always".into();
        spec["trainingConfig"]["image"] =
            json!({"repository": "r", "tag": "t", "pullPolicy": "Never", "pullSecrets": ["own"]});
    });
    let file = file(&plan);
    assert_eq!(file["model_download_jobs"]["imagePullPolicy"], "Always");
    assert_eq!(file["training"]["imagePullPolicy"], "Never");
    assert_eq!(file["training"]["imagePullSecrets"], json!([{"name": "own"}]));
    let plan = customizer(|spec| spec["modelDownloadJobs"]["imagePullPolicy"] = "Never".into());
    assert_eq!(self::file(&plan)["model_download_jobs"]["imagePullPolicy"], "Never");
}

#[test]
fn volcano_is_the_usual_scheduler_and_run_ai_another() {
    let groups = |plan: &Plan<NemoStatus>| child(plan, "Role")["rules"].to_string();
    let volcano = customizer(|_| {});
    assert!(groups(&volcano).contains("batch.volcano.sh") && !groups(&volcano).contains("run.ai"));
    let runai = customizer(|spec| {
        spec["scheduler"] = json!({"type": "runai"});
        spec["trainingConfig"]["runaiQueue"] = "team-a".into();
    });
    assert!(!groups(&runai).contains("volcano") && groups(&runai).contains("run.ai"));
    let training = &file(&runai)["training"];
    assert_eq!((&training["use_run_ai_executor"], &training["queue"]), (&json!(true), &json!("team-a")));
}

#[test]
fn pods_of_training_jobs_follow_the_spec() {
    let plan = customizer(|spec| {
        let training = &mut spec["trainingConfig"];
        training["nodeSelector"] = json!({"gpu": "true"});
        training["resources"] = json!({"limits": {"nvidia.com/gpu": 8}});
        training["podAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": []});
        training["sharedMemorySizeLimit"] = "16Gi".into();
    });
    let training = &file(&plan)["training"];
    assert_eq!(training["nodeSelector"], json!({"gpu": "true"}));
    assert!(training["affinity"]["podAffinity"].is_object());
    assert_eq!(training["volumes"][1]["emptyDir"], json!({"medium": "Memory", "sizeLimit": "16Gi"}));
    assert_eq!(training["volumes"][0]["persistentVolumeClaim"], json!({"claimName": "models", "readOnly": true}));
    assert_eq!(training["tolerations"][0]["operator"], "Exists");
}

#[test]
fn the_pod_reads_its_file_its_dsn_and_its_keys() {
    let plan = customizer(|_| {});
    let main = container(&plan);
    let wanted = [
        "NAMESPACE",
        "HOST_IP",
        "CONFIG_PATH",
        "CUSTOMIZATIONS_CALLBACK_URL",
        "LOG_LEVEL",
        "WANDB_ENCRYPTION_KEY",
        "WANDB_SECRET_NAME",
        "WANDB_SECRET_KEY",
        "POSTGRES_DB_PASSWORD",
        "POSTGRES_DB_DSN",
        "POSTGRES_SECRET_NAME",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ];
    assert_eq!(names(main)[..wanted.len()], wanted);
    assert_eq!(variable(main, "CUSTOMIZATIONS_CALLBACK_URL")["value"], "http://one.nemo.svc:9009");
    assert_eq!(variable(main, "WANDB_ENCRYPTION_KEY")["valueFrom"]["secretKeyRef"]["optional"], true);
    assert_eq!(main["volumeMounts"][0], json!({"name": "config", "mountPath": "/app/config", "readOnly": true}));
    let ports: Vec<&Value> = child(&plan, "Service")["spec"]["ports"].as_array().unwrap().iter().collect();
    assert_eq!(
        (&ports[0]["port"], &ports[1]["name"], &ports[1]["port"]),
        (&json!(8000), &json!("internal"), &json!(9009))
    );
}

#[test]
fn a_config_map_that_is_edited_replaces_the_pods_once() {
    let mut facts = furnished();
    let one = object("NemoCustomizer", customizer_spec());
    let hash = |plan: &Plan<NemoStatus>| {
        template(plan)["metadata"]["annotations"]["apps.nvidia.com/training-config-hash"].clone()
    };
    let first = planned::<NemoCustomizerSpec>(&one, &facts);
    applied(&mut facts, &first);
    let again = planned::<NemoCustomizerSpec>(&one, &facts);
    assert_eq!((applied(&mut facts, &again), hash(&again)), (0, hash(&first)));
    add(&mut facts, config_map("training-config", json!({"training": "extra: 1\n"})));
    let edited = planned::<NemoCustomizerSpec>(&one, &facts);
    assert_ne!(hash(&edited), hash(&first));
    assert_eq!(applied(&mut facts, &edited), 2, "the ConfigMap and the Deployment");
    let last = planned::<NemoCustomizerSpec>(&one, &facts);
    assert_eq!((applied(&mut facts, &last), hash(&last)), (0, hash(&edited)));
}

#[test]
fn a_config_map_that_is_missing_or_not_yaml_is_named() {
    let without = |name: &str| with(surroundings().into_iter().filter(|one| one["metadata"]["name"] != name));
    let one = object("NemoCustomizer", customizer_spec());
    let plan = planned::<NemoCustomizerSpec>(&one, &without("model-config"));
    let (_, reason, message) = condition(&plan, "Ready");
    assert_eq!(reason, "ConfigMapNotFound");
    assert!(message.contains("ConfigMap nemo/model-config, which spec.modelConfig names"), "{message}");
    let mut facts = furnished();
    add(&mut facts, config_map("training-config", json!({"other": ""})));
    let (_, reason, message) = condition(&planned::<NemoCustomizerSpec>(&one, &facts), "Ready");
    assert_eq!(reason, "ConfigMapKeyNotFound");
    assert!(message.contains("has no key training"), "{message}");
    for (text, fault) in [("a: [", "is not YAML"), ("[1]", "is no map")] {
        add(&mut facts, config_map("training-config", json!({"training": text})));
        let plan = planned::<NemoCustomizerSpec>(&one, &facts);
        let (_, reason, message) = condition(&plan, "Failed");
        assert_eq!(reason, "ConfigMapFailed");
        assert!(message.contains("key training of ConfigMap training-config") && message.contains(fault), "{message}");
        assert!(kinds(&plan).contains(&"Service") && !kinds(&plan).contains(&"Deployment"));
    }
}

#[test]
fn without_volcano_the_customizer_runs_and_names_the_kinds() {
    let mut facts =
        with(surroundings().into_iter().filter(|one| !one["metadata"]["name"].as_str().unwrap().contains("volcano")));
    answer(&mut facts, "h1", "secret");
    let plan = planned::<NemoCustomizerSpec>(&object("NemoCustomizer", customizer_spec()), &facts);
    assert!(kinds(&plan).contains(&"Deployment"));
    let (_, _, message) = condition(&plan, "MissingAPI");
    for name in ["jobs.batch.volcano.sh", "queues.scheduling.volcano.sh", "podgroups.scheduling.volcano.sh"] {
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn what_only_jobs_read_is_named_while_the_server_runs() {
    let mut facts = with(surroundings().into_iter().filter(|one| one["metadata"]["name"] != "ngc-api-secret"));
    answer(&mut facts, "h1", "secret");
    let plan = planned::<NemoCustomizerSpec>(&object("NemoCustomizer", customizer_spec()), &facts);
    assert!(kinds(&plan).contains(&"Deployment"));
    let (_, _, message) = condition(&plan, "MissingReferences");
    assert!(
        message.contains("Secret nemo/ngc-api-secret, which spec.modelDownloadJobs.ngcAPISecret names"),
        "{message}"
    );
}
