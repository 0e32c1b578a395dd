//! Labels of images, asked of a registry on this machine that wants a token, and that sometimes answers badly.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use capstan_plan::{Image, Proxies, Ref};
use capstan_runtime::registry::Registries;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const PROTOCOL: &str = "com.nvidia.nim.model_download_protocol";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn digest(body: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, body.as_bytes());
    format!("sha256:{}", hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// A registry with a few images.
struct Registry {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Registry {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (content, asked) = (Arc::new(content()), Arc::new(Mutex::new(Vec::new())));
        let (here, log) = (address.clone(), asked.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (content, here, log) = (content.clone(), here.clone(), log.clone());
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    log.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
                    let (content, here) = (content.clone(), here.clone());
                    async move { Ok::<_, Infallible>(answer(&content, &here, &request).await) }
                });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Self { address, asked }
    }

    fn image(&self, name: &str) -> Image {
        let secrets = vec![Ref::of::<Secret>("nim", "other"), Ref::of::<Secret>("nim", "pull")];
        Image { name: format!("{}/{name}", self.address), secrets, ..Image::default() }
    }

    /// An asker whose Kubernetes has the two Secrets.
    fn registries(&self) -> Registries {
        Registries::new(kubernetes(&self.address, "key"), Duration::from_secs(60))
    }

    fn count(&self, prefix: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|line| line.starts_with(prefix)).count()
    }
}

/// Manifests and blobs, by the last part of their path.
fn content() -> BTreeMap<String, (&'static str, String)> {
    let mut all = BTreeMap::new();
    let mut image = |labels: Value| {
        let config = json!({"architecture": "amd64", "os": "linux", "config": {"Labels": labels}, "rootfs": {"type": "layers", "diff_ids": []}});
        let config = config.to_string();
        let layer =
            json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest(""), "size": 0});
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "layers": [layer],
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(&config), "size": config.len()},
        });
        all.insert(digest(&config), ("application/octet-stream", config));
        let manifest = manifest.to_string();
        all.insert(digest(&manifest), (MANIFEST, manifest.clone()));
        manifest
    };
    let (native, legacy) = (image(json!({PROTOCOL: "native-v1"})), image(json!({"maintainer": "x"})));
    let entry = |manifest: &str, architecture: &str| {
        json!({
            "mediaType": MANIFEST, "digest": digest(manifest), "size": manifest.len(),
            "platform": {"os": if architecture == "unknown" { "unknown" } else { "linux" }, "architecture": architecture},
        })
    };
    let mut attestation = entry(&legacy, "unknown");
    attestation["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    let entries = [entry(&native, "amd64"), entry(&native, "arm64"), attestation];
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    all.insert(digest(&index), (INDEX, index.clone()));
    all.insert("many".into(), (INDEX, index));
    all.insert("one".into(), (MANIFEST, legacy));
    let garbage = "<html>it works</html>".to_owned();
    all.insert(digest(&garbage), (MANIFEST, garbage.clone()));
    all.insert("garbage".into(), (MANIFEST, garbage));
    all
}

