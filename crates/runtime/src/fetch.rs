//! One HTTP GET with limits, for small responses of servers in the cluster, over HTTP or HTTPS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Timeout of a request.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response.
const MAX_BODY_BYTES: usize = 1 << 20;
/// CA certificates: of OpenShift's service CA, then those of common base images.
const CA_FILES: [&str; 3] = [
    "/etc/pki/tls/service-ca/service-ca.crt",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
];
/// Our ServiceAccount token: services behind an authenticating proxy require one.
const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Status and body of the response of `url`, or why there is none.
pub async fn get(url: &str) -> Result<(u16, Bytes), String> {
    let response = tokio::time::timeout(FETCH_TIMEOUT, request_url(url)).await;
    response.unwrap_or_else(|_| Err(format!("no answer within {} s", FETCH_TIMEOUT.as_secs())))
}

async fn request_url(url: &str) -> Result<(u16, Bytes), String> {
    let uri: Uri = url.parse().map_err(|error| format!("{url} is no URL: {error}"))?;
    let host = uri.host().ok_or_else(|| format!("{url} names no host"))?.to_owned();
    let secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let stream = TcpStream::connect((bare.as_str(), port)).await.map_err(|error| error.to_string())?;
    if !secure {
        return send(stream, &uri, &host, port, None).await;
    }
    let name = ServerName::try_from(bare).map_err(|error| error.to_string())?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls_config().await?));
    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    let token = tokio::fs::read_to_string(TOKEN_FILE).await.ok();
    let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
    send(stream, &uri, &host, port, token).await
}

async fn send<S>(stream: S, uri: &Uri, host: &str, port: u16, token: Option<String>) -> Result<(u16, Bytes), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(connection));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path)
        .header(http::header::HOST, format!("{host}:{port}"))
        .header(http::header::ACCEPT, "application/json");
    if let Some(token) = token {
        request = request.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(failed)?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await.map_err(|error| error.to_string())?;
    drop(connection);
    Ok((status, body.to_bytes()))
}

/// A TLS config that trusts the certificates of the first file that has any.
async fn tls_config() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for path in CA_FILES {
        let Ok(pem) = tokio::fs::read(Path::new(path)).await else { continue };
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
        if !roots.is_empty() {
            break;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_read_and_its_absence_explained() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            let read = stream.read(&mut buffer).await.unwrap();
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
            String::from_utf8_lossy(&buffer[..read]).into_owned()
        });
        let url = format!("http://{address}/v1/models");
        assert_eq!(get(&url).await, Ok((404, Bytes::from("no"))));
        assert!(server.await.unwrap().starts_with("GET /v1/models HTTP/1.1\r\n"));
        assert!(get(&url).await.unwrap_err().contains("refused"));
        assert!(get("nonsense").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_the_call_and_says_nothing_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/models", listener.local_addr().unwrap());
        assert_eq!(get(&url).await, Err("no answer within 5 s".into()));
    }
}
