//! Environment of the containers. Order and precedence are part of the API.

use capstan_plan::kit::{env, merge_env};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};

use super::super::proxy;
use super::{Cx, model, multi_node, service, storage};

/// Model path in the container.
pub(super) const MODEL_STORE: &str = "/model-store";

/// The environment of all containers of the pod: proxy over user over defaults.
pub(super) fn base(cx: &Cx<'_>) -> Vec<EnvVar> {
    let base = merge_env(standard(cx), cx.spec().env.clone().unwrap_or_default());
    match &cx.spec().proxy {
        Some(proxy) => merge_env(base, proxy::environment(proxy)),
        None => base,
    }
}

/// The environment that init containers and sidecars start from.
pub(super) fn shared(cx: &Cx<'_>) -> Vec<EnvVar> {
    match cx.multi_node() {
        Some(spread) => multi_node::environment(cx, spread),
        None => base(cx),
    }
}

/// The environment of the serving container.
pub(super) fn main(cx: &Cx<'_>) -> Vec<EnvVar> {
    let mut list = base(cx);
    let native = model::is_native(cx);
    if model::is_universal(cx) && !native {
        or_add(&mut list, env("NIM_MODEL_NAME", MODEL_STORE));
        or_add(&mut list, env("HF_HOME", "/model-store/huggingface/hub"));
        if let Some(path) = model::hub_path(cx) {
            or_add(&mut list, env("NIM_MODEL_PATH", path));
        }
    }
    if native {
        let path = storage::cache_name(cx.spec()).map_or("/model".to_owned(), |name| format!("/model/{name}"));
        remove(&mut list, &["NIM_ENGINE_MODEL_PATH", "NGC_API_KEY"]);
        list.push(env("NIM_ENGINE_MODEL_PATH", path));
        if let Some(secret) = auth_secret(cx) {
            remove(&mut list, &["HF_TOKEN"]);
            list.extend(["NGC_API_KEY", "HF_TOKEN"].map(|key| from_secret(key, secret, Some(true))));
        }
    }
    let named_hub = list.iter().any(|one| {
        one.name == "NIM_MODEL_NAME" && one.value.as_deref().is_some_and(|value| value.starts_with("hf://"))
    });
    if model::is_from_hub(cx) || named_hub {
        remove(&mut list, &["NGC_API_KEY"]);
        if let Some(secret) = auth_secret(cx) {
            let keys = vec![from_secret("NGC_API_KEY", secret, Some(true)), from_secret("HF_TOKEN", secret, None)];
            list = merge_env(list, keys);
        }
    }
    add_profile(cx, &mut list);
    list
}

/// Model environment of a multi-node container.
pub(super) fn add_model(cx: &Cx<'_>, list: &mut Vec<EnvVar>) {
    if model::is_universal(cx) {
        or_add(list, env("NIM_MODEL_NAME", MODEL_STORE));
    }
    add_profile(cx, list);
}

fn add_profile(cx: &Cx<'_>, list: &mut Vec<EnvVar>) {
    if let Some(profile) = model::profile_name(cx) {
        or_add(list, env("NIM_MODEL_PROFILE", profile));
    }
}

/// Adds a variable, unless it is set.
fn or_add(list: &mut Vec<EnvVar>, one: EnvVar) {
    if !list.iter().any(|old| old.name == one.name) {
        list.push(one);
    }
}

fn remove(list: &mut Vec<EnvVar>, names: &[&str]) {
    list.retain(|one| !names.contains(&one.name.as_str()));
}

fn standard(cx: &Cx<'_>) -> Vec<EnvVar> {
    let port = service::port(cx).to_string();
    let mut list = vec![
        env("NIM_CACHE_PATH", MODEL_STORE),
        env("OUTLINES_CACHE_DIR", "/tmp/outlines"),
        env("NIM_SERVER_PORT", port.clone()),
        env("NIM_HTTP_API_PORT", port),
        env("NIM_JSONL_LOGGING", "1"),
        env("NIM_LOG_LEVEL", "INFO"),
    ];
    list.extend(auth_secret(cx).map(|secret| from_secret("NGC_API_KEY", secret, None)));
    let ports = service::ports(cx);
    let port_of = |name: &str| ports.iter().find(|(port, _)| *port == name).map(|(_, number)| number.to_string());
    if let Some(grpc) = port_of("grpc") {
        list.extend([env("NIM_GRPC_API_PORT", grpc.clone()), env("NIM_TRITON_GRPC_PORT", grpc)]);
    }
    list.extend(port_of("metrics").map(|metrics| env("NIM_TRITON_METRICS_PORT", metrics)));
    list
}

pub(super) fn auth_secret<'a>(cx: &Cx<'a>) -> Option<&'a str> {
    cx.spec().auth_secret.as_deref().filter(|name| !name.is_empty())
}

fn from_secret(key: &str, secret: &str, optional: Option<bool>) -> EnvVar {
    let selector = SecretKeySelector { name: secret.into(), key: key.into(), optional };
    EnvVar {
        name: key.into(),
        value_from: Some(EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}
