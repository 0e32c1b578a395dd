//! What images say of themselves, asked of their registry: labels, for every platform.
//!
//! An image is asked about with the credentials, proxies and certificates that its pods have. What was read is kept by
//! digest, so that a tag that was looked at before is not read again. Whoever asks for the same image at the same time
//! shares one answer, so that a thousand services do not storm a registry.

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

use crate::ask::Silence;

/// No configuration of an image is larger.
const CONFIG: usize = 8 << 20;
/// No image is made for more platforms.
const PLATFORMS: usize = 32;
/// So many answers are kept.
const KEPT: usize = 4096;
/// Certificates that images come with.
const ROOTS: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// How long an answer serves others who ask for the same image.
const SHARED: Duration = Duration::from_secs(60);
/// The same for a failure.
const SHARED_FAILURE: Duration = Duration::from_secs(1);

/// Asks registries. Clones share what is known.
#[derive(Clone)]
pub struct Registries {
    client: Client,
    patience: Duration,
    known: Arc<Mutex<HashMap<String, Vec<Labels>>>>,
    shared: Arc<Mutex<HashMap<Image, Arc<Turn>>>>,
}

/// The last answer for an image; held while it is asked for.
type Turn = tokio::sync::Mutex<Option<(Instant, Result<Vec<Labels>, Silence>)>>;

impl Registries {
    /// Reads Secrets and ConfigMaps with `client`; no image takes longer than `patience`.
    pub fn new(client: Client, patience: Duration) -> Self {
        // Whoever came first has installed the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { client, patience, known: Arc::default(), shared: Arc::default() }
    }

    /// The labels of an image, or why they cannot be told.
    pub async fn labels(&self, image: &Image) -> Result<Vec<Labels>, Silence> {
        let turn = self.turn(image);
        let mut last = turn.lock().await;
        if let Some((at, answer)) = last.as_ref()
            && at.elapsed() < if answer.is_ok() { SHARED } else { SHARED_FAILURE }
        {
            return answer.clone();
        }
        let answer = self.in_time(image).await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }

