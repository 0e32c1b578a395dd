//! `/health` and `/metrics` of a process with several roles.

use std::net::SocketAddr;
use std::sync::Arc;

use capstan_http::{Answer, answer, text};
use http::{Method, StatusCode};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Health;
use crate::{Error, Result};

/// Serves the health of roles in the background until `stop`. A port in use is an error at once.
pub async fn serve_health(address: SocketAddr, health: Arc<Health>, stop: CancellationToken) -> Result<SocketAddr> {
    let failed = |source| Error::Io { what: format!("cannot listen on --health-address {address}"), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tokio::spawn(capstan_http::serve(
        listener,
        || None,
        stop,
        move |request| {
            let answer = respond(&health, request.method(), request.uri().path());
            async move { answer }
        },
    ));
    Ok(bound)
}

fn respond(health: &Health, method: &Method, path: &str) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match path {
        "/health" => {
            let report = health.report();
            let code = if report.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let body = serde_json::to_vec_pretty(&report).expect("a report is JSON");
            answer(code, "application/json", body)
        }
        "/metrics" => answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", health.metrics()),
        _ => text(StatusCode::NOT_FOUND, "try /health or /metrics\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Failure, FailureKind, State};
    use super::*;

    #[test]
    fn health_fails_with_the_reasons() {
        let health = Health::default();
        let status = |path: &str| respond(&health, &Method::GET, path).status();
        assert_eq!(status("/health"), StatusCode::OK);
        health.update("exporter", |role| {
            let (kind, message, time) = (FailureKind::Panic, "index out of bounds".into(), jiff::Timestamp::UNIX_EPOCH);
            role.last_failure = Some(Failure { kind, message, time });
            (role.state, role.failures) = (State::Backoff, 2);
        });
        assert_eq!(status("/health"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!([status("/metrics"), status("/")], [StatusCode::OK, StatusCode::NOT_FOUND]);
        assert_eq!(respond(&health, &Method::POST, "/health").status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
