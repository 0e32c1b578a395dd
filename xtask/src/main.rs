//! Project tasks: `cargo xtask gen` writes generated files, `cargo xtask check` is the first CI step, `cargo xtask
//! cluster up` starts a real Kubernetes, `cargo xtask compare` compares the embedded API server with it, `cargo xtask
//! image` builds a container image, `cargo xtask vm` runs commands on a real kernel, `cargo xtask bench` measures.

mod bench;
mod cluster;
mod compare;
mod e2e;
mod image;
mod layers;
mod pages;
mod places;
mod protocol;
mod rbac;
mod reference;
mod roles;
mod tidy;
mod values;
mod vm;
mod webhooks;
mod words;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Recipes of the project")]
enum Task {
    /// Write all generated files
    Gen,
    /// fmt, clippy, tidy, and generated files up to date
    Check,
    /// Only tidy: dependency direction, file sizes, headers, links between pages
    Tidy,
    /// A real Kubernetes with one node on this machine
    #[command(subcommand)]
    Cluster(cluster::Action),
    /// Compare the embedded API server with a real one, request by request
    Compare(compare::Args),
    /// Record the kubelet's published messages, which tests compare ours with
    Protocol,
    /// Build a container image, without Docker
    Image(image::Args),
    /// Link the program in execution order: called by the compiler for an image
    #[command(hide = true)]
    Link(image::order::Link),
    /// Install the chart on a real node, run every example, and inject failures
    E2e(e2e::Args),
    /// A real kernel in a virtual machine: run commands in fresh guests
    #[command(subcommand)]
    Vm(vm::Action),
    /// Measure the cost of the operator on a real API server
    #[command(subcommand)]
    Bench(bench::Scenario),
}

/// A generated file: path from the root, and content.
type Generated = (PathBuf, String);

fn main() -> ExitCode {
    match run(Task::parse(), &root()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task, root: &Path) -> Result<()> {
    match task {
        Task::Gen => generate(root),
        Task::Tidy => tidy::run(root),
        Task::Cluster(action) => cluster::run(root, &action),
        Task::Compare(args) => compare::run(root, &args),
        Task::Protocol => protocol::run(root),
        Task::Image(args) => image::run(root, &args),
        Task::Link(args) => image::order::link(&args),
        Task::E2e(args) => e2e::run(root, &args),
        Task::Vm(action) => vm::run(root, &action),
        Task::Bench(scenario) => bench::run(root, &scenario),
        Task::Check => {
            cargo(root, &["fmt", "--all", "--check"])?;
            cargo(root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
            tidy::run(root)?;
            check_generated(root)?;
            println!("check: fmt, clippy, tidy and generated files are fine; {}", deny(root)?);
            Ok(())
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies below the root").to_owned()
}

/// Cargo with the environment of a shell: the variables of `cargo run` would look like changes to build scripts and
/// recompile half of the dependencies.
fn plain_cargo(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

fn cargo(root: &Path, args: &[&str]) -> Result<()> {
    let status = plain_cargo(root).args(args).status()?;
    if !status.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

/// Licences, bans and sources of dependencies, where cargo-deny is installed. Advisories need their database.
fn deny(root: &Path) -> Result<&'static str> {
    let installed = plain_cargo(root).args(["deny", "--version"]).output()?.status.success();
    if !installed {
        return Ok("licences NOT CHECKED: cargo-deny is not installed");
    }
    cargo(root, &["deny", "--log-level", "error", "--locked", "--offline", "check", "licenses", "bans", "sources"])?;
    Ok("so are licences, bans and sources")
}

/// Directories with only generated files.
const GENERATED: &[&str] = &["docs/reference", "charts/capstan/crds"];

/// All generated files.
fn generated(root: &Path) -> Result<Vec<Generated>> {
    let mut files = reference::pages();
    files.push(rbac::template());
    files.push(webhooks::file()?);
    files.extend(layers::pages(root)?);
    files.push(("crates/api/src/crds.txt".into(), capstan_api::crd::generated()));
    files.extend(values::files(root)?);
    Ok(files)
}

fn generate(root: &Path) -> Result<()> {
    let files = generated(root)?;
    for path in stale(root, &files)? {
        std::fs::remove_file(path)?;
    }
    for (path, content) in &files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a file lies in a folder"))?;
        std::fs::write(path, content)?;
    }
    println!("gen: {} files", files.len());
    Ok(())
}

fn check_generated(root: &Path) -> Result<()> {
    let files = generated(root)?;
    let changed = files
        .iter()
        .find(|(path, content)| std::fs::read_to_string(root.join(path)).map_or(true, |on_disk| on_disk != *content));
    if let Some((path, _)) = changed {
        bail!("{} is not what the code says: run `cargo xtask gen` and commit the result", path.display());
    }
    if let Some(path) = stale(root, &files)?.first() {
        bail!("{} is no longer generated: run `cargo xtask gen` and commit the result", path.display());
    }
    Ok(())
}

/// Obsolete files in generated directories.
fn stale(root: &Path, files: &[Generated]) -> Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    for folder in GENERATED {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        for entry in entries {
            let path = entry?.path();
            if !files.iter().any(|(file, _)| root.join(file) == path) {
                stale.push(path);
            }
        }
    }
    Ok(stale)
}
