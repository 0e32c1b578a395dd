//! Kubelet log endpoint of virtual nodes for a real API server.

use std::net::IpAddr;
use std::sync::Arc;

use capstan_apiserver::serve::Authority;
use kube::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::exchange::Failure;

/// Maximum length of a request head.
const MAX_REQUEST_HEAD: u64 = 16 << 10;

/// Serves on this machine until the runtime ends; returns the port.
pub(super) async fn serve(sim: Client) -> Result<u16, Failure> {
    let local = IpAddr::from([127, 0, 0, 1]);
    let tls = Authority::new("virtual-nodes")?.server_config(&["localhost"], &[local])?;
    let mut tls = Arc::unwrap_or_clone(tls);
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind((local, 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A failed request is retried by the client.
            tokio::spawn(answer(acceptor.clone(), stream, sim.clone()));
        }
    });
    Ok(port)
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream, sim: Client) -> Result<(), Failure> {
    let mut stream = acceptor.accept(stream).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && (head.len() as u64) < MAX_REQUEST_HEAD {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (code, text) = match sim_path(target) {
        Some(path) => match sim.request_text(http::Request::get(path).body(Vec::new())?).await {
            Ok(text) => ("200 OK", text),
            Err(error) => ("404 Not Found", error.to_string()),
        },
        None => ("404 Not Found", format!("{target} is not served")),
    };
    let head = format!("HTTP/1.1 {code}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}

/// Path of the requested kubelet log on the embedded server.
fn sim_path(target: &str) -> Option<String> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut parts = path.strip_prefix("/containerLogs/")?.split('/');
    let (namespace, pod, container) = (parts.next()?, parts.next()?, parts.next()?);
    Some(format!("/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kubelet_is_asked_for_is_found_in_the_api() {
        assert_eq!(
            sim_path("/containerLogs/n/p/c?tailLines=20").as_deref(),
            Some("/api/v1/namespaces/n/pods/p/log?container=c&tailLines=20")
        );
        assert_eq!(sim_path("/exec/n/p/c"), None);
    }
}
