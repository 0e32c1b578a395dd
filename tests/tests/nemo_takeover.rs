//! Services of an installed NIM Operator are taken over without a restart: custom resources and children as that operator
//! stores them, pods that run, and then Capstan.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::nemo;
use capstan_tests::nim::{API, state};
use capstan_tests::normal::contrasts;
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::PostParams;
use serde_json::{Value, json};

const NAMESPACE: &str = "default";

fn value(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

fn key(name: &str, secret: &str, key: &str) -> Value {
    json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
}

fn host_ip() -> Value {
    json!({"name": "HOST_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.hostIP"}}})
}

fn probe(path: &str, delay: i32, timeout: i32, failures: i32) -> Value {
    let mut probe = json!({
        "httpGet": {"path": path, "port": "api"}, "timeoutSeconds": timeout, "periodSeconds": 10, "successThreshold": 1,
        "failureThreshold": failures,
    });
    if delay > 0 {
        probe["initialDelaySeconds"] = delay.into();
    }
    probe
}

fn wait(end: &str) -> Value {
    let script =
        format!("until nc -z nemo-postgres 5432; do echo \"Waiting for Postgres to start \"; sleep 5; done{end}");
    json!({"name": "wait-for-postgres", "image": "busybox", "command": ["sh", "-c", script]})
}

fn migration_limits() -> Value {
    json!({"limits": {"cpu": "1", "memory": "1Gi"}})
}

/// What differs between the pods of the kinds, as the NIM Operator writes them.
struct Pod {
    part_of: &'static str,
    main: Value,
    init: Vec<Value>,
    volumes: Vec<Value>,
    security: Value,
}

/// The pod of a kind, from its image.
type Describe = fn(&str) -> Pod;

