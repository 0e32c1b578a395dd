//! Tidy: rules of the tree that neither rustfmt nor clippy knows.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A crate, the crates of ours that it may depend on, and whether it is pure: no I/O, no clock, no async runtime.
struct Layer {
    name: &'static str,
    may_use: &'static [&'static str],
    pure: bool,
}

/// Dependencies point one way. A new crate gets a row here first.
const LAYERS: &[Layer] = &[
    Layer { name: "capstan-schema", may_use: &[], pure: true },
    Layer { name: "capstan-api", may_use: &["capstan-schema"], pure: true },
    Layer { name: "capstan-plan", may_use: &["capstan-api"], pure: true },
    Layer { name: "capstan-node", may_use: &[], pure: true },
    Layer { name: "capstan-operands", may_use: &["capstan-api", "capstan-node", "capstan-plan"], pure: true },
    Layer { name: "capstan-runtime", may_use: &["capstan-http", "capstan-plan"], pure: false },
    Layer {
        name: "capstan-operator",
        may_use: &["capstan-api", "capstan-operands", "capstan-plan", "capstan-runtime"],
        pure: false,
    },
    Layer { name: "capstan-apiserver", may_use: &["capstan-schema"], pure: false },
    Layer { name: "capstan-sim", may_use: &["capstan-apiserver"], pure: false },
    Layer {
        name: "capstan-gpu-sim",
        may_use: &["capstan-agent", "capstan-api", "capstan-hw", "capstan-kubelet", "capstan-node", "capstan-sim"],
        pure: false,
    },
    Layer { name: "capstan-http", may_use: &[], pure: false },
    Layer { name: "capstan-hw", may_use: &[], pure: false },
    Layer { name: "capstan-cdi", may_use: &[], pure: true },
    Layer { name: "capstan-kubelet", may_use: &[], pure: false },
    Layer {
        name: "capstan-agent",
        may_use: &["capstan-api", "capstan-cdi", "capstan-http", "capstan-hw", "capstan-kubelet", "capstan-node"],
        pure: false,
    },
    Layer {
        name: "capstan",
        may_use: &[
            "capstan-agent",
            "capstan-hw",
            "capstan-node",
            "capstan-api",
            "capstan-operands",
            "capstan-operator",
            "capstan-runtime",
            "capstan-apiserver",
            "capstan-sim",
            "capstan-gpu-sim",
        ],
        pure: false,
    },
    Layer {
        name: "capstan-tests",
        may_use: &[
            "capstan-agent",
            "capstan-api",
            "capstan-apiserver",
            "capstan-gpu-sim",
            "capstan-operator",
            "capstan-plan",
            "capstan-runtime",
            "capstan-sim",
        ],
        pure: false,
    },
    // The test cluster's model server.
    Layer { name: "capstan-model-server", may_use: &[], pure: false },
    Layer { name: "xtask", may_use: &["capstan-api", "capstan-node", "capstan-operator"], pure: false },
];

/// What a pure crate may not depend on.
const IMPURE: &[&str] = &["tokio", "hyper", "hyper-util", "axum", "reqwest", "rustls", "tokio-rustls"];

/// Crates that must not appear in the dependency graph at all, and why.
const BANNED: &[(&str, &str)] = &[
    ("openssl-sys", "ring is the only crypto provider"),
    ("aws-lc-rs", "ring is the only crypto provider"),
    ("serde_yaml", "unmaintained: use serde-saphyr"),
    ("prost-build", "nothing but Rust may be needed to build: use protox"),
];

/// A file longer than this is two files.
const MAX_LINES: usize = 800;

pub(crate) fn run(root: &Path) -> Result<()> {
    let mut faults = Vec::new();
    dependencies(root, &mut faults)?;
    for file in sources(root)? {
        source(root, &file, &mut faults)?;
    }
    crate::pages::check(root, &mut faults)?;
    if faults.is_empty() {
        return Ok(());
    }
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    bail!("tidy found {} faults", faults.len())
}

fn dependencies(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cannot read cargo metadata")?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        if let Some((_, why)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            faults.push(format!("{name} is in the dependency graph: {why}"));
        }
        if package["source"].is_null() {
            package_of_ours(package, name, faults);
        }
    }
    Ok(())
}

fn package_of_ours(package: &Value, name: &str, faults: &mut Vec<String>) {
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
        faults.push(format!("crate {name} has no row in LAYERS of xtask/src/tidy.rs"));
        return;
    };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let used = dependency["name"].as_str().unwrap_or_default();
        let for_tests = dependency["kind"] == "dev";
        if dependency["path"].is_string() && !for_tests && !layer.may_use.contains(&used) {
            faults.push(format!("{name} may not depend on {used}: dependencies point one way"));
        }
        if layer.pure && !for_tests && IMPURE.contains(&used) {
            faults.push(format!("{name} is pure and may not depend on {used}"));
        }
    }
}

fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])
        .current_dir(root)
        .output()
        .context("cannot run git ls-files")?;
    let text = String::from_utf8(output.stdout).context("file names are not UTF-8")?;
    Ok(text.lines().map(PathBuf::from).filter(|path| root.join(path).is_file()).collect())
}

fn source(root: &Path, path: &Path, faults: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {}", path.display()))?;
    let shown = path.display();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!("{shown} has {lines} lines, more than {MAX_LINES}: split it by topic"));
    }
    if !text.starts_with("//!") {
        faults.push(format!("{shown} does not open with //! and what it is for"));
    }
    crate::roles::check(path, &text, faults);
    // Spelt in two halves, so that this file does not find itself.
    for (needle, why) in [
        (concat!("#[", "ignore"), "a test that never runs proves nothing"),
        (concat!("FIX", "ME"), "file an issue instead"),
    ] {
        if text.contains(needle) {
            faults.push(format!("{shown} contains {needle}: {why}"));
        }
    }
    Ok(())
}
