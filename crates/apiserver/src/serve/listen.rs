//! The API over TLS on a socket: HTTP/1.1 and HTTP/2, negotiated by ALPN.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::tls::{Authority, TlsError};
use super::{Api, Kubeconfig};
use crate::auth::UserInfo;

/// Listen address and certificate names.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Address and port; 0 picks a free port.
    pub address: SocketAddr,
    /// Subject alternative names besides those of `kubernetes.default.svc`.
    pub names: Vec<String>,
}

impl Default for Listen {
    fn default() -> Self {
        Self { address: (Ipv4Addr::LOCALHOST, 0).into(), names: Vec::new() }
    }
}

/// Why listening failed.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The socket could not be opened.
    #[error("opening the socket failed")]
    Socket(#[from] std::io::Error),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A listening server. Dropping it closes the socket and all connections.
#[derive(Debug)]
pub struct Listener {
    api: Api,
    address: SocketAddr,
    ca_pem: String,
    accepting: JoinHandle<()>,
}

impl Api {
    /// Serves this API over TLS, with a new certificate authority.
    pub async fn listen(&self, listen: Listen) -> Result<Listener, ListenError> {
        let authority = Authority::new("kubernetes")?;
        self.listen_as(listen, &authority).await
    }

    /// Serves this API over TLS, with a certificate issued by `authority`.
    pub async fn listen_as(&self, listen: Listen, authority: &Authority) -> Result<Listener, ListenError> {
        let socket = TcpListener::bind(listen.address).await?;
        let address = socket.local_addr()?;
        let own = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let names: Vec<&str> = own.into_iter().chain(listen.names.iter().map(String::as_str)).collect();
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        if address.ip() != addresses[0] && !address.ip().is_unspecified() {
            addresses.push(address.ip());
        }
        let acceptor = TlsAcceptor::from(authority.server_config(&names, &addresses)?);
        let accepting = tokio::spawn(accept(socket, acceptor, self.clone()));
        Ok(Listener { api: self.clone(), address, ca_pem: authority.pem().to_owned(), accepting })
    }
}

impl Listener {
    /// The listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://ADDRESS:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig for `user`, with a new token.
    pub fn kubeconfig(&self, user: UserInfo) -> Kubeconfig {
        self.kubeconfig_with(self.api.auth().authenticator.issue(user))
    }

    /// A kubeconfig with an existing token.
    pub fn kubeconfig_with(&self, token: String) -> Kubeconfig {
        Kubeconfig {
            name: "capstan".into(),
            server: self.url(),
            ca_pem: self.ca_pem.clone(),
            token,
            namespace: "default".into(),
        }
    }

    /// Waits until the listener ends, which it does not by itself.
    pub async fn wait(mut self) {
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Accepts connections; never returns. The tasks of the connections end with this one.
async fn accept(socket: TcpListener, acceptor: TlsAcceptor, api: Api) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, acceptor.clone(), api.clone()));
                }
                // Most likely EMFILE: back off so that other connections can close.
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, api: Api) {
    let _ = stream.set_nodelay(true);
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "TLS handshake failed"),
    };
    let service = TowerToHyperService::new(api);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Each watch is a stream of one connection.
    builder.http2().max_concurrent_streams(1000);
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection closed");
    }
}
