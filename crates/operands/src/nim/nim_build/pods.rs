//! The build pod and the manifest pod.

use std::collections::BTreeMap;

use capstan_api::nim::NimCache;
use capstan_api::nim::cache::NimProfile;
use capstan_plan::kit::pod::at;
use capstan_plan::kit::{env, merge_env};
use capstan_plan::{Object, Orchestrator};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, LocalObjectReference,
    PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, Probe, ResourceRequirements, SeccompProfile,
    SecretKeySelector, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::nim_cache;
use super::{Cx, labels};

const GPU: &str = "nvidia.com/gpu";
const STORE: &str = "/model-store";
const VOLUME: &str = "nim-cache-volume";

/// Prints the local manifest. It terminates, so that its log is complete when it is read.
const PRINT: &str = "cat /model-store/local_cache/local_manifest.yaml";

pub(super) fn build_name(cx: &Cx<'_>) -> String {
    format!("{}-engine-build-pod", cx.name)
}

pub(super) fn manifest_name(cx: &Cx<'_>) -> String {
    format!("{}-local-manifest-pod", cx.name)
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The user's resources, with the GPU count of the profile unless the user sets one.
pub(super) fn resources(cx: &Cx<'_>, profile: &NimProfile) -> Result<ResourceRequirements, String> {
    let given = cx.spec().resources.clone().unwrap_or_default();
    let (mut requests, mut limits) = (given.requests.unwrap_or_default(), given.limits.unwrap_or_default());
    let asked = requests.get(GPU).or_else(|| limits.get(GPU)).cloned();
    let spread = profile.config.as_ref().and_then(|config| config.get("tp")).filter(|tp| !tp.is_empty());
    let gpus = match (asked, spread) {
        (Some(asked), _) => asked,
        (None, Some(spread)) => Quantity(spread.clone()),
        (None, None) => {
            let name = profile.name.as_deref().unwrap_or_default();
            return Err(format!(
                "profile {name} does not say how many GPUs it needs: set spec.resources.limits[{GPU:?}]"
            ));
        }
    };
    requests.insert(GPU.into(), gpus.clone());
    limits.insert(GPU.into(), gpus);
    Ok(ResourceRequirements { requests: Some(requests), limits: Some(limits), claims: None })
}

/// The build pod: a server that is ready once its engine is built.
pub(super) fn build(cx: &Cx<'_>, cache: &NimCache, profile: &NimProfile, resources: ResourceRequirements) -> Object {
    let port = ContainerPort { name: Some("api".into()), container_port: 8000, ..ContainerPort::default() };
    let container = Container {
        name: "nim-build-ctr".into(),
        env: Some(environment(cx, cache, profile)),
        ports: Some(vec![ContainerPort { protocol: Some("TCP".into()), ..port }]),
        resources: Some(resources),
        liveness_probe: Some(probe("/v1/health/live", 15, 3)),
        readiness_probe: Some(probe("/v1/health/ready", 15, 3)),
        startup_probe: Some(probe("/v1/health/ready", 30, 30)),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..container(cx, cache)
    };
    pod(cx, cache, build_name(cx), container, "Never")
}

/// The manifest pod.
pub(super) fn manifest(cx: &Cx<'_>, cache: &NimCache) -> Object {
    let container = Container {
        name: "nim-build-manifest-ctr".into(),
        command: Some(vec!["/bin/sh".into(), "-c".into(), PRINT.into()]),
        ..container(cx, cache)
    };
    pod(cx, cache, manifest_name(cx), container, "OnFailure")
}

fn container(cx: &Cx<'_>, cache: &NimCache) -> Container {
    let image = &cx.spec().image;
    let sub_path = cache.spec.storage.pvc.as_ref().and_then(|claim| claim.sub_path.clone()).filter(|p| !p.is_empty());
    Container {
        image: Some(format!("{}:{}", image.repository, image.tag)),
        image_pull_policy: image.pull_policy.clone().filter(|policy| !policy.is_empty()),
        volume_mounts: Some(vec![VolumeMount { sub_path, ..at(VOLUME, STORE) }]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
            run_as_non_root: Some(true),
            run_as_user: Some(cache.spec.user_id.unwrap_or(1000)),
            run_as_group: Some(cache.spec.group_id.unwrap_or(2000)),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn pod(cx: &Cx<'_>, cache: &NimCache, name: String, container: Container, restart: &str) -> Object {
    let spec = cx.spec();
    let mut annotations = cx.build.metadata.annotations.clone().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.extend(spec.annotations.clone().unwrap_or_default());
    annotations.insert("sidecar.istio.io/inject".into(), "false".into());
    if cx.facts.orchestrator == Orchestrator::OpenShift {
        annotations.insert("openshift.io/scc".into(), "nonroot".into());
    }
    let secrets = spec.image.pull_secrets.iter().flatten().filter(|name| !name.is_empty());
    let secrets: Vec<_> = secrets.map(|name| LocalObjectReference { name: name.clone() }).collect();
    let seccomp = (cx.facts.orchestrator == Orchestrator::Tkgs)
        .then(|| SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None });
    Object::new(&Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(cx.namespace.clone()),
            labels: Some(labels(cx)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            restart_policy: Some(restart.into()),
            runtime_class_name: cache.spec.runtime_class_name.clone().filter(|name| !name.is_empty()),
            tolerations: spec.tolerations.clone().filter(|tolerations| !tolerations.is_empty()),
            node_selector: spec.node_selector.clone().filter(|selector| !selector.is_empty()),
            image_pull_secrets: Some(secrets).filter(|secrets| !secrets.is_empty()),
            security_context: Some(PodSecurityContext {
                run_as_user: Some(cache.spec.user_id.unwrap_or(1000)),
                fs_group: Some(cache.spec.group_id.unwrap_or(2000)),
                run_as_non_root: Some(true),
                seccomp_profile: seccomp,
                ..PodSecurityContext::default()
            }),
            volumes: Some(vec![Volume {
                name: VOLUME.into(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: nim_cache::claim_name(cache),
                    read_only: None,
                }),
                ..Volume::default()
            }]),
            ..PodSpec::default()
        }),
        ..Pod::default()
    })
}

/// The user's environment wins, except that a LoRA profile always has its adapters enabled.
fn environment(cx: &Cx<'_>, cache: &NimCache, profile: &NimProfile) -> Vec<EnvVar> {
    let mut own = vec![
        env("NIM_CACHE_PATH", STORE),
        env("NIM_SERVER_PORT", "8000"),
        env("NIM_HTTP_API_PORT", "8000"),
        env("NIM_CUSTOM_MODEL_NAME", cx.model_name()),
        env("NIM_MODEL_PROFILE", profile.name.clone().unwrap_or_default()),
    ];
    let secret = cache.spec.source.ngc.as_ref().map(|ngc| ngc.auth_secret.as_str()).filter(|name| !name.is_empty());
    own.extend(secret.map(|name| EnvVar {
        name: "NGC_API_KEY".into(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector { name: name.into(), key: "NGC_API_KEY".into(), optional: None }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }));
    let all = merge_env(own, cx.spec().env.clone().unwrap_or_default());
    let config: BTreeMap<String, String> = profile.config.clone().unwrap_or_default();
    let adapters = config.get("feat_lora").is_some_and(|value| value == "true");
    if adapters { merge_env(all, vec![env("NIM_PEFT_SOURCE", "/tmp")]) } else { all }
}

fn probe(path: &str, delay: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.into()),
            port: IntOrString::String("api".into()),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: Some(delay),
        timeout_seconds: Some(1),
        period_seconds: Some(10),
        success_threshold: Some(1),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}
