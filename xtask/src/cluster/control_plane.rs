//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler: flags, keys, tokens and kubeconfigs.

use std::net::{IpAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;

use super::process::{Process, until};
use super::tools::{self, Tool};

/// Timeout until the control plane is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(90);

/// Port range of servers: outside the ephemeral ports, or a client that reconnects to a stopped server could take its
/// port; and outside the node ports.
const PORTS: Range<u16> = 20_000..30_000;

/// Audit log, as JSON lines.
pub(crate) const AUDIT_LOG: &str = "audit.log";

/// Service CIDR.
pub(crate) const SERVICES: &str = "10.96.0.0/16";

/// User of an operator outside the cluster, without any permissions.
pub(crate) const OPERATOR: &str = "capstan-operator";

/// In stop order: clients before servers.
const ALL: [&Tool; 4] = [&tools::SCHEDULER, &tools::CONTROLLERS, &tools::API_SERVER, &tools::ETCD];

/// Users of the API server, with their RBAC name and group.
const USERS: &[(&str, &str, &str)] = &[
    ("admin", "admin", "system:masters"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
    ("kube-proxy", "system:kube-proxy", ""),
    ("operator", OPERATOR, ""),
    ("kubelet", concat!("system:node:", "capstan"), "system:nodes"),
];

/// Paths of the programs.
pub(crate) struct Programs {
    pub(crate) etcd: PathBuf,
    pub(crate) api_server: PathBuf,
    pub(crate) controllers: PathBuf,
    pub(crate) scheduler: PathBuf,
    pub(crate) kubectl: PathBuf,
}

impl Programs {
    pub(crate) fn find(root: &Path) -> Result<Self> {
        Ok(Self {
            etcd: tools::ETCD.find(root)?,
            api_server: tools::API_SERVER.find(root)?,
            controllers: tools::CONTROLLERS.find(root)?,
            scheduler: tools::SCHEDULER.find(root)?,
            kubectl: tools::KUBECTL.find(root)?,
        })
    }
}

/// Starts the control plane on `address` and waits until it is ready.
pub(crate) fn start(home: &Path, programs: &Programs, address: IpAddr) -> Result<()> {
    start_servers(home, programs, address, &[])?;
    process(home, &tools::CONTROLLERS).start(&programs.controllers, &controller_flags(home, address)?)?;
    start_scheduler(home, programs, address, &[])?;
    wait(home, "controllers do not work", || has_account(home, &programs.kubectl))
}

fn start_scheduler(home: &Path, programs: &Programs, address: IpAddr, more: &[String]) -> Result<()> {
    let mut flags = vec![
        format!("--kubeconfig={}", home.join("kube-scheduler.kubeconfig").display()),
        LEADER.to_owned(),
        format!("--bind-address={address}"),
        format!("--secure-port={}", free_port(address)?),
    ];
    flags.extend_from_slice(more);
    process(home, &tools::SCHEDULER).start(&programs.scheduler, &flags)
}

/// Controllers for garbage collection and namespaces only.
const MINIMAL_CONTROLLERS: &str = "--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller,\
                     root-ca-certificate-publisher-controller,clusterrole-aggregation-controller";

/// Starts a control plane without self-initiated changes, so that responses are deterministic, and with a short watch
/// history.
pub(crate) fn start_deterministic(home: &Path, programs: &Programs, address: IpAddr) -> Result<()> {
    start_servers(home, programs, address, &["--etcd-compaction-interval=10s".to_owned()])?;
    let mut flags = controller_flags(home, address)?;
    flags.push(MINIMAL_CONTROLLERS.to_owned());
    process(home, &tools::CONTROLLERS).start(&programs.controllers, &flags)?;
    wait(home, "controllers do not work", || has_account(home, &programs.kubectl))
}

/// Controllers of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workloads {
    /// Simulated by the caller.
    Simulated,
    /// Real controllers and scheduler, without client rate limits.
    Real,
}

/// Starts a control plane for simulated nodes without heartbeats, with one unlimited audit log.
pub(crate) fn start_simulated(home: &Path, programs: &Programs, address: IpAddr, workloads: Workloads) -> Result<()> {
    // No controller would remove the taint of a new node.
    let flags = ["--disable-admission-plugins=TaintNodesByCondition", "--audit-log-maxsize=100000"];
    start_servers(home, programs, address, &flags.map(str::to_owned))?;
    let mut flags = controller_flags(home, address)?;
    let pace = ["--kube-api-qps=1000", "--kube-api-burst=2000"].map(str::to_owned);
    match workloads {
        Workloads::Simulated => flags.push(MINIMAL_CONTROLLERS.to_owned()),
        Workloads::Real => {
            flags.push(format!(
                "{MINIMAL_CONTROLLERS},daemonset-controller,deployment-controller,replicaset-controller"
            ));
            start_scheduler(home, programs, address, &pace)?;
        }
    }
    flags.extend(pace);
    process(home, &tools::CONTROLLERS).start(&programs.controllers, &flags)?;
    wait(home, "controllers do not work", || has_account(home, &programs.kubectl))
}

/// Starts etcd and the API server, and waits until it is ready.
fn start_servers(home: &Path, programs: &Programs, address: IpAddr, more: &[String]) -> Result<()> {
    let (client, peer, port) = (free_port(address)?, free_port(address)?, free_port(address)?);
    write_credentials(home, address, port)?;
    write_audit_policy(home)?;
    process(home, &tools::ETCD).start(&programs.etcd, &etcd_flags(home, client, peer))?;
    let mut flags = api_server_flags(home, client, address, port);
    flags.extend_from_slice(more);
    process(home, &tools::API_SERVER).start(&programs.api_server, &flags)?;
    wait(home, "the API server does not answer", || answers(&programs.kubectl, &home.join("kubeconfig")))
}

const LEADER: &str = "--leader-elect=false";

fn controller_flags(home: &Path, address: IpAddr) -> Result<Vec<String>> {
    let file = |name: &str| home.join(name).display().to_string();
    Ok(vec![
        format!("--kubeconfig={}", file("kube-controller-manager.kubeconfig")),
        LEADER.to_owned(),
        format!("--bind-address={address}"),
        format!("--secure-port={}", free_port(address)?),
        // Each controller uses its own account, so that the audit log shows which one sent a request.
        "--use-service-account-credentials=true".into(),
        format!("--service-account-private-key-file={}", file("accounts.key")),
        format!("--root-ca-file={}", file("certs/apiserver.crt")),
    ])
}

/// Kills what [`start`] started: its data is not used again.
pub(crate) fn stop(home: &Path) -> Result<()> {
    for tool in ALL {
        process(home, tool).signal("KILL")?;
        process(home, tool).ended()?;
    }
    Ok(())
}

/// The process of a tool.
pub(crate) fn process(home: &Path, tool: &Tool) -> Process {
    Process::of(home, tool.name)
}

/// Whether the API server is ready, asked as administrator.
pub(crate) fn answers(kubectl: &Path, kubeconfig: &Path) -> bool {
    let config = kubeconfig.display().to_string();
    let args = ["--kubeconfig", &config, "get", "--raw", "/readyz", "--request-timeout=2s"];
    kubeconfig.is_file() && super::process::output(kubectl, &args).is_ok()
}

/// Whether pods can be created in the namespace `default`: a controller creates its ServiceAccount.
fn has_account(home: &Path, kubectl: &Path) -> bool {
    let config = home.join("kubeconfig").display().to_string();
    super::process::output(kubectl, &["--kubeconfig", &config, "get", "serviceaccount", "default"]).is_ok()
}

fn wait(home: &Path, otherwise: &str, done: impl Fn() -> bool) -> Result<()> {
    let mut fault = Ok(());
    let answered = until(READY_TIMEOUT, || {
        let running = ALL.iter().map(|tool| process(home, tool)).filter(Process::was_started);
        fault = running.into_iter().try_for_each(|process| process.check());
        fault.is_err() || done()
    });
    fault?;
    if !answered {
        bail!("{otherwise} after {} s: see the logs in {}", READY_TIMEOUT.as_secs(), home.display());
    }
    Ok(())
}

fn etcd_flags(home: &Path, client: u16, peer: u16) -> Vec<String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    vec![
        format!("--data-dir={}", home.join("etcd").display()),
        // Test data need not survive a power cut.
        "--unsafe-no-fsync".into(),
        "--log-level=error".into(),
        format!("--listen-client-urls={}", url(client)),
        format!("--advertise-client-urls={}", url(client)),
        format!("--listen-peer-urls={}", url(peer)),
        format!("--initial-advertise-peer-urls={}", url(peer)),
        format!("--initial-cluster=default={}", url(peer)),
    ]
}

