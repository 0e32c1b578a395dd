//! Proxy environment and extra CA certificates, for every kind whose pods download something.

use capstan_api::common::Proxy;
use k8s_openapi::api::core::v1::{Container, EnvVar, SecurityContext, Volume, VolumeMount};

use super::env;
use super::pod::{at, config, empty_dir_volume};

/// Adds the user's certificates to the trust store and copies it to the shared volume.
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

/// The proxy environment. All variables are always set, so that an empty one overrides the image's.
pub fn environment(proxy: &Proxy) -> Vec<EnvVar> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (http, https, none) = (text(&proxy.http_proxy), text(&proxy.https_proxy), text(&proxy.no_proxy));
    vec![
        env("HTTPS_PROXY", https.clone()),
        env("HTTP_PROXY", http.clone()),
        env("NO_PROXY", none.clone()),
        env("https_proxy", https),
        env("http_proxy", http),
        env("no_proxy", none),
    ]
}

/// ConfigMap with CA certificates.
pub fn certificates(proxy: Option<&Proxy>) -> Option<&str> {
    proxy?.cert_config_map.as_deref().filter(|name| !name.is_empty())
}

/// The init container that adds them to the trust store. Its mounts are those of the other init containers.
pub fn trusting(image: &str, pull_policy: Option<&String>) -> Container {
    Container {
        name: "update-ca-certificates".into(),
        image: Some(image.into()),
        image_pull_policy: pull_policy.filter(|policy| !policy.is_empty()).cloned(),
        command: Some(vec!["/bin/sh".into(), "-c".into(), TRUST_CERTIFICATES.into()]),
        security_context: Some(SecurityContext {
            run_as_user: Some(0),
            run_as_non_root: Some(false),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// Mounts of that container.
pub fn trusting_mounts() -> Vec<VolumeMount> {
    vec![at("ca-cert-volume", "/ca-certs"), at("custom-ca", "/custom")]
}

/// Mount of the trust store in the other containers.
pub fn trusted_mount() -> VolumeMount {
    at("ca-cert-volume", "/etc/ssl")
}

/// Volumes of both.
pub fn volumes(config_map: &str) -> Vec<Volume> {
    vec![empty_dir_volume("ca-cert-volume"), config("custom-ca", config_map, None, &[])]
}

/// What is wrong with a proxy at `path`.
pub fn faults(proxy: &Proxy, path: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (field, value) in [("httpProxy", &proxy.http_proxy), ("httpsProxy", &proxy.https_proxy)] {
        let value = value.as_deref().unwrap_or_default();
        if !value.is_empty() && !value.starts_with("http://") && !value.starts_with("https://") {
            faults.push(format!("{path}.{field} is {value:?}: write a URL that begins with http:// or https://"));
        }
    }
    let tokens = proxy.no_proxy.as_deref().unwrap_or_default().split(',').enumerate();
    for (index, token) in tokens.map(|(index, token)| (index, token.trim())) {
        if !token.is_empty() && !is_no_proxy(token) {
            faults.push(format!(
                "{path}.noProxy[{index}] is {token:?}: write a host name, a domain with a leading dot, an address or a CIDR"
            ));
        }
    }
    faults
}

/// Whether `token` is valid in NO_PROXY.
fn is_no_proxy(token: &str) -> bool {
    let number = |text: &str, most: u32| text.parse::<u32>().is_ok_and(|number| number <= most);
    if let Some(rest) = token.strip_prefix('[') {
        let Some((address, rest)) = rest.split_once(']') else { return false };
        let tail = rest.strip_prefix(':').map(|port| number(port, 65535));
        let tail = tail.or_else(|| rest.strip_prefix('/').map(|bits| number(bits, 128)));
        return address.parse::<std::net::Ipv6Addr>().is_ok() && tail.unwrap_or(rest.is_empty());
    }
    if let Some((address, bits)) = token.split_once('/') {
        return match address.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(_)) => number(bits, 32),
            Ok(std::net::IpAddr::V6(_)) => number(bits, 128),
            Err(_) => false,
        };
    }
    if token.parse::<std::net::Ipv6Addr>().is_ok() {
        return true;
    }
    let host = match token.split_once(':') {
        Some((host, port)) if number(port, 65535) => host,
        Some(_) => return false,
        None => token,
    };
    host == "*" || {
        let host = host.strip_prefix("*.").or(host.strip_prefix('.')).unwrap_or(host);
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_reached_directly() {
        for good in [
            "example.com",
            ".svc",
            "*.svc",
            "*",
            "10.0.0.1",
            "10.0.0.1:80",
            "10.0.0.0/8",
            "[::1]:80",
            "[fd00::]/8",
            "::1",
        ] {
            assert!(is_no_proxy(good), "{good}");
        }
        for bad in ["a b", "10.0.0.0/64", "[::1", "[zz]", "host:port", "http://x", "a/b"] {
            assert!(!is_no_proxy(bad), "{bad}");
        }
    }

    #[test]
    fn faults_name_the_token() {
        let proxy = Proxy {
            http_proxy: Some("proxy:3128".into()),
            no_proxy: Some("ok.example, not ok".into()),
            ..Proxy::default()
        };
        let faults = faults(&proxy, "spec.proxy");
        assert!(faults[0].starts_with("spec.proxy.httpProxy is \"proxy:3128\""), "{faults:?}");
        assert!(faults[1].starts_with("spec.proxy.noProxy[1] is \"not ok\""), "{faults:?}");
    }
}
