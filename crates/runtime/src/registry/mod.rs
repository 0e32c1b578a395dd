//! Image labels, read from the registry for every platform.
//!
//! Requests use the pull secrets, proxies and CA certificates of the image's pods. Results are cached by digest, so
//! that a known manifest is not pulled again. Concurrent requests for the same image share one result, so that a
//! thousand services do not overload a registry.

mod credentials;
mod name;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_plan::{Image, Labels, Ref};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{ImageIndexEntry, OciImageManifest, OciManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use tokio::time::Instant;

use crate::query::QueryError;

/// Maximum size of an image config.
const MAX_CONFIG_BYTES: usize = 8 << 20;
/// Maximum number of platforms that are read.
const MAX_PLATFORMS: usize = 32;
/// Maximum number of cached results.
const MAX_CACHED: usize = 4096;
/// CA bundles of common base images.
const CA_FILES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// How long a result is shared by requests for the same image.
const RESULT_TTL: Duration = Duration::from_secs(60);
/// The same for a failure.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// A registry client. Clones share one cache.
#[derive(Clone)]
pub struct Registries {
    client: Client,
    timeout: Duration,
    known: Arc<Mutex<HashMap<String, Vec<Labels>>>>,
    shared: Arc<Mutex<HashMap<Image, Arc<ImageSlot>>>>,
}

/// The last result for an image; locked while a request is in flight.
type ImageSlot = tokio::sync::Mutex<Option<(Instant, Result<Vec<Labels>, QueryError>)>>;

impl Registries {
    /// Reads Secrets and ConfigMaps with `client`; `timeout` limits the requests for one image.
    pub fn new(client: Client, timeout: Duration) -> Self {
        // An earlier call has installed the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { client, timeout, known: Arc::default(), shared: Arc::default() }
    }

    /// The labels of an image, or why they cannot be read.
    pub async fn labels(&self, image: &Image) -> Result<Vec<Labels>, QueryError> {
        let slot = self.slot(image);
        let mut last = slot.lock().await;
        if let Some((at, answer)) = last.as_ref()
            && at.elapsed() < if answer.is_ok() { RESULT_TTL } else { FAILURE_TTL }
        {
            return answer.clone();
        }
        let answer = self.fetch_labels(image).await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }

    /// The same, if the cached result is recent.
    pub fn known_labels(&self, image: &Image) -> Option<Vec<Labels>> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let last = shared.get(image)?.try_lock().ok()?;
        let (at, answer) = last.as_ref()?;
        answer.clone().ok().filter(|_| at.elapsed() < RESULT_TTL)
    }

    fn slot(&self, image: &Image) -> Arc<ImageSlot> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() >= MAX_CACHED {
            shared.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        shared.entry(image.clone()).or_default().clone()
    }

    async fn fetch_labels(&self, image: &Image) -> Result<Vec<Labels>, QueryError> {
        let reference =
            name::parse(&image.name).map_err(|error| format!("{:?} is no name of an image: {error}", image.name))?;
        let prepare = async {
            let auth = self.credentials(image, reference.registry()).await?;
            Ok::<_, QueryError>((auth, self.connect(image, &reference).await?))
        };
        let late = |_| QueryError::NotSent(format!("cannot read what image {} needs: no answer in time", image.name));
        let (auth, oci) = tokio::time::timeout(self.timeout, prepare).await.map_err(late)??;
        // The only timeout: a second one of the same length would make the error message random.
        let labels = tokio::time::timeout(self.timeout, self.pull_labels(image, reference, auth, oci)).await;
        let late =
            |_| format!("the registry of image {} does not answer within {} s", image.name, self.timeout.as_secs());
        Ok(labels.map_err(late)??)
    }

    async fn pull_labels(
        &self,
        image: &Image,
        reference: Reference,
        auth: RegistryAuth,
        oci: oci_client::Client,
    ) -> Result<Vec<Labels>, String> {
        let failed = |error: OciDistributionError| explain(&image.name, &error);
        oci.auth(&reference, &auth, RegistryOperation::Pull).await.map_err(failed)?;
        let digest = oci.fetch_manifest_digest(&reference, &auth).await.map_err(failed)?;
        let key = format!("{}/{}@{digest}", reference.registry(), reference.repository());
        if let Some(labels) = self.known().get(&key) {
            return Ok(labels.clone());
        }
        let (manifest, _) = oci.pull_manifest(&reference.clone_with_digest(digest), &auth).await.map_err(failed)?;
        let mut labels = Vec::new();
        match manifest {
            OciManifest::Image(manifest) => labels.push(config(&oci, &reference, &manifest).await?),
            OciManifest::ImageIndex(index) => {
                for entry in index.manifests.iter().filter(|entry| is_image(entry)).take(MAX_PLATFORMS) {
                    let one = reference.clone_with_digest(entry.digest.clone());
                    let (manifest, _) = oci.pull_manifest(&one, &auth).await.map_err(failed)?;
                    if let OciManifest::Image(manifest) = manifest {
                        labels.push(config(&oci, &reference, &manifest).await?);
                    }
                }
            }
        }
        let mut known = self.known();
        if known.len() >= MAX_CACHED {
            known.clear();
        }
        known.insert(key, labels.clone());
        Ok(labels)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Labels>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Credentials of the first Secret that has the registry; anonymous if none has.
    async fn credentials(&self, image: &Image, registry: &str) -> Result<RegistryAuth, QueryError> {
        for secret in &image.secrets {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &secret.namespace);
            let found = api.get_opt(&secret.name).await.map_err(|error| not_read(secret, &error))?;
            let found = found.ok_or_else(|| format!("{secret} does not exist: create it"))?;
            let data = found.data.unwrap_or_default();
            let config = data.get(".dockerconfigjson").ok_or_else(|| {
                format!("{secret} has no key .dockerconfigjson: make it with `kubectl create secret docker-registry`")
            })?;
            if let Some(auth) = credentials::find(&config.0, registry).map_err(|error| format!("{secret}: {error}"))? {
                return Ok(auth);
            }
        }
        Ok(RegistryAuth::Anonymous)
    }

