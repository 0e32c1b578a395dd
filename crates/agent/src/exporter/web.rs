//! TLS of the metrics endpoint, from a Prometheus web config file: `tls_server_config` with certificate, key and an
//! optional client CA. Files are reloaded when they change, for certificate rotation.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use serde::Deserialize;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::files::Changes;
use crate::{Error, Result};

/// The web config file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tls_server_config: Option<Tls>,
    /// Password hashes; not supported.
    #[serde(default)]
    basic_auth_users: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    cert_file: PathBuf,
    key_file: PathBuf,
    #[serde(default)]
    client_auth_type: ClientAuth,
    #[serde(default)]
    client_ca_file: Option<PathBuf>,
    #[serde(default)]
    min_version: Version,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
enum ClientAuth {
    #[default]
    #[serde(rename = "", alias = "NoClientCert")]
    None,
    VerifyClientCertIfGiven,
    RequireAndVerifyClientCert,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Version {
    #[default]
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

/// The current TLS acceptor. Clones share it.
#[derive(Clone, Default)]
pub(super) struct TlsReloader(Arc<Mutex<Option<TlsAcceptor>>>);

impl TlsReloader {
    /// Loads the web config; plain HTTP without one.
    pub(super) fn new(file: Option<&Path>) -> Result<Self> {
        let web = Self::default();
        if let Some(file) = file {
            web.read(file)?;
        }
        Ok(web)
    }

    fn read(&self, file: &Path) -> Result<Vec<PathBuf>> {
        let (acceptor, files) = load(file)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = acceptor;
        Ok(files)
    }

    /// The acceptor for the next connection.
    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Watches the web config and the files it names until stopped. An invalid config keeps the previous one.
    pub(super) async fn watch(self, file: Option<PathBuf>, stop: CancellationToken) {
        let Some(file) = file else { return stop.cancelled().await };
        let mut files = vec![file.clone()];
        loop {
            let dirs: Vec<&Path> = files.iter().filter_map(|file| file.parent()).collect();
            let mut changes = Changes::of(&dirs);
            match self.read(&file) {
                Ok(named) => files = [file.clone()].into_iter().chain(named).collect(),
                Err(error) => tracing::warn!(%error, "web config invalid; keeping the previous one"),
            }
            if stop.run_until_cancelled(changes.next(Duration::from_secs(3600))).await.is_none() {
                return;
            }
        }
    }
}

/// Loads the TLS config, if any, and the files it names.
fn load(path: &Path) -> Result<(Option<TlsAcceptor>, Vec<PathBuf>)> {
    let wrong = |why: String| Error::Config(format!("--web-config-file {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let file: File = if text.trim().is_empty() {
        File::default()
    } else {
        serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?
    };
    if file.basic_auth_users.is_some() {
        return Err(wrong("basic_auth_users: there are no passwords here; ask for client certificates".into()));
    }
    let Some(tls) = file.tls_server_config else { return Ok((None, Vec::new())) };
    // Relative to the web config, as in Prometheus.
    let beside = |name: &Path| path.parent().unwrap_or(Path::new("/")).join(name);
    let (cert, key) = (beside(&tls.cert_file), beside(&tls.key_file));
    let authority = tls.client_ca_file.as_deref().map(beside);
    let config = server_config(&tls, &cert, &key, authority.as_deref()).map_err(wrong)?;
    Ok((Some(Arc::new(config).into()), [cert, key].into_iter().chain(authority).collect()))
}

fn server_config(tls: &Tls, cert: &Path, key: &Path, authority: Option<&Path>) -> Result<ServerConfig, String> {
    let of = |file: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let certificates = |file: &Path| -> Result<Vec<CertificateDer<'static>>, String> {
        let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
        let found: Vec<_> = found.map_err(|error| of(file, &error))?;
        if found.is_empty() { Err(of(file, &"there is no certificate in it")) } else { Ok(found) }
    };
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| of(key, &error))?;
    let versions: &[_] = match tls.min_version {
        Version::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        Version::Tls13 => &[&rustls::version::TLS13],
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let builder = builder.map_err(|error| error.to_string())?;
    let builder = match (tls.client_auth_type, authority) {
        (ClientAuth::None, None) => builder.with_no_client_auth(),
        (ClientAuth::None, Some(_)) => return Err("client_ca_file without a client_auth_type that verifies".into()),
        (_, None) => return Err("client_auth_type verifies clients; name their authority in client_ca_file".into()),
        (kind, Some(file)) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match kind {
                ClientAuth::VerifyClientCertIfGiven => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| of(file, &error))?)
        }
    };
    let mut config = builder.with_single_cert(certificates(cert)?, key_der).map_err(|error| of(cert, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A directory with a certificate and its key.
    fn made(dir: &Path, name: &str) -> CertificateDer<'static> {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(vec![name.into()]).expect("a name").self_signed(&key).expect("signed");
        std::fs::write(dir.join("tls.key"), key.serialize_pem()).expect("a key");
        crate::files::write(&dir.join("tls.crt"), certificate.pem().as_bytes()).expect("a certificate");
        certificate.der().clone()
    }

    /// What a client that trusts one certificate gets from `/health`.
    async fn fetch_health(
        address: std::net::SocketAddr,
        name: &str,
        trusted: CertificateDer<'static>,
    ) -> Option<String> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(address).await.ok()?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream =
            connector.connect(ServerName::try_from(name.to_owned()).expect("a name"), stream).await.ok()?;
        let request = format!("GET /health HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    #[tokio::test]
    async fn a_scrape_is_secured_and_certificates_may_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = made(dir.path(), "one.example");
        let file = dir.path().join("web.yaml");
        std::fs::write(&file, "tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n").expect("a file");
        let web = TlsReloader::new(Some(&file)).expect("a config");
        let stop = CancellationToken::new();
        let following = tokio::spawn(web.clone().watch(Some(file), stop.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let answer = |_| async { capstan_http::text(http::StatusCode::OK, "well") };
        let serving = tokio::spawn(capstan_http::serve(listener, move || web.acceptor(), stop.clone(), answer));
        assert!(fetch_health(address, "one.example", first).await.expect("an answer").ends_with("well"));

        let second = made(dir.path(), "two.example");
        let renewed = async { while fetch_health(address, "two.example", second.clone()).await.is_none() {} };
        tokio::time::timeout(Duration::from_secs(30), renewed).await.expect("the new one is served");
        stop.cancel();
        following.await.expect("ended");
        serving.await.expect("ended");
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        made(dir.path(), "one.example");
        let tls = |more: &str| format!("tls_server_config: {{cert_file: tls.crt, key_file: tls.key{more}}}");
        let cases = [
            ("basic_auth_users: {admin: x}".to_owned(), "basic_auth_users"),
            ("tls_server_config: {cert_file: tls.crt, key_file: none}".to_owned(), "none"),
            ("tls_server_config: {cert_file: tls.key, key_file: tls.key}".to_owned(), "no certificate"),
            (tls(", client_auth_type: RequireAndVerifyClientCert"), "client_ca_file"),
            (tls(", client_auth_type: RequestClientCert"), "RequestClientCert"),
            (tls(", cipher_suites: []"), "cipher_suites"),
        ];
        for (text, named) in cases {
            let file = dir.path().join("web.yaml");
            std::fs::write(&file, &text).expect("a file");
            let error = load(&file).map(drop).expect_err(&text).to_string();
            assert!(error.contains(named) && error.contains("web.yaml"), "{text}: {error}");
        }
        for text in ["", tls(", client_auth_type: VerifyClientCertIfGiven, client_ca_file: tls.crt").as_str()] {
            let file = dir.path().join("web.yaml");
            std::fs::write(&file, text).expect("a file");
            load(&file).map(drop).expect(text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_text_is_answered(text in "[ -~\n]{0,80}") {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), text).expect("written");
            let _ = load(file.path());
        }
    }
}
