//! `config.yaml` of a Customizer: endpoints, jobs and models, made of the spec and of two ConfigMaps of the user.

use capstan_api::common::PullPolicy;
use capstan_api::nemo::training::{TrainingConfig, WorkspaceVolume};
use capstan_api::nemo::{HuggingFaceSecret, ModelDownloadJobs, NemoCustomizerSpec, NgcSecret, SchedulerType};
use capstan_plan::kit::storage::{claim_name, claim_volume, memory};
use capstan_plan::{LiveObjects, Ref};
use k8s_openapi::api::core::v1::{Affinity, ConfigMap};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::service::{self, Form, Place, Stop};
use super::super::yaml;
use super::scheduler;

/// The key of the ConfigMap with training settings.
pub(super) const TRAINING: &str = "training";
/// Keys of the ConfigMap with models; each may be absent.
const MODELS: [&str; 3] = ["models", "customizationTargets", "customizationConfigTemplates"];
/// Queue of Run:ai that the schema fills in.
const USUAL_QUEUE: &str = "default";

/// The file as a value.
pub(super) fn file(spec: &NemoCustomizerSpec, place: &Place<'_>, live: &LiveObjects) -> Result<Value, Stop> {
    let mut file = json!({
        "namespace": place.namespace,
        "entity_store_url": spec.entitystore.endpoint,
        "nemo_data_store_url": spec.datastore.endpoint,
        "mlflow_tracking_url": spec.mlflow.endpoint,
        "wandb": {
            "project": spec.wandb.project_name.as_deref().unwrap_or("nvidia-nemo-customizer"),
            "entity": entity(spec, place),
        },
        "model_download_jobs": downloads(spec, place),
        "nemo_data_store_tools": tools(spec),
        "training": training(spec, place, live)?,
    });
    let map = &spec.model_config.name;
    for key in MODELS {
        if let Some(text) = text_of(live, place, map, key) {
            file[key] = parsed(text, map, key, "spec.modelConfig")?;
        }
    }
    Ok(file)
}

/// The owner of runs. The NIM Operator never passes it on.
fn entity<'a>(spec: &'a NemoCustomizerSpec, place: &Place<'_>) -> &'a str {
    let given = spec.wandb.entity.as_deref().filter(|entity| !entity.is_empty() && place.form == Form::Own);
    given.unwrap_or("null")
}

fn pull_secrets(names: Option<&Vec<String>>) -> Value {
    names.into_iter().flatten().map(|name| json!({"name": name})).collect()
}

/// The policy of the main image, which may be empty.
fn main_policy(spec: &NemoCustomizerSpec) -> String {
    service::pull_policy(&spec.server.image).unwrap_or_default()
}

fn downloads(spec: &NemoCustomizerSpec, place: &Place<'_>) -> Value {
    let ModelDownloadJobs { image, security_context, ttl_seconds_after_finished, poll_interval_seconds, .. } =
        &spec.model_download_jobs;
    // The schema fills in IfNotPresent, so that only the others are known to be the user's.
    let policy = match spec.model_download_jobs.image_pull_policy.filter(|_| place.form == Form::Own) {
        Some(PullPolicy::Always) => "Always".to_owned(),
        Some(PullPolicy::Never) => "Never".to_owned(),
        _ => main_policy(spec),
    };
    let mut jobs = json!({
        "image": image,
        "imagePullPolicy": policy,
        "imagePullSecrets": pull_secrets(spec.server.image.pull_secrets.as_ref()),
        "securityContext": security_context,
        "ttlSecondsAfterFinished": ttl_seconds_after_finished,
        "pollIntervalSeconds": poll_interval_seconds,
    });
    if let Some(ngc) = &spec.model_download_jobs.ngc_api_secret {
        // Servers before and after release 25.06 read other names.
        for (name, key) in [("ngcAPISecret", "ngcAPISecretKey"), ("ngcSecretName", "ngcSecretKey")] {
            jobs[name] = ngc.name.as_str().into();
            jobs[key] = ngc_key(ngc).into();
        }
    }
    if let Some(hub) = &spec.model_download_jobs.hf_secret {
        jobs["hfSecretName"] = hub.name.as_str().into();
        jobs["hfSecretKey"] = hub_key(hub).into();
    }
    jobs
}

pub(super) fn ngc_key(secret: &NgcSecret) -> &str {
    secret.key.as_deref().filter(|key| !key.is_empty()).unwrap_or("NGC_API_KEY")
}

pub(super) fn hub_key(secret: &HuggingFaceSecret) -> &str {
    secret.key.as_deref().filter(|key| !key.is_empty()).unwrap_or("HF_TOKEN")
}

