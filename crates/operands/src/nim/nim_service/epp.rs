//! The endpoint picker (EPP) of an inference gateway, and its InferencePool.

use std::collections::BTreeMap;

use capstan_api::common::EppConfig;
use capstan_api::common::epp::EndpointPickerConfig;
use capstan_api::foreign::InferencePool;
use capstan_api::foreign::inference::{EndpointPickerRef, InferencePoolSpec, PoolPort, PoolSelector};
use capstan_plan::Object;
use capstan_plan::kit::expose::container_port;
use capstan_plan::kit::pod::{Mount, at};
use capstan_plan::kit::rbac;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, GRPCAction, PodSecurityContext, PodSpec,
    PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext, Service, ServicePort, ServiceSpec,
    Volume,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::parts::Parts;
use super::{Cx, containers, deployment, names, pod, references, rolling, routes, service};

/// ConfigMap key of the configuration.
const FILE: &str = "default-plugins.yaml";
/// gRPC port for the gateway.
const GATEWAY_PORT: i32 = 9002;
const HEALTH_PORT: i32 = 9003;
const METRICS_PORT: i32 = 9090;

/// Adds the picker if the spec has one. Its objects do not depend on a gateway.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    let Some(epp) = routes::router(cx).and_then(|router| router.epp_config.as_ref()) else { return };
    let name = format!("{}-epp", cx.name);
    let meta = names::bare(cx, &name);
    parts.objects.extend(rbac::account_with_role(&meta, None, rules()));
    if let Some(config) = &epp.config {
        let metadata = names::bare(cx, &format!("{name}-config"));
        let data = BTreeMap::from([(FILE.to_owned(), text(config))]);
        parts.add(&ConfigMap { metadata, data: Some(data), ..ConfigMap::default() });
    }
    parts.add(&front(epp, &meta, &name));
    let picker = Object::new(&picker(cx, epp, &meta, &name));
    parts.objects.push(rolling::remember(cx, picker, &references::of_picker(cx), &["/spec/template/metadata"]));
    let spec = InferencePoolSpec {
        selector: Some(PoolSelector { match_labels: Some(names::selector(cx)) }),
        target_ports: Some(vec![PoolPort { number: service::port(cx) }]),
        endpoint_picker_ref: Some(EndpointPickerRef { name, port: Some(PoolPort { number: gateway_port(epp) }) }),
    };
    let metadata = names::bare(cx, &cx.name);
    parts.add_if_served(cx, "spec.expose.router.eppConfig", &InferencePool { metadata, spec, status: None });
}

fn rules() -> Vec<PolicyRule> {
    let read = |groups: &[&str], resources: &[&str]| PolicyRule {
        api_groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
        resources: Some(resources.iter().map(|resource| (*resource).to_owned()).collect()),
        verbs: ["get", "watch", "list"].map(Into::into).into(),
        ..PolicyRule::default()
    };
    vec![
        read(
            &["inference.networking.k8s.io", "inference.networking.x-k8s.io"],
            &["inferencepools", "inferenceobjectives"],
        ),
        read(&[""], &["pods"]),
    ]
}

/// Ports of the picker: the user's, or the defaults.
fn ports(epp: &EppConfig) -> Vec<ContainerPort> {
    let own = epp.ports.clone().unwrap_or_default();
    if !own.is_empty() {
        return own;
    }
    [("grpc-ext-proc", GATEWAY_PORT), ("grpc-health", HEALTH_PORT), ("http-metrics", METRICS_PORT)]
        .map(|(name, number)| container_port(name, number))
        .into()
}

/// The gateway port: by its name, or the user's first.
fn gateway_port(epp: &EppConfig) -> i32 {
    let ports = ports(epp);
    let usual =
        |port: &&ContainerPort| port.name.as_deref() == Some("grpc-ext-proc") || port.container_port == GATEWAY_PORT;
    ports.iter().find(usual).or(ports.first()).map_or(GATEWAY_PORT, |port| port.container_port)
}

