//! Runs the daemons that let processes share a GPU: one for each resource that is shared through MPS.
//!
//! `plan` decides what runs; `daemon` keeps one running and says so in a file, which is what the device plugin
//! watches: it hands out no shared device while its daemon is down. A changed config restarts only the daemons that it
//! changes, since a restart ends their clients.

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

pub(crate) use daemon::ask;
pub(crate) use plan::{Daemon, plan, within_limits};

use crate::config::{self, Flags, MigStrategy, ResourceName, Wrong};
use crate::device_plugin::{Kernel, Platform, Settings, offer, word};
use crate::files::Changes;
use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result, files};

/// The program that is daemon and client in one.
const PROGRAM: &str = "nvidia-cuda-mps-control";
/// A question that any running daemon answers.
const QUESTION: &str = "get_default_active_thread_percentage";
/// Time after which a failed start is tried again, and the hardware looked at.
const RETRY: Duration = Duration::from_secs(30);

/// Flags of the MPS daemon.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// The config file that the device plugin has too.
    #[arg(long, env = "CONFIG_FILE")]
    pub config_file: Option<PathBuf>,
    /// How MIG devices are offered: none, single or mixed.
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

/// This role in the agent's list.
pub(crate) const ROLE: Entry =
    entry!(capstan_node::MPS_CONTROL_DAEMON.name, "Run the daemons that let processes share a GPU", Options, run);

/// Directory of a resource, as this process sees it.
pub(crate) fn directory(root: &Path, resource: &ResourceName) -> PathBuf {
    root.join("mps").join(resource.as_str())
}

/// Whether the daemon of a resource says that it runs.
pub(crate) fn started(root: &Path, resource: &ResourceName) -> bool {
    directory(root, resource).join(".started").exists()
}

/// Whether the daemon of a resource answers; else why not.
pub(crate) async fn answers(root: &Path, roots: &Roots, resource: &ResourceName) -> Result<(), String> {
    if !started(root, resource) {
        return Err("it has not started".into());
    }
    ask(roots, &directory(root, resource).join("pipe"), QUESTION).await.map(drop)
}

/// Runs daemons until told to stop, or mounts their shared memory.
pub async fn run(options: Options, cx: Cx) -> Result<()> {
    if let Some(Command::MountShm) = options.command {
        return shm::mount(&cx.root);
    }
    let options = Options { config_file: cx.path_of(options.config_file), ..options };
    let mut hangup = signal(SignalKind::hangup()).map_err(|source| Error::Io { what: "SIGHUP".into(), source })?;
    let mut keeper = DaemonSupervisor { cx: cx.clone(), running: BTreeMap::new(), changed: watch::Sender::new(()) };
    let mut changed = keeper.changed.subscribe();
    let ready = cx.root.join("mps/.ready");
    loop {
        let dir = options.config_file.as_deref().and_then(Path::parent).map(Path::to_owned);
        let mut changes = Changes::of(&dir.as_deref().into_iter().collect::<Vec<_>>());
        match wanted(&options, &cx).await {
            Ok(daemons) => keeper.keep(daemons).await,
            Err(error @ Error::Hardware(_)) => tracing::warn!(%error, "GPUs not readable; retrying"),
            Err(error) => {
                keeper.keep(Vec::new()).await;
                return Err(error);
            }
        }
        let again = async {
            loop {
                keeper.tell(&ready);
                tokio::select! {
                    () = changes.next(RETRY) => return,
                    _ = hangup.recv() => return,
                    _ = changed.changed() => {}
                }
            }
        };
        tokio::select! {
            () = cx.stop.cancelled() => break,
            () = again => {}
        }
    }
    keeper.keep(Vec::new()).await;
    files::remove(&ready)
}

/// The daemons that config and hardware ask for.
async fn wanted(options: &Options, cx: &Cx) -> Result<Vec<Daemon>> {
    let text = match options.config_file.as_ref().filter(|file| !file.as_os_str().is_empty()) {
        None => String::new(),
        Some(file) => std::fs::read_to_string(file)
            .map_err(|source| Error::Io { what: format!("cannot read the config {}", file.display()), source })?,
    };
    let settings = settings(options, &text)?;
    let (source, root) = (cx.hardware.clone(), cx.root.clone());
    let looked = tokio::task::spawn_blocking(move || {
        let inventory = source.get()?.inventory()?;
        let kernel = Kernel::read(&root, &inventory);
        Ok::<_, Error>((inventory, kernel))
    });
    let (inventory, kernel) = looked.await.map_err(|error| Error::Outside(error.to_string()))??;
    let offered = offer(Platform::Nvml, &inventory, &settings, &kernel)?;
    Ok(plan(&offered.resources, &settings.sharing))
}

fn settings(options: &Options, text: &str) -> Result<Settings, Wrong> {
    let said = Flags {
        mig_strategy: word("--mig-strategy", options.mig_strategy.as_deref(), MigStrategy::CHOICES)?,
        // Where it is on the host matters to containers only; here it is always in the same place.
        mps_root: Some("/mps".into()),
        ..Flags::default()
    };
    let parsed = config::parse(text)?;
    for remark in parsed.remarks {
        tracing::warn!(remark, "config remark");
    }
    Settings::resolve(said, parsed.config)
}

/// The daemons that run.
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
    /// Ends daemons that are not wanted or wanted otherwise, and starts those that are missing.
    async fn keep(&mut self, wanted: Vec<Daemon>) {
        let stays = |running: &Running| wanted.contains(&running.daemon);
        let gone: Vec<ResourceName> =
            self.running.iter().filter(|(_, running)| !stays(running)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            if let Some(running) = self.running.remove(&name) {
                running.stop.cancel();
                let _ = running.task.await;
            }
        }
        for daemon in wanted {
            if !self.running.contains_key(&daemon.resource) {
                let (stop, (up_in, up)) = (CancellationToken::new(), watch::channel(false));
                let kept = daemon::keep(daemon.clone(), self.cx.clone(), up_in, self.changed.clone(), stop.clone());
                let task = tokio::spawn(kept);
                self.running.insert(daemon.resource.clone(), Running { daemon, up, stop, task });
            }
        }
    }

    /// Says in a file whether all daemons run.
    fn tell(&self, ready: &Path) {
        let all = !self.running.is_empty() && self.running.values().all(|running| *running.up.borrow());
        let told = if all { files::write(ready, b"") } else { files::remove(ready) };
        if let Err(error) = told {
            tracing::warn!(%error, "MPS readiness file not written");
        }
    }
}

#[cfg(test)]
mod tests;
