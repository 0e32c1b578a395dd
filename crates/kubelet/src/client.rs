//! A gRPC client connection over a unix socket.

use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// Timeout of connecting and of calls.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum response size: a node with hundreds of pods and devices has a few hundred kilobytes.
const MAX_ANSWER: usize = 16 << 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection was refused.
    #[error("{}: {source}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The HTTP/2 handshake failed or timed out.
    #[error("{}: {why}", socket.display())]
    Handshake {
        /// The socket.
        socket: PathBuf,
        /// The error.
        why: String,
    },
    /// The server returned an error status.
    #[error("{call}: {} ({:?})", status.message(), status.code())]
    Refused {
        /// The call.
        call: &'static str,
        /// The status.
        status: Box<Status>,
    },
}

/// A connection to a socket. It closes when the last clone is dropped, and does not reconnect.
#[derive(Clone)]
pub struct Connection {
    sender: SendRequest<Body>,
}

impl Connection {
    /// Connects to a socket.
    pub async fn open(socket: &Path) -> Result<Self, Error> {
        let handshake = async {
            let stream = UnixStream::connect(socket)
                .await
                .map_err(|source| Error::Connect { socket: socket.to_owned(), source })?;
            let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
            shaken.map_err(|error| Error::Handshake { socket: socket.to_owned(), why: error.to_string() })
        };
        let opened = tokio::time::timeout(TIMEOUT, handshake).await;
        let late = || Error::Handshake { socket: socket.to_owned(), why: "no answer in time".into() };
        let (sender, connection) = opened.map_err(|_| late())??;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "socket connection closed");
            }
        });
        Ok(Self { sender })
    }

    /// A unary call.
    pub async fn unary<Q, A>(&self, call: &'static str, request: Q) -> Result<A, Error>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let result = async {
            let mut grpc = self.grpc().await?;
            let codec = ProstCodec::<Q, A>::default();
            Ok(grpc.unary(Request::new(request), PathAndQuery::from_static(call), codec).await?.into_inner())
        };
        result.await.map_err(|status| Error::Refused { call, status: Box::new(status) })
    }

    /// A server-streaming call.
    pub async fn stream<Q, A>(&self, call: &'static str, request: Q) -> Result<Streaming<A>, Error>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let result = async {
            let mut grpc = self.grpc().await?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.server_streaming(Request::new(request), PathAndQuery::from_static(call), codec).await?;
            Ok(answer.into_inner())
        };
        result.await.map_err(|status| Error::Refused { call, status: Box::new(status) })
    }

    async fn grpc(&self) -> Result<Grpc<Self>, Status> {
        // HTTP/2 needs an authority, even over a unix socket.
        let mut grpc = Grpc::with_origin(self.clone(), http::Uri::from_static("http://localhost"))
            .max_decoding_message_size(MAX_ANSWER);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }
}

impl tower::Service<http::Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, hyper::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}
