//! Generation of kubeconfig files.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Contents of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// Name of cluster, user and context.
    pub name: String,
    /// `https://127.0.0.1:PORT`.
    pub server: String,
    /// The certificate authority, PEM.
    pub ca_pem: String,
    /// Bearer token.
    pub token: String,
    /// Default namespace.
    pub namespace: String,
}

impl Kubeconfig {
    /// The kubeconfig as JSON, which is valid YAML.
    pub fn to_json(&self) -> Value {
        let name = &self.name;
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {
                "server": self.server,
                "certificate-authority-data": BASE64_STANDARD.encode(&self.ca_pem),
            }}],
            "users": [{"name": name, "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": self.namespace}}],
            "current-context": name,
        })
    }

    /// The file's contents.
    pub fn text(&self) -> String {
        format!("{:#}\n", self.to_json())
    }

    /// Writes the file with mode 0600.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        use std::io::Write;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)?.write_all(self.text().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_reads_it() {
        let config = Kubeconfig {
            name: "capstan".into(),
            server: "https://127.0.0.1:6443".into(),
            ca_pem: "pem".into(),
            token: "secret".into(),
            namespace: "default".into(),
        };
        let read = kube::config::Kubeconfig::from_yaml(&config.text()).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("capstan"));
        assert_eq!(read.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some("https://127.0.0.1:6443"));
    }
}
