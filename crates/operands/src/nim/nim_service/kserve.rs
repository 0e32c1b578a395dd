//! A service that KServe runs: one InferenceService, in the deployment mode that KServe or the user chooses.

use capstan_api::foreign::InferenceService;
use capstan_api::foreign::kserve::{InferenceServiceSpec, Predictor, Scaling};
use capstan_api::ignored;
use capstan_api::nim::service::InferencePlatform;
use capstan_plan::kit::probe;
use capstan_plan::kit::quantity;
use capstan_plan::{Gvk, Object};
use k8s_openapi::api::autoscaling::v2::{MetricSpec, MetricTarget};
use k8s_openapi::api::core::v1::{ConfigMap, Container, ContainerPort, GRPCAction, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::parts::{Parts, Stop, lacking};
use super::{
    Cx, access, containers, deployment, devices, image, monitor, names, pod, references, rolling, service, storage,
};

/// Annotation with the KServe deployment mode.
pub(super) const MODE: &str = "serving.kserve.io/deploymentMode";
/// KServe's ConfigMap.
pub(super) const SETTINGS: &str = "inferenceservice-config";
const VISIBILITY: &str = "networking.kserve.io/visibility";
const MODES: [&str; 5] = ["Standard", "Knative", "ModelMesh", "RawDeployment", "Serverless"];

/// Fields of objects that KServe creates itself: Service, routes and autoscaler.
const WITHOUT_EFFECT: [&str; 12] = [
    "spec.expose.service.type",
    "spec.expose.service.annotations",
    "spec.expose.service.labels",
    "spec.expose.ingress.annotations",
    "spec.expose.ingress.spec",
    "spec.expose.router.hostDomainName",
    "spec.expose.router.annotations",
    "spec.expose.router.ingress.ingressClass",
    "spec.expose.router.ingress.tlsSecretName",
    "spec.expose.router.gateway",
    "spec.expose.router.eppConfig",
    "spec.scale.annotations",
];
/// Fields that Knative manages itself.
const WITHOUT_EFFECT_IN_KNATIVE: [&str; 3] = ["spec.replicas", "spec.userID", "spec.groupID"];

/// Fields that are set but have no effect with KServe.
pub(super) fn without_effect(cx: &Cx<'_>) -> Vec<&'static str> {
    if cx.platform() != InferencePlatform::KServe {
        return Vec::new();
    }
    let Ok(mode) = mode(cx) else { return Vec::new() };
    let object = serde_json::json!({"spec": cx.spec()});
    let knative: &[&str] = if is_standard(&mode) { &[] } else { &WITHOUT_EFFECT_IN_KNATIVE };
    let set = WITHOUT_EFFECT.iter().chain(knative).filter(|path| ignored::is_set(&object, path));
    let mut list: Vec<&'static str> = set.copied().collect();
    let limits = cx.spec().scale.as_ref().and_then(|scale| scale.hpa.as_ref());
    if limits.is_some_and(|limits| limits.behavior.is_some()) {
        list.push("spec.scale.hpa.behavior");
    }
    let metrics = limits.and_then(|limits| limits.metrics.as_deref()).unwrap_or_default();
    if metrics.len() > 1 || metrics.iter().any(|metric| by_resource(metric).is_none()) {
        list.push("spec.scale.hpa.metrics (but for the first of cpu and memory)");
    }
    list
}

/// Adds all objects: no Service, route or autoscaler, for KServe creates its own.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    parts.objects.extend(access::objects(cx));
    if let Some(claim) = storage::claim(cx) {
        parts.objects.push(claim);
    }
    let stop = storage::blocked_by(cx).or_else(|| devices::blocked_by(cx)).or_else(|| {
        lacking::<InferenceService>(cx, "spec.inferencePlatform: kserve")
            .map(|message| Stop::wait("MissingAPI", message))
    });
    parts.queries.extend(image::query(cx));
    let stop = stop.or_else(|| image::blocked_by(cx));
    let mode = match (stop, mode(cx)) {
        (Some(stop), _) => return parts.stop(cx, stop),
        (None, Err(message)) => return parts.stop(cx, Stop::failed("DeploymentModeUnknown", message)),
        (None, Ok(mode)) => mode,
    };
    if let Some(wanted) = chosen(cx, &Value::Null).filter(|wanted| *wanted != mode) {
        parts.ignored.push(format!(
            "spec.annotations[{MODE}] is {wanted:?}, but KServe runs the service as {mode:?} and cannot change that: \
             delete InferenceService {} to start anew",
            cx.name
        ));
    }
    if is_standard(&mode) {
        monitor::add(cx, parts);
    }
    devices::add(cx, parts);
    let object = Object::new(&object(cx, &mode));
    let object = rolling::remember(cx, object, &references::of_server(cx), &["/spec/predictor"]);
    parts.objects.push(image::annotate(cx, object));
}

/// Whether KServe creates a plain Deployment. Other modes are treated like Knative.
pub(super) fn is_standard(mode: &str) -> bool {
    ["Standard", "RawDeployment"].contains(&mode)
}

/// The live InferenceService.
pub(super) fn live(cx: &Cx<'_>) -> Option<InferenceService> {
    cx.facts.live.typed(&cx.namespace, &cx.name)
}

/// The deployment mode: of the live object, else the user's, else KServe's default, else Standard.
pub(super) fn mode(cx: &Cx<'_>) -> Result<String, String> {
    let running = live(cx).and_then(|live| live.status).and_then(|status| status.deployment_mode);
    if let Some(mode) = running.filter(|mode| !mode.is_empty()) {
        return Ok(mode);
    }
    let settings = settings(cx)?;
    let known = |mode: String, field: &str| {
        let fits = MODES.contains(&mode.as_str());
        if fits { Ok(mode) } else { Err(format!("{field} is {mode:?}: use one of {}", MODES.join(", "))) }
    };
    if let Some(mode) = chosen(cx, &settings["inferenceService"]) {
        return known(mode, &format!("spec.annotations[{MODE}]"));
    }
    match &settings["deploy"] {
        Value::Null => Ok("Standard".into()),
        deploy => {
            let mode = deploy["defaultDeploymentMode"].as_str().unwrap_or_default().to_owned();
            known(mode, &format!("defaultDeploymentMode of ConfigMap {SETTINGS}"))
        }
    }
}

/// The mode of the user's annotation, unless KServe is configured to drop it.
fn chosen(cx: &Cx<'_>, settings: &Value) -> Option<String> {
    let dropped = settings["serviceAnnotationDisallowedList"].as_array();
    if dropped.is_some_and(|list| list.iter().any(|one| one == MODE)) {
        return None;
    }
    cx.spec().annotations.as_ref()?.get(MODE).filter(|mode| !mode.is_empty()).cloned()
}

/// The relevant KServe settings, null where unset.
fn settings(cx: &Cx<'_>) -> Result<Value, String> {
    let kind = Gvk::of::<ConfigMap>();
    let found = cx.facts.live.iter().filter(|(one, _)| one.gvk == kind && one.name == SETTINGS);
    let found: Vec<_> = found.collect();
    let live = match found.as_slice() {
        [] => return Ok(Value::Null),
        [(_, live)] => live,
        several => {
            let list = several.iter().map(|(one, _)| one.namespace.as_str()).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "ConfigMap {SETTINGS} is in several namespaces ({list}): set KSERVE_NAMESPACE to KServe's"
            ));
        }
    };
    let mut settings = serde_json::Map::new();
    for key in ["deploy", "inferenceService"] {
        if let Some(text) = live["data"][key].as_str() {
            let part: Value = serde_json::from_str(text)
                .map_err(|error| format!("key {key} of ConfigMap {SETTINGS} is no JSON: {error}"))?;
            settings.insert(key.into(), part);
        }
    }
    Ok(Value::Object(settings))
}