fn usual_security() -> Value {
    json!({"runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 2000})
}

fn entitystore(image: &str) -> Pod {
    let connection = vec![
        key("POSTGRES_PASSWORD", "nemo-postgres", "password"),
        value("POSTGRES_USER", "nemo"),
        value("POSTGRES_HOST", "nemo-postgres"),
        value("POSTGRES_PORT", "5432"),
        value("POSTGRES_DB", "entitystore"),
    ];
    let first = vec![value("APP_VERSION", "25.08"), value("BASE_URL_DATASTORE", "http://datastore:8000")];
    let all = [first, connection.clone()].concat();
    Pod {
        part_of: "nemo-entitystore-service",
        main: json!({
            "env": all, "ports": [{"name": "api", "containerPort": 8000, "protocol": "TCP"}],
            "startupProbe": probe("/health", 30, 1, 30), "livenessProbe": probe("/health", 3, 20, 10),
            "readinessProbe": probe("/health", 10, 20, 20),
        }),
        init: vec![
            wait(";"),
            json!({
                "name": "entitystore-db-migration", "image": image, "command": ["/app/.venv/bin/python3"],
                "args": ["-m", "scripts.run_db_migration"], "env": connection, "workingDir": "/app/services/entity-store",
                "resources": migration_limits(),
            }),
        ],
        volumes: vec![],
        security: usual_security(),
    }
}

fn datastore(image: &str) -> Pod {
    let common = vec![
        value("GITEA_APP_INI", "/data/gitea/conf/app.ini"),
        value("GITEA_CUSTOM", "/data/gitea"),
        value("GITEA_WORK_DIR", "/data"),
        value("TMPDIR", "/tmp/gitea"),
        value("GITEA_TEMP", "/tmp/gitea"),
        value("HOME", "/data/gitea/git"),
        key("GITEA__SERVER__LFS_JWT_SECRET", "datastore-lfs-jwt", "jwtSecret"),
        key("GITEA__DATABASE__PASSWD", "nemo-postgres", "password"),
    ];
    let main_env = [vec![value("SSH_LISTEN_PORT", "2222"), value("SSH_PORT", "22")], common.clone()].concat();
    let init_env = [
        common,
        vec![
            key("GITEA_ADMIN_USERNAME", "gitea-admin", "GITEA_ADMIN_USERNAME"),
            key("GITEA_ADMIN_PASSWORD", "gitea-admin", "GITEA_ADMIN_PASSWORD"),
            value("GITEA__DATABASE__SSL_MODE", "disable"),
            value("GITEA__DATABASE__NAME", "datastore"),
            value("GITEA__DATABASE__HOST", "nemo-postgres:5432"),
            value("GITEA__DATABASE__USER", "nemo"),
        ],
    ]
    .concat();
    let mounts = json!([
        {"name": "config", "mountPath": "/usr/sbin"}, {"name": "temp", "mountPath": "/tmp"},
        {"name": "inline-config-sources", "mountPath": "/env-to-ini-mounts/inlines/"},
        {"name": "init", "mountPath": "/usr/sbin/init"}, {"name": "data", "mountPath": "/data"},
    ]);
    let step = |name: &str, command: Value, args: Value| {
        let mut step =
            json!({"name": name, "image": image, "command": command, "env": init_env, "volumeMounts": mounts});
        if !args.is_null() {
            step["args"] = args;
        }
        step
    };
    let volume = |name: &str, secret: &str, mode: i32| json!({"name": name, "secret": {"secretName": secret, "defaultMode": mode}});
    Pod {
        part_of: "nemo-datastore-service",
        main: json!({
            "env": main_env, "ports": [{"name": "api", "containerPort": 3000, "protocol": "TCP"}],
            "volumeMounts": [{"name": "temp", "mountPath": "/tmp"}, {"name": "data", "mountPath": "/data"}],
            "startupProbe": probe("/v1/health", 30, 1, 30), "livenessProbe": probe("/v1/health", 15, 1, 3),
            "readinessProbe": probe("/v1/health", 15, 1, 3),
        }),
        init: vec![
            step("init-directories", json!(["/usr/sbin/init/init_directory_structure.sh"]), Value::Null),
            step("init-app-ini", json!(["/usr/sbin/config_environment.sh"]), Value::Null),
            step("configure-datastore", json!(["/bin/sh", "-c"]), json!(["/usr/sbin/init/configure_gitea.sh"])),
        ],
        volumes: vec![
            volume("init", "datastore-init", 110),
            volume("config", "datastore-config", 110),
            volume("inline-config-sources", "datastore-inline-config", 420),
            json!({"name": "temp", "emptyDir": {}}),
            json!({"name": "data", "persistentVolumeClaim": {"claimName": "datastore-data"}}),
        ],
        security: json!({"fsGroup": 1000}),
    }
}

fn evaluator(image: &str) -> Pod {
    let connection =
        vec![key("POSTGRES_DB_PASSWORD", "nemo-postgres", "password"), key("POSTGRES_URI", "evaluator", "uri")];
    let tool = |name: &str| format!("nvcr.io/nvidia/nemo-microservices/eval-tool-benchmark-{name}:25.08");
    let images = vec![
        value("BIGCODE_EVALUATION_HARNESS", ""),
        value("LM_EVAL_HARNESS", &tool("lm-eval-harness")),
        value("SIMILARITY_METRICS", &tool("custom-eval")),
        value("LLM_AS_A_JUDGE", &tool("llm-as-a-judge")),
        value("MT_BENCH", ""),
        value("RETRIEVER", ""),
        value("RAG", ""),
        value("BFCL", ""),
        value("AGENTIC_EVAL", ""),
    ];
    let argo = "https://argo-workflows-server:2746";
    let first = vec![
        value("NAMESPACE", NAMESPACE),
        host_ip(),
        value("EVALUATOR_HOST", "0.0.0.0"),
        value("EVALUATOR_PORT", "7331"),
        value("ARGO_HOST", argo),
        value("MILVUS_URL", "http://milvus:19530"),
        value("SERVICE_ACCOUNT", "argo-workflows-executor"),
        value("DATA_STORE_URL", "http://datastore:8000/v1/hf"),
        value("ENTITY_STORE_URL", "http://entitystore:8000"),
        value("EVAL_CONTAINER", image),
        value("LOG_HANDLERS", "console"),
        value("CONSOLE_LOG_LEVEL", "INFO"),
        value("EVAL_LOG_LEVEL", "INFO"),
        value("EVAL_ENABLE_VALIDATION", "True"),
    ];
    let main_env = [first, connection.clone(), images.clone(), vec![value("OTEL_SDK_DISABLED", "true")]].concat();
    let start = vec![
        value("NAMESPACE", NAMESPACE),
        value("ARGO_HOST", argo),
        value("EVAL_CONTAINER", image),
        value("DATA_STORE_URL", "http://datastore:8000/v1/hf"),
    ];
    let migration_env = [start, connection, images].concat();
    Pod {
        part_of: "nemo-evaluator-service",
        main: json!({
            "env": main_env, "ports": [{"name": "api", "containerPort": 7331, "protocol": "TCP"}],
            "startupProbe": probe("/health", 30, 1, 30), "livenessProbe": probe("/health", 0, 1, 3),
            "readinessProbe": probe("/health", 0, 1, 3),
        }),
        init: vec![
            wait(""),
            json!({
                "name": "evaluator-db-migration", "image": image, "env": migration_env, "resources": migration_limits(),
                "command": ["sh", "-c", "/app/scripts/run-db-migration.sh"],
            }),
        ],
        volumes: vec![],
        security: usual_security(),
    }
}

fn guardrail(_: &str) -> Pod {
    let env = vec![
        value("CONFIG_STORE_PATH", "/config-store"),
        value("DEFAULT_CONFIG_ID", "default"),
        value("DEFAULT_LLM_PROVIDER", "nim"),
        value("NEMO_GUARDRAILS_SERVER_ENABLE_CORS", "False"),
        value("NEMO_GUARDRAILS_SERVER_ALLOWED_ORIGINS", "*"),
        value("GUARDRAILS_HOST", "0.0.0.0"),
        value("GUARDRAILS_PORT", "8000"),
        value("DEMO", "False"),
        value("NIM_ENDPOINT_URL", "http://llama:8000/v1"),
        value("OTEL_SDK_DISABLED", "true"),
    ];
    Pod {
        part_of: "nemo-guardrail-service",
        main: json!({
            "env": env, "ports": [{"name": "api", "containerPort": 8000, "protocol": "TCP"}],
            "volumeMounts": [{"name": "config-store", "mountPath": "/config-store"}],
            "startupProbe": probe("/v1/health", 30, 1, 30), "livenessProbe": probe("/v1/health", 15, 1, 3),
            "readinessProbe": probe("/v1/health", 15, 1, 3),
        }),
        init: vec![],
        volumes: vec![json!({"name": "config-store", "configMap": {"name": "guardrail-rules"}})],
        security: usual_security(),
    }
}

fn customizer(_: &str) -> Pod {
    let env = vec![
        value("NAMESPACE", NAMESPACE),
        host_ip(),
        value("CONFIG_PATH", "/app/config/config.yaml"),
        value("CUSTOMIZATIONS_CALLBACK_URL", "http://customizer.default.svc.cluster.local:9009"),
        value("LOG_LEVEL", "INFO"),
        key("WANDB_ENCRYPTION_KEY", "wandb", "encryptionKey"),
        value("WANDB_SECRET_NAME", "wandb"),
        value("WANDB_SECRET_KEY", "apiKey"),
        key("POSTGRES_DB_PASSWORD", "nemo-postgres", "password"),
        key("POSTGRES_DB_DSN", "customizer", "dsn"),
        value("POSTGRES_SECRET_NAME", "nemo-postgres"),
        value("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel-collector:4317"),
        value("OTEL_TRACES_EXPORTER", "otlp"),
        value("OTEL_METRICS_EXPORTER", "otlp"),
        value("OTEL_LOGS_EXPORTER", "otlp"),
        value("OTEL_LOG_LEVEL", "INFO"),
        value("OTEL_PYTHON_EXCLUDED_URLS", "health"),
        value("OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED", "true"),
    ];
    let items = json!([{"key": "config.yaml", "path": "config.yaml"}]);
    Pod {
        part_of: "nemo-customizer-service",
        main: json!({
            "env": env,
            "ports": [
                {"name": "api", "containerPort": 8000, "protocol": "TCP"},
                {"name": "internal", "containerPort": 9009, "protocol": "TCP"},
            ],
            "volumeMounts": [{"name": "config", "mountPath": "/app/config", "readOnly": true}],
            "startupProbe": probe("/v1/health/ready", 30, 1, 30), "livenessProbe": probe("/v1/health/live", 10, 10, 5),
            "readinessProbe": probe("/v1/health/ready", 10, 1, 3),
        }),
        init: vec![],
        volumes: vec![json!({"name": "config", "configMap": {"name": "customizer", "items": items}})],
        security: usual_security(),
    }
}

/// The configuration file of the Customizer, in the style of another writer.
const CONFIG: &str = r#"
customizationConfigTemplates: {overrideExistingTemplates: true, templates: {"meta/llama-3.2-1b-instruct@v1.0.0+A100": {
  namespace: meta, name: "llama-3.2-1b-instruct@v1.0.0+A100", target: "meta/llama-3.2-1b-instruct@2.0",
  max_seq_length: 4096, prompt_template: "{prompt} {completion}",
  training_options: [{training_type: sft, finetuning_type: lora, num_gpus: 1, micro_batch_size: 1}]}}}
customizationTargets: {overrideExistingTargets: true, targets: {"meta/llama-3.2-1b-instruct@2.0": {
  namespace: meta, name: "llama-3.2-1b-instruct@2.0", enabled: true, base_model: meta/llama-3.2-1b-instruct,
  model_uri: "ngc://nvidia/nemo/llama-3_2-1b-instruct:2.0", model_path: llama32_1b-instruct_2_0,
  num_parameters: 1000000000, precision: bf16-mixed}}}
entity_store_url: http://entitystore:8000
mlflow_tracking_url: http://mlflow-tracking:80
model_download_jobs:
  image: nvcr.io/nvidia/nemo-microservices/customizer-api:25.08
  imagePullPolicy: ""
  imagePullSecrets: [{name: ngc-secret}]
  ngcAPISecret: ngc-api-secret
  ngcAPISecretKey: NGC_API_KEY
  ngcSecretKey: NGC_API_KEY
  ngcSecretName: ngc-api-secret
  pollIntervalSeconds: 15
  securityContext: {fsGroup: 1000, runAsGroup: 1000, runAsNonRoot: true, runAsUser: 1000}
  ttlSecondsAfterFinished: 600
namespace: default
nemo_data_store_tools: {image: nvcr.io/nvidia/nemo-microservices/nds-v2-huggingface-cli:25.08, imagePullSecret: ngc-secret}
nemo_data_store_url: http://datastore:8000
training:
  container_defaults: {imagePullPolicy: IfNotPresent}
  env: null
  image: nvcr.io/nvidia/nemo-microservices/customizer:25.08
  imagePullPolicy: ""
  imagePullSecrets: [{name: ngc-secret}]
  pvc: {size: 10Gi, storageClass: "", volumeAccessMode: ReadWriteOnce}
  tolerations: [{effect: NoSchedule, key: nvidia.com/gpu, operator: Exists}]
  training_networking: [{name: NCCL_IB_SL, value: "0"}, {name: UCX_TLS, value: TCP}]
  training_timeout: 3600
  ttl_seconds_after_finished: 3600
  use_run_ai_executor: false
  volumeMounts: [{mountPath: /mount/models, name: models, readOnly: true}, {mountPath: /dev/shm, name: dshm}]
  volumes:
  - {name: models, persistentVolumeClaim: {claimName: finetuning-models, readOnly: true}}
  - {emptyDir: {medium: Memory, sizeLimit: 16Gi}, name: dshm}
  workspace_dir: /pvc/workspace
wandb: {entity: "null", project: fine-tuning}
"#;

async fn create<K>(world: &World, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let api: kube::Api<K> = kube::Api::namespaced(world.admin.clone(), &world.namespace);
    let params = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
    api.create(&params, &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// The children that the NIM Operator made for a service.
async fn children(world: &World, service: &Value, pod: Pod) {
    let (kind, name) = (service["kind"].as_str().unwrap(), service["metadata"]["name"].as_str().unwrap());
    let owner = json!([{
        "apiVersion": API, "kind": kind, "name": name, "uid": service["metadata"]["uid"], "controller": true,
        "blockOwnerDeletion": true,
    }]);
    let labels = json!({
        "app.kubernetes.io/name": name, "app.kubernetes.io/instance": name, "app.kubernetes.io/operator-version": "",
        "app.kubernetes.io/part-of": pod.part_of, "app.kubernetes.io/managed-by": "k8s-nim-operator",
    });
    let hashes = json!({
        "openshift.io/required-scc": "nonroot", "nvidia.com/parent-spec-hash": "7c6d7bd86b",
        "nvidia.com/last-applied-hash": "5bbdb464cb",
    });
    let meta = json!({"name": name, "labels": labels, "annotations": hashes, "ownerReferences": owner});
    let mut pod_labels = labels.clone();
    pod_labels["app"] = name.into();
    let mut annotations = json!({"openshift.io/required-scc": "nonroot"});
    let image = &service["spec"]["image"];
    let mut main = pod.main;
    main["name"] = format!("{name}-ctr").into();
    main["image"] = format!("{}:{}", image["repository"].as_str().unwrap(), image["tag"].as_str().unwrap()).into();
    if kind == "NemoCustomizer" {
        annotations["apps.nvidia.com/training-config-hash"] = "aa".into();
        create::<ConfigMap>(world, json!({"metadata": meta, "data": {"config.yaml": CONFIG}})).await;
        let dsn = json!({"dsn": "postgresql://nemo:change-me@nemo-postgres:5432/customizer"});
        create::<Secret>(world, json!({"metadata": meta, "stringData": dsn})).await;
    }
    if kind == "NemoEvaluator" {
        let uri = json!({"uri": "postgresql://nemo:change-me@nemo-postgres:5432/evaluator"});
        create::<Secret>(world, json!({"metadata": {"name": name, "ownerReferences": owner}, "stringData": uri})).await;
    }
    let port = service["spec"]["expose"]["service"]["port"].clone();
    let ports = json!([{"name": "api", "port": port, "targetPort": "api", "protocol": "TCP"}]);
    let selector = json!({"app.kubernetes.io/name": name});
    create::<Service>(world, json!({"metadata": meta, "spec": {"ports": ports, "selector": selector}})).await;
    let mut spec = json!({
        "containers": [main], "initContainers": pod.init, "volumes": pod.volumes, "securityContext": pod.security,
        "imagePullSecrets": [{"name": "ngc-secret"}],
    });
    // The account is made a moment later than in this story; the pods of the story need none.
    spec["serviceAccountName"] = name.into();
    let deployment = json!({
        "metadata": meta,
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 0}},
            "template": {"metadata": {"labels": pod_labels, "annotations": annotations}, "spec": spec},
        },
    });
    create::<k8s_openapi::api::core::v1::ServiceAccount>(world, json!({"metadata": meta})).await;
    create::<Deployment>(world, deployment).await;
}

async fn pods(world: &World) -> Vec<String> {
    let mut pods: Vec<String> =
        world.list("v1", "Pod").await.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect();
    pods.sort();
    pods
}

#[tokio::test(start_paused = true)]
async fn services_of_the_nim_operator_are_taken_over_without_restarting_a_pod() {
    // The namespace is part of what the pods read.
    let world = nemo::world_in_virtual_time().await;
    let descriptions: [(&str, Describe); 5] = [
        ("NemoDatastore", datastore),
        ("NemoEntitystore", entitystore),
        ("NemoCustomizer", customizer),
        ("NemoGuardrail", guardrail),
        ("NemoEvaluator", evaluator),
    ];
    let example = nemo::read("pipeline");
    for object in example.iter().filter(|one| one["kind"] == "ConfigMap") {
        world.apply(object.clone()).await;
    }
    for claim in ["datastore-data", "finetuning-models"] {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}});
        world
            .apply(
                json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": spec}),
            )
            .await;
    }
    let mut names = Vec::new();
    for (kind, describe) in descriptions {
        let mut service = example.iter().find(|one| one["kind"] == kind).unwrap().clone();
        let name = service["metadata"]["name"].as_str().unwrap().to_owned();
        // What that operator writes back into every spec.
        let spec = &mut service["spec"];
        (spec["expose"]["ingress"], spec["expose"]["router"]) = (json!({}), json!({}));
        spec["metrics"] = json!({"serviceMonitor": {}});
        spec["scale"] = json!({"hpa": {"maxReplicas": 0, "minReplicas": 1}});
        service["metadata"]["finalizers"] = json!([match kind {
            "NemoEntitystore" | "NemoGuardrail" => format!("finalizer.{kind}.apps.nvidia.com"),
            _ => format!("finalizer.{}.apps.nvidia.com", kind.to_lowercase()),
        }]);
        world.apply(service.clone()).await;
        let live = world.until(API, kind, &name, |_| true).await;
        let image = &live["spec"]["image"];
        let image = format!("{}:{}", image["repository"].as_str().unwrap(), image["tag"].as_str().unwrap());
        children(&world, &live, describe(&image)).await;
        let status = json!({"state": "Ready", "conditions": []});
        world.write_status(API, kind, &name, status).await;
        let available = |object: &Value| object["status"]["availableReplicas"] == 1;
        let deployment = world.until("apps/v1", "Deployment", &name, available).await;
        names.push((kind, name, deployment["spec"].clone()));
    }
    let running = pods(&world).await;
    assert_eq!(running.len(), 5);
    let operator = world.operator(Fault::None).await;
    for (kind, name, _) in &names {
        let current = |object: &Value| object["status"]["conditions"].as_array().is_some_and(|list| list.len() >= 2);
        world.until(API, kind, name, current).await;
    }
    world.settled(&operator).await;
    for (kind, name, before) in &names {
        world.until(API, kind, name, state("Ready")).await;
        let deployment = world.until("apps/v1", "Deployment", name, |_| true).await;
        let changes = contrasts(&deployment["spec"], before);
        assert!(changes.is_empty(), "{kind} rolls: {}", changes.join("\n"));
        let managers = deployment["metadata"]["managedFields"].as_array().unwrap();
        assert!(managers.iter().any(|entry| entry["manager"] == "capstan"), "{kind} was taken over");
    }
    assert_eq!(pods(&world).await, running);
    // And they can be deleted.
    for (kind, name, _) in &names {
        world.delete(API, kind, name).await;
        world.until_gone(API, kind, name).await;
    }
}
