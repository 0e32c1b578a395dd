//! `cargo xtask cluster up|down`: a real Kubernetes control plane on loopback, with RBAC on.

mod tools;

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use tools::Tool;

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Start etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and print the kubeconfig's path
    Up,
    /// End everything that `up` started, and remove its data
    Down,
    /// Find or build the programs, and print where they are
    Tools,
}

/// How long the control plane may take to answer.
const READY: Duration = Duration::from_secs(90);

pub(crate) fn run(root: &Path, action: &Action) -> Result<()> {
    match action {
        Action::Up => up(root),
        Action::Down => down(),
        Action::Tools => {
            for tool in tools::ALL {
                println!("{} {}", tool.name, tool.find(root)?.display());
            }
            Ok(())
        }
    }
}

fn home() -> Result<PathBuf> {
    Ok(tools::cache()?.join("cluster"))
}

fn up(root: &Path) -> Result<()> {
    let kubectl = tools::KUBECTL.find(root)?;
    let home = home()?;
    let kubeconfig = home.join("kubeconfig");
    if answers(&kubectl, &kubeconfig) {
        println!("{}", kubeconfig.display());
        return Ok(());
    }
    let programs = [&tools::ETCD, &tools::API_SERVER, &tools::CONTROLLERS, &tools::SCHEDULER];
    let paths = programs.iter().map(|tool| tool.find(root)).collect::<Result<Vec<_>>>()?;
    down()?;
    std::fs::create_dir_all(&home)?;
    let (client, peer, port) = (free_port()?, free_port()?, free_port()?);
    write_credentials(&home, port)?;
    let [etcd, api_server, controllers, scheduler] = paths.as_slice() else { bail!("there are four programs") };
    start(&home, &tools::ETCD, etcd, &etcd_flags(&home, client, peer))?;
    start(&home, &tools::API_SERVER, api_server, &api_server_flags(&home, client, port))?;
    let result = wait(&home, &kubectl, &kubeconfig);
    if result.is_err() {
        down()?;
    }
    result?;
    let config = format!("--kubeconfig={}", kubeconfig.display());
    let key = format!("--service-account-private-key-file={}", home.join("accounts.key").display());
    let ca = format!("--root-ca-file={}", home.join("certs/apiserver.crt").display());
    let leader = "--leader-elect=false".to_owned();
    start(&home, &tools::CONTROLLERS, controllers, &[config.clone(), leader.clone(), key, ca])?;
    start(&home, &tools::SCHEDULER, scheduler, &[config, leader])?;
    println!("{}", kubeconfig.display());
    Ok(())
}

fn etcd_flags(home: &Path, client: u16, peer: u16) -> Vec<String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    vec![
        format!("--data-dir={}", home.join("etcd").display()),
        // Data of a test need not outlive a power cut.
        "--unsafe-no-fsync".into(),
        "--log-level=error".into(),
        format!("--listen-client-urls={}", url(client)),
        format!("--advertise-client-urls={}", url(client)),
        format!("--listen-peer-urls={}", url(peer)),
        format!("--initial-advertise-peer-urls={}", url(peer)),
        format!("--initial-cluster=default={}", url(peer)),
    ]
}

fn api_server_flags(home: &Path, etcd: u16, port: u16) -> Vec<String> {
    let file = |name: &str| home.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        format!("--cert-dir={}", file("certs")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".into(),
        "--service-cluster-ip-range=10.0.0.0/16".into(),
        "--allow-privileged=true".into(),
    ]
}

/// Keys of service accounts, an administrator's token, and the kubeconfig with it.
fn write_credentials(home: &Path, port: u16) -> Result<()> {
    let key = rcgen::KeyPair::generate().context("cannot make a key")?;
    std::fs::write(home.join("accounts.key"), key.serialize_pem())?;
    std::fs::write(home.join("accounts.pub"), key.public_key_pem())?;
    let token: String = key.public_key_raw().iter().take(24).map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(home.join("tokens.csv"), format!("{token},admin,admin,system:masters\n"))?;
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "capstan",
        "clusters": [{"name": "capstan", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": home.join("certs/apiserver.crt"),
        }}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "capstan", "context": {"cluster": "capstan", "user": "admin"}}],
    });
    Ok(std::fs::write(home.join("kubeconfig"), config.to_string())?)
}

/// Starts a program in a process group of its own, so that it outlives us until `down`.
fn start(home: &Path, tool: &Tool, path: &Path, flags: &[String]) -> Result<()> {
    let log = File::create(home.join(format!("{}.log", tool.name)))?;
    let child = Command::new(path)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", path.display()))?;
    Ok(std::fs::write(home.join(format!("{}.pid", tool.name)), child.id().to_string())?)
}

fn wait(home: &Path, kubectl: &Path, kubeconfig: &Path) -> Result<()> {
    let begin = Instant::now();
    while !answers(kubectl, kubeconfig) {
        for tool in [&tools::ETCD, &tools::API_SERVER] {
            if !alive(home, tool) {
                let log = std::fs::read_to_string(home.join(format!("{}.log", tool.name))).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(3).collect();
                bail!("{} ended: {}", tool.name, tail.join(" | "));
            }
        }
        if begin.elapsed() > READY {
            bail!("the API server does not answer after {} s: see the logs in {}", READY.as_secs(), home.display());
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    Ok(())
}

fn answers(kubectl: &Path, kubeconfig: &Path) -> bool {
    let mut command = Command::new(kubectl);
    command.arg("--kubeconfig").arg(kubeconfig).args(["get", "--raw", "/readyz", "--request-timeout=2s"]);
    command.output().is_ok_and(|output| output.status.success())
}

fn down() -> Result<()> {
    let home = home()?;
    // Clients before servers.
    for tool in [&tools::SCHEDULER, &tools::CONTROLLERS, &tools::API_SERVER, &tools::ETCD] {
        stop(&home, tool)?;
    }
    match std::fs::remove_dir_all(&home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn pid(home: &Path, tool: &Tool) -> Option<u32> {
    let pid: u32 = std::fs::read_to_string(home.join(format!("{}.pid", tool.name))).ok()?.trim().parse().ok()?;
    // A number that the system gave to another program since is not ours.
    let name = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    String::from_utf8_lossy(&name).contains(tool.name).then_some(pid)
}

fn alive(home: &Path, tool: &Tool) -> bool {
    pid(home, tool).is_some()
}

fn stop(home: &Path, tool: &Tool) -> Result<()> {
    for signal in ["-TERM", "-KILL"] {
        let Some(pid) = pid(home, tool) else { return Ok(()) };
        Command::new("kill").args([signal, &pid.to_string()]).status().context("cannot run kill")?;
        let begin = Instant::now();
        while alive(home, tool) && begin.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).context("no free port")?.local_addr()?.port())
}