fn object(cx: &Cx<'_>, mode: &str) -> InferenceService {
    let mut metadata = names::meta(cx);
    let labels = metadata.labels.get_or_insert_default();
    if !is_exposed(cx) && !cx.spec().labels.as_ref().is_some_and(|own| own.contains_key(VISIBILITY)) {
        labels.insert(VISIBILITY.into(), "cluster-local".into());
    }
    let annotations = metadata.annotations.get_or_insert_default();
    for switch in ["enable-metric-aggregation", "enable-prometheus-scraping"] {
        annotations.insert(format!("serving.kserve.io/{switch}"), "true".into());
    }
    annotations.entry(MODE.into()).or_insert_with(|| mode.into());
    if is_standard(mode) && cx.autoscaled() {
        annotations.insert("serving.kserve.io/autoscalerClass".into(), "hpa".into());
    }
    let predictor = Predictor { scaling: scaling(cx, mode), pod: predictor(cx, mode) };
    InferenceService { metadata, spec: InferenceServiceSpec { predictor: Some(predictor) }, status: None }
}

/// Whether the service is exposed externally.
fn is_exposed(cx: &Cx<'_>) -> bool {
    let expose = cx.spec().expose.as_ref();
    let raw = expose.and_then(|expose| expose.ingress.as_ref()).is_some_and(|raw| raw.enabled == Some(true));
    let router = expose.and_then(|expose| expose.router.as_ref()).and_then(|router| router.ingress.as_ref());
    raw || router.is_some_and(|ingress| !ingress.ingress_class.is_empty())
}