fn tools(spec: &NemoCustomizerSpec) -> Value {
    let mut tools = json!({"image": spec.nemo_datastore_tools.image});
    if let Some(first) = spec.server.image.pull_secrets.iter().flatten().next() {
        tools["imagePullSecret"] = first.as_str().into();
    }
    tools
}

/// The settings of the user's ConfigMap with those of the spec on top.
fn training(spec: &NemoCustomizerSpec, place: &Place<'_>, live: &LiveObjects) -> Result<Value, Stop> {
    let mut fields = given(&spec.training_config, place, live)?;
    let ours = of_spec(spec, place);
    fields.extend(ours.as_object().cloned().unwrap_or_default());
    Ok(Value::Object(fields))
}

fn given(training: &TrainingConfig, place: &Place<'_>, live: &LiveObjects) -> Result<Map<String, Value>, Stop> {
    let Some(map) = training.config_map.as_ref().map(|map| &map.name) else { return Ok(Map::new()) };
    let text = text_of(live, place, map, TRAINING).unwrap_or_default();
    match parsed(text, map, TRAINING, "spec.trainingConfig.configMap")? {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        _ => Err(Stop::failed(
            "ConfigMapFailed",
            format!(
                "key {TRAINING} of ConfigMap {map}, which spec.trainingConfig.configMap names, is no map: write a YAML map"
            ),
        )),
    }
}

fn of_spec(spec: &NemoCustomizerSpec, place: &Place<'_>) -> Value {
    let training = &spec.training_config;
    let WorkspaceVolume { storage_class, size, volume_access_mode, mount_path } = &training.workspace_pvc;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let own = place.form == Form::Own;
    // What belongs to another image is that image's, which the NIM Operator ignores.
    let policy = service::pull_policy(&training.image).filter(|_| own).unwrap_or_else(|| main_policy(spec));
    let secrets = training.image.pull_secrets.as_ref().filter(|secrets| own && !secrets.is_empty());
    let models = claim_name(&training.model_pvc, place.name);
    let mut fields = json!({
        "image": service::image(&training.image),
        "imagePullPolicy": policy,
        "imagePullSecrets": pull_secrets(secrets.or(spec.server.image.pull_secrets.as_ref())),
        "env": training.env,
        "training_networking": training.network_config,
        "workspace_dir": mount_path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/pvc/workspace"),
        "use_run_ai_executor": scheduler(spec) == SchedulerType::Runai,
        "pvc": {"storageClass": text(storage_class), "volumeAccessMode": text(volume_access_mode), "size": text(size)},
        "volumes": [
            claim_volume("models", &models, Some(true)),
            memory("dshm", training.shared_memory_size_limit.as_ref()),
        ],
        "volumeMounts": [
            {"name": "models", "mountPath": "/mount/models", "readOnly": true},
            {"name": "dshm", "mountPath": "/dev/shm"},
        ],
    });
    let queue = training.runai_queue.as_deref().filter(|queue| own && *queue != USUAL_QUEUE && !queue.is_empty());
    if let Some(queue) = queue.filter(|_| scheduler(spec) == SchedulerType::Runai) {
        fields["queue"] = queue.into();
    }
    add(&mut fields, "ttl_seconds_after_finished", training.ttl_seconds_after_finished.as_ref());
    add(&mut fields, "training_timeout", training.timeout.as_ref());
    add(&mut fields, "tolerations", training.tolerations.as_ref().filter(|list| !list.is_empty()));
    add(&mut fields, "nodeSelector", training.node_selector.as_ref().filter(|map| !map.is_empty()));
    add(&mut fields, "affinity", affinity(training, own).as_ref());
    add(&mut fields, "resources", training.resources.as_ref());
    fields
}

fn affinity(training: &TrainingConfig, own: bool) -> Option<Affinity> {
    let Some(pods) = training.pod_affinity.clone().filter(|_| own) else { return training.affinity.clone() };
    let given = training.affinity.clone().unwrap_or_default();
    Some(Affinity { pod_affinity: given.pod_affinity.clone().or(Some(pods)), ..given })
}

fn add(fields: &mut Value, name: &str, value: Option<&impl Serialize>) {
    if let Some(value) = value.and_then(|value| serde_json::to_value(value).ok()) {
        fields[name] = value;
    }
}

fn text_of<'a>(live: &'a LiveObjects, place: &Place<'_>, map: &str, key: &str) -> Option<&'a str> {
    live.get(&Ref::of::<ConfigMap>(place.namespace, map))?["data"][key].as_str()
}

fn parsed(text: &str, map: &str, key: &str, field: &str) -> Result<Value, Stop> {
    yaml::parse(text).map_err(|error| {
        let first = error.lines().next().unwrap_or_default().to_owned();
        let message = format!("key {key} of ConfigMap {map}, which {field} names, is not YAML: {first}; correct it");
        Stop::failed("ConfigMapFailed", message)
    })
}
