//! Containers and volumes of the pod.

use capstan_api::common::{ExtraContainer, Image};
use capstan_plan::kit::expose::container_port;
use capstan_plan::kit::merge_env;
use capstan_plan::kit::pod::{at, empty_dir_volume};
use capstan_plan::kit::probe::{self, Timing};
use capstan_plan::kit::proxy;
use capstan_plan::kit::storage::memory;
use k8s_openapi::api::core::v1::{Container, Probe, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Cx, env, model, service, storage};

/// The serving container.
pub(super) fn main(cx: &Cx<'_>) -> Container {
    let spec = cx.spec();
    let [liveness_probe, readiness_probe, startup_probe] =
        probes(cx, 120, |path| probe::http(path, IntOrString::String("api".into())));
    Container {
        name: format!("{}-ctr", cx.name),
        image: Some(reference(&spec.image)),
        image_pull_policy: pull_policy(&spec.image),
        command: spec.command.clone(),
        args: spec.args.clone(),
        env: Some(env::main(cx)),
        ports: Some(service::ports(cx).into_iter().map(|(name, number)| container_port(name, number)).collect()),
        resources: model::resources(cx),
        liveness_probe,
        readiness_probe,
        startup_probe,
        volume_mounts: Some(mounts(cx)),
        ..Container::default()
    }
}

/// Sidecars with these mounts.
pub(super) fn sidecars(cx: &Cx<'_>, mounts: &[VolumeMount]) -> Vec<Container> {
    let extra = cx.spec().sidecar_containers.iter().flatten();
    extra.map(|container| Container { volume_mounts: Some(mounts.into()), ..self::extra(cx, container) }).collect()
}

/// Init containers: CA certificates first, then the user's.
pub(super) fn init(cx: &Cx<'_>) -> Vec<Container> {
    let mut mounts = model_store(cx);
    mounts.extend(needs_scratch(cx).then(|| at("scratch", "/scratch")));
    let trust = certificates(cx).is_some();
    if trust {
        mounts.extend(proxy::trusting_mounts());
    }
    let trusting = trust.then(|| proxy::trusting(&reference(&cx.spec().image), cx.spec().image.pull_policy.as_ref()));
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
        env: Some(merge_env(env::shared(cx), container.env.clone().unwrap_or_default())),
        working_dir: container.working_dir.clone().filter(|path| !path.is_empty()),
        ..Container::default()
    }
}

/// Volumes of the pod, in order.
pub(super) fn volumes(cx: &Cx<'_>) -> Vec<Volume> {
    let shared_memory = cx.spec().storage.as_ref().and_then(|storage| storage.shared_memory_size_limit.as_ref());
    let mut volumes = vec![memory("dshm", shared_memory)];
    volumes.extend(needs_scratch(cx).then(|| empty_dir_volume("scratch")));
    volumes.push(storage::volume(cx));
    if let Some(name) = certificates(cx) {
        volumes.extend(proxy::volumes(name));
    }
    volumes
}

/// Mounts of the serving container.
pub(super) fn mounts(cx: &Cx<'_>) -> Vec<VolumeMount> {
    let mut mounts = model_store(cx);
    mounts.push(at("dshm", "/dev/shm"));
    mounts.extend(needs_scratch(cx).then(|| at("scratch", "/scratch")));
    mounts.extend(certificates(cx).map(|_| proxy::trusted_mount()));
    mounts
}

/// Newer images read the model from two paths. Multi-node pods support the older layout only.
fn model_store(cx: &Cx<'_>) -> Vec<VolumeMount> {
    let native = model::is_native(cx) && cx.multi_node().is_none();
    let paths: &[&str] = if native { &["/model", "/opt/cache"] } else { &[env::MODEL_STORE] };
    let store = |path: &&str| VolumeMount { sub_path: storage::sub_path(cx), ..at("model-store", path) };
    paths.iter().map(store).collect()
}

/// Whether user containers share a scratch volume with the server.
fn needs_scratch(cx: &Cx<'_>) -> bool {
    let some = |list: &Option<Vec<ExtraContainer>>| list.as_ref().is_some_and(|list| !list.is_empty());
    some(&cx.spec().init_containers) || some(&cx.spec().sidecar_containers)
}

fn certificates<'a>(cx: &Cx<'a>) -> Option<&'a str> {
    proxy::certificates(cx.spec().proxy.as_ref())
}

/// Liveness, readiness and startup probe: the user's, or the default with the handler of `ask`.
pub(super) fn probes(cx: &Cx<'_>, startup_failures: i32, ask: impl Fn(&str) -> Probe) -> [Option<Probe>; 3] {
    let (spec, live, ready) = (cx.spec(), "/v1/health/live", "/v1/health/ready");
    [
        (&spec.liveness_probe, live, 15, 3),
        (&spec.readiness_probe, ready, 15, 3),
        (&spec.startup_probe, ready, 30, startup_failures),
    ]
    .map(|(settings, path, delay, failures)| {
        let timing = Timing { delay, period: 10, timeout: 1, failures };
        probe::chosen(settings.as_ref(), || timing.of(ask(path)))
    })
}

pub(super) fn reference(image: &Image) -> String {
    format!("{}:{}", image.repository, image.tag)
}

pub(super) fn pull_policy(image: &Image) -> Option<String> {
    image.pull_policy.clone().filter(|policy| !policy.is_empty())
}
