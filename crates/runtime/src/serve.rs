//! `/healthz`, `/readyz` and `/metrics`.
//!
//! Ready means that the caches have synced: a follower is ready too, since it serves webhooks and can take over.

use http::{Method, StatusCode};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;
use crate::metrics::Metrics;
use crate::webhook::Certificate;
use capstan_http::{Answer, answer, serve, text};

pub use crate::guard::Guard;

/// Serves `/healthz` and `/readyz` until `stop`. `ready` returns what is missing; see [`caches_synced`].
pub async fn health<R>(listener: TcpListener, ready: R, stop: CancellationToken)
where
    R: Fn() -> Result<(), String> + Send + Sync + 'static,
{
    serve(
        listener,
        || None,
        stop,
        move |request| {
            let answer = probe(request.method(), request.uri().path(), &ready);
            async move { answer }
        },
    )
    .await;
}

/// The minimal readiness check: all caches have synced.
pub fn caches_synced(cache: &Cache) -> Result<(), String> {
    if cache.is_synced() {
        return Ok(());
    }
    let missing: Vec<_> = cache.missing().iter().map(|kind| kind.kind).collect();
    Err(format!("not yet read: {}", missing.join(", ")))
}

fn probe(method: &Method, path: &str, ready: &dyn Fn() -> Result<(), String>) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match path.trim_end_matches('/') {
        "/healthz" | "/livez" => text(StatusCode::OK, "ok\n"),
        "/readyz" => match ready() {
            Ok(()) => text(StatusCode::OK, "ok\n"),
            Err(missing) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{missing}\n")),
        },
        _ => text(StatusCode::NOT_FOUND, "try /healthz or /readyz\n"),
    }
}

/// Serves `/metrics` until `stop` to authorized clients, over TLS if there is a certificate.
pub async fn metrics(
    listener: TcpListener,
    metrics: Metrics,
    guard: Guard,
    certificate: Option<Certificate>,
    stop: CancellationToken,
) {
    let tls = move || certificate.as_ref().map(Certificate::acceptor);
    serve(listener, tls, stop, move |request| {
        let (metrics, guard) = (metrics.clone(), guard.clone());
        async move {
            if request.uri().path() != "/metrics" {
                return text(StatusCode::NOT_FOUND, "try /metrics\n");
            }
            match guard.admit(request.headers()).await {
                Ok(()) => {
                    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                    answer(StatusCode::OK, format, metrics.encode())
                }
                Err((code, reason)) => text(code, format!("{reason}\n")),
            }
        }
    })
    .await;
}
