//! HTTPS client for webhooks, which trusts the configuration's CA bundle. Errors are worded as Go words them.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::config::{Hook, Location};
use super::{Endpoint, Resolver, resolve};
use crate::admit::json::Read;
use crate::ops::Server;

/// Maximum size of a response.
const MAX_ANSWER: usize = 8 << 20;

/// The destination of a call.
struct Destination {
    /// `NAME:PORT`, as printed in errors.
    authority: String,
    /// The server name to verify.
    host: String,
    path: String,
    endpoint: Result<Option<Endpoint>, String>,
}

/// A raw response.
struct Answer {
    code: u16,
    is_text: bool,
    body: Bytes,
}

/// Posts a review and parses the response.
pub(super) async fn post(
    server: &Server,
    resolver: Option<&dyn Resolver>,
    hook: &Hook,
    body: &Value,
) -> Result<Value, String> {
    let destination = destination(server, resolver, hook)?;
    let path = format!("{}?timeout={}s", destination.path, hook.timeout.as_secs());
    let url = format!("https://{}{path}", destination.authority);
    let body = Bytes::from(serde_json::to_vec(body).map_err(|error| error.to_string())?);
    let exchange = async {
        match &destination.endpoint {
            Err(why) => Err(why.clone()),
            Ok(Some(Endpoint::Local(handler))) => {
                let (code, answer) = handler(path.clone(), body).await;
                Ok(Answer { code, is_text: false, body: answer })
            }
            Ok(Some(Endpoint::Address(address))) => remote(hook, &destination, Some(*address), &path, body).await,
            Ok(None) => remote(hook, &destination, None, &path, body).await,
        }
    };
    let answer = match tokio::time::timeout(hook.timeout, exchange).await {
        Ok(result) => result.map_err(|why| format!("Post {url:?}: {why}"))?,
        Err(_) => return Err(format!("Post {url:?}: context deadline exceeded")),
    };
    let parsed: Result<Value, _> = serde_json::from_slice(&answer.body);
    if (200..=206).contains(&answer.code) {
        return parsed.map_err(|error| format!("couldn't get version/kind; json parse error: {error}"));
    }
    let status = parsed.ok().filter(|value| value.text("kind") == "Status");
    Err(status.map_or_else(|| unexpected(&answer), |status| status.text("message").to_owned()))
}

fn destination(server: &Server, resolver: Option<&dyn Resolver>, hook: &Hook) -> Result<Destination, String> {
    match &hook.location {
        Location::Service(service, path) => {
            let host = format!("{}.{}.svc", service.name, service.namespace);
            let endpoint = match resolver {
                Some(resolver) => resolver.resolve(service),
                None => resolve::resolve(server, service),
            };
            let authority = format!("{host}:{}", service.port);
            Ok(Destination { authority, host, path: format!("/{path}"), endpoint: endpoint.map(Some) })
        }
        Location::Url(url) => {
            let uri: http::Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
            let (Some(authority), Some("https")) = (uri.authority(), uri.scheme_str()) else {
                return Err(format!("unsupported URL {url:?}"));
            };
            let host = authority.host().trim_matches(['[', ']']).to_owned();
            Ok(Destination { authority: authority.to_string(), host, path: uri.path().to_owned(), endpoint: Ok(None) })
        }
    }
}

/// One request over a new connection.
async fn remote(
    hook: &Hook,
    destination: &Destination,
    address: Option<SocketAddr>,
    path: &str,
    body: Bytes,
) -> Result<Answer, String> {
    let tls = hook.tls()?;
    let stream = dial(destination, address).await?;
    let name = ServerName::try_from(destination.host.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|error| handshake_error(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let request = Request::post(path)
        .header("host", &destination.authority)
        .header("user-agent", "kube-apiserver-admission")
        .header("accept", "application/json, */*")
        .header("content-type", "application/json")
        .body(Full::new(body))
        .map_err(|error| error.to_string())?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let code = response.status().as_u16();
        let content = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        let is_text = content.is_none_or(|content| content.starts_with("text/"));
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|error| error.to_string())?;
        // The connection closes once there is no sender.
        drop(sender);
        Ok(Answer { code, is_text, body: body.to_bytes() })
    };
    let (answer, _) = tokio::join!(exchange, connection);
    answer
}

fn broken(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        "EOF".into()
    } else {
        error.to_string()
    }
}

async fn dial(destination: &Destination, address: Option<SocketAddr>) -> Result<TcpStream, String> {
    let name = match address {
        Some(address) => address.to_string(),
        None if destination.authority.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok()) => {
            destination.authority.clone()
        }
        None => format!("{}:443", destination.authority),
    };
    TcpStream::connect(&name).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("dial tcp {name}: connect: connection refused"),
        io::ErrorKind::TimedOut => format!("dial tcp {name}: i/o timeout"),
        _ if error.raw_os_error().is_none() => format!("dial tcp: lookup {}: no such host", destination.host),
        _ => format!("dial tcp {name}: connect: {error}"),
    })
}

/// Why the TLS handshake failed.
fn handshake_error(error: &io::Error) -> String {
    use rustls::CertificateError as Certificate;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match inner {
        Some(rustls::Error::InvalidCertificate(certificate)) => match certificate {
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                "x509: certificate signed by unknown authority".to_owned()
            }
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                "x509: certificate has expired or is not yet valid".to_owned()
            }
            Certificate::NotValidForNameContext { expected, presented } => {
                let presented: Vec<&str> = presented.iter().map(|name| plain_name(name)).collect();
                format!("x509: certificate is valid for {}, not {}", presented.join(", "), expected.to_str())
            }
            other => format!("x509: {other}"),
        },
        Some(other) => return format!("remote error: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".into(),
        None => return error.to_string(),
    };
    format!("tls: failed to verify certificate: {why}")
}

/// `name` of `DnsName("name")`.
fn plain_name(name: &str) -> &str {
    name.split('"').nth(1).unwrap_or(name)
}

/// Go's error for an unexpected response.
fn unexpected(answer: &Answer) -> String {
    let text = String::from_utf8_lossy(&answer.body);
    let text = if answer.is_text { text.trim() } else { "unknown" };
    match answer.code {
        400 => "the server rejected our request for an unknown reason".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        403 => text.to_owned(),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        406 => "the server was unable to respond with a content type that the client supports".into(),
        409 => "the server reported a conflict".into(),
        415 => "the body of the request was in an unknown format".into(),
        422 => "the server rejected our request due to an error in our request".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .into()
        }
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more details"),
    }
}
