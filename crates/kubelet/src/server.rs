//! A gRPC server on a unix socket.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::Stream;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// A response.
pub type Answer = http::Response<Body>;

/// An incoming call with its encoded message.
pub struct Call {
    request: http::Request<Incoming>,
}

impl Call {
    /// The full method name, such as `/v1beta1.DevicePlugin/Allocate`.
    pub fn name(&self) -> &str {
        self.request.uri().path()
    }

    /// Handles a unary call.
    pub async fn unary<Q, A, F>(self, answer: F) -> Answer
    where
        Q: prost::Message + Default + Send + 'static,
        A: prost::Message + Send + 'static,
        F: FnOnce(Q) -> Result<A, Status> + Clone + Send + 'static,
    {
        let service = tower::service_fn(move |request: Request<Q>| {
            let answer = answer.clone();
            async move { answer(request.into_inner()).map(Response::new) }
        });
        tonic::server::Grpc::new(ProstCodec::<A, Q>::default()).unary(service, self.request).await
    }

    /// Handles a unary call with an async handler.
    pub async fn unary_async<Q, A, F, W>(self, answer: F) -> Answer
    where
        Q: prost::Message + Default + Send + 'static,
        A: prost::Message + Send + 'static,
        F: FnOnce(Q) -> W + Clone + Send + 'static,
        W: Future<Output = Result<A, Status>> + Send + 'static,
    {
        let service = tower::service_fn(move |request: Request<Q>| {
            let answer = answer.clone();
            async move { answer(request.into_inner()).await.map(Response::new) }
        });
        tonic::server::Grpc::new(ProstCodec::<A, Q>::default()).unary(service, self.request).await
    }

    /// Handles a server-streaming call.
    pub async fn stream<Q, A, S, F>(self, answers: F) -> Answer
    where
        Q: prost::Message + Default + Send + 'static,
        A: prost::Message + Send + 'static,
        S: Stream<Item = Result<A, Status>> + Send + 'static,
        F: FnOnce(Q) -> S + Clone + Send + 'static,
    {
        let service = tower::service_fn(move |request: Request<Q>| {
            let answers = answers.clone();
            async move { Ok::<_, Status>(Response::new(answers(request.into_inner()))) }
        });
        tonic::server::Grpc::new(ProstCodec::<A, Q>::default()).server_streaming(service, self.request).await
    }

    /// Responds with UNIMPLEMENTED.
    pub fn unknown(self) -> Answer {
        Status::unimplemented(format!("no call {}", self.name())).into_http()
    }
}

/// A gRPC service.
pub trait Service: Send + Sync + 'static {
    /// Handles one call.
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer>;
}

/// Binds a socket, replacing a stale file.
pub fn listen(socket: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(socket),
    }
}

/// Identity of the socket file that we created: a successor may have created another one at the same path.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// The identity of the socket that was just created.
    pub fn of(socket: &Path) -> Self {
        Self { path: socket.to_owned(), identity: identity(socket) }
    }

    /// Removes it, unless a successor has replaced it.
    pub fn remove(&self) -> std::io::Result<()> {
        if self.identity.is_none() || identity(&self.path) != self.identity {
            return Ok(());
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Serves until stopped, then closes every connection; returns errors of the listener.
pub async fn serve(listener: UnixListener, service: Arc<dyn Service>, stop: CancellationToken) -> std::io::Result<()> {
    let connections = TaskTracker::new();
    // A child token, so that connections close too when the listener fails.
    let end = stop.child_token();
    let failed = loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break Ok(()),
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => break Err(error),
        };
        let (service, end) = (service.clone(), end.clone());
        connections.spawn(async move {
            let answer = service_fn(move |request| {
                let answer = service.clone().call(Call { request });
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                ended = connection => if let Err(error) = ended { tracing::debug!(%error, "connection closed") },
                () = end.cancelled() => {}
            }
        });
    };
    end.cancel();
    connections.close();
    connections.wait().await;
    failed
}
