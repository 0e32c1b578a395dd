//! Proxy environment of NIM pods.

use capstan_api::common::Proxy;
use capstan_plan::kit::{env, proxy};
use k8s_openapi::api::core::v1::EnvVar;

/// The proxy environment. NIM's SDK uses the certificates of its image unless told to use the system's.
pub(super) fn environment(proxy: &Proxy) -> Vec<EnvVar> {
    std::iter::once(env("NIM_SDK_USE_NATIVE_TLS", "1")).chain(proxy::environment(proxy)).collect()
}
