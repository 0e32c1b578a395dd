//! A small HTTP/1.1 server: plain or TLS, with a connection limit and graceful shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum number of connections; further ones wait.
const CONNECTIONS: usize = 256;

/// Timeout of the TLS handshake and of request headers.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Grace period of running requests at shutdown.
const GRACE: Duration = Duration::from_secs(5);

/// A response.
pub type Answer = Response<Full<Bytes>>;

/// Serves until `stop`. `tls` is called for every connection, so that certificates can be rotated.
pub async fn serve<H, F, T>(listener: TcpListener, tls: T, stop: CancellationToken, handler: H)
where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
    T: Fn() -> Option<TlsAcceptor> + Send + Sync + 'static,
{
    let (handler, tracker) = (Arc::new(handler), TaskTracker::new());
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let accept = async {
        loop {
            let Ok(permit) = free.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors: wait for others to be closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (handler, stop, tls) = (handler.clone(), stop.clone(), tls());
            tracker.spawn(async move {
                let _permit = permit;
                match tls {
                    None => connection(stream, &stop, handler).await,
                    Some(tls) => match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                        Ok(Ok(stream)) => connection(stream, &stop, handler).await,
                        Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
                        Err(_) => tracing::debug!("handshake timed out"),
                    },
                }
            });
        }
    };
    stop.run_until_cancelled(accept).await;
    tracker.close();
    let _ = timeout(GRACE, tracker.wait()).await;
}

async fn connection<S, H, F>(stream: S, stop: &CancellationToken, handler: Arc<H>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Answer>,
{
    let service = service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection closed");
    }
}

/// The `User-Agent` of our requests: role and version, for audit logs and flow control.
pub fn user_agent(role: &str) -> String {
    format!("capstan/{} ({role})", env!("CARGO_PKG_VERSION"))
}

/// A plain-text response.
pub fn text(code: StatusCode, text: impl Into<String>) -> Answer {
    answer(code, "text/plain; charset=utf-8", text.into())
}

/// A response.
pub fn answer(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    answer
}