fn api_server_flags(home: &Path, etcd: u16, address: IpAddr, port: u16) -> Vec<String> {
    let file = |name: &str| home.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--secure-port={port}"),
        format!("--bind-address={address}"),
        format!("--cert-dir={}", file("certs")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--allow-privileged=true".into(),
        format!("--audit-policy-file={}", file("audit-policy.json")),
        format!("--audit-log-path={}", file(AUDIT_LOG)),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
    ]
}

/// One line per completed request; no bodies.
fn write_audit_policy(home: &Path) -> Result<()> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
        "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}],
    });
    Ok(std::fs::write(home.join("audit-policy.json"), policy.to_string())?)
}

/// ServiceAccount keys, a kubelet client certificate, and a token and kubeconfig for each user.
fn write_credentials(home: &Path, address: IpAddr, port: u16) -> Result<()> {
    let key = KeyPair::generate().context("cannot make a key")?;
    std::fs::write(home.join("accounts.key"), key.serialize_pem())?;
    std::fs::write(home.join("accounts.pub"), key.public_key_pem())?;
    write_kubelet_client(home)?;
    let mut tokens = String::new();
    for (file, name, group) in USERS {
        let key = KeyPair::generate().context("cannot make a key")?;
        let token: String = key.public_key_raw().iter().skip(1).take(24).map(|byte| format!("{byte:02x}")).collect();
        tokens += &format!("{token},{name},{name},{group}\n");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "capstan",
            "clusters": [{"name": "capstan", "cluster": {
                "server": format!("https://{address}:{port}"),
                "certificate-authority": home.join("certs/apiserver.crt"),
            }}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "capstan", "context": {"cluster": "capstan", "user": name}}],
        });
        let file = if *file == "admin" { "kubeconfig".into() } else { format!("{file}.kubeconfig") };
        std::fs::write(home.join(file), config.to_string())?;
    }
    Ok(std::fs::write(home.join("tokens.csv"), tokens)?)
}

/// The API server's client certificate for kubelets, and its CA.
fn write_kubelet_client(home: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "capstan-kubelets");
    let certificate = authority.self_signed(&key)?;
    std::fs::write(home.join("kubelet-ca.crt"), certificate.pem())?;
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate()?;
    let mut client = CertificateParams::new(Vec::new())?;
    client.distinguished_name.push(DnType::CommonName, "kube-apiserver-kubelet-client");
    client.distinguished_name.push(DnType::OrganizationName, "system:masters");
    client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    std::fs::write(home.join("kubelet-client.crt"), client.signed_by(&key, &issuer)?.pem())?;
    Ok(std::fs::write(home.join("kubelet-client.key"), key.serialize_pem())?)
}

fn free_port(address: IpAddr) -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % u32::from(PORTS.end - PORTS.start))?;
    for _ in PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(first);
        let port = PORTS.start + step % (PORTS.end - PORTS.start);
        if TcpListener::bind((address, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {} to {} is free on {address}", PORTS.start, PORTS.end)
}
