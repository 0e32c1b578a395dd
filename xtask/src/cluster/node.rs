//! The node: containerd, kubelet and kube-proxy, on their own bridge.
//!
//! An existing containerd or CNI configuration is not touched: sockets and data are under [`RUN`] and the cluster's
//! home. The kubelet directory is the default one, as device plugins expect it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::process::{Process, kill, output, until};
use super::{packages, tools};
use crate::image;

/// Bridge of the pods. The API server listens on its address: pods cannot reach loopback.
const BRIDGE: &str = "capstan0";
/// Its address.
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 244, 0, 1));
const PODS: &str = "10.244.0.0/24";
/// Sockets and mounts of containerd.
const RUN: &str = "/run/capstan";
const SOCKET: &str = "/run/capstan/containerd.sock";
const KUBELET: &str = "/var/lib/kubelet";
/// Marker file: that directory was created by us.
const KUBELET_CREATED: &str = "made-kubelet-folder";
/// Name of the node, as in the kubelet's credentials.
pub(crate) const NAME: &str = "capstan";
/// Timeout until the node is Ready.
const READY_TIMEOUT: Duration = Duration::from_secs(90);
/// An image with one program that sleeps.
pub(crate) const PAUSE: &str = "capstan.local/pause:1";

/// Distribution programs, and their Debian packages.
const PACKAGES: &[(&str, &str)] = &[
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("mount", "mount"),
];
const PLUGINS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Sysctls that pods need. `down` restores the previous values.
const SYSCTLS: &[(&str, &str)] =
    &[("/proc/sys/net/ipv4/ip_forward", "1"), ("/proc/sys/net/bridge/bridge-nf-call-iptables", "1")];

/// Paths of the programs.
pub(crate) struct Programs {
    kubelet: PathBuf,
    proxy: PathBuf,
    containerd: PathBuf,
    plugins: PathBuf,
}

impl Programs {
    /// Finds all programs; missing distribution packages are installed.
    pub(crate) fn find(root: &Path) -> Result<Self> {
        let (kubelet, proxy) = (tools::KUBELET.find(root)?, tools::PROXY.find(root)?);
        install_missing()?;
        let plugins = plugins().context("there are no CNI plugins: install containernetworking-plugins")?;
        Ok(Self { kubelet, proxy, containerd: tools::in_path("containerd").context("no containerd")?, plugins })
    }
}

/// Fails if this process may not create a node.
pub(crate) fn may_run(home: &Path) -> Result<()> {
    if output("id", &["-u"])?.trim() != "0" {
        bail!("a node needs root: run this as root, or `cargo xtask cluster up --control-plane` for a cluster without");
    }
    if let Some(pid) = foreign_kubelet(home) {
        bail!("a kubelet that is not ours runs here (process {pid}): two on one machine disturb each other");
    }
    Ok(())
}

fn plugins() -> Option<PathBuf> {
    PLUGINS.iter().map(PathBuf::from).find(|folder| folder.join("bridge").is_file())
}

fn install_missing() -> Result<()> {
    let mut missing: Vec<&str> =
        PACKAGES.iter().filter(|(program, _)| tools::in_path(program).is_none()).map(|(_, package)| *package).collect();
    if plugins().is_none() {
        missing.push("containernetworking-plugins");
    }
    missing.dedup();
    packages::install("a node", &missing)
}

/// Creates the bridge, before the control plane starts.
pub(crate) fn start_network(home: &Path) -> Result<()> {
    output("ip", &["link", "add", BRIDGE, "type", "bridge"])?;
    output("ip", &["address", "add", &format!("{ADDRESS}/24"), "dev", BRIDGE])?;
    output("ip", &["link", "set", BRIDGE, "up"])?;
    for (file, value) in SYSCTLS {
        let before = std::fs::read_to_string(file).with_context(|| format!("the kernel lacks {file}"))?;
        std::fs::write(home.join(sysctl_file(file)), before)?;
        std::fs::write(file, value).with_context(|| format!("cannot set {file}"))?;
    }
    Ok(())
}

fn sysctl_file(file: &str) -> String {
    format!("before{}", file.replace('/', "_"))
}

