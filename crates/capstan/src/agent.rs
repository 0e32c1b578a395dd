//! `capstan agent`: node agent, one role or several in one process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use capstan_agent::files::Changes;
use capstan_agent::roles::Role;
use capstan_agent::supervise::{Settings, serve_health, supervise};
use capstan_agent::{Cx, listen_address};
use capstan_hw::fake::{Fake, Faults, Model, Recording, node};
use capstan_hw::gpu::nvidia::Source;
use capstan_hw::gpu::nvidia::driver::Roots;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{logging, memory};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run several roles in one process, each configured by its own environment variables
    #[arg(long, value_delimiter = ',', value_name = "ROLE,…")]
    roles: Vec<String>,
    /// Driver root on the host
    #[arg(long, env = "NVIDIA_DRIVER_ROOT", default_value = "/", value_name = "DIR")]
    host_driver_root: PathBuf,
    /// Mount point of the driver root in this container [default: /driver-root if it exists, else /]
    #[arg(long, env = "DRIVER_ROOT_CTR_PATH", value_name = "DIR")]
    mounted_driver_root: Option<PathBuf>,
    /// Root of the driver's /dev on the host
    #[arg(long, env = "NVIDIA_DEV_ROOT", value_name = "DIR")]
    host_dev_root: Option<PathBuf>,
    /// With --roles, run each role only while its node label is true (nvidia.com/gpu.deploy.device-plugin …)
    #[arg(long, env = "FOLLOW_NODE_LABELS", num_args = 0..=1, default_value_t = false, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    follow_node_labels: bool,
    /// Name of this node
    #[arg(long, env = "NODE_NAME", default_value = "", value_name = "NAME")]
    node_name: String,
    /// With --roles, address of /health and /metrics, such as :8080; disabled by default
    #[arg(long, env = "HEALTH_ADDRESS", value_name = "ADDRESS", value_parser = listen_address)]
    health_address: Option<SocketAddr>,
    /// Simulate GPUs: 8xH200, or a recording file
    #[arg(long, env = "CAPSTAN_FAKE_GPUS", value_name = "GPUS")]
    fake: Option<String>,
    /// File with faults of simulated GPUs, reloaded on change: lines of `3 xid 48`, `3 lost`, `3 reset`
    #[arg(long, env = "CAPSTAN_FAKE_FAULTS", value_name = "FILE", requires = "fake")]
    fake_faults: Option<PathBuf>,
    #[command(flatten)]
    log: logging::Flags,
    #[command(subcommand)]
    role: Option<Role>,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    logging::init(&args.log)?;
    let started = match (args.role, args.roles.as_slice()) {
        (Some(role), []) => Started::Alone(role),
        (None, names @ [_, ..]) => {
            let roles = names.iter().map(|name| Role::from_env_lenient(name).map_err(|error| anyhow!("{error}")));
            Started::Supervised(roles.collect::<Result<_>>()?)
        }
        (Some(_), _) => bail!("give one role as a command, or several with --roles, not both"),
        (None, []) => bail!("say which role: one as a command (see --help), or several with --roles"),
    };
    let mounted_root = args.mounted_driver_root.unwrap_or_else(|| {
        let mounted = Path::new("/driver-root");
        if mounted.is_dir() { mounted.into() } else { "/".into() }
    });
    let roots = Roots::new(args.host_driver_root, mounted_root, args.host_dev_root);
    let stop = CancellationToken::new();
    tokio::spawn(wait_for_termination(stop.clone()));
    tokio::spawn(memory::release_memory_periodically(stop.clone()));
    let hardware = match &args.fake {
        None => Source::nvml(roots.clone()),
        Some(text) => {
            let fake = Arc::new(Fake::new(parse_fake(text)?));
            if let Some(file) = args.fake_faults {
                tokio::spawn(stop.clone().run_until_cancelled_owned(apply_faults(fake.clone(), file)));
            }
            Source::of(fake)
        }
    };
    let cx = Cx::new(Arc::new(hardware), roots, "/", stop);
    let ended = match started {
        // It exits with its error; the kubelet restarts the container.
        Started::Alone(role) => role.run(cx).await,
        Started::Supervised(roles) => {
            if let Some(address) = args.health_address {
                serve_health(address, cx.health.clone(), cx.stop.clone()).await.map_err(|error| anyhow!("{error}"))?;
            }
            let settings = Settings {
                node_name: args.node_name,
                follow_node_labels: args.follow_node_labels,
                ..Settings::default()
            };
            supervise(roles, settings, cx).await
        }
    };
    ended.map_err(|error| anyhow!("{error}"))
}

