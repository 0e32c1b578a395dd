//! The download Job.

use std::collections::BTreeMap;

use capstan_plan::kit::pod::at;
use capstan_plan::kit::proxy;
use capstan_plan::kit::{env, hash_json, merge_env};
use capstan_plan::{Object, Orchestrator};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvFromSource, EnvVar, LocalObjectReference, PersistentVolumeClaim,
    PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, SecretEnvSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::proxy::environment as proxy_environment;
use super::source::{Repository, Source};
use super::{Cx, MODEL_FREE, NATIVE, access, claim_name, names};

/// The one container of the pods.
pub(super) const CONTAINER: &str = "nim-cache-ctr";

/// Annotation: hash of the spec that a Job was created for.
const SPEC: &str = "nvidia.com/parent-spec-hash";
/// Annotation: uid of the claim that a Job fills; a recreated claim of the same name is empty.
const CLAIM: &str = "nvidia.com/pvc-uid";
const STORE: &str = "/model-store";
const VOLUME: &str = "nim-cache-volume";
const USER: i64 = 1000;
const GROUP: i64 = 2000;

/// The live Job, if it exists.
pub(super) fn live(cx: &Cx<'_>) -> Option<Job> {
    cx.facts.live.typed(&cx.namespace, &names::job(cx))
}

/// The profiles that a Job was created for; empty without profiles.
pub(super) fn selected(job: &Job) -> Option<Vec<String>> {
    let annotations = job.metadata.annotations.as_ref()?;
    serde_json::from_str(annotations.get(names::SELECTED)?).ok()
}

/// Whether the Job was created for another spec or claim. One of another operator is adopted unchanged.
pub(super) fn is_outdated(cx: &Cx<'_>) -> bool {
    let annotations = live(cx).and_then(|job| job.metadata.annotations).unwrap_or_default();
    let differs = |name: &str, now: &str| annotations.get(name).is_some_and(|then| then != now);
    differs(SPEC, &spec_hash(cx)) || differs(CLAIM, &claim_uid(cx))
}

fn claim_uid(cx: &Cx<'_>) -> String {
    let claim = cx.facts.live.typed::<PersistentVolumeClaim>(&cx.namespace, &claim_name(cx.cache));
    claim.and_then(|claim| claim.metadata.uid).unwrap_or_default()
}

fn spec_hash(cx: &Cx<'_>) -> String {
    hash_json(cx.spec())
}

/// The Job that downloads `selected`.
pub(super) fn object(cx: &Cx<'_>, selected: &[String]) -> Object {
    let mut annotations = BTreeMap::from([(SPEC.to_owned(), spec_hash(cx)), (CLAIM.to_owned(), claim_uid(cx))]);
    if !selected.is_empty() {
        annotations.insert(names::SELECTED.into(), serde_json::json!(selected).to_string());
    }
    let mut pod_annotations = BTreeMap::from([("sidecar.istio.io/inject".to_owned(), "false".to_owned())]);
    if cx.facts.orchestrator == Orchestrator::OpenShift {
        pod_annotations.insert("openshift.io/scc".into(), access::constraint(cx.cache).into());
    }
    Object::new(&Job {
        metadata: ObjectMeta {
            name: Some(names::job(cx)),
            namespace: Some(cx.namespace.clone()),
            labels: Some(names::labels(cx)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(5),
            ttl_seconds_after_finished: Some(600),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(names::labels(cx)),
                    annotations: Some(pod_annotations),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(cx, selected)),
            },
            ..JobSpec::default()
        }),
        ..Job::default()
    })
}

fn pod(cx: &Cx<'_>, selected: &[String]) -> PodSpec {
    let source = Source::of(cx);
    let mut volumes = vec![
        Volume {
            name: VOLUME.into(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(cx.cache),
                read_only: None,
            }),
            ..Volume::default()
        },
        Volume { name: "scratch".into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() },
    ];
    volumes.extend(proxy::certificates(cx.spec().proxy.as_ref()).into_iter().flat_map(proxy::volumes));
    let init = init(cx, &source);
    PodSpec {
        init_containers: Some(init).filter(|init| !init.is_empty()),
        containers: vec![container(cx, &source, selected)],
        volumes: Some(volumes),
        restart_policy: Some("Never".into()),
        service_account_name: Some(access::ACCOUNT.into()),
        security_context: Some(pod_security(cx)),
        ..placement(cx, &source)
    }
}

