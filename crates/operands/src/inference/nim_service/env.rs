//! Environment of the serving container. Order and precedence are part of the API.

use capstan_plan::kit::{env, merge_env};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};

use super::{Cx, service};

/// Where the model lies inside the container.
pub(super) const MODEL_STORE: &str = "/model-store";

/// The environment that all containers of the pod share: the proxy wins over the user, the user over us.
pub(super) fn base(cx: &Cx<'_>) -> Vec<EnvVar> {
    let base = merge_env(standard(cx), cx.spec().env.clone().unwrap_or_default());
    match &cx.spec().proxy {
        Some(proxy) => {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let (http, https, none) = (text(&proxy.http_proxy), text(&proxy.https_proxy), text(&proxy.no_proxy));
            let proxy = vec![
                env("NIM_SDK_USE_NATIVE_TLS", "1"),
                env("HTTPS_PROXY", https.clone()),
                env("HTTP_PROXY", http.clone()),
                env("NO_PROXY", none.clone()),
                env("https_proxy", https),
                env("http_proxy", http),
                env("no_proxy", none),
            ];
            merge_env(base, proxy)
        }
        None => base,
    }
}

/// The environment of the serving container.
pub(super) fn main(cx: &Cx<'_>) -> Vec<EnvVar> {
    let mut list = base(cx);
    let serves_hugging_face = list.iter().any(|one| {
        one.name == "NIM_MODEL_NAME" && one.value.as_deref().is_some_and(|value| value.starts_with("hf://"))
    });
    if serves_hugging_face {
        list.retain(|one| one.name != "NGC_API_KEY");
        if let Some(secret) = auth_secret(cx) {
            let keys = vec![from_secret("NGC_API_KEY", secret, Some(true)), from_secret("HF_TOKEN", secret, None)];
            list = merge_env(list, keys);
        }
    }
    list
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

fn auth_secret<'a>(cx: &Cx<'a>) -> Option<&'a str> {
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
