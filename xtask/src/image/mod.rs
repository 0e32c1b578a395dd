//! `cargo xtask image`: a container image of the binary, without Docker and without a registry.
//!
//! One layer: the binary, its shared libraries from this machine, CA certificates, and a user. Builds of one commit
//! with the same function order are byte-equal: entries are sorted, times are zero, and local paths are remapped at
//! compile time.

mod archive;
mod files;
pub(crate) mod order;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod trace;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use archive::Config;
use files::Files;
use order::Layout;

/// Unprivileged user ID in the image.
const USER: u32 = 65_532;

/// Target directory of shipped builds: their flags would make cargo recompile everything for the next plain build.
const FOLDER: &str = "target/image";

/// Image name, as in the chart.
pub(crate) const TAG: &str = concat!("ghcr.io/capstan/capstan:", env!("CARGO_PKG_VERSION"));

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Output archive
    #[arg(short, long, default_value = "target/image/capstan.tar", value_name = "FILE")]
    output: PathBuf,
    /// Image name
    #[arg(short, long, default_value = TAG, value_name = "NAME")]
    tag: String,
    /// Use the development build of `cargo test`: slower and larger, but minutes sooner
    #[arg(long)]
    dev: bool,
    /// Function order file, such as the target/image/order.txt of another build, instead of a trace
    #[arg(long, value_name = "FILE", conflicts_with = "dev")]
    order: Option<PathBuf>,
    /// Keep the compiler's function order
    #[arg(long, conflicts_with_all = ["dev", "order"])]
    as_it_comes: bool,
}

impl Args {
    fn build(&self) -> Build {
        match &self.order {
            Some(list) => Build::Release(Layout::Listed(list.clone())),
            None if self.as_it_comes => Build::Release(Layout::Unordered),
            None => self.dev.into(),
        }
    }
}

/// Build profile of the binary in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// For users: optimised, and reproducible for one function order.
    Release(Layout),
    /// For quick tests.
    Dev,
}

impl From<bool> for Build {
    fn from(dev: bool) -> Self {
        if dev { Self::Dev } else { Self::Release(Layout::Traced) }
    }
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let output = root.join(&args.output);
    let digest = capstan(root, &output, &args.tag, &args.build())?;
    println!("{} {} {digest}", output.display(), args.tag);
    Ok(())
}

/// Builds the binary and writes its image. Returns the image digest.
pub(crate) fn capstan(root: &Path, output: &Path, tag: &str, build: &Build) -> Result<String> {
    let binary = match build {
        Build::Dev => compile(root, "capstan", build, &[])?,
        Build::Release(layout) => shipped(root, layout)?,
    };
    let mut files = Files::base(USER);
    files.program(&binary, "usr/bin/capstan")?;
    let labels = [
        ("org.opencontainers.image.title", "capstan".to_owned()),
        ("org.opencontainers.image.description", "One operator for AI clusters on Kubernetes".to_owned()),
        ("org.opencontainers.image.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE").to_owned()),
        ("org.opencontainers.image.revision", revision(root)),
    ];
    let config = Config {
        entrypoint: vec!["/usr/bin/capstan".into()],
        command: vec!["operator".into()],
        user: format!("{USER}:{USER}"),
        labels: labels.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
    };
    archive::write(&files, &config, tag, output)
}

/// Profiles in the image of the model server: one, which engines can be built from.
const PROFILES: &str =
    "example:\n  model: example/model\n  tags: {llm_engine: tensorrt_llm, tp: 1, trtllm_buildable: true}\n";

