//! A private control plane, the operator on it, and a way to talk to it without TLS.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cluster::control_plane::{self, OPERATOR, Programs, SERVICES};
use crate::cluster::{Process, output, tools, until};

/// Where kubectl hands requests of the administrator on, and where the operator says how it is.
const PROXY: u16 = 8001;
const HEALTH: u16 = 8081;

/// How long the operator may take to be ready, which includes installing its CRDs.
const READY: Duration = Duration::from_secs(120);

/// A control plane that ends when this is dropped.
pub(super) struct Cluster {
    pub(super) home: PathBuf,
    /// A client of the administrator.
    pub(super) client: kube::Client,
}

impl Cluster {
    /// Starts it. Call it inside a tokio runtime.
    pub(super) fn start(root: &Path) -> Result<Self> {
        network()?;
        let programs = Programs::find(root)?;
        let home = tools::cache()?.join("bench");
        end(&home)?;
        std::fs::create_dir_all(&home)?;
        let config = kube::Config::new(format!("http://127.0.0.1:{PROXY}").parse()?);
        let cluster = Self { client: kube::Client::try_from(config)?, home };
        control_plane::start(&cluster.home, &programs, IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        let kubeconfig = cluster.home.join("kubeconfig").display().to_string();
        let flags = ["proxy", "--kubeconfig", &kubeconfig, "--port", &PROXY.to_string()].map(str::to_owned);
        proxy(&cluster.home).start(&programs.kubectl, &flags)?;
        let listens = until(READY, || TcpStream::connect((Ipv4Addr::LOCALHOST, PROXY)).is_ok());
        ensure!(listens, "kubectl proxy does not listen: see {}", proxy(&cluster.home).log().display());
        let bind = ["create", "clusterrolebinding", "bench", "--clusterrole=cluster-admin", "--user", OPERATOR];
        output(&programs.kubectl, &[&["--kubeconfig", &kubeconfig], &bind[..]].concat())?;
        Ok(cluster)
    }

    /// Starts the operator and waits until it is ready. Returns its process.
    pub(super) fn operator(&self, binary: &Path) -> Result<u32> {
        let kubeconfig = self.home.join("operator.kubeconfig").display().to_string();
        let health = format!("127.0.0.1:{HEALTH}");
        let flags = [
            "operator",
            "--leader-elect",
            "--namespace=default",
            "--kubeconfig",
            &kubeconfig,
            "--health-probe-bind-address",
            &health,
        ];
        let process = operator(&self.home);
        process.start(binary, &flags.map(str::to_owned))?;
        let ready = until(READY, || process.check().is_err() || is_ready());
        process.check()?;
        ensure!(ready, "the operator is not ready after {} s: see {}", READY.as_secs(), process.log().display());
        process.pid().context("the operator has ended")
    }

    /// Sends a request of the administrator.
    pub(super) async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind).body(body)?;
        self.client.request(request).await.with_context(|| format!("{method} {path}"))
    }

    /// The objects at a path.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self.send("GET", path, "application/json", &Value::Null).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Logs stay for whoever wants to know what went wrong.
        let _ = stop(&self.home);
    }
}

/// Makes a network in which every address of a Service leads here. API servers want a way out, to tell their address.
fn network() -> Result<()> {
    for line in [
        "link set lo up",
        &format!("route add local {SERVICES} dev lo"),
        "link add out type bridge",
        "address add 192.0.2.1/24 dev out",
        "link set out up",
        "route add default dev out",
    ] {
        output("ip", &line.split(' ').collect::<Vec<_>>())?;
    }
    Ok(())
}

fn proxy(home: &Path) -> Process {
    Process::of(home, "kubectl-proxy")
}

fn operator(home: &Path) -> Process {
    Process::of(home, "operator")
}

fn stop(home: &Path) -> Result<()> {
    operator(home).stop()?;
    proxy(home).stop()?;
    control_plane::stop(home)
}

/// Ends what an earlier run may have left, and removes its data.
fn end(home: &Path) -> Result<()> {
    stop(home)?;
    match std::fs::remove_dir_all(home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether the operator says that it is ready.
fn is_ready() -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, HEALTH))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
