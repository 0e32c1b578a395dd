//! A run in namespaces of its own: when the first process in them ends, however it ends, the kernel ends all others and
//! takes their mounts back. Files of a run lie in a file system in memory that only they see.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cluster::{in_path, output};

/// Set in the process inside the namespaces.
const INSIDE: &str = "CAPSTAN_VM_INSIDE";

/// As process 1 of its namespace a program would not be ended by Ctrl-C, so that is a shell, which waits for it.
const WAIT: &str = r#""$@"; exit $?"#;

/// Fails where namespaces cannot be had.
pub(crate) fn available() -> Result<()> {
    if output("id", &["-u"])?.trim() != "0" {
        bail!("a guest needs root, for mounts of its own: run this as root");
    }
    for program in ["unshare", "setpriv", "mount"] {
        in_path(program).with_context(|| format!("there is no program `{program}`: install util-linux and mount"))?;
    }
    output("unshare", &["--mount", "--pid", "--fork", "true"]).map(drop).context("root may not make mounts here")
}

/// A command whose process tree and mounts end with it, and with this thread.
pub(crate) fn isolated(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-c", WAIT, "sh", program]);
    command
}

/// Goes on inside, in another process: the one that called waits for it, and never returns from here.
pub(crate) fn enter() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let own = std::env::current_exe().context("this program does not know where it is")?;
    let mut command = isolated(&own.display().to_string());
    let status = command.args(std::env::args_os().skip(1)).env(INSIDE, "1").status().context("cannot run setpriv")?;
    std::process::exit(status.code().unwrap_or(1))
}