    async fn connect(&self, image: &Image, reference: &Reference) -> Result<oci_client::Client, QueryError> {
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let config = ClientConfig {
            protocol: if is_loopback(reference.registry()) { ClientProtocol::Http } else { ClientProtocol::Https },
            tls_certs_only: self.certificates(image.certificates.as_ref()).await?,
            user_agent: "capstan",
            http_proxy: some(&image.proxy.http),
            https_proxy: some(&image.proxy.https),
            no_proxy: some(&image.proxy.none),
            ..ClientConfig::default()
        };
        oci_client::Client::try_from(config).map_err(|error| chain(&error).into())
    }

    /// Trusted CA certificates: the system's, and those of the ConfigMap.
    async fn certificates(&self, map: Option<&Ref>) -> Result<Vec<Certificate>, QueryError> {
        let mut pem = Vec::new();
        for path in CA_FILES {
            if let Ok(text) = tokio::fs::read(path).await {
                pem.push(text);
                break;
            }
        }
        if let Some(map) = map {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &map.namespace);
            let found = api.get_opt(&map.name).await.map_err(|error| not_read(map, &error))?;
            let found = found.ok_or_else(|| format!("{map} does not exist: create it"))?;
            let files = found.data.unwrap_or_default().into_iter();
            let files = files.filter(|(name, _)| name.ends_with(".crt") || name.ends_with(".pem"));
            pem.extend(files.map(|(_, text)| text.into_bytes()));
        }
        let each = pem.iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem)).filter_map(Result::ok);
        Ok(each.map(|der| Certificate { encoding: CertificateEncoding::Der, data: der.to_vec() }).collect())
    }
}

/// A Secret or ConfigMap could not be read. Errors of the API server itself say nothing about the registry.
fn not_read(what: &Ref, error: &kube::Error) -> QueryError {
    let why = format!("cannot read {what}: {error}");
    match error {
        kube::Error::Api(status) if status.code < 500 && status.code != 429 => QueryError::NoResponse(why),
        _ => QueryError::NotSent(why),
    }
}

/// Labels in the image config of one platform.
async fn config(oci: &oci_client::Client, image: &Reference, manifest: &OciImageManifest) -> Result<Labels, String> {
    let failed = |error: OciDistributionError| explain(&image.whole(), &error);
    let mut stream = oci.pull_blob_stream(image, &manifest.config).await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(part) = stream.try_next().await.map_err(|error| error.to_string())? {
        if body.len() + part.len() > MAX_CONFIG_BYTES {
            return Err(format!("the configuration of image {} has more than {MAX_CONFIG_BYTES} bytes", image.whole()));
        }
        body.extend_from_slice(&part);
    }
    let config: Value = serde_json::from_slice(&body)
        .map_err(|error| format!("the configuration of image {} is no JSON: {error}", image.whole()))?;
    let labels = config["config"]["Labels"].as_object().into_iter().flatten();
    Ok(labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect())
}

/// Whether an entry of an image index is an image, not an attestation.
fn is_image(entry: &ImageIndexEntry) -> bool {
    let kind = entry.annotations.as_ref().and_then(|all| all.get("vnd.docker.reference.type"));
    let unknown = entry.platform.as_ref().is_some_and(|platform| {
        [platform.os.to_string(), platform.architecture.to_string()].iter().any(|part| part == "unknown")
    });
    kind.is_none_or(|kind| kind != "attestation-manifest") && !unknown
}

/// Whether a registry is on loopback, where plain HTTP is used.
fn is_loopback(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    ["localhost", "127.0.0.1", "[::1]"].contains(&host)
}

/// An error message with the fix.
fn explain(image: &str, error: &OciDistributionError) -> String {
    let text = chain(error);
    let unknown = |code: &OciErrorCode| matches!(code, OciErrorCode::ManifestUnknown | OciErrorCode::NameUnknown);
    let absent = match error {
        OciDistributionError::ServerError { code, .. } => *code == 404,
        OciDistributionError::RegistryError { envelope, .. } => envelope.errors.iter().any(|one| unknown(&one.code)),
        _ => false,
    };
    match error {
        OciDistributionError::AuthenticationFailure(_) | OciDistributionError::UnauthorizedError { .. } => {
            format!("the registry does not let us see image {image}: check the pull secrets ({text})")
        }
        _ if absent => format!("image {image} does not exist: check its name ({text})"),
        _ => format!("the registry of image {image} cannot be asked: {text}"),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