fn container(cx: &Cx<'_>, source: &Source<'_>, selected: &[String]) -> Container {
    let (command, args) = command(cx, source, selected);
    // Hugging Face downloads print progress last, not the failure reason.
    let policy = source.repository().is_none().then(|| "FallbackToLogsOnError".to_owned());
    let mut mounts = mounts(cx);
    mounts.extend(proxy::certificates(cx.spec().proxy.as_ref()).map(|_| proxy::trusted_mount()));
    let secret = source.auth_secret().map(|name| EnvFromSource {
        secret_ref: Some(SecretEnvSource { name: name.into(), optional: None }),
        ..EnvFromSource::default()
    });
    Container {
        name: CONTAINER.into(),
        image: Some(source.image().into()),
        command,
        args,
        env: Some(environment(cx, source)),
        env_from: secret.map(|secret| vec![secret]),
        resources: resources(cx),
        volume_mounts: Some(mounts),
        security_context: Some(container_security(cx)),
        termination_message_path: Some("/dev/termination-log".into()),
        termination_message_policy: policy,
        ..Container::default()
    }
}

/// The command: none for an image that downloads by itself.
fn command(cx: &Cx<'_>, source: &Source<'_>, selected: &[String]) -> (Option<Vec<String>>, Option<Vec<String>>) {
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    if cx.type_() == NATIVE {
        return (None, None);
    }
    if let Some(repository) = source.repository() {
        return (Some(fetch(&repository, cx.type_() == MODEL_FREE)), None);
    }
    if let Some(endpoint) = source.endpoint() {
        return (words(&["create-model-store"]), words(&["--model-repo", endpoint, "--model-store", STORE]));
    }
    let mut args = vec!["--profiles".to_owned()];
    if selected.iter().any(|profile| profile == "all") {
        args = vec!["--all".into()];
    } else {
        args.extend(selected.iter().cloned());
    }
    (words(&["download-to-cache"]), Some(args))
}

fn fetch(repository: &Repository<'_>, model_free: bool) -> Vec<String> {
    let Repository { namespace, model, dataset, revision, .. } = repository;
    let (name, kind) = match (model, dataset) {
        (Some(model), _) => (*model, "model"),
        (None, dataset) => (dataset.unwrap_or_default(), "dataset"),
    };
    // Images without a manifest support models only; a dataset is downloaded as with any other image.
    if model_free && kind == "model" {
        let uri = format!("hf://{namespace}/{name}");
        let manifest = format!("{STORE}/model_manifest.json");
        return ["download-to-cache", "--model-uri", &uri, "--manifest-file", &manifest].map(str::to_owned).to_vec();
    }
    let repo = format!("{namespace}/{name}");
    let mut words =
        ["huggingface-cli", "download", &repo, "--local-dir", STORE, "--repo-type", kind].map(str::to_owned).to_vec();
    if let Some(revision) = revision {
        words.extend(["--revision".to_owned(), (*revision).to_owned()]);
    }
    words
}

/// The environment: proxy over user over defaults; only the model path of a native image is fixed.
fn environment(cx: &Cx<'_>, source: &Source<'_>) -> Vec<EnvVar> {
    let all = merge_env(own_environment(cx, source), cx.spec().env.clone().unwrap_or_default());
    let all = match &cx.spec().proxy {
        Some(proxy) => merge_env(all, proxy_environment(proxy)),
        None => all,
    };
    if cx.type_() == NATIVE { merge_env(all, own_environment(cx, source)) } else { all }
}

fn own_environment(cx: &Cx<'_>, source: &Source<'_>) -> Vec<EnvVar> {
    if cx.type_() == NATIVE {
        return vec![
            env("NIM_ENGINE_MODEL_DOWNLOAD_ONLY", "1"),
            env("NIM_ENGINE_MODEL_PATH", format!("/model/{}", cx.name)),
        ];
    }
    match source.repository() {
        Some(repository) => vec![
            env("HF_HOME", format!("{STORE}/huggingface/hub")),
            env("HF_ENDPOINT", repository.endpoint),
            env("HF_HUB_OFFLINE", "0"),
            env("NIM_CACHE_PATH", STORE),
        ],
        None => vec![env("NIM_CACHE_PATH", STORE)],
    }
}

