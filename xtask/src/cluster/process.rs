//! Background programs that run until `down`: each has a file with its PID and command line.
//!
//! The command line is stored so that a test can stop and restart a program unchanged.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// A program of the cluster in `home`.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    home: PathBuf,
    name: String,
}

impl Process {
    /// The program of that name, running or not.
    pub(crate) fn of(home: &Path, name: &str) -> Self {
        Self { home: home.to_owned(), name: name.to_owned() }
    }

    /// Starts it in its own process group.
    pub(crate) fn start(&self, path: &Path, flags: &[String]) -> Result<()> {
        self.start_in(path, flags, &[])
    }

    /// The same, with additional environment variables.
    pub(crate) fn start_in(&self, path: &Path, flags: &[String], variables: &[(String, String)]) -> Result<()> {
        self.spawn(&path.display().to_string(), flags, variables)
    }

    /// Restarts it with the same command line.
    pub(crate) fn start_again(&self) -> Result<()> {
        let record = self.record().with_context(|| format!("{} was never started", self.name))?;
        let flags = record["flags"].as_array().into_iter().flatten();
        let flags: Vec<String> = flags.filter_map(|flag| flag.as_str().map(str::to_owned)).collect();
        let variables =
            serde_json::from_value::<Vec<(String, String)>>(record["variables"].clone()).unwrap_or_default();
        self.spawn(record["path"].as_str().unwrap_or_default(), &flags, &variables)
    }

    fn spawn(&self, path: &str, flags: &[String], variables: &[(String, String)]) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let child = Command::new(path)
            .args(flags)
            .envs(variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {path}"))?;
        let record = json!({
            "pid": child.id(), "path": path, "flags": flags, "variables": variables,
            "program": std::fs::canonicalize(path)?,
        });
        Ok(std::fs::write(self.file(), record.to_string())?)
    }

    /// Whether this cluster started it.
    pub(crate) fn was_started(&self) -> bool {
        self.file().exists()
    }

    /// Its PID, if it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        let record = self.record()?;
        let pid = u32::try_from(record["pid"].as_u64()?).ok()?;
        // A reused PID belongs to another program; an exited one has no program.
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        (program == Path::new(record["program"].as_str()?)).then_some(pid)
    }

    /// Fails with the tail of its log if it does not run.
    pub(crate) fn check(&self) -> Result<()> {
        if self.pid().is_some() {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let mut tail: Vec<&str> = log.lines().rev().take(3).collect();
        tail.reverse();
        bail!("{} ended: {}", self.name, tail.join(" | "))
    }

    /// Sends a signal, if it runs.
    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        if let Some(pid) = self.pid() {
            kill(signal, &[pid])?;
        }
        Ok(())
    }

    /// Stops it: SIGTERM, then SIGKILL.
    pub(crate) fn stop(&self) -> Result<()> {
        for signal in ["TERM", "KILL"] {
            self.signal(signal)?;
            self.ended()?;
        }
        Ok(())
    }

    /// Waits for its exit, so that its files and ports are released.
    pub(crate) fn ended(&self) -> Result<()> {
        let last = self.record().and_then(|record| u32::try_from(record["pid"].as_u64()?).ok());
        until(GRACE, || self.pid().is_none() && last.is_none_or(has_no_files));
        Ok(())
    }

    /// Its log file.
    pub(crate) fn log(&self) -> PathBuf {
        self.home.join(format!("{}.log", self.name))
    }

    fn file(&self) -> PathBuf {
        self.home.join(format!("{}.process", self.name))
    }

    fn record(&self) -> Option<Value> {
        serde_json::from_slice(&std::fs::read(self.file()).ok()?).ok()
    }
}

/// Whether a process is gone or a zombie without files. Threads exit one by one, and the last one closes the files:
/// until then the process has a PID, but no executable.
fn has_no_files(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let named = std::fs::read_link(format!("/proc/{pid}/exe")).is_ok();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    named || (threads.count() == 1 && status.lines().any(|line| line.starts_with("State:") && line.contains('Z')))
}

/// Sends a signal to processes. One that has exited meanwhile is not an error.
pub(crate) fn kill(signal: &str, pids: &[u32]) -> Result<()> {
    let mut command = Command::new("kill");
    command.arg(format!("-{signal}")).args(pids.iter().map(u32::to_string)).stderr(Stdio::null());
    command.status().context("cannot run kill")?;
    Ok(())
}

/// Polls until `done` or the limit; returns whether it is done.
pub(crate) fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        if done() {
            return true;
        }
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a program to completion and returns its output.
pub(crate) fn output(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Result<String> {
    let program = program.as_ref();
    let command_line = || format!("{} {}", program.to_string_lossy(), args.join(" "));
    let output = Command::new(program).args(args).output().with_context(|| format!("cannot run {}", command_line()))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}", command_line(), error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
