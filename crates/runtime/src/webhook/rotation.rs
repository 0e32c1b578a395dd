//! Certificate rotation: reconciles the Secret with our certificates, and the `caBundle` of the webhook configuration.
//!
//! Every process serves the certificate in the Secret; only the leader writes it. Both objects are reconciled
//! periodically and when the Secret changes, so that deletions and edits are reverted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Certificate;
use super::certs::Bundle;
use crate::Runtime;
use crate::anchor::{Anchor, owners};
use crate::error::{Class, Error, Streak};
use crate::writer::FIELD_MANAGER;

/// Interval of reconciles without a change.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);

/// Name of the Secret.
pub const SECRET: &str = "capstan-webhook-cert";

/// Settings of the rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Name of the ValidatingWebhookConfiguration whose `caBundle` is managed, if there is one.
    pub configuration: Option<String>,
    /// DNS names of the webhook: `SERVICE.NAMESPACE.svc`.
    pub names: Vec<String>,
    /// Owner of the Secret, for garbage collection.
    pub anchor: Option<Anchor>,
}

/// Reconciles the certificates until `stop`.
pub async fn run(runtime: Runtime, settings: Settings, certificate: Certificate, stop: CancellationToken) {
    let changed = Arc::new(Notify::new());
    let (notify, namespace, name) = (changed.clone(), settings.namespace.clone(), settings.secret.clone());
    runtime.cache.subscribe(move |change| {
        if change.is::<Secret>() && *change.key.namespace == *namespace && *change.key.name == *name {
            notify.notify_one();
        }
    });
    let mut reconciler = CertificateReconciler { runtime, settings, certificate, served: None };
    let run = async {
        let mut streak = Streak::default();
        loop {
            let pause = match reconciler.reconcile().await {
                Ok(()) => {
                    streak = Streak::default();
                    RESYNC_INTERVAL
                }
                Err(error) => {
                    let failures = streak.record(error.class());
                    if failures == 5 {
                        tracing::warn!(error = error.chain(), "certificate not renewed; retrying");
                    } else {
                        tracing::debug!(error = error.chain(), "certificate not renewed");
                    }
                    error.delay(failures).min(RESYNC_INTERVAL)
                }
            };
            // A change or the interval: the next step is the same.
            let _ = timeout(pause, changed.notified()).await;
        }
    };
    stop.run_until_cancelled(run).await;
}

struct CertificateReconciler {
    runtime: Runtime,
    settings: Settings,
    certificate: Certificate,
    served: Option<String>,
}

impl CertificateReconciler {
    async fn reconcile(&mut self) -> Result<(), Error> {
        let secret = self.read().await?;
        let stored = secret.as_ref().and_then(bundle);
        if let Some(bundle) = &stored {
            self.serve(bundle)?;
        }
        if !self.runtime.gate.is_open() {
            return match stored {
                Some(_) => Ok(()),
                // The leader creates it soon: retry soon.
                None => Err(Error::NotLeader),
            };
        }
        let published = match &stored {
            Some(bundle) => self.publish(bundle).await?,
            None => false,
        };
        let now = self.runtime.clock.now();
        let Some(next) = next(stored.as_ref(), &self.settings.names, published, now)? else { return Ok(()) };
        self.write(secret.as_ref(), &next).await?;
        // Trust first, see `certs`: the old certificate, if any, is served until the next reconcile.
        self.publish(&next).await?;
        self.serve(&next)
    }

    fn serve(&mut self, bundle: &Bundle) -> Result<(), Error> {
        if self.served.as_ref() != Some(&bundle.certificate) {
            self.certificate.set(bundle.certificate.as_bytes(), bundle.key.as_bytes())?;
            tracing::info!(secret = self.settings.secret, "serving a new certificate");
            self.served = Some(bundle.certificate.clone());
        }
        Ok(())
    }

    async fn read(&self) -> Result<Option<Secret>, Error> {
        let response = self.secrets().get_opt(&self.settings.secret).await;
        self.runtime.metrics.request("get", "Secret", response.is_ok());
        response.map_err(|error| Error::request("get", self.secret_name(), error))
    }

    async fn write(&self, old: Option<&Secret>, bundle: &Bundle) -> Result<(), Error> {
        let data: BTreeMap<_, _> =
            bundle.to_data().into_iter().map(|(name, value)| (name, ByteString(value))).collect();
        let gate = &self.runtime.gate;
        let written = match old {
            Some(old) => {
                let version = json!({"resourceVersion": old.metadata.resource_version});
                let patch = Patch::Merge(json!({"metadata": version, "data": data}));
                let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
                let secrets = self.secrets();
                let write = secrets.patch(&self.settings.secret, &params, &patch);
                gate.pass("patch", self.secret_name(), write).await
            }
            None => {
                let owner_references = owners(self.settings.anchor.as_ref(), &self.runtime.client).await;
                let name = Some(self.settings.secret.clone());
                let secret = Secret {
                    metadata: ObjectMeta { name, owner_references, ..ObjectMeta::default() },
                    type_: Some("Opaque".into()),
                    data: Some(data),
                    ..Secret::default()
                };
                let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
                let secrets = self.secrets();
                let write = secrets.create(&params, &secret);
                gate.pass("create", self.secret_name(), write).await
            }
        };
        let verb = if old.is_some() { "patch" } else { "create" };
        self.runtime.metrics.request(verb, "Secret", written.is_ok());
        written.map(drop)
    }

    /// Sets the `caBundle` of every webhook of the configuration. Returns whether there is one that has it.
    async fn publish(&self, bundle: &Bundle) -> Result<bool, Error> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.runtime.client.clone());
        // Other clients read the bundle from the Secret.
        let Some(name) = &self.settings.configuration else { return Ok(true) };
        let what = format!("ValidatingWebhookConfiguration {name}");
        let response = api.get_opt(name).await;
        self.runtime.metrics.request("get", "ValidatingWebhookConfiguration", response.is_ok());
        let Some(configuration) = response.map_err(|error| Error::request("get", &what, error))? else {
            return Ok(false);
        };
        let trusted = ByteString(bundle.trusted().into_bytes());
        let webhooks = configuration.webhooks.unwrap_or_default();
        if webhooks.iter().all(|webhook| webhook.client_config.ca_bundle.as_ref() == Some(&trusted)) {
            return Ok(!webhooks.is_empty());
        }
        let webhooks: Vec<_> = webhooks
            .iter()
            .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": trusted}}))
            .collect();
        let patch = Patch::Apply(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name, "uid": configuration.metadata.uid},
            "webhooks": webhooks,
        }));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = self.runtime.gate.pass("apply", &what, api.patch(name, &params, &patch)).await;
        self.runtime.metrics.request("apply", "ValidatingWebhookConfiguration", written.is_ok());
        match written {
            Ok(_) => Ok(true),
            // Deleted or recreated concurrently: retry later.
            Err(error) if matches!(error.class(), Class::Conflict | Class::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.runtime.client.clone(), &self.settings.namespace)
    }

    fn secret_name(&self) -> String {
        format!("Secret {}/{}", self.settings.namespace, self.settings.secret)
    }
}

fn next(stored: Option<&Bundle>, names: &[String], published: bool, now: Timestamp) -> Result<Option<Bundle>, Error> {
    match stored {
        Some(bundle) => bundle.renewed(names, published, now),
        None => Bundle::new(names, now).map(Some),
    }
}

fn bundle(secret: &Secret) -> Option<Bundle> {
    let data = secret.data.as_ref()?;
    Bundle::from_data(&data.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect())
}