fn mounts(cx: &Cx<'_>) -> Vec<VolumeMount> {
    let sub_path = cx.spec().storage.pvc.as_ref().and_then(|claim| claim.sub_path.clone()).filter(|p| !p.is_empty());
    let paths: &[&str] = if cx.type_() == NATIVE { &["/model", "/opt/cache"] } else { &[STORE] };
    let store = paths.iter().map(|path| VolumeMount { sub_path: sub_path.clone(), ..at(VOLUME, path) });
    store.chain([at("scratch", "/scratch")]).collect()
}

/// Init containers: CA certificates first, then the user's.
fn init(cx: &Cx<'_>, source: &Source<'_>) -> Vec<Container> {
    let trust = proxy::certificates(cx.spec().proxy.as_ref()).map(|_| Container {
        volume_mounts: Some([proxy::trusting_mounts(), mounts(cx)].concat()),
        ..proxy::trusting(source.image(), None)
    });
    let users = cx.spec().init_containers.iter().flatten().map(|container| Container {
        name: container.name.clone(),
        image: Some(format!("{}:{}", container.image.repository, container.image.tag)),
        image_pull_policy: container.image.pull_policy.clone().filter(|policy| !policy.is_empty()),
        command: container.command.clone(),
        args: container.args.clone(),
        env: Some(merge_env(container.env.clone().unwrap_or_default(), environment(cx, source))),
        working_dir: container.working_dir.clone().filter(|path| !path.is_empty()),
        volume_mounts: Some(mounts(cx)),
        ..Container::default()
    });
    trust.into_iter().chain(users).collect()
}

/// Scheduling and pull settings of the pods.
pub(super) fn placement(cx: &Cx<'_>, source: &Source<'_>) -> PodSpec {
    let spec = cx.spec();
    let gpu_nodes = || BTreeMap::from([("feature.node.kubernetes.io/pci-10de.present".to_owned(), "true".to_owned())]);
    PodSpec {
        node_selector: Some(spec.node_selector.clone().unwrap_or_else(gpu_nodes)).filter(|all| !all.is_empty()),
        tolerations: spec.tolerations.clone().filter(|tolerations| !tolerations.is_empty()),
        runtime_class_name: spec.runtime_class_name.clone().filter(|name| !name.is_empty()),
        image_pull_secrets: pull_secrets(cx, source),
        ..PodSpec::default()
    }
}

/// Secrets that pull the images: the source's, and those of the user's containers.
fn pull_secrets(cx: &Cx<'_>, source: &Source<'_>) -> Option<Vec<LocalObjectReference>> {
    let users = cx.spec().init_containers.iter().flatten().flat_map(|one| one.image.pull_secrets.iter().flatten());
    let mut names: Vec<&str> = source.pull_secret().into_iter().collect();
    for name in users.map(String::as_str).filter(|name| !name.is_empty()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let secrets: Vec<_> = names.into_iter().map(|name| LocalObjectReference { name: name.into() }).collect();
    (!secrets.is_empty()).then_some(secrets)
}

/// The user's resources, as request and limit.
pub(super) fn resources(cx: &Cx<'_>) -> Option<ResourceRequirements> {
    let wanted = cx.spec().resources.as_ref()?;
    let pairs = [("cpu", &wanted.cpu), ("memory", &wanted.memory)];
    let zero = |quantity: &Quantity| ["", "0"].contains(&quantity.0.as_str());
    let set = pairs.iter().filter_map(|(name, quantity)| Some(((*name).to_owned(), (*quantity).clone()?)));
    let set: BTreeMap<String, Quantity> = set.filter(|(_, quantity)| !zero(quantity)).collect();
    (!set.is_empty()).then(|| ResourceRequirements {
        requests: Some(set.clone()),
        limits: Some(set),
        ..ResourceRequirements::default()
    })
}

pub(super) fn pod_security(cx: &Cx<'_>) -> PodSecurityContext {
    PodSecurityContext {
        run_as_user: Some(cx.spec().user_id.unwrap_or(USER)),
        fs_group: Some(cx.spec().group_id.unwrap_or(GROUP)),
        run_as_non_root: Some(true),
        seccomp_profile: seccomp(cx),
        ..PodSecurityContext::default()
    }
}

pub(super) fn container_security(cx: &Cx<'_>) -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
        run_as_non_root: Some(true),
        run_as_user: Some(cx.spec().user_id.unwrap_or(USER)),
        run_as_group: Some(cx.spec().group_id.unwrap_or(GROUP)),
        ..SecurityContext::default()
    }
}

fn seccomp(cx: &Cx<'_>) -> Option<SeccompProfile> {
    (cx.facts.orchestrator == Orchestrator::Tkgs)
        .then(|| SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None })
}