fn front(epp: &EppConfig, meta: &ObjectMeta, name: &str) -> Service {
    let own = epp.ports.as_ref().is_some_and(|ports| !ports.is_empty());
    let shown = ports(epp).into_iter().filter(|port| own || port.container_port != HEALTH_PORT);
    let ports = shown.map(|port| ServicePort {
        name: port.name,
        port: port.container_port,
        target_port: Some(IntOrString::Int(port.container_port)),
        protocol: port.protocol.or_else(|| Some("TCP".into())),
        ..ServicePort::default()
    });
    Service {
        metadata: meta.clone(),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".into()),
            selector: Some(names::map(&[("app", name)])),
            ports: Some(ports.collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn picker(cx: &Cx<'_>, epp: &EppConfig, meta: &ObjectMeta, name: &str) -> Deployment {
    let selector = names::map(&[("app", name)]);
    Deployment {
        metadata: meta.clone(),
        spec: DeploymentSpec {
            selector: LabelSelector { match_labels: Some(selector.clone()), ..LabelSelector::default() },
            strategy: Some(deployment::strategy()),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(names::pod_labels(cx, selector)), ..ObjectMeta::default() }),
                spec: Some(PodSpec {
                    containers: vec![container(cx, epp)],
                    service_account_name: Some(name.into()),
                    image_pull_secrets: pod::pull_secrets([&cx.spec().image, &epp.container_spec.image]),
                    volumes: Some(vec![volume(epp, name)]),
                    security_context: Some(PodSecurityContext {
                        seccomp_profile: Some(SeccompProfile {
                            type_: "RuntimeDefault".into(),
                            ..SeccompProfile::default()
                        }),
                        ..PodSecurityContext::default()
                    }),
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    }
}

fn container(cx: &Cx<'_>, epp: &EppConfig) -> Container {
    let own = &epp.container_spec;
    let tag = if own.image.tag.is_empty() { "latest" } else { &own.image.tag };
    let file = epp.config_map_ref.as_ref().map_or(FILE, |reference| &reference.key);
    let usual = || {
        let args = [
            ("--pool-name", cx.name.as_str()),
            ("--pool-namespace", &cx.namespace),
            ("--pool-group", "inference.networking.k8s.io"),
            ("--zap-encoder", "json"),
            ("--config-file", &format!("/config/{file}")),
            ("--v", "6"),
            ("--model-server-metrics-path", "/v1/metrics"),
        ];
        args.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]).collect::<Vec<_>>()
    };
    let healthy = || {
        Some(Probe {
            grpc: Some(GRPCAction { port: HEALTH_PORT, ..GRPCAction::default() }),
            initial_delay_seconds: Some(5),
            period_seconds: Some(10),
            ..Probe::default()
        })
    };
    Container {
        name: if own.name.is_empty() { "epp".into() } else { own.name.clone() },
        image: Some(format!("{}:{tag}", own.image.repository)),
        image_pull_policy: containers::pull_policy(&own.image).or_else(|| containers::pull_policy(&cx.spec().image)),
        command: own.command.clone(),
        args: own.args.clone().filter(|args| !args.is_empty()).or_else(|| Some(usual())),
        env: own.env.clone(),
        working_dir: own.working_dir.clone().filter(|path| !path.is_empty()),
        ports: Some(ports(epp)),
        readiness_probe: epp.readiness_probe.clone().or_else(healthy),
        liveness_probe: epp.liveness_probe.clone().or_else(healthy),
        startup_probe: epp.startup_probe.clone(),
        resources: Some(ResourceRequirements {
            requests: Some(BTreeMap::from([
                ("cpu".to_owned(), Quantity("100m".into())),
                ("memory".to_owned(), Quantity("128Mi".into())),
            ])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), ..Capabilities::default() }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![at("epp-config", "/config").read_only()]),
        ..Container::default()
    }
}

fn volume(epp: &EppConfig, name: &str) -> Volume {
    let config = epp.config_map_ref.as_ref().map_or_else(|| format!("{name}-config"), |one| one.name.clone());
    let optional = epp.config_map_ref.as_ref().and_then(|one| one.optional);
    let source = ConfigMapVolumeSource { name: config, optional, ..ConfigMapVolumeSource::default() };
    Volume { name: "epp-config".into(), config_map: Some(source), ..Volume::default() }
}

/// The configuration as YAML, with sorted keys. Unset known fields are null, as the picker's own tools write them.
fn text(config: &EndpointPickerConfig) -> String {
    let mut value = serde_json::to_value(config).unwrap_or_default();
    for field in ["data", "saturationDetector"] {
        or_null(&mut value, field, Value::Null);
    }
    for plugin in value["plugins"].as_array_mut().into_iter().flatten() {
        or_null(plugin, "name", json!(""));
        or_null(plugin, "parameters", Value::Null);
        let decoded = plugin["parameters"].as_str().and_then(decode);
        if let Some(decoded) = decoded {
            plugin["parameters"] = decoded;
        }
    }
    let profiles = value["schedulingProfiles"].as_array_mut().into_iter().flatten();
    for plugin in profiles.filter_map(|profile| profile["plugins"].as_array_mut()).flatten() {
        or_null(plugin, "weight", Value::Null);
    }
    let text = serde_saphyr::to_string(&value).unwrap_or_default();
    format!("{}\n", text.trim_end())
}

fn or_null(value: &mut Value, field: &str, default: Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.entry(field).or_insert(default);
    }
}

/// Parameters are base64 because of the schema; the picker needs the object.
fn decode(text: &str) -> Option<Value> {
    let value: k8s_openapi::ByteString = serde_json::from_value(text.into()).ok()?;
    serde_json::from_slice(&value.0).ok().filter(Value::is_object)
}
