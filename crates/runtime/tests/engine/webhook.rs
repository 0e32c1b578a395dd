//! Webhooks: the API server's side of the connection, with certificates that change underneath.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::auth::UserInfo;
use capstan_runtime::serve::Guard;
use capstan_runtime::webhook::rotation::{self, Settings};
use capstan_runtime::webhook::{Certificate, Routes, Verdict, files};
use capstan_runtime::{Clock, Gate, Metrics, Runtime, serve, webhook};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::support::{Cluster, runtime, until, within};

const NAME: &str = "capstan-webhook.default.svc";

fn settings() -> Settings {
    Settings {
        namespace: "default".into(),
        secret: "capstan-webhook-cert".into(),
        configuration: Some("capstan".into()),
        names: vec![NAME.into()],
        anchor: None,
    }
}

fn configuration() -> Value {
    let webhook = |name: &str, path: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
            "clientConfig": {"service": {"name": "capstan-webhook", "namespace": "default", "path": path}},
            "rules": [{"apiGroups": ["apps.nvidia.com"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"],
                "resources": ["nimservices"]}],
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "capstan"}, "webhooks": [webhook("a.example.com", "/a"), webhook("b.example.com", "/b")],
    })
}

async fn bundles(cluster: &Cluster) -> Vec<Option<ByteString>> {
    let api: kube::Api<ValidatingWebhookConfiguration> = kube::Api::all(cluster.admin.clone());
    let webhooks = api.get("capstan").await.unwrap().webhooks.unwrap();
    webhooks.into_iter().map(|webhook| webhook.client_config.ca_bundle).collect()
}

async fn secret(cluster: &Cluster) -> Secret {
    let api: kube::Api<Secret> = kube::Api::namespaced(cluster.admin.clone(), "default");
    api.get("capstan-webhook-cert").await.unwrap()
}

fn data(secret: &Secret, name: &str) -> Vec<u8> {
    secret.data.as_ref().unwrap()[name].0.clone()
}

/// Sends one request over TLS and trusts only `bundle`.
async fn call(address: SocketAddr, bundle: &[u8], path: &str, body: &str) -> std::io::Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(NAME).unwrap(), stream).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn loopback() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn review() -> String {
    json!({"request": {"uid": "u", "operation": "CREATE", "object": {"spec": {}}}}).to_string()
}

