//! Containers and volumes of the pod.

use capstan_api::common::{ExtraContainer, Image};
use capstan_api::nim::pod::ServerProbe;
use capstan_plan::kit::merge_env;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, HTTPGetAction, Probe, ResourceRequirements,
    SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Cx, env, service, storage};

/// Copies the user's certificates into the trusted ones and leaves the result where the server looks for it.
const TRUST_CERTIFICATES: &str = "set -e
ls -l /custom
cp /custom/*.crt /usr/local/share/ca-certificates/ 2>/dev/null || true
for file in /custom/*.pem; do
  [ -e \"$file\" ] || continue
  cp \"$file\" \"/usr/local/share/ca-certificates/$(basename \"$file\" .pem)-pem.crt\"
done
update-ca-certificates
cp -r /etc/ssl/certs /ca-certs
";

/// The container that serves.
pub(super) fn main(cx: &Cx<'_>) -> Container {
    let spec = cx.spec();
    let ports = service::ports(cx).into_iter().map(|(name, port)| ContainerPort {
        name: Some(name.into()),
        container_port: port,
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    });
    let (live, ready) = ("/v1/health/live", "/v1/health/ready");
    Container {
        name: format!("{}-ctr", cx.name),
        image: Some(reference(&spec.image)),
        image_pull_policy: pull_policy(&spec.image),
        command: spec.command.clone(),
        args: spec.args.clone(),
        env: Some(env::main(cx)),
        ports: Some(ports.collect()),
        resources: resources(cx),
        liveness_probe: probe(spec.liveness_probe.as_ref(), live, 15, 3),
        readiness_probe: probe(spec.readiness_probe.as_ref(), ready, 15, 3),
        startup_probe: probe(spec.startup_probe.as_ref(), ready, 30, 120),
        volume_mounts: Some(mounts(cx)),
        ..Container::default()
    }
}

/// Containers beside it.
pub(super) fn sidecars(cx: &Cx<'_>) -> Vec<Container> {
    let extra = cx.spec().sidecar_containers.iter().flatten();
    extra.map(|container| Container { volume_mounts: Some(mounts(cx)), ..self::extra(cx, container) }).collect()
}

/// Containers that run before it: the one that trusts certificates, then the user's.
pub(super) fn init(cx: &Cx<'_>) -> Vec<Container> {
    let mut mounts = vec![model_store(cx)];
    mounts.extend(needs_scratch(cx).then(|| mount("scratch", "/scratch")));
    let trust = certificates(cx).is_some();
    if trust {
        mounts.extend([mount("ca-cert-volume", "/ca-certs"), mount("custom-ca", "/custom")]);
    }
    let image = &cx.spec().image;
    let trusting = trust.then(|| Container {
        name: "update-ca-certificates".into(),
        image: Some(reference(image)),
        image_pull_policy: pull_policy(image),
        command: Some(vec!["/bin/sh".into(), "-c".into(), TRUST_CERTIFICATES.into()]),
        security_context: Some(SecurityContext {
            run_as_user: Some(0),
            run_as_non_root: Some(false),
            ..SecurityContext::default()
        }),
        ..Container::default()
    });
    let users = cx.spec().init_containers.iter().flatten().map(|container| extra(cx, container));
    trusting
        .into_iter()
        .chain(users)
        .map(|container| Container { volume_mounts: Some(mounts.clone()), ..container })
        .collect()
}

fn extra(cx: &Cx<'_>, container: &ExtraContainer) -> Container {
    Container {
        name: container.name.clone(),
        image: Some(reference(&container.image)),
        image_pull_policy: pull_policy(&container.image).or_else(|| pull_policy(&cx.spec().image)),
        command: container.command.clone(),
        args: container.args.clone(),
        env: Some(merge_env(env::base(cx), container.env.clone().unwrap_or_default())),
        working_dir: container.working_dir.clone().filter(|path| !path.is_empty()),
        ..Container::default()
    }
}

/// Volumes of the pod, in order.
pub(super) fn volumes(cx: &Cx<'_>) -> Vec<Volume> {
    let shared_memory = cx.spec().storage.as_ref().and_then(|storage| storage.shared_memory_size_limit.clone());
    let memory = EmptyDirVolumeSource {
        medium: Some("Memory".into()),
        size_limit: shared_memory,
        ..EmptyDirVolumeSource::default()
    };
    let mut volumes = vec![Volume { name: "dshm".into(), empty_dir: Some(memory), ..Volume::default() }];
    volumes.extend(needs_scratch(cx).then(|| empty_dir("scratch")));
    volumes.push(storage::volume(cx));
    if let Some(name) = certificates(cx) {
        volumes.push(empty_dir("ca-cert-volume"));
        volumes.push(Volume {
            name: "custom-ca".into(),
            config_map: Some(ConfigMapVolumeSource { name: name.into(), ..ConfigMapVolumeSource::default() }),
            ..Volume::default()
        });
    }
    volumes
}

fn mounts(cx: &Cx<'_>) -> Vec<VolumeMount> {
    let mut mounts = vec![model_store(cx), mount("dshm", "/dev/shm")];
    mounts.extend(needs_scratch(cx).then(|| mount("scratch", "/scratch")));
    mounts.extend(certificates(cx).map(|_| mount("ca-cert-volume", "/etc/ssl")));
    mounts
}

fn model_store(cx: &Cx<'_>) -> VolumeMount {
    VolumeMount { sub_path: storage::sub_path(cx), ..mount("model-store", env::MODEL_STORE) }
}

/// Containers of the user exchange files with the server there.
fn needs_scratch(cx: &Cx<'_>) -> bool {
    let some = |list: &Option<Vec<ExtraContainer>>| list.as_ref().is_some_and(|list| !list.is_empty());
    some(&cx.spec().init_containers) || some(&cx.spec().sidecar_containers)
}

fn certificates<'a>(cx: &Cx<'a>) -> Option<&'a str> {
    cx.spec().proxy.as_ref()?.cert_config_map.as_deref().filter(|name| !name.is_empty())
}

/// The user's resources. Claims come from `draResources`, never from here.
fn resources(cx: &Cx<'_>) -> Option<ResourceRequirements> {
    let resources = cx.spec().resources.clone()?;
    Some(ResourceRequirements { claims: None, ..resources })
}

fn probe(wanted: Option<&ServerProbe>, path: &str, delay: i32, failures: i32) -> Option<Probe> {
    let wanted = wanted.cloned().unwrap_or_default();
    if wanted.enabled == Some(false) {
        return None;
    }
    let http =
        HTTPGetAction { path: Some(path.into()), port: IntOrString::String("api".into()), ..HTTPGetAction::default() };
    wanted.probe.or(Some(Probe {
        http_get: Some(http),
        initial_delay_seconds: Some(delay),
        timeout_seconds: Some(1),
        period_seconds: Some(10),
        success_threshold: Some(1),
        failure_threshold: Some(failures),
        ..Probe::default()
    }))
}

fn reference(image: &Image) -> String {
    format!("{}:{}", image.repository, image.tag)
}

fn pull_policy(image: &Image) -> Option<String> {
    image.pull_policy.clone().filter(|policy| !policy.is_empty())
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.into(), mount_path: path.into(), ..VolumeMount::default() }
}

fn empty_dir(name: &str) -> Volume {
    Volume { name: name.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}