    /// The same, if somebody has asked for that image lately.
    pub fn known_labels(&self, image: &Image) -> Option<Vec<Labels>> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let last = shared.get(image)?.try_lock().ok()?;
        let (at, answer) = last.as_ref()?;
        answer.clone().ok().filter(|_| at.elapsed() < SHARED)
    }

    fn turn(&self, image: &Image) -> Arc<Turn> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() >= KEPT {
            shared.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        shared.entry(image.clone()).or_default().clone()
    }

    async fn in_time(&self, image: &Image) -> Result<Vec<Labels>, Silence> {
        let reference =
            name::parse(&image.name).map_err(|error| format!("{:?} is no name of an image: {error}", image.name))?;
        let prepare = async {
            let auth = self.credentials(image, reference.registry()).await?;
            Ok::<_, Silence>((auth, self.connect(image, &reference).await?))
        };
        let late = |_| Silence::Ours(format!("cannot read what image {} needs: no answer in time", image.name));
        let (auth, oci) = tokio::time::timeout(self.patience, prepare).await.map_err(late)??;
        // The only limit: a second one as long would make it chance which of two texts users read.
        let asked = tokio::time::timeout(self.patience, self.ask(image, reference, auth, oci)).await;
        let late =
            |_| format!("the registry of image {} does not answer within {} s", image.name, self.patience.as_secs());
        Ok(asked.map_err(late)??)
    }

    async fn ask(
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
                for entry in index.manifests.iter().filter(|entry| is_image(entry)).take(PLATFORMS) {
                    let one = reference.clone_with_digest(entry.digest.clone());
                    let (manifest, _) = oci.pull_manifest(&one, &auth).await.map_err(failed)?;
                    if let OciManifest::Image(manifest) = manifest {
                        labels.push(config(&oci, &reference, &manifest).await?);
                    }
                }
            }
        }
        let mut known = self.known();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, labels.clone());
        Ok(labels)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Labels>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Credentials of the first Secret that knows the registry; none if no one does.
    async fn credentials(&self, image: &Image, registry: &str) -> Result<RegistryAuth, Silence> {
        for secret in &image.secrets {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &secret.namespace);
            let found = api.get_opt(&secret.name).await.map_err(|error| unread(secret, &error))?;
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

    async fn connect(&self, image: &Image, reference: &Reference) -> Result<oci_client::Client, Silence> {
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let config = ClientConfig {
            protocol: if is_here(reference.registry()) { ClientProtocol::Http } else { ClientProtocol::Https },
            tls_certs_only: self.certificates(image.certificates.as_ref()).await?,
            user_agent: "capstan",
            http_proxy: some(&image.proxy.http),
            https_proxy: some(&image.proxy.https),
            no_proxy: some(&image.proxy.none),
            ..ClientConfig::default()
        };
        oci_client::Client::try_from(config).map_err(|error| chain(&error).into())
    }

    /// Certificates to trust: those of the system, and those of the ConfigMap.
    async fn certificates(&self, map: Option<&Ref>) -> Result<Vec<Certificate>, Silence> {
        let mut pem = Vec::new();
        for path in ROOTS {
            if let Ok(text) = tokio::fs::read(path).await {
                pem.push(text);
                break;
            }
        }
        if let Some(map) = map {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &map.namespace);
            let found = api.get_opt(&map.name).await.map_err(|error| unread(map, &error))?;
            let found = found.ok_or_else(|| format!("{map} does not exist: create it"))?;
            let files = found.data.unwrap_or_default().into_iter();
            let files = files.filter(|(name, _)| name.ends_with(".crt") || name.ends_with(".pem"));
            pem.extend(files.map(|(_, text)| text.into_bytes()));
        }
        let each = pem.iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem)).filter_map(Result::ok);
        Ok(each.map(|der| Certificate { encoding: CertificateEncoding::Der, data: der.to_vec() }).collect())
    }
}

/// Something that the way to a registry needs could not be read: what the API server says of itself is no news about it.
fn unread(what: &Ref, error: &kube::Error) -> Silence {
    let why = format!("cannot read {what}: {error}");
    match error {
        kube::Error::Api(status) if status.code < 500 && status.code != 429 => Silence::Theirs(why),
        _ => Silence::Ours(why),
    }
}

/// Labels in the configuration of one platform.
async fn config(oci: &oci_client::Client, image: &Reference, manifest: &OciImageManifest) -> Result<Labels, String> {
    let failed = |error: OciDistributionError| explain(&image.whole(), &error);
    let mut stream = oci.pull_blob_stream(image, &manifest.config).await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(part) = stream.try_next().await.map_err(|error| error.to_string())? {
        if body.len() + part.len() > CONFIG {
            return Err(format!("the configuration of image {} has more than {CONFIG} bytes", image.whole()));
        }
        body.extend_from_slice(&part);
    }
    let config: Value = serde_json::from_slice(&body)
        .map_err(|error| format!("the configuration of image {} is no JSON: {error}", image.whole()))?;
    let labels = config["config"]["Labels"].as_object().into_iter().flatten();
    Ok(labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect())
}

/// Whether an entry of an index is an image for some platform, not a statement about one.
fn is_image(entry: &ImageIndexEntry) -> bool {
    let kind = entry.annotations.as_ref().and_then(|all| all.get("vnd.docker.reference.type"));
    let unknown = entry.platform.as_ref().is_some_and(|platform| {
        [platform.os.to_string(), platform.architecture.to_string()].iter().any(|part| part == "unknown")
    });
    kind.is_none_or(|kind| kind != "attestation-manifest") && !unknown
}

/// Whether a registry is on this machine, where nobody has certificates.
fn is_here(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    ["localhost", "127.0.0.1", "[::1]"].contains(&host)
}

/// What went wrong, and what to do.
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
