//! Packages of the distribution that tests need: installed where they are missing, never upgraded.

use std::process::Command;

use anyhow::{Result, bail};

use super::tools;

/// Installs packages that `what` needs, with what they depend on. What is there stays as it is.
pub(crate) fn install(what: &str, missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if tools::in_path("apt-get").is_none() {
        bail!("{what} needs {list}, and there is no apt-get to install them: install them by hand");
    }
    eprintln!("installing {list}");
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive").output()
    };
    let args = ["install", "-y", "-q", "--no-install-recommends", "--no-upgrade"];
    let args: Vec<&str> = args.iter().chain(missing).copied().collect();
    // Lists of packages may be missing or old.
    if !apt(&args)?.status.success() {
        apt(&["update", "-q"])?;
        let second = apt(&args)?;
        if !second.status.success() {
            bail!("apt-get install {list} failed: {}", String::from_utf8_lossy(&second.stderr).trim());
        }
    }
    Ok(())
}
