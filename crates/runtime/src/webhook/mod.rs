//! Admission webhooks over TLS.
//!
//! The certificate comes from a mounted directory, or is self-managed in a Secret: [`certs`] is the schedule,
//! [`rotation`] the reconciler. Either way a renewed one is used without a restart.

pub mod certs;
pub mod files;
mod review;
pub mod rotation;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures::FutureExt;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use capstan_http::{Answer, answer, serve, text};

pub use review::{Operation, Review, Verdict};

/// Maximum size of an AdmissionReview: no API server stores a larger object.
const MAX_REVIEW_BYTES: usize = 8 << 20;

type Check = Arc<dyn Fn(&Review) -> Verdict + Send + Sync>;

/// Checks by URL path.
#[derive(Clone, Default)]
pub struct Routes {
    checks: BTreeMap<String, Check>,
}

impl Routes {
    /// The same with one more check.
    pub fn with(mut self, path: &str, check: impl Fn(&Review) -> Verdict + Send + Sync + 'static) -> Self {
        self.checks.insert(path.into(), Arc::new(check));
        self
    }
}

/// The certificate that is served. Clones share one state.
#[derive(Clone, Default)]
pub struct Certificate {
    config: Arc<ArcSwapOption<ServerConfig>>,
}

impl Certificate {
    /// Serves this certificate and key (PEM) from now on. An invalid one leaves the previous one in place.
    pub fn set(&self, chain: &[u8], key: &[u8]) -> Result<(), Error> {
        let invalid = |error: &dyn std::fmt::Display| Error::Certificate(error.to_string());
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|error| invalid(&error))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&error))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| invalid(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        self.config.store(Some(Arc::new(config)));
        Ok(())
    }

    /// Whether a certificate is set. Readiness depends on it: without one the API server would reject users' writes.
    pub fn is_set(&self) -> bool {
        self.config.load().is_some()
    }

    /// A TLS acceptor with the current certificate. Without one every handshake fails, so that nothing is served in
    /// plain text.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.config.load_full().unwrap_or_else(|| Arc::new(no_certificate())).into()
    }
}

/// Serves AdmissionReviews until `stop`.
pub async fn run(listener: TcpListener, certificate: Certificate, routes: Routes, stop: CancellationToken) {
    let routes = Arc::new(routes);
    serve(
        listener,
        move || Some(certificate.acceptor()),
        stop,
        move |request| {
            let routes = routes.clone();
            async move { respond(&routes, request).await }
        },
    )
    .await;
}

fn no_certificate() -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default protocol versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()))
}

async fn respond(routes: &Routes, request: Request<Incoming>) -> Answer {
    let Some(check) = routes.checks.get(request.uri().path()).cloned() else {
        return text(StatusCode::NOT_FOUND, "no such webhook\n");
    };
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only POST\n");
    }
    let body = match Limited::new(request.into_body(), MAX_REVIEW_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return text(StatusCode::PAYLOAD_TOO_LARGE, format!("cannot read the review: {error}\n")),
    };
    // A panic in a check is an internal error: the webhook's failurePolicy decides.
    let checked = AssertUnwindSafe(async { review::respond(&body, &*check) }).catch_unwind().await;
    match checked {
        Ok(Ok(body)) => answer(StatusCode::OK, "application/json", body),
        Ok(Err(reason)) => text(StatusCode::BAD_REQUEST, format!("not an AdmissionReview: {reason}\n")),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the check failed\n"),
    }
}
