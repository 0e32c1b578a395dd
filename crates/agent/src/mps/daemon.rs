//! Supervises one MPS control daemon: runs it in the foreground, restarts it with backoff, and maintains its `.started`
//! file.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use capstan_hw::gpu::nvidia::driver::Roots;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Daemon, PING_COMMAND, PROGRAM, RESYNC_INTERVAL, directory};
use crate::files::{self, Changes};
use crate::{Cx, Error, Result};

/// Timeout of the daemon's start and shutdown.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(30);
/// First restart backoff.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
/// Timeout of one control command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends a control command to the daemon of a pipe directory, with a timeout.
pub(crate) async fn send_command(roots: &Roots, pipe: &Path, command: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{PROGRAM}: {error}");
    let mut child = tokio::process::Command::from(program(roots)?)
        .env("CUDA_MPS_PIPE_DIRECTORY", pipe)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let output = async {
        if let Some(mut input) = child.stdin.take() {
            // A program that already exited reports the reason in its output.
            let _ = input.write_all(format!("{command}\n").as_bytes()).await;
        }
        child.wait_with_output().await.map_err(failed)
    };
    let late = |_| format!("{command}: no answer in {} s", COMMAND_TIMEOUT.as_secs());
    let output = tokio::time::timeout(COMMAND_TIMEOUT, output).await.map_err(late)??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{command}: {} {}", text(&output.stdout), text(&output.stderr))),
    }
}

fn program(roots: &Roots) -> Result<Command, String> {
    let missing = || format!("no {PROGRAM} below {}; is the driver installed?", roots.here.display());
    roots.program(PROGRAM).map(Command::new).ok_or_else(missing)
}

/// Directories and files of one daemon.
struct DaemonPaths {
    pipe: PathBuf,
    log: PathBuf,
    started: PathBuf,
}

impl DaemonPaths {
    fn of(cx: &Cx, daemon: &Daemon) -> Self {
        let dir = directory(&cx.root, &daemon.resource);
        Self { pipe: dir.join("pipe"), log: dir.join("log"), started: dir.join(".started") }
    }

    fn make(&self, root: &Path) -> Result<()> {
        for dir in [&self.pipe, &self.log] {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(dir)
                .map_err(|source| Error::Io { what: format!("cannot make {}", dir.display()), source })?;
        }
        super::shm::relabel(root, &self.pipe);
        Ok(())
    }
}

/// Supervises a daemon until stopped. `up` is whether it runs; `changed` notifies when that changes.
pub(super) async fn supervise(
    daemon: Daemon,
    cx: Cx,
    up: watch::Sender<bool>,
    changed: watch::Sender<()>,
    stop: CancellationToken,
) {
    let paths = DaemonPaths::of(&cx, &daemon);
    let mut backoff = MIN_BACKOFF;
    while !stop.is_cancelled() {
        let begin = Instant::now();
        let ran = run(&daemon, &cx, &paths, &up, &changed, &stop).await;
        let _ = files::remove(&paths.started);
        up.send_replace(false);
        changed.send_replace(());
        match ran {
            Ok(()) if stop.is_cancelled() => break,
            Ok(()) => tracing::warn!(resource = %daemon.resource, "MPS daemon exited; restarting"),
            Err(error) => tracing::warn!(resource = %daemon.resource, %error, "MPS daemon failed; retrying"),
        }
        if begin.elapsed() > RESYNC_INTERVAL {
            // It ran for a while: reset the backoff.
            backoff = MIN_BACKOFF;
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(backoff) => backoff = (backoff * 2).min(RESYNC_INTERVAL),
        }
    }
    let _ = std::fs::remove_dir_all(&paths.log);
    set_exclusive_mode(&daemon, &cx, false).await.unwrap_or_else(|error| {
        tracing::warn!(resource = %daemon.resource, %error, "exclusive compute mode not reset");
    });
}

