//! Proxies of NIM pods.

use capstan_api::common::Proxy;
use capstan_plan::kit::{env, proxy};
use k8s_openapi::api::core::v1::EnvVar;

/// The variables by which programs find a proxy. The SDK of NIM trusts the certificates of its image unless it is told to
/// use those of the system.
pub(super) fn environment(proxy: &Proxy) -> Vec<EnvVar> {
    std::iter::once(env("NIM_SDK_USE_NATIVE_TLS", "1")).chain(proxy::environment(proxy)).collect()
}