fn predictor(cx: &Cx<'_>, mode: &str) -> PodSpec {
    let mut pod = pod::spec(cx, main(cx, mode), containers::volumes(cx));
    if !is_standard(mode) {
        // Knative rejects it.
        pod.security_context = None;
    }
    pod
}

fn main(cx: &Cx<'_>, mode: &str) -> Container {
    let container = containers::main(cx);
    if is_standard(mode) {
        return container;
    }
    let number = service::port(cx);
    let grpc = service::exposure(cx).and_then(|service| service.grpc_port);
    let ask = |path: &str| match grpc {
        Some(port) => Probe { grpc: Some(GRPCAction { port, ..GRPCAction::default() }), ..Probe::default() },
        None => probe::http(path, IntOrString::Int(number)),
    };
    let [liveness_probe, readiness_probe, startup_probe] = containers::probes(cx, 30, ask);
    // Knative allows one port, without a custom name.
    let port = ContainerPort { container_port: number, protocol: Some("TCP".into()), ..ContainerPort::default() };
    Container { ports: Some(vec![port]), liveness_probe, readiness_probe, startup_probe, ..container }
}

fn scaling(cx: &Cx<'_>, mode: &str) -> Scaling {
    let scaling = Scaling {
        labels: Some(names::selector(cx)),
        annotations: Some(names::pod_annotations(cx)),
        ..Scaling::default()
    };
    if !is_standard(mode) {
        return scaling;
    }
    let scaling = Scaling { deployment_strategy: Some(deployment::strategy()), ..scaling };
    let limits = cx.spec().scale.as_ref().filter(|_| cx.autoscaled()).and_then(|scale| scale.hpa.as_ref());
    let Some(limits) = limits else {
        let replicas = cx.spec().replicas;
        return Scaling { min_replicas: replicas, max_replicas: replicas.filter(|count| *count > 0), ..scaling };
    };
    let scaled = Scaling { min_replicas: limits.min_replicas, max_replicas: Some(limits.max_replicas), ..scaling };
    let Some((name, target)) = limits.metrics.iter().flatten().find_map(by_resource) else { return scaled };
    let value = match target.type_.as_str() {
        "Utilization" => target.average_utilization.map(i64::from),
        "Value" => target.value.as_ref().and_then(quantity::whole),
        _ => target.average_value.as_ref().and_then(quantity::whole),
    };
    Scaling {
        scale_metric: Some(name.into()),
        scale_metric_type: Some(target.type_.clone()),
        scale_target: value.and_then(|value| i32::try_from(value).ok()).filter(|value| *value > 0),
        ..scaled
    }
}

/// Metrics that KServe can scale by.
fn by_resource(metric: &MetricSpec) -> Option<(&str, &MetricTarget)> {
    let resource = metric.resource.as_ref().filter(|_| metric.type_ == "Resource")?;
    ["cpu", "memory"].contains(&resource.name.as_str()).then_some((resource.name.as_str(), &resource.target))
}