/// One run of the daemon, from start to exit.
async fn run(
    daemon: &Daemon,
    cx: &Cx,
    paths: &DaemonPaths,
    up: &watch::Sender<bool>,
    changed: &watch::Sender<()>,
    stop: &CancellationToken,
) -> Result<()> {
    paths.make(&cx.root)?;
    set_exclusive_mode(daemon, cx, true).await?;
    let mut command = tokio::process::Command::from(program(&cx.roots).map_err(Error::External)?);
    command
        .arg("-f")
        .env("CUDA_MPS_PIPE_DIRECTORY", &paths.pipe)
        .env("CUDA_MPS_LOG_DIRECTORY", &paths.log)
        .env("CUDA_VISIBLE_DEVICES", daemon.gpus.join(","))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|source| Error::Io { what: format!("cannot start {PROGRAM}"), source })?;
    let starting = async {
        let mut changes = Changes::of(&[&paths.pipe]);
        while send(cx, paths, PING_COMMAND).await.is_err() {
            changes.next(Duration::from_secs(1)).await;
        }
        for command in daemon.commands() {
            send(cx, paths, &command).await?;
        }
        files::write(&paths.started, b"")
    };
    let ended = |status: std::io::Result<std::process::ExitStatus>| {
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        Error::External(format!("{PROGRAM} ended before it answered: {status}"))
    };
    tokio::select! {
        () = stop.cancelled() => return quit(cx, paths, &mut child).await,
        status = child.wait() => return Err(ended(status)),
        started = tokio::time::timeout(DAEMON_TIMEOUT, starting) => match started {
            Ok(started) => started?,
            Err(_) => return Err(Error::External(format!("{PROGRAM} does not answer"))),
        },
    }
    tracing::info!(resource = %daemon.resource, gpus = daemon.gpus.len(), "MPS daemon started");
    up.send_replace(true);
    changed.send_replace(());
    tokio::select! {
        () = stop.cancelled() => quit(cx, paths, &mut child).await,
        _ = child.wait() => Ok(()),
        () = forward_log(paths) => Ok(()),
    }
}

/// Sends a control command to this daemon.
async fn send(cx: &Cx, paths: &DaemonPaths, command: &str) -> Result<String> {
    send_command(&cx.roots, &paths.pipe, command).await.map_err(Error::External)
}

/// Stops the daemon: the `quit` command first, then SIGKILL.
async fn quit(cx: &Cx, paths: &DaemonPaths, child: &mut tokio::process::Child) -> Result<()> {
    if let Err(error) = send(cx, paths, "quit").await {
        tracing::warn!(%error, "MPS daemon shutdown request failed");
    } else if tokio::time::timeout(DAEMON_TIMEOUT, child.wait()).await.is_ok() {
        return Ok(());
    }
    child.kill().await.map_err(|source| Error::Io { what: format!("cannot end {PROGRAM}"), source })
}

/// Sets or clears exclusive compute mode, in which only the MPS daemon may use the GPUs.
async fn set_exclusive_mode(daemon: &Daemon, cx: &Cx, exclusive: bool) -> Result<()> {
    let (source, gpus) = (cx.hardware.clone(), daemon.gpus.clone());
    let set = tokio::task::spawn_blocking(move || {
        let hardware = source.get()?;
        gpus.iter().try_for_each(|gpu| hardware.set_exclusive(gpu, exclusive))
    });
    Ok(set.await.map_err(|error| Error::External(error.to_string()))??)
}

/// Copies the daemon's log to ours while it runs.
async fn forward_log(paths: &DaemonPaths) {
    let (file, mut read) = (paths.log.join("control.log"), 0);
    loop {
        let mut changes = Changes::of(&[&paths.log]);
        if let Ok(more) = since(&file, read) {
            read += more.len() as u64;
            String::from_utf8_lossy(&more).lines().for_each(|line| tracing::info!(target: "mps", "{line}"));
        }
        changes.next(RESYNC_INTERVAL).await;
    }
}

fn since(file: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(file)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}
