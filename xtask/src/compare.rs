//! `cargo xtask compare`: the embedded API server and a real one, request by request.
//!
//! The real server is private, with controllers for garbage collection and namespaces only: others would make its
//! responses depend on time.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Result, bail};

use crate::cluster::control_plane::{self, Programs};
use crate::cluster::tools;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Record the real server's responses in tests/cases/recorded
    #[arg(long)]
    record: bool,
    /// Only case files whose name contains this
    #[arg(default_value = "")]
    cases: String,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let programs = Programs::find(root)?;
    let home = tools::cache()?.join("compare");
    end(&home)?;
    std::fs::create_dir_all(&home)?;
    let result = control_plane::start_deterministic(&home, &programs, IpAddr::V4(Ipv4Addr::LOCALHOST))
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

/// Stops leftovers of an earlier run, and removes their data.
fn end(home: &Path) -> Result<()> {
    control_plane::stop(home)?;
    match std::fs::remove_dir_all(home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