async fn answer(
    content: &BTreeMap<String, (&'static str, String)>,
    here: &str,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    let (path, sent) = (request.uri().path(), request.headers().get(header::AUTHORIZATION));
    let sent = sent.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = |status: u16, body: &str| {
        Response::builder().status(status).body(Full::new(Bytes::from(body.to_owned()))).unwrap()
    };
    if path == "/token" {
        let right = format!("Basic {}", STANDARD.encode("$oauthtoken:key"));
        return if sent == right { text(200, r#"{"token": "good"}"#) } else { text(401, "bad credentials") };
    }
    if sent != "Bearer good" {
        let mut refused = text(401, "");
        let challenge = format!(r#"Bearer realm="http://{here}/token",service="test""#);
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.parse().unwrap());
        return refused;
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    if last == "slow" {
        std::future::pending::<()>().await;
    }
    match content.get(last) {
        Some((type_, body)) => Response::builder()
            .header(header::CONTENT_TYPE, *type_)
            .header("Docker-Content-Digest", digest(body))
            .body(Full::new(Bytes::from(body.clone())))
            .unwrap(),
        None => text(404, r#"{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}"#),
    }
}

/// A Kubernetes with credentials for another registry, then for this one, and a ConfigMap with certificates.
fn kubernetes(registry: &str, password: &str) -> Client {
    let secret = |registry: &str, password: &str| {
        let auth = STANDARD.encode(format!("$oauthtoken:{password}"));
        let config = json!({"auths": {registry: {"auth": auth}}}).to_string();
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {".dockerconfigjson": STANDARD.encode(config)}})
    };
    let (other, pull) = (secret("nvcr.io", "secret"), secret(registry, password));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let path = request.uri().path().to_owned();
        let found = match path.rsplit('/').next() {
            Some("other") => Some(other.clone()),
            Some("pull") => Some(pull.clone()),
            Some("empty") => Some(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}})),
            _ => None,
        };
        let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"});
        let (code, body) = found.map_or((404, missing), |found| (200, found));
        let answer = Response::builder().status(code).body(Full::new(Bytes::from(body.to_string()))).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn labels_of_every_platform_are_read_and_statements_about_them_passed_over() {
    let registry = Registry::start().await;
    let labels = registry.registries().labels(&registry.image("nim/llama:many")).await.unwrap();
    let native = BTreeMap::from([(PROTOCOL.to_owned(), "native-v1".to_owned())]);
    assert_eq!(labels, [native.clone(), native]);
    let labels = registry.registries().labels(&registry.image("nim/llama:one")).await.unwrap();
    assert_eq!(labels[0].get(PROTOCOL), None);
}

#[tokio::test]
async fn many_who_ask_at_once_share_one_answer() {
    let registry = Registry::start().await;
    let (registries, image) = (registry.registries(), registry.image("nim/llama:one"));
    let all = futures::future::join_all((0..100).map(|_| registries.labels(&image))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(registry.count("HEAD"), 1);
}

#[tokio::test]
async fn what_was_read_once_is_known_by_its_digest() {
    let registry = Registry::start().await;
    let registries = registry.registries();
    registries.labels(&registry.image("nim/llama:many")).await.unwrap();
    let (read, blobs) = (registry.count("GET /v2/nim/llama/manifests"), registry.count("GET /v2/nim/llama/blobs"));
    // Another way to the same image: the answer is not shared, what it leads to is known.
    let image = Image { secrets: vec![Ref::of::<Secret>("nim", "pull")], ..registry.image("nim/llama:many") };
    registries.labels(&image).await.unwrap();
    let now = (registry.count("GET /v2/nim/llama/manifests"), registry.count("GET /v2/nim/llama/blobs"));
    assert_eq!((read, blobs), now);
    assert_eq!(registry.count("HEAD"), 2);
}

#[tokio::test]
async fn bad_answers_are_named() {
    let registry = Registry::start().await;
    let good = registry.registries();
    let wrong = Registries::new(kubernetes(&registry.address, "wrong"), Duration::from_secs(60));
    let hasty = Registries::new(kubernetes(&registry.address, "key"), Duration::from_secs(1));
    let named = |name: &str| Image { secrets: vec![Ref::of::<Secret>("nim", name)], ..registry.image("nim/llama:one") };
    let trusting = Image { certificates: Some(Ref::of::<ConfigMap>("nim", "gone")), ..registry.image("nim/llama:one") };
    let proxied = Image {
        proxy: Proxies { http: "http://127.0.0.1:1".into(), ..Proxies::default() },
        ..registry.image("nim/llama:one")
    };
    let nowhere = Image { name: "127.0.0.1:1/nim/llama:one".into(), ..Image::default() };
    let cases = [
        (&wrong, registry.image("nim/llama:one"), "check the pull secrets"),
        (&good, Image { secrets: Vec::new(), ..registry.image("nim/llama:one") }, "check the pull secrets"),
        (&good, registry.image("nim/llama:absent"), "does not exist: check its name"),
        (&hasty, registry.image("nim/llama:slow"), "does not answer within"),
        (&good, registry.image("nim/llama:garbage"), "cannot be asked"),
        (&good, nowhere, "cannot be asked"),
        (&good, proxied, "cannot be asked"),
        (&good, Image { name: "NOT AN IMAGE".into(), ..Image::default() }, "is no name of an image"),
        (&good, named("missing"), "Secret nim/missing does not exist: create it"),
        (&good, named("empty"), "has no key .dockerconfigjson"),
        (&good, trusting, "ConfigMap nim/gone does not exist: create it"),
    ];
    for (registries, image, expected) in cases {
        let why = registries.labels(&image).await.unwrap_err().to_string();
        assert!(why.contains(expected), "{}: {why}", image.name);
    }
}
