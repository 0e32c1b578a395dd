//! Credentials for registries, as Secrets of type `kubernetes.io/dockerconfigjson` hold them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use serde_json::Value;

/// The credentials for `registry` in a `.dockerconfigjson`; `None` if it has only other registries.
pub(super) fn find(config: &[u8], registry: &str) -> Result<Option<RegistryAuth>, String> {
    let config: Value =
        serde_json::from_slice(config).map_err(|error| format!(".dockerconfigjson is no JSON: {error}"))?;
    let Some(entries) = config["auths"].as_object() else { return Ok(None) };
    let entry = entries.iter().find(|(host, _)| canonical_host(host) == canonical_host(registry));
    entry
        .map(|(host, entry)| read(entry).ok_or_else(|| format!("the entry of {host} has no user and password")))
        .transpose()
}

/// The host of a registry in canonical form; Docker Hub has three names.
fn canonical_host(host: &str) -> String {
    let host = host.trim_start_matches("https://").trim_start_matches("http://");
    let host = host.split('/').next().unwrap_or_default().to_lowercase();
    if ["docker.io", "index.docker.io", "registry-1.docker.io"].contains(&host.as_str()) {
        "docker.io".into()
    } else {
        host
    }
}

fn read(entry: &Value) -> Option<RegistryAuth> {
    if let (Some(user), Some(password)) = (entry["username"].as_str(), entry["password"].as_str()) {
        return Some(RegistryAuth::Basic(user.into(), password.into()));
    }
    let both = STANDARD.decode(entry["auth"].as_str()?.trim()).ok()?;
    let both = String::from_utf8(both).ok()?;
    let (user, password) = both.split_once(':')?;
    Some(RegistryAuth::Basic(user.into(), password.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(user: &str, password: &str) -> Option<RegistryAuth> {
        Some(RegistryAuth::Basic(user.into(), password.into()))
    }

    #[test]
    fn credentials_are_those_of_the_registry_and_of_no_other() {
        let config = br#"{"auths": {
            "https://nvcr.io/v2/": {"auth": "JG9hdXRodG9rZW46a2V5"},
            "index.docker.io": {"username": "u", "password": "p"}
        }}"#;
        assert_eq!(find(config, "nvcr.io"), Ok(basic("$oauthtoken", "key")));
        assert_eq!(find(config, "docker.io"), Ok(basic("u", "p")));
        assert_eq!(find(config, "registry-1.docker.io"), Ok(basic("u", "p")));
        assert_eq!(find(config, "quay.io"), Ok(None));
        assert_eq!(find(br#"{}"#, "quay.io"), Ok(None));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        assert!(find(b"{", "nvcr.io").unwrap_err().contains("no JSON"));
        assert!(find(br#"{"auths": {"nvcr.io": {"auth": "?"}}}"#, "nvcr.io").unwrap_err().contains("nvcr.io"));
    }
}