/// Image of a model server without a model, for tests. It also has the commands that caches and builds run in a NIM
/// image.
pub(crate) fn model_server(root: &Path, output: &Path, tag: &str, build: &Build) -> Result<()> {
    let name = "capstan-model-server";
    let mut files = Files::base(USER);
    let server = compile(root, name, build, &[])?;
    for name in ["model-server", "download-to-cache", "huggingface-cli"] {
        files.program(&server, &format!("usr/bin/{name}"))?;
    }
    for name in ["sh", "cat", "ls", "cp", "basename"] {
        let program = crate::cluster::in_path(name).with_context(|| format!("there is no program `{name}`"))?;
        files.program(&program, &format!("bin/{name}"))?;
    }
    // Command that services behind a proxy run for their certificates.
    files.file("usr/bin/update-ca-certificates", 0o755, b"#!/bin/sh\n".to_vec());
    files.file("usr/local/share/ca-certificates/none", 0o644, Vec::new());
    files.file("opt/nim/etc/default/model_manifest.yaml", 0o644, PROFILES.into());
    let config = Config {
        entrypoint: vec!["/usr/bin/model-server".into()],
        user: format!("{USER}:{USER}"),
        ..Config::default()
    };
    archive::write(&files, &config, tag, output).map(drop)
}

/// Pause image: a program that sleeps. Returns the archive.
pub(crate) fn pause(folder: &Path, tag: &str) -> Result<PathBuf> {
    let sleep = crate::cluster::in_path("sleep").context("there is no program `sleep`")?;
    let mut files = Files::base(USER);
    files.program(&sleep, "bin/sleep")?;
    let config = Config {
        entrypoint: vec!["/bin/sleep".into(), "infinity".into()],
        user: format!("{USER}:{USER}"),
        ..Config::default()
    };
    let output = folder.join("pause.tar");
    archive::write(&files, &config, tag, &output)?;
    Ok(output)
}

/// An image of one program without libraries that is many, `bin/busybox`; by itself it sleeps, as [`pause`] does.
pub(crate) fn busybox(program: &Path, output: &Path, tag: &str) -> Result<()> {
    let mut files = Files::base(USER);
    files.program(program, "bin/busybox")?;
    let config = Config {
        entrypoint: vec!["/bin/busybox".into()],
        command: vec!["sleep".into(), "infinity".into()],
        ..Config::default()
    };
    archive::write(&files, &config, tag, output).map(drop)
}

/// Compiles the shipped program.
pub(crate) fn shipped(root: &Path, layout: &Layout) -> Result<PathBuf> {
    let mut more = ["--features", "jemalloc", "--"].map(str::to_owned).to_vec();
    more.extend(layout.flags(&root.join(FOLDER))?);
    compile(root, "capstan", &Build::Release(layout.clone()), &more)
}

/// Compiles a package with one binary of the same name; `more` are cargo arguments for a release.
fn compile(root: &Path, name: &str, build: &Build, more: &[String]) -> Result<PathBuf> {
    let mut command = crate::plain_cargo(root);
    let target = match build {
        // With the features of the whole workspace, nothing is recompiled after `cargo test`.
        Build::Dev => {
            command.args(["build", "--locked", "--quiet", "--bin", name, "--workspace"]);
            root.join("target")
        }
        Build::Release(_) => {
            let target = root.join(FOLDER);
            command.args(["rustc", "--locked", "--quiet", "--bin", name, "--profile", "dist", "--package", name]);
            command.arg("--target-dir").arg(&target).args(more);
            command.env("RUSTFLAGS", flags(root)?);
            // Arm has page sizes of 4, 16 or 64 kB, and jemalloc needs the largest at compile time.
            if cfg!(target_arch = "aarch64") {
                command.env("JEMALLOC_SYS_WITH_LG_PAGE", "16");
            }
            target
        }
    };
    if !command.status()?.success() {
        bail!("building {name} failed: see above");
    }
    Ok(target.join(if *build == Build::Dev { "debug" } else { "dist" }).join(name))
}

/// Flags that remap local paths in the binary.
fn flags(root: &Path) -> Result<String> {
    let registry = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
    Ok(format!(
        "--remap-path-prefix={}=/cargo --remap-path-prefix={}=/src",
        registry.context("neither CARGO_HOME nor HOME is set")?,
        root.display()
    ))
}

/// The commit, if there is one.
fn revision(root: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let clean = git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty());
    git(&["rev-parse", "HEAD"]).filter(|_| clean).unwrap_or_default()
}
