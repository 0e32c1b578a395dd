//! Tells the program its commit and date for `capstan --version`.
//!
//! A build without git (from an archive, in a container without `.git`) is told by `CAPSTAN_COMMIT` and `CAPSTAN_DATE`;
//! without either the version stands alone.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}

fn main() {
    let given = |name: &str| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var(name).ok().filter(|text| !text.is_empty())
    };
    let commit = given("CAPSTAN_COMMIT").or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let date = given("CAPSTAN_DATE").or_else(|| git(&["show", "--no-patch", "--format=%cs", "HEAD"]));
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match (commit, date) {
        (Some(commit), Some(date)) => format!("{version} ({commit} {date})"),
        (Some(commit), None) => format!("{version} ({commit})"),
        _ => version,
    };
    println!("cargo::rustc-env=CAPSTAN_VERSION={version}");
    println!("cargo::rerun-if-changed=build.rs");
    // The file that changes with each commit: HEAD's log, wherever the repository keeps it.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}
