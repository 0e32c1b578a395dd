//! `cargo xtask compare`: the embedded API server and a real one, request by request.
//!
//! The real server is a private one with nothing beside it but what ends objects and furnishes namespaces: controllers
//! that write on their own would make its answers a matter of time.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Result, bail};

use crate::cluster::control_plane::{self, Programs};
use crate::cluster::tools;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep the real server's answers in tests/cases/recorded
    #[arg(long)]
    record: bool,
    /// Only files of cases whose name contains this
    #[arg(default_value = "")]
    cases: String,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let programs = Programs::find(root)?;
    let home = tools::cache()?.join("compare");
    end(&home)?;
    std::fs::create_dir_all(&home)?;
    let result = control_plane::start_quiet(&home, &programs, IpAddr::V4(Ipv4Addr::LOCALHOST))
        .and_then(|()| compare(root, &home, args));
    end(&home)?;
    result
}

fn compare(root: &Path, home: &Path, args: &Args) -> Result<()> {
    let status = crate::plain_cargo(root)
        .args(["test", "--quiet", "--workspace", "--test", "differential"])
        .env("COMPARE", "live")
        .env("KUBECONFIG", home.join("kubeconfig"))
        .env("RECORD", if args.record { "1" } else { "0" })
        .env("CASES", &args.cases)
        .status()?;
    if !status.success() {
        bail!("the servers differ");
    }
    Ok(())
}

/// Ends what an earlier run may have left, and removes its data.
fn end(home: &Path) -> Result<()> {
    control_plane::stop(home)?;
    match std::fs::remove_dir_all(home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
