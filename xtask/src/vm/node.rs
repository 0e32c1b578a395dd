//! A kubelet in the guest, joined to a control plane on this machine: containerd, CNI plugins with Multus, one image.
//!
//! The guest reaches the API server through QEMU's user network, where this machine's loopback is 10.0.2.2. Under
//! emulation every program counts: what is large lies in memory, and the only image is a static busybox.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::session::Session;
use crate::cluster::control_plane::{self, start};
use crate::cluster::{node_is_ready, tools, until};
use crate::image;

/// How long the guest's programs may take to start, and the node to be Ready.
const READY: Duration = Duration::from_secs(300);
/// The loopback device of this machine, as the guest sees it.
const HOST: &str = "10.0.2.2";
/// The guest, as its network calls it.
const GUEST: &str = "10.0.2.15";
/// A name in the API server's certificate: its address there is another one than the guest's.
const SERVER_NAME: &str = "kubernetes";

/// Starts containerd and the kubelet in the guest.
const JOIN: &str = include_str!("../../../e2e/vm/join.sh");

/// Programs by the path to each.
pub(crate) struct Programs {
    kubelet: std::path::PathBuf,
    control_plane: control_plane::Programs,
}

impl Programs {
    pub(crate) fn find(root: &Path) -> Result<Self> {
        Ok(Self { kubelet: tools::KUBELET.find(root)?, control_plane: control_plane::Programs::find(root)? })
    }

    /// Fails if one of them would have to be built.
    pub(crate) fn present(root: &Path) -> Result<()> {
        for tool in
            [&tools::KUBELET, &tools::KUBECTL, &tools::ETCD, &tools::API_SERVER, &tools::CONTROLLERS, &tools::SCHEDULER]
        {
            if tool.present(root)?.is_none() {
                bail!("{} is not in the cache: run `cargo xtask cluster tools`", tool.name);
            }
        }
        Ok(())
    }
}

/// Boots the guest and starts a control plane meanwhile; returns when the node is Ready.
pub(crate) fn join(session: &mut Session<'_>, programs: &Programs) -> Result<()> {
    let begin = Instant::now();
    let passed = |what: &str| eprintln!("vm: {what}; seconds={}", begin.elapsed().as_secs());
    let home = session.folder.join("cluster");
    let files = session.guest.host().join("node");
    std::fs::create_dir_all(&home)?;
    std::fs::create_dir_all(files.join("cni"))?;
    session.guest.add_program(&programs.kubelet, "kubelet")?;
    session.guest.add_multus()?;
    image::busybox(&session.guest.busybox(), &files.join("image.tar"), IMAGE)?;
    std::fs::write(files.join("containerd.toml"), containerd_config())?;
    std::fs::write(files.join("kubelet.json"), kubelet_config())?;
    std::fs::write(files.join("cni/00-multus.conf"), multus_config())?;
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    std::thread::scope(|scope| -> Result<()> {
        let guest = scope.spawn(|| session.guest.boot());
        let cluster = start(&home, &programs.control_plane, address);
        passed("control plane started");
        guest.join().map_err(|_| anyhow::anyhow!("booting the guest panicked"))??;
        passed("guest booted");
        cluster
    })?;
    std::fs::write(files.join("kubeconfig"), for_guest(&home, "kubelet.kubeconfig")?)?;
    std::fs::write(files.join("admin.kubeconfig"), for_guest(&home, "kubeconfig")?)?;
    let command = ["sh", "-euc", JOIN].map(str::to_owned);
    let mut printed = Vec::new();
    let code = session.run(&command, &[], READY, &mut |_, text| printed.extend_from_slice(text))?;
    if code != 0 {
        bail!("the guest's node does not start: {}", String::from_utf8_lossy(&printed).trim());
    }
    passed("kubelet started");
    let kubectl = &programs.control_plane.kubectl;
    if !until(READY, || node_is_ready(&home, kubectl)) {
        let log = std::fs::read_to_string(files.join("kubelet.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        bail!("the guest's node is not Ready: {}", lines[lines.len().saturating_sub(5)..].join(" | "));
    }
    passed("node is Ready");
    session.kubectl = Some((kubectl.clone(), home.join("kubeconfig")));
    Ok(())
}

/// The image of every pod, also of the one that keeps a pod's network alive.
const IMAGE: &str = "capstan.local/busybox:1";

/// A kubeconfig of the cluster as the guest needs it.
fn for_guest(home: &Path, name: &str) -> Result<String> {
    let text = std::fs::read_to_string(home.join(name)).with_context(|| format!("cannot read {name}"))?;
    let mut config: Value = serde_json::from_str(&text)?;
    let cluster = &mut config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().unwrap_or_default();
    let port = server.rsplit(':').next().unwrap_or_default();
    let authority = std::fs::read(home.join("certs/apiserver.crt")).context("the API server has no certificate")?;
    *cluster = json!({
        "server": format!("https://{HOST}:{port}"), "tls-server-name": SERVER_NAME,
        "certificate-authority-data": STANDARD.encode(authority),
    });
    Ok(config.to_string())
}

fn containerd_config() -> String {
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{IMAGE}"
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni", "/usr/lib/capstan"]
conf_dir = "/host/node/cni"
"#
    )
}

/// Multus calls the bridge for every pod, and more plugins for those whose annotations ask for them.
fn multus_config() -> String {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.85.0.0/24"}]], "dataDir": "/run/addresses"});
    json!({
        "cniVersion": "0.4.0", "name": "capstan", "type": "multus", "kubeconfig": "/host/node/admin.kubeconfig",
        "delegates": [{
            "cniVersion": "0.4.0", "name": "pods", "type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": ipam,
        }],
    })
    .to_string()
}

fn kubelet_config() -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": GUEST,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failSwapOn": false,
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": false,
        "makeIPTablesUtilChains": false,
        "clusterDNS": [],
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
    })
    .to_string()
}
