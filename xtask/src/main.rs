//! Recipes of the project: `cargo xtask gen` writes the generated files, `cargo xtask check` is what CI runs first,
//! `cargo xtask cluster up` starts a real Kubernetes, `cargo xtask compare` compares the embedded one with it,
//! `cargo xtask image` writes a container image, `cargo xtask vm` runs commands on a real kernel, `cargo xtask bench`
//! measures.

mod bench;
mod cluster;
mod compare;
mod e2e;
mod image;
mod pages;
mod places;
mod rbac;
mod reference;
mod roles;
mod tidy;
mod values;
mod vm;
mod webhooks;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Recipes of the project")]
enum Task {
    /// Write everything that is generated from code
    Gen,
    /// fmt, clippy, tidy, and generated files fresh
    Check,
    /// Only tidy: dependency direction, file sizes, headers, links between pages
    Tidy,
    /// A real Kubernetes with one node on this machine
    #[command(subcommand)]
    Cluster(cluster::Action),
    /// Compare the embedded API server with a real one, request by request
    Compare(compare::Args),
    /// Write a container image, without Docker
    Image(image::Args),
    /// Link the program with the functions first that run: what the compiler calls for an image
    #[command(hide = true)]
    Link(image::order::Link),
    /// Install the chart on a real node, run every example, and make trouble
    E2e(e2e::Args),
    /// A real kernel in a virtual machine: commands in fresh guests
    #[command(subcommand)]
    Vm(vm::Action),
    /// Measure what the operator costs on a real API server
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
        Task::Image(args) => image::run(root, &args),
        Task::Link(args) => image::order::link(&args),
        Task::E2e(args) => e2e::run(root, &args),
        Task::Vm(action) => vm::run(root, &action),
        Task::Bench(scenario) => bench::run(root, &scenario),
        Task::Check => {
            cargo(root, &["fmt", "--all", "--check"])?;
            cargo(root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
            tidy::run(root)?;
            fresh(root)?;
            println!("check: fmt, clippy, tidy and generated files are fine");
            Ok(())
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies below the root").to_owned()
}

/// Cargo, as if it were called from a shell: what `cargo run` tells us about xtask itself would look like a change to
/// build scripts, and half of the dependencies would be compiled again.
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

/// Folders that hold nothing but generated files.
const GENERATED: &[&str] = &["docs/reference", "charts/capstan/crds"];

/// Everything that is generated.
fn generated(root: &Path) -> Result<Vec<Generated>> {
    let mut files = reference::pages();
    files.push(rbac::template());
    files.push(webhooks::file()?);
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

fn fresh(root: &Path) -> Result<()> {
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

/// Files in generated folders that nothing generates.
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
