//! Who is missing on a control plane without nodes: a node with room for all pods, and model servers behind Services.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::Cluster;

const NODE: &str = "bench";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Requests under way at once.
pub(super) const AT_ONCE: usize = 16;

/// Registers the node.
pub(super) async fn node(cluster: &Cluster) -> Result<()> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    cluster.send("PATCH", &format!("/api/v1/nodes/{NODE}?fieldManager=bench"), APPLY, &node).await?;
    heartbeat(cluster).await
}

/// Says that the node lives. Due every ten seconds or so.
pub(super) async fn heartbeat(cluster: &Cluster) -> Result<()> {
    let room = json!({"cpu": "10000", "memory": "100Ti", "pods": "10000", "nvidia.com/gpu": "10000"});
    let conditions = json!([{"type": "Ready", "status": "True", "reason": "Bench", "message": "",
        "lastHeartbeatTime": now(), "lastTransitionTime": now()}]);
    let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": conditions}});
    cluster.send("PATCH", &format!("/api/v1/nodes/{NODE}/status"), MERGE, &status).await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NODE},
        "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": now().replace('Z', ".000000Z")},
    });
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}");
    cluster.send("PATCH", &format!("{path}?fieldManager=bench&force=true"), APPLY, &lease).await?;
    Ok(())
}

/// Lets every pod run that was put on the node.
pub(super) async fn run_pods(cluster: &Cluster) -> Result<()> {
    let waiting = cluster.list("/api/v1/pods?fieldSelector=status.phase%3DPending,spec.nodeName%3Dbench").await?;
    each(waiting, |pod| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", text("namespace"), text("name"));
        let client = cluster.client.clone();
        let body = json!({"status": running(&pod)}).to_string().into_bytes();
        async move {
            let request = http::Request::patch(path).header("content-type", MERGE).body(body)?;
            // One that has gone meanwhile is no failure.
            let _ = client.request::<Value>(request).await;
            Ok(())
        }
    })
    .await
}

/// Does something with each of them, several at once.
pub(super) async fn each<T, F>(items: Vec<T>, work: impl Fn(T) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for item in items {
        if tasks.len() >= AT_ONCE
            && let Some(done) = tasks.join_next().await
        {
            done??;
        }
        tasks.spawn(work(item));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// What a kubelet says of a pod whose containers run.
fn running(pod: &Value) -> Value {
    let is = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now()});
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten().map(|container| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "bench", "restartCount": 0,
            "containerID": "bench://1", "ready": true, "started": true, "state": {"running": {"startedAt": now()}},
        })
    });
    json!({
        "phase": "Running", "startTime": now(), "podIP": "192.0.2.10", "podIPs": [{"ip": "192.0.2.10"}],
        "conditions": [is("PodScheduled"), is("Initialized"), is("ContainersReady"), is("Ready")],
        "containerStatuses": containers.collect::<Vec<_>>(),
    })
}

/// Answers for every model server, on whatever address, and for the registry that their image comes from.
pub(super) fn serve_models(port: u16) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let content = content();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away is no failure.
            let _ = answer(stream, &content);
        }
    });
    Ok(())
}

/// What an image is in a registry: the manifest, by its tag, and its configuration, by its digest.
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

fn digest(body: &str) -> String {
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
    let shown = if request.starts_with("HEAD") { "" } else { body };
    stream.write_all(format!("{head}{shown}").as_bytes())
}

/// The time as Kubernetes writes it.
fn now() -> String {
    let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or_default();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
