//! A private control plane. Two of them may run at once.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use super::simulated::{APPLY, each};
use super::watch_cache::WatchCache;
use crate::cluster::control_plane::{self, OPERATOR, Programs, SERVICES, Workloads};
use crate::cluster::{Process, output, tools};

/// First port of the operators' health endpoints.
const HEALTH: u16 = 8201;

/// Timeout until the control plane is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Names of operator processes: the first, and a standby.
pub(super) const FIRST: &str = "operator";
pub(super) const SECOND: &str = "operator-2";

/// A control plane that stops on drop.
pub(super) struct Cluster {
    pub(super) home: PathBuf,
    /// An administrator client.
    pub(super) client: kube::Client,
    number: u16,
}

impl Cluster {
    /// Starts the control plane with that number, with all CRDs. Call it inside a tokio runtime.
    pub(super) async fn start(root: &Path, number: u16, workloads: Workloads) -> Result<Self> {
        let programs = Programs::find(root)?;
        let home = tools::cache()?.join("bench").join(number.to_string());
        end(&home)?;
        std::fs::create_dir_all(&home)?;
        control_plane::start_simulated(&home, &programs, IpAddr::V4(Ipv4Addr::LOCALHOST), workloads)
            .inspect_err(|_| drop(stop(&home)))?;
        let kubeconfig = home.join("kubeconfig");
        let read = Kubeconfig::read_from(&kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let cluster = Self { client: kube::Client::try_from(config)?, home, number };
        let kubeconfig = kubeconfig.display().to_string();
        let bind = ["create", "clusterrolebinding", "bench", "--clusterrole=cluster-admin", "--user", OPERATOR];
        output(&programs.kubectl, &[&["--kubeconfig", &kubeconfig], &bind[..]].concat())?;
        cluster.install().await?;
        Ok(cluster)
    }

    /// Installs all CRDs, so that all operators start with them.
    async fn install(&self) -> Result<()> {
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let all: Vec<Value> =
            capstan_api::kinds().map(|kind| serde_json::to_value(kind.definition())).collect::<Result<_, _>>()?;
        let count = all.len();
        each(all, |crd| {
            let name = crd["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{crds}/{name}?fieldManager=bench&force=true");
            let (client, body) = (self.client.clone(), crd);
            async move { send(&client, "PATCH", &path, APPLY, &body).await.map(drop) }
        })
        .await?;
        let served = |crd: &Value| {
            let conditions = crd["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|one| one["type"] == "Established" && one["status"] == "True")
        };
        let cache = WatchCache::follow(&self.client, crds);
        cache
            .until(READY_TIMEOUT, "CRDs are served", |all| all.values().filter(|crd| served(crd)).count() == count)
            .await
    }

    /// Health port of the operator of that name.
    pub(super) fn health(&self, process: &str) -> u16 {
        HEALTH + 2 * self.number + u16::from(process == SECOND)
    }

    /// Sends a request as administrator.
    pub(super) async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value> {
        send(&self.client, method, path, kind, body).await
    }
}

/// Sends a request with a client.
pub(super) async fn send(client: &kube::Client, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value> {
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(body.to_string().into_bytes())?;
    client.request(request).await.with_context(|| format!("{method} {path}"))
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Logs are kept for debugging.
        let _ = stop(&self.home);
    }
}

/// Creates a network namespace in which every Service address is local. API servers need a default route to find their
/// address.
pub(super) fn network() -> Result<()> {
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

fn stop(home: &Path) -> Result<()> {
    for name in [FIRST, SECOND] {
        Process::of(home, name).stop()?;
    }
    control_plane::stop(home)
}

/// Stops leftovers of an earlier run, and removes their data.
fn end(home: &Path) -> Result<()> {
    stop(home)?;
    match std::fs::remove_dir_all(home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
