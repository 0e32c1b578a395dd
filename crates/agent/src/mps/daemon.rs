//! Keeps one MPS daemon running: in the foreground, started again when it ends, and with a file that says whether it
//! runs.

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

use super::{Daemon, PROGRAM, QUESTION, RETRY, directory};
use crate::files::{self, Changes};
use crate::{Cx, Error, Result};

/// How long a daemon may take to answer after its start, and to end after it was told to.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait before a daemon that ended is started again, the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long it may take to answer one question.
const ANSWER: Duration = Duration::from_secs(5);

/// Asks the daemon behind a pipe directory; one that hangs is not waited for.
pub(crate) async fn ask(roots: &Roots, pipe: &Path, command: &str) -> Result<String, String> {
    let said = |error: std::io::Error| format!("{PROGRAM}: {error}");
    let mut child = tokio::process::Command::from(program(roots)?)
        .env("CUDA_MPS_PIPE_DIRECTORY", pipe)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(said)?;
    let asked = async {
        if let Some(mut input) = child.stdin.take() {
            // A program that ended already says why in its output.
            let _ = input.write_all(format!("{command}\n").as_bytes()).await;
        }
        child.wait_with_output().await.map_err(said)
    };
    let late = |_| format!("{command}: no answer in {} s", ANSWER.as_secs());
    let output = tokio::time::timeout(ANSWER, asked).await.map_err(late)??;
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

/// Files of one daemon.
struct Places {
    pipe: PathBuf,
    log: PathBuf,
    started: PathBuf,
}

impl Places {
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

/// Keeps a daemon running until told to stop. `up` says whether it runs; `changed` is told when that changes.
pub(super) async fn keep(
    daemon: Daemon,
    cx: Cx,
    up: watch::Sender<bool>,
    changed: watch::Sender<()>,
    stop: CancellationToken,
) {
    let places = Places::of(&cx, &daemon);
    let mut pause = FIRST_PAUSE;
    while !stop.is_cancelled() {
        let begin = Instant::now();
        let ran = run(&daemon, &cx, &places, &up, &changed, &stop).await;
        let _ = files::remove(&places.started);
        up.send_replace(false);
        changed.send_replace(());
        match ran {
            Ok(()) if stop.is_cancelled() => break,
            Ok(()) => tracing::warn!(resource = %daemon.resource, "MPS daemon exited; restarting"),
            Err(error) => tracing::warn!(resource = %daemon.resource, %error, "MPS daemon failed; retrying"),
        }
        if begin.elapsed() > RETRY {
            // That it failed long ago says nothing about now.
            pause = FIRST_PAUSE;
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY),
        }
    }
    let _ = std::fs::remove_dir_all(&places.log);
    exclusive(&daemon, &cx, false).await.unwrap_or_else(|error| {
        tracing::warn!(resource = %daemon.resource, %error, "exclusive compute mode not reset");
    });
}

/// One life of the daemon: from its start until it ends.
async fn run(
    daemon: &Daemon,
    cx: &Cx,
    places: &Places,
    up: &watch::Sender<bool>,
    changed: &watch::Sender<()>,
    stop: &CancellationToken,
) -> Result<()> {
    places.make(&cx.root)?;
    exclusive(daemon, cx, true).await?;
    let mut command = tokio::process::Command::from(program(&cx.roots).map_err(Error::Outside)?);
    command
        .arg("-f")
        .env("CUDA_MPS_PIPE_DIRECTORY", &places.pipe)
        .env("CUDA_MPS_LOG_DIRECTORY", &places.log)
        .env("CUDA_VISIBLE_DEVICES", daemon.gpus.join(","))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|source| Error::Io { what: format!("cannot start {PROGRAM}"), source })?;
    let answering = async {
        let mut changes = Changes::of(&[&places.pipe]);
        while say(cx, places, QUESTION).await.is_err() {
            changes.next(Duration::from_secs(1)).await;
        }
        for command in daemon.commands() {
            say(cx, places, &command).await?;
        }
        files::write(&places.started, b"")
    };
    let ended = |status: std::io::Result<std::process::ExitStatus>| {
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        Error::Outside(format!("{PROGRAM} ended before it answered: {status}"))
    };
    tokio::select! {
        () = stop.cancelled() => return quit(cx, places, &mut child).await,
        status = child.wait() => return Err(ended(status)),
        told = tokio::time::timeout(DAEMON_TIMEOUT, answering) => match told {
            Ok(told) => told?,
            Err(_) => return Err(Error::Outside(format!("{PROGRAM} does not answer"))),
        },
    }
    tracing::info!(resource = %daemon.resource, gpus = daemon.gpus.len(), "MPS daemon started");
    up.send_replace(true);
    changed.send_replace(());
    tokio::select! {
        () = stop.cancelled() => quit(cx, places, &mut child).await,
        _ = child.wait() => Ok(()),
        () = repeat_log(places) => Ok(()),
    }
}

/// Asks this daemon.
async fn say(cx: &Cx, places: &Places, command: &str) -> Result<String> {
    ask(&cx.roots, &places.pipe, command).await.map_err(Error::Outside)
}

/// Ends the daemon: asked first, killed when it does not go.
async fn quit(cx: &Cx, places: &Places, child: &mut tokio::process::Child) -> Result<()> {
    if let Err(error) = say(cx, places, "quit").await {
        tracing::warn!(%error, "MPS daemon shutdown request failed");
    } else if tokio::time::timeout(DAEMON_TIMEOUT, child.wait()).await.is_ok() {
        return Ok(());
    }
    child.kill().await.map_err(|source| Error::Io { what: format!("cannot end {PROGRAM}"), source })
}

/// Lets one process at a time use the GPUs, which is then the daemon, or any number.
async fn exclusive(daemon: &Daemon, cx: &Cx, exclusive: bool) -> Result<()> {
    let (source, gpus) = (cx.hardware.clone(), daemon.gpus.clone());
    let set = tokio::task::spawn_blocking(move || {
        let hardware = source.get()?;
        gpus.iter().try_for_each(|gpu| hardware.set_exclusive(gpu, exclusive))
    });
    Ok(set.await.map_err(|error| Error::Outside(error.to_string()))??)
}

/// Repeats what the daemon logs, for as long as it runs.
async fn repeat_log(places: &Places) {
    let (file, mut read) = (places.log.join("control.log"), 0);
    loop {
        let mut changes = Changes::of(&[&places.log]);
        if let Ok(more) = since(&file, read) {
            read += more.len() as u64;
            String::from_utf8_lossy(&more).lines().for_each(|line| tracing::info!(target: "mps", "{line}"));
        }
        changes.next(RETRY).await;
    }
}

fn since(file: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(file)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}