/// Mode of this process.
enum Started {
    /// One role; no node label enables it.
    Alone(Role),
    /// Several roles in one pod, each enabled by its node label.
    Supervised(Vec<Role>),
}

/// Maps the name of a symlink to this program to a subcommand: container runtimes run hooks by path, without arguments.
pub(crate) fn expand_program_name(mut words: Vec<String>) -> Vec<String> {
    let name = words.first().and_then(|path| Path::new(path).file_name()?.to_str()).unwrap_or_default();
    let command: &[&str] = match (name, words.get(1).map(String::as_str)) {
        ("nvidia-cdi-hook", _) => &["agent", "hook"],
        ("nvidia-ctk", Some("hook" | "cdi")) => &["agent"],
        _ => &[],
    };
    words.splice(1..1, command.iter().map(ToString::to_string));
    words
}

async fn wait_for_termination(stop: CancellationToken) {
    let (Ok(mut term), Ok(mut int), Ok(mut quit)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::quit()))
    else {
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        _ = quit.recv() => {}
    }
    stop.cancel();
}

/// Injects the faults of a file into simulated GPUs, now and on every change.
async fn apply_faults(fake: Arc<Fake>, file: PathBuf) {
    let dir = file.parent().map(Path::to_owned).unwrap_or_default();
    let mut before = Faults::default();
    loop {
        let mut changes = Changes::of(&[&dir]);
        match std::fs::read_to_string(&file).unwrap_or_default().parse::<Faults>() {
            Ok(now) => {
                fake.apply_faults(&before, &now);
                before = now;
            }
            Err(why) => tracing::warn!(file = %file.display(), why, "faults file invalid; keeping the previous faults"),
        }
        changes.next(Duration::from_secs(3600)).await;
    }
}

/// Parses `8xH200`, or reads a recording file.
fn parse_fake(text: &str) -> Result<Recording> {
    let known = text.split_once('x').and_then(|(count, model)| {
        let model = Model::ALL.into_iter().find(|each| format!("{each:?}").eq_ignore_ascii_case(model))?;
        Some((count.parse::<u32>().ok().filter(|count| (1..=16).contains(count))?, model))
    });
    if let Some((count, model)) = known {
        return Ok(node(model, count));
    }
    let names: Vec<String> = Model::ALL.iter().map(|model| format!("{model:?}")).collect();
    let file = std::fs::read_to_string(text).with_context(|| {
        format!("--fake {text} is neither a recording's file nor like 8xH200; models are {}", names.join(", "))
    })?;
    serde_json::from_str(&file).with_context(|| format!("--fake {text} is no recording"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stands_for_a_command() {
        let called =
            |words: &[&str]| expand_program_name(words.iter().map(ToString::to_string).collect())[1..].join(" ");
        assert_eq!(
            called(&["/usr/local/nvidia/toolkit/nvidia-cdi-hook", "update-ldcache"]),
            "agent hook update-ldcache"
        );
        assert_eq!(called(&["nvidia-ctk", "hook", "chmod"]), "agent hook chmod");
        assert_eq!(called(&["capstan", "crds"]), "crds");
        assert_eq!(called(&["capstan"]), "");
    }

    #[test]
    fn gpus_are_made_up_by_count_and_model() {
        assert_eq!(parse_fake("8xH200").expect("a node").inventory.gpus.len(), 8);
        assert_eq!(parse_fake("2xgb200").expect("a node").inventory.gpus[0].name, "NVIDIA GB200");
        for text in ["0xH200", "99xH200", "8xK80", "", "H200"] {
            let error = format!("{:#}", parse_fake(text).expect_err(text));
            assert!(error.contains("models are A100"), "{error}");
        }
    }
}