#[tokio::test(start_paused = true)]
async fn certificates_are_made_published_and_repaired() {
    let cluster = Cluster::start().await;
    cluster.apply(configuration()).await;
    let (runtime, stop) = runtime(&cluster.link(), Gate::open()).await;
    let certificate = Certificate::default();
    tokio::spawn(rotation::run(runtime, settings(), certificate.clone(), stop));
    until(5, "a certificate", || certificate.is_set()).await;
    let made = secret(&cluster).await;
    let trusted = Some(ByteString(data(&made, "ca.crt")));
    assert_eq!(bundles(&cluster).await, [trusted.clone(), trusted.clone()]);
    // Somebody resets the configuration: Helm does on every upgrade.
    cluster.delete(&configuration()).await;
    cluster.apply(configuration()).await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(bundles(&cluster).await, [trusted.clone(), trusted]);
    // Somebody deletes the Secret: everything is made anew, and published.
    let api: kube::Api<Secret> = kube::Api::namespaced(cluster.admin.clone(), "default");
    api.delete("capstan-webhook-cert", &Default::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let next = secret(&cluster).await;
    assert_ne!(data(&next, "tls.crt"), data(&made, "tls.crt"));
    let trusted = Some(ByteString(data(&next, "ca.crt")));
    assert_eq!(bundles(&cluster).await, [trusted.clone(), trusted]);
}

#[tokio::test(start_paused = true)]
async fn a_follower_serves_what_the_leader_made_and_makes_nothing() {
    let cluster = Cluster::start().await;
    cluster.apply(configuration()).await;
    let (follower, leader) = (cluster.link(), cluster.link());
    let (behind, stop) = runtime(&follower, Gate::closed()).await;
    let (ahead, _) = runtime(&leader, Gate::open()).await;
    let (theirs, ours) = (Certificate::default(), Certificate::default());
    tokio::spawn(rotation::run(behind, settings(), theirs.clone(), stop.clone()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!theirs.is_set());
    tokio::spawn(rotation::run(ahead, settings(), ours, stop));
    until(5, "the follower's", || theirs.is_set()).await;
    assert!(follower.writes().is_empty());
}

/// Twenty minutes of every month.
#[tokio::test(start_paused = true)]
async fn for_years_what_is_served_is_trusted() {
    let cluster = Cluster::start().await;
    cluster.apply(configuration()).await;
    let (mut served, mut trusted) = (BTreeSet::new(), BTreeSet::new());
    for month in 0..36 {
        let stop = CancellationToken::new();
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(500_000 + month * 30 * 24);
        let with_clock = capstan_runtime::Settings { clock: Clock::starting_at(now), ..Default::default() };
        let runtime = Runtime::start(cluster.link().client(), with_clock, &stop);
        let task = tokio::spawn(rotation::run(runtime, settings(), Certificate::default(), stop.clone()));
        tokio::time::sleep(Duration::from_secs(20 * 60)).await;
        let kept = secret(&cluster).await;
        let bundle = bundles(&cluster).await.remove(0).unwrap();
        assert_eq!(bundle.0, data(&kept, "ca.crt"), "month {month}");
        served.insert(data(&kept, "tls.crt"));
        trusted.insert(bundle.0);
        stop.cancel();
        within(1, "the end", task).await.unwrap();
    }
    assert!(served.len() >= 15, "{}", served.len());
    assert!(trusted.len() >= 3, "{}", trusted.len());
}

#[tokio::test]
async fn reviews_are_answered_over_tls_and_a_new_certificate_needs_no_restart() {
    let (listener, address) = loopback().await;
    let (certificate, stop) = (Certificate::default(), CancellationToken::new());
    let routes = Routes::default()
        .with("/deny", |_| Verdict { errors: vec!["spec.image: Required value".into()], ..Verdict::default() })
        .with("/panic", |_| panic!("a fault of ours"));
    let server = tokio::spawn(webhook::run(listener, certificate.clone(), routes, stop.clone()));
    let make = || webhook::certs::Bundle::new(&[NAME.to_owned()], Timestamp::now()).unwrap();
    let (first, second) = (make(), make());
    assert!(call(address, first.trusted().as_bytes(), "/deny", &review()).await.is_err(), "no certificate yet");
    certificate.set(first.certificate.as_bytes(), first.key.as_bytes()).unwrap();
    let answer = call(address, first.trusted().as_bytes(), "/deny", &review()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""allowed":false"#), "{answer}");
    let answer = call(address, first.trusted().as_bytes(), "/panic", &review()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    let answer = call(address, first.trusted().as_bytes(), "/deny", "{").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    certificate.set(second.certificate.as_bytes(), second.key.as_bytes()).unwrap();
    assert!(call(address, first.trusted().as_bytes(), "/deny", &review()).await.is_err());
    assert!(call(address, second.trusted().as_bytes(), "/deny", &review()).await.is_ok());
    assert!(certificate.set(b"nonsense", b"nonsense").is_err());
    assert!(call(address, second.trusted().as_bytes(), "/deny", &review()).await.is_ok());
    stop.cancel();
    server.await.unwrap();
}

#[tokio::test]
async fn a_mounted_certificate_is_served() {
    let directory = std::env::temp_dir().join(format!("capstan-{:016x}", fastrand::u64(..)));
    std::fs::create_dir_all(&directory).unwrap();
    let bundle = webhook::certs::Bundle::new(&[NAME.to_owned()], Timestamp::now()).unwrap();
    std::fs::write(directory.join("tls.crt"), &bundle.certificate).unwrap();
    std::fs::write(directory.join("tls.key"), &bundle.key).unwrap();
    let (listener, address) = loopback().await;
    let (certificate, stop) = (Certificate::default(), CancellationToken::new());
    let follow = {
        let (certificate, stop, directory) = (certificate.clone(), stop.clone(), directory.clone());
        tokio::spawn(async move { files::run(&directory, certificate, stop).await })
    };
    until(5, "read", || certificate.is_set()).await;
    let routes = Routes::default().with("/", |_| Verdict::default());
    tokio::spawn(webhook::run(listener, certificate, routes, stop.clone()));
    let answer = call(address, bundle.trusted().as_bytes(), "/", &review()).await.unwrap();
    assert!(answer.contains(r#""allowed":true"#), "{answer}");
    stop.cancel();
    follow.await.unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

async fn get(address: SocketAddr, path: &str) -> String {
    get_as(address, path, "").await
}

async fn get_as(address: SocketAddr, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn probes_say_what_is_missing_and_metrics_are_text() {
    let cluster = Cluster::start().await;
    let link = cluster.link();
    link.cut();
    let stop = CancellationToken::new();
    let settings = capstan_runtime::Settings { gate: Gate::closed(), ..Default::default() };
    let runtime = Runtime::start(link.client(), settings, &stop);
    let ((probes, address), (numbers, port)) = (loopback().await, loopback().await);
    let cache = runtime.cache.clone();
    let health = serve::health(probes, move || serve::caches_synced(&cache), stop.clone());
    let health = tokio::spawn(health);
    tokio::spawn(serve::metrics(numbers, runtime.metrics.clone(), Guard::open(), None, stop.clone()));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    let waiting = get(address, "/readyz").await;
    assert!(waiting.starts_with("HTTP/1.1 503") && waiting.contains("not yet read: NIMService"), "{waiting}");
    link.mend();
    until(10, "synced", || runtime.cache.is_synced()).await;
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"), "a follower is ready");
    assert!(get(port, "/metrics").await.contains("capstan_cache_objects{kind=\"ConfigMap\"}"));
    assert!(get(address, "/nowhere").await.starts_with("HTTP/1.1 404"));
    stop.cancel();
    health.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn metrics_are_for_those_who_may_read_them() {
    let cluster = Cluster::start().await;
    let (may, may_not) = (UserInfo::new("may", &["system:masters"]), UserInfo::new("may-not", &[]));
    let (listener, address) = loopback().await;
    let (link, stop) = (cluster.link(), CancellationToken::new());
    let (guard, metrics) = (Guard::token_review(link.client()), Metrics::default());
    tokio::spawn(serve::metrics(listener, metrics, guard, None, stop.clone()));
    for (token, code) in [("", 401), ("nonsense", 401)] {
        assert!(get_as(address, "/metrics", token).await.starts_with(&format!("HTTP/1.1 {code}")), "{token}");
    }
    let tokens = &cluster.api.auth().authenticator;
    let (may, may_not) = (tokens.issue(may), tokens.issue(may_not));
    assert!(get_as(address, "/metrics", &may_not).await.starts_with("HTTP/1.1 403"));
    link.writes();
    for _ in 0..3 {
        assert!(get_as(address, "/metrics", &may).await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(link.writes().len(), 2, "asked once, then remembered");
    stop.cancel();
}
