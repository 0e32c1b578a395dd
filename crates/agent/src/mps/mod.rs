//! Runs MPS control daemons: one for each resource that is shared through MPS.
//!
//! `plan` decides which daemons run; `daemon` supervises one and maintains its `.started` file, which the device plugin
//! watches: devices of a stopped daemon are unhealthy. A config change restarts only the daemons it affects, since a
//! restart kills their clients.

mod daemon;
mod plan;
mod shm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_hw::gpu::nvidia::driver::Roots;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use daemon::send_command;
pub(crate) use plan::{Daemon, plan, within_limits};

use crate::config::{self, Flags, InvalidValue, MigStrategy, ResourceName};
use crate::device_plugin::{KernelFiles, Platform, Settings, build_resources, word};
use crate::files::Changes;
use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result, files};

/// The MPS control program: daemon and client in one.
const PROGRAM: &str = "nvidia-cuda-mps-control";
/// A command that every running daemon answers.
const PING_COMMAND: &str = "get_default_active_thread_percentage";
/// Resync interval, and maximum backoff.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);

/// Flags of the MPS daemon.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// The config file, shared with the device plugin.
    #[arg(long, env = "CONFIG_FILE")]
    pub config_file: Option<PathBuf>,
    /// MIG strategy: none, single or mixed.
    #[arg(long, env = "MIG_STRATEGY")]
    pub mig_strategy: Option<String>,
    /// What to do instead of running daemons.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What else the MPS role does.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Mount the shared memory that daemons and their clients use
    MountShm,
}

/// This role's entry in the agent's list.
pub(crate) const ROLE: Entry =
    entry!(capstan_node::MPS_CONTROL_DAEMON.name, "Run MPS control daemons for shared GPUs", Options, run);

/// MPS directory of a resource.
pub(crate) fn directory(root: &Path, resource: &ResourceName) -> PathBuf {
    root.join("mps").join(resource.as_str())
}

/// Whether the `.started` file of a resource's daemon exists.
pub(crate) fn started(root: &Path, resource: &ResourceName) -> bool {
    directory(root, resource).join(".started").exists()
}

/// Checks that the daemon of a resource responds.
pub(crate) async fn ping(root: &Path, roots: &Roots, resource: &ResourceName) -> Result<(), String> {
    if !started(root, resource) {
        return Err("it has not started".into());
    }
    send_command(roots, &directory(root, resource).join("pipe"), PING_COMMAND).await.map(drop)
}

/// Runs the daemons until stopped, or mounts their shared memory.
pub async fn run(options: Options, cx: Cx) -> Result<()> {
    if let Some(Command::MountShm) = options.command {
        return shm::mount(&cx.root);
    }
    let options = Options { config_file: cx.path_of(options.config_file), ..options };
    let mut hangup = signal(SignalKind::hangup()).map_err(|source| Error::Io { what: "SIGHUP".into(), source })?;
    let mut supervisor = DaemonSupervisor { cx: cx.clone(), running: BTreeMap::new(), changed: watch::Sender::new(()) };
    let mut changed = supervisor.changed.subscribe();
    let ready = cx.root.join("mps/.ready");
    loop {
        let dir = options.config_file.as_deref().and_then(Path::parent).map(Path::to_owned);
        let mut changes = Changes::of(&dir.as_deref().into_iter().collect::<Vec<_>>());
        match desired_daemons(&options, &cx).await {
            Ok(daemons) => supervisor.reconcile(daemons).await,
            Err(error @ Error::Hardware(_)) => tracing::warn!(%error, "GPUs not readable; retrying"),
            Err(error) => {
                supervisor.reconcile(Vec::new()).await;
                return Err(error);
            }
        }
        let next_pass = async {
            loop {
                supervisor.write_ready_file(&ready);
                tokio::select! {
                    () = changes.next(RESYNC_INTERVAL) => return,
                    _ = hangup.recv() => return,
                    _ = changed.changed() => {}
                }
            }
        };
        tokio::select! {
            () = cx.stop.cancelled() => break,
            () = next_pass => {}
        }
    }
    supervisor.reconcile(Vec::new()).await;
    files::remove(&ready)
}

/// The daemons for the current config and hardware.
async fn desired_daemons(options: &Options, cx: &Cx) -> Result<Vec<Daemon>> {
    let text = match options.config_file.as_ref().filter(|file| !file.as_os_str().is_empty()) {
        None => String::new(),
        Some(file) => std::fs::read_to_string(file)
            .map_err(|source| Error::Io { what: format!("cannot read the config {}", file.display()), source })?,
    };
    let settings = settings(options, &text)?;
    let (source, root) = (cx.hardware.clone(), cx.root.clone());
    let result = tokio::task::spawn_blocking(move || {
        let inventory = source.get()?.inventory()?;
        let kernel = KernelFiles::read(&root, &inventory);
        Ok::<_, Error>((inventory, kernel))
    });
    let (inventory, kernel) = result.await.map_err(|error| Error::External(error.to_string()))??;
    let built = build_resources(Platform::Nvml, &inventory, &settings, &kernel)?;
    Ok(plan(&built.resources, &settings.sharing))
}

fn settings(options: &Options, text: &str) -> Result<Settings, InvalidValue> {
    let flags = Flags {
        mig_strategy: word("--mig-strategy", options.mig_strategy.as_deref(), MigStrategy::CHOICES)?,
        // The host path matters to containers only; this process always uses /mps.
        mps_root: Some("/mps".into()),
        ..Flags::default()
    };
    let parsed = config::parse(text)?;
    for warning in parsed.warnings {
        tracing::warn!(warning, "config warning");
    }
    Settings::resolve(flags, parsed.config)
}

/// The running daemons.
struct DaemonSupervisor {
    cx: Cx,
    running: BTreeMap<ResourceName, Running>,
    changed: watch::Sender<()>,
}

struct Running {
    daemon: Daemon,
    up: watch::Receiver<bool>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl DaemonSupervisor {
    /// Stops daemons that are no longer wanted or changed, and starts missing ones.
    async fn reconcile(&mut self, wanted: Vec<Daemon>) {
        let unchanged = |running: &Running| wanted.contains(&running.daemon);
        let gone: Vec<ResourceName> =
            self.running.iter().filter(|(_, running)| !unchanged(running)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            if let Some(running) = self.running.remove(&name) {
                running.stop.cancel();
                let _ = running.task.await;
            }
        }
        for daemon in wanted {
            if !self.running.contains_key(&daemon.resource) {
                let (stop, (up_sender, up)) = (CancellationToken::new(), watch::channel(false));
                let supervised =
                    daemon::supervise(daemon.clone(), self.cx.clone(), up_sender, self.changed.clone(), stop.clone());
                let task = tokio::spawn(supervised);
                self.running.insert(daemon.resource.clone(), Running { daemon, up, stop, task });
            }
        }
    }

    /// Writes the ready file if all daemons run, else removes it.
    fn write_ready_file(&self, ready: &Path) {
        let all = !self.running.is_empty() && self.running.values().all(|running| *running.up.borrow());
        let written = if all { files::write(ready, b"") } else { files::remove(ready) };
        if let Err(error) = written {
            tracing::warn!(%error, "MPS readiness file not written");
        }
    }
}

#[cfg(test)]
mod tests;
