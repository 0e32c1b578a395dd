//! Model servers behind Services, and the registry of their image.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

/// Serves every model server, on any address, and the registry of their image.
pub(super) fn serve(port: u16) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let content = content();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that disconnects is not an error.
            let _ = answer(stream, &content);
        }
    });
    Ok(())
}

/// An image in a registry: the manifest by tag, and its config by digest.
pub(super) const TAG: &str = "1.8";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Content type and body by the last part of a path.
type Content = BTreeMap<String, (&'static str, String)>;

fn content() -> Content {
    let config = json!({"architecture": "amd64", "os": "linux", "config": {"Labels": {}},
        "rootfs": {"type": "layers", "diff_ids": []}})
    .to_string();
    let part = |type_: &str, body: &str| json!({"mediaType": type_, "digest": digest(body), "size": body.len()});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": part("application/vnd.oci.image.config.v1+json", &config),
        "layers": [part("application/vnd.oci.image.layer.v1.tar+gzip", "")],
    });
    let models = r#"{"object":"list","data":[{"id":"bench","object":"model","root":"bench"}]}"#;
    BTreeMap::from([
        ("models".into(), ("application/json", models.into())),
        (TAG.into(), (MANIFEST, manifest.to_string())),
        (digest(&manifest.to_string()), (MANIFEST, manifest.to_string())),
        (digest(&config), ("application/octet-stream", config)),
        ("v2".into(), ("application/json", "{}".into())),
    ])
}

pub(super) fn digest(body: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, body.as_bytes());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn answer(mut stream: TcpStream, content: &Content) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer)?;
    let request = String::from_utf8_lossy(&buffer[..length]);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let Some((kind, body)) = content.get(last) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\ndocker-content-digest: {}\r\nconnection: close\r\n\r\n",
        body.len(),
        digest(body)
    );
    let sent_body = if request.starts_with("HEAD") { "" } else { body };
    stream.write_all(format!("{head}{sent_body}").as_bytes())
}