fn foreign_kubelet(home: &Path) -> Option<u32> {
    let ours = Process::of(home, tools::KUBELET.name).pid();
    processes().into_iter().find(|(pid, line)| program(line) == "kubelet" && Some(*pid) != ours).map(|(pid, _)| pid)
}

/// Starts everything and waits until the node is Ready.
pub(crate) fn start(home: &Path, programs: &Programs, kubectl: &Path) -> Result<()> {
    std::fs::create_dir_all(RUN)?;
    std::fs::write(home.join("containerd.toml"), containerd_config(home, &programs.plugins))?;
    std::fs::create_dir_all(home.join("cni"))?;
    std::fs::write(home.join("cni/10-capstan.conflist"), cni_config())?;
    let flags = [format!("--config={}", home.join("containerd.toml").display())];
    let containerd = Process::of(home, "containerd");
    containerd.start(&programs.containerd, &flags)?;
    if !until(READY_TIMEOUT, || ctr(&["version"]).is_ok() || containerd.pid().is_none()) {
        bail!("containerd does not answer: see {}", containerd.log().display());
    }
    containerd.check()?;
    import(&image::pause(home, PAUSE)?)?;
    std::fs::write(home.join("kubelet.json"), kubelet_config(home))?;
    if !Path::new(KUBELET).exists() {
        std::fs::create_dir_all(KUBELET)?;
        std::fs::write(home.join(KUBELET_CREATED), "")?;
    }
    let flags = [
        format!("--config={}", home.join("kubelet.json").display()),
        format!("--kubeconfig={}", home.join("kubelet.kubeconfig").display()),
        format!("--hostname-override={NAME}"),
        format!("--node-ip={ADDRESS}"),
    ];
    Process::of(home, tools::KUBELET.name).start(&programs.kubelet, &flags)?;
    std::fs::write(home.join("kube-proxy.json"), proxy_config(home))?;
    let flags = [format!("--config={}", home.join("kube-proxy.json").display())];
    Process::of(home, tools::PROXY.name).start(&programs.proxy, &flags)?;
    wait(home, kubectl)
}

/// Waits until the node is Ready.
pub(crate) fn wait(home: &Path, kubectl: &Path) -> Result<()> {
    let mut fault = Ok(());
    let ready = until(READY_TIMEOUT, || {
        let names = ["containerd", tools::KUBELET.name, tools::PROXY.name];
        fault = names.iter().try_for_each(|name| Process::of(home, name).check());
        fault.is_err() || is_ready(home, kubectl)
    });
    fault?;
    if !ready {
        bail!("the node is not Ready after {} s: see the logs in {}", READY_TIMEOUT.as_secs(), home.display());
    }
    Ok(())
}

/// Whether the node is Ready.
pub(crate) fn is_ready(home: &Path, kubectl: &Path) -> bool {
    let config = home.join("kubeconfig").display().to_string();
    let path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    let args = ["--kubeconfig", &config, "get", "node", NAME, "-o", path];
    output(kubectl, &args).is_ok_and(|status| status == "True")
}

/// Imports an image on the node.
pub(crate) fn import(archive: &Path) -> Result<()> {
    ctr(&["images", "import", &archive.display().to_string()]).map(drop)
}

/// Runs `ctr` in the kubelet's containerd namespace.
pub(crate) fn ctr(args: &[&str]) -> Result<String> {
    let args: Vec<&str> = ["--address", SOCKET, "--namespace", "k8s.io"].iter().chain(args).copied().collect();
    output("ctr", &args)
}

fn containerd_config(home: &Path, plugins: &Path) -> String {
    let (root, cni) = (home.join("containerd"), home.join("cni"));
    let text = |path: &Path| format!("{:?}", path.display().to_string());
    format!(
        r#"version = 2
root = {root}
state = "{RUN}/containerd"
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = {opt}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
# Without CAP_SYS_RESOURCE nobody may lower the score, and every sandbox would die.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {plugins}
conf_dir = {cni}
"#,
        root = text(&root),
        opt = text(&home.join("opt")),
        plugins = text(plugins),
        cni = text(&cni),
    )
}

fn cni_config() -> String {
    json!({
        "cniVersion": "0.4.0", "name": "capstan",
        "plugins": [{
            "type": "bridge", "bridge": BRIDGE, "isGateway": true, "hairpinMode": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": format!("{RUN}/addresses")},
        }],
    })
    .to_string()
}

