//! Tidy: rules of the tree that rustfmt and clippy do not check.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::layers::{LAYERS, Layer, UNSAFE, package};

/// Dependencies that a pure crate may not have.
const IMPURE: &[&str] = &["tokio", "hyper", "hyper-util", "axum", "reqwest", "rustls", "tokio-rustls"];

/// Dependencies that no source file names: they turn on a feature of another crate.
const NOT_NAMED: &[(&str, &str)] = &[];

/// Products: each has a directory in `crates/operands/src`, which uses `plan::kit` and shared code, never another
/// product.
const PRODUCTS: &[&str] = &["gpu", "nim", "nemo", "network", "sriov", "nfd", "amd"];

/// Maximum lines of a file.
const MAX_LINES: usize = 800;

pub(crate) fn run(root: &Path) -> Result<()> {
    let mut faults = Vec::new();
    dependencies(root, &mut faults)?;
    for file in sources(root)? {
        source(root, &file, &mut faults)?;
    }
    crate::pages::check(root, &mut faults)?;
    crate::places::check(root, &mut faults)?;
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
    let rules = std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        // cargo-deny checks more than this; it is not on every machine, and what is banned must not get that far.
        if rules.contains(&format!("{{ crate = \"{name}\",")) {
            faults.push(format!("{name} is in the dependency graph: deny.toml bans it and says why"));
        }
        if package["source"].is_null() {
            package_of_ours(root, package, name, faults)?;
        }
    }
    Ok(())
}

fn package_of_ours(root: &Path, package: &Value, name: &str, faults: &mut Vec<String>) -> Result<()> {
    let Some(layer) = LAYERS.iter().find(|layer| layer.name() == name) else {
        faults.push(format!("crate {name} has no row in LAYERS of xtask/src/layers.rs"));
        return Ok(());
    };
    if layer.pure && !root.join(layer.path).join("clippy.toml").is_file() {
        faults.push(format!("{} is pure and lacks clippy.toml: link it to clippy-pure.toml", layer.path));
    }
    let sources = text_of(root, layer, package)?;
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let used = dependency["name"].as_str().unwrap_or_default();
        let for_tests = dependency["kind"] == "dev";
        if dependency["path"].is_string() && !for_tests && !allows(layer, used) {
            faults.push(format!("{name} may not depend on {used}: dependencies point one way"));
        }
        if layer.pure && !for_tests && IMPURE.contains(&used) {
            faults.push(format!("{name} is pure and may not depend on {used}"));
        }
        let renamed = dependency["rename"].as_str().unwrap_or(used).replace('-', "_");
        if !sources.contains(&renamed) && !NOT_NAMED.contains(&(name, used)) {
            faults.push(format!("{name} does not use {used}: remove it from {}/Cargo.toml", layer.path));
        }
    }
    Ok(())
}

fn allows(layer: &Layer, used: &str) -> bool {
    layer.may_use.iter().any(|folder| package(folder) == used)
}

/// All Rust files of a crate, one after the other: those in its folder, and targets that lie elsewhere.
fn text_of(root: &Path, layer: &Layer, package: &Value) -> Result<String> {
    let targets = package["targets"].as_array().into_iter().flatten();
    let folders = targets.filter_map(|target| Path::new(target["src_path"].as_str()?).parent()?.canonicalize().ok());
    let elsewhere = folders.filter(|folder| !folder.starts_with(root.join(layer.path)));
    let mut patterns: Vec<String> = elsewhere.map(|folder| format!("{}/*.rs", folder.display())).collect();
    patterns.push(format!("{}/*.rs", layer.path));
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let mut text = String::new();
    for file in tracked(root, &patterns)? {
        text += &std::fs::read_to_string(root.join(file))?;
    }
    Ok(text)
}

fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    Ok(tracked(root, &["*.rs"])?.into_iter().map(PathBuf::from).collect())
}

/// Tracked files that match a pattern, relative to the root.
pub(crate) fn tracked(root: &Path, patterns: &[&str]) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .args(patterns)
        .current_dir(root)
        .output()
        .context("cannot run git ls-files")?;
    let text = String::from_utf8(output.stdout).context("file names are not UTF-8")?;
    Ok(text.lines().filter(|path| root.join(path).is_file()).map(str::to_owned).collect())
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
    products(&shown.to_string(), &text, faults);
    if text.contains(concat!("allow(", "unsafe_code")) && !UNSAFE.iter().any(|(allowed, _)| path.starts_with(allowed)) {
        faults.push(format!("{shown} allows unsafe code without a row in UNSAFE of xtask/src/layers.rs"));
    }
    crate::words::check(&shown.to_string(), &text, faults);
    crate::roles::check(path, &text, faults);
    // Split, so that this file does not match itself.
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

/// Code that two products need is in `plan::kit` or beside their directories, never in one of them.
fn products(path: &str, text: &str, faults: &mut Vec<String>) {
    let (own, import) = if path.starts_with("crates/plan/src/kit/") {
        (None, "capstan_api")
    } else if let Some(inside) = path.strip_prefix("crates/operands/src/") {
        (inside.split_once('/').map(|(folder, _)| folder), "crate")
    } else {
        return;
    };
    for product in PRODUCTS.iter().filter(|product| own != Some(**product)) {
        if text.contains(&format!("{import}::{product}::")) {
            faults.push(format!("{path} imports {import}::{product}: a product folder imports only kit and itself"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::products;

    #[test]
    fn a_product_imports_only_the_kit_and_itself() {
        for (path, text, expected) in [
            ("crates/operands/src/nim/a.rs", "use crate::nim::b;", 0),
            ("crates/operands/src/nim/a.rs", "use crate::gpu::b;", 1),
            ("crates/operands/src/gpu/a/b.rs", "use crate::nim::b;", 1),
            ("crates/operands/src/common_conditions.rs", "use crate::gpu::b;", 1),
            ("crates/plan/src/kit/a.rs", "use capstan_api::common::b;", 0),
            ("crates/plan/src/kit/a.rs", "use capstan_api::nim::b;", 1),
            ("crates/operator/src/a.rs", "use crate::gpu::b;", 0),
        ] {
            let mut faults = Vec::new();
            products(path, text, &mut faults);
            assert_eq!(faults.len(), expected, "{path}: {text}");
        }
    }
}
