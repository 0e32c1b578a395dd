//! ServiceAccount admission.

use serde_json::{Value, json};

use super::{Plugin, creates, find, forbidden};
use crate::admit::json::{Fill, Read};
use crate::error::Result;
use crate::ops::Request;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access-";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// An hour, plus seven seconds by which such tokens are distinguished from explicitly requested ones.
const TOKEN_SECONDS: i64 = 3607;

/// Sets the ServiceAccount, token volume and pull secrets of pods; rejects pods whose account does not exist.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn handles(&self, request: &Request) -> bool {
        creates(request, "", "pods")
    }

    fn mutate(&self, request: &Request, pod: &mut Value) -> Result<()> {
        if pod["metadata"]["annotations"].has(MIRROR) {
            return Ok(());
        }
        let Some(spec) = pod.inner("spec") else { return Ok(()) };
        spec.fill_zero("serviceAccountName", "default");
        let name = spec.text("serviceAccountName").to_owned();
        spec.put("serviceAccount", name.as_str());
        let namespace = request.target.namespace.as_deref().unwrap_or_default();
        let Some(account) = find(request, "", "serviceaccounts", namespace, &name) else {
            let why =
                format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
            return Err(forbidden(request, pod, &why));
        };
        let account = account.value();
        if mounts_token(spec, &account) {
            mount_token(request, spec);
        }
        if spec.list("imagePullSecrets").is_empty() && account.has("imagePullSecrets") {
            spec.put("imagePullSecrets", account["imagePullSecrets"].clone());
        }
        Ok(())
    }

    fn validate(&self, request: &Request, pod: Option<&Value>) -> Result<()> {
        let Some(pod) = pod.filter(|pod| pod["metadata"]["annotations"].has(MIRROR)) else { return Ok(()) };
        let secrets = pod["spec"].list("volumes").iter().any(|volume| volume.has("secret"));
        let why = match () {
            () if !pod["spec"].text("serviceAccountName").is_empty() => {
                "a mirror pod may not reference service accounts"
            }
            () if secrets => "a mirror pod may not reference secrets",
            () => return Ok(()),
        };
        Err(forbidden(request, pod, why))
    }
}

fn mounts_token(spec: &Value, account: &Value) -> bool {
    let said = |holder: &Value| holder.get("automountServiceAccountToken").and_then(Value::as_bool);
    said(spec).or_else(|| said(account)).unwrap_or(true)
}

fn mount_token(request: &Request, spec: &mut Value) {
    let present = spec.list("volumes").iter().map(|volume| volume.text("name")).find(|name| name.starts_with(VOLUME));
    let known = present.map(str::to_owned);
    let name = known.clone().unwrap_or_else(|| request.server.ids().name(VOLUME));
    let mut needed = false;
    for key in ["initContainers", "containers"] {
        for container in spec.items(key) {
            if container.list("volumeMounts").iter().any(|mount| mount.text("mountPath") == MOUNT_PATH) {
                continue;
            }
            needed = true;
            container.fill("volumeMounts", json!([]));
            if let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            }
        }
    }
    if known.is_some() || !needed {
        return;
    }
    spec.fill("volumes", json!([]));
    if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
        volumes.push(token_volume(&name));
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"});
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]}})
}