fn kubelet_config(home: &Path) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": home.join("kubelet-ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        // A small disk must not evict test pods.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": false,
        "makeIPTablesUtilChains": false,
        // There is no cluster DNS: pods use the node's resolver.
        "clusterDNS": [],
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "healthzBindAddress": ADDRESS,
    })
    .to_string()
}

fn proxy_config(home: &Path) -> String {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": NAME,
        "clientConnection": {"kubeconfig": home.join("kube-proxy.kubeconfig")},
        "clusterCIDR": PODS,
        "healthzBindAddress": format!("{ADDRESS}:10256"),
        "metricsBindAddress": format!("{ADDRESS}:10249"),
        "nodePortAddresses": ["primary"],
        // The conntrack table belongs to the machine: do not resize it.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
    .to_string()
}

/// Stops everything on the node and reverts changes to the machine.
pub(crate) fn stop(home: &Path) -> Result<()> {
    for name in [tools::KUBELET.name, tools::PROXY.name] {
        Process::of(home, name).stop()?;
    }
    let mut left = Vec::new();
    let ended = until(Duration::from_secs(20), || {
        left = [pods(), shims()].concat();
        left.is_empty() || kill("KILL", &left).is_err()
    });
    if !ended {
        bail!("processes of pods do not end: {left:?}");
    }
    Process::of(home, "containerd").stop()?;
    let made_folder = home.join(KUBELET_CREATED).exists();
    unmount(|target| {
        let ours = [Path::new(RUN), Path::new(KUBELET), home];
        // The kubelet bind-mounts its directory onto itself.
        let inside = ours.iter().any(|folder| target.starts_with(folder) && target != *folder);
        inside || (made_folder && target == Path::new(KUBELET))
    })?;
    remove_cgroups();
    // Neither exists if `up` failed before.
    for family in ["ip", "ip6"] {
        let _ = output("nft", &["delete", "table", family, "kube-proxy"]);
    }
    let _ = output("ip", &["link", "delete", BRIDGE]);
    remove(Path::new(RUN))?;
    for (file, _) in SYSCTLS {
        if let Ok(before) = std::fs::read_to_string(home.join(sysctl_file(file))) {
            std::fs::write(file, before)?;
        }
    }
    if made_folder {
        remove(Path::new(KUBELET))?;
    }
    Ok(())
}

/// Processes of pod containers.
fn pods() -> Vec<u32> {
    let mut pids = Vec::new();
    for folder in cgroups() {
        let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid != 0));
    }
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Shims of our containerd, one per pod.
fn shims() -> Vec<u32> {
    let ours = |line: &str| program(line).starts_with("containerd-shim") && line.contains(SOCKET);
    processes().into_iter().filter(|(_, line)| ours(line)).map(|(pid, _)| pid).collect()
}

/// All cgroups below the kubelet's, innermost first.
fn cgroups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let root = Path::new("/sys/fs/cgroup");
    let controllers =
        std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path().join("kubepods"));
    let mut waiting: Vec<PathBuf> = controllers.chain([root.join("kubepods")]).filter(|path| path.is_dir()).collect();
    while let Some(folder) = waiting.pop() {
        let inner = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        waiting.extend(inner.filter(|path| path.is_dir()));
        found.push(folder);
    }
    found.reverse();
    found
}

fn remove_cgroups() {
    // A cgroup can be busy shortly after its last process exits.
    until(Duration::from_secs(5), || {
        cgroups().iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
        cgroups().is_empty()
    });
}

/// Unmounts everything, or fails: mounted directories must not be removed recursively.
fn unmount(ours: impl Fn(&Path) -> bool) -> Result<()> {
    let mounted = || -> Result<Vec<String>> {
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let targets = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        Ok(targets.filter(|target| ours(Path::new(target))).map(str::to_owned).collect())
    };
    // Inner mounts were mounted later.
    for target in mounted()?.iter().rev() {
        let _ = output("umount", &["--lazy", target]);
    }
    match mounted()?.first() {
        Some(left) => bail!("{left} is still mounted"),
        None => Ok(()),
    }
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// All processes with their command lines.
fn processes() -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    pids.filter_map(line).collect()
}

fn program(line: &str) -> &str {
    let first = line.split(' ').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default()
}
