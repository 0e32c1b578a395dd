//! The OCI state of the hook's container, from standard input; its root comes from there or from the bundle.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::failed;
use crate::{Error, Result};

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    bundle: PathBuf,
    /// Not in the OCI spec, but set by some runtimes.
    #[serde(default)]
    root: PathBuf,
}

#[derive(Deserialize, Default)]
struct Bundle {
    root: Option<Root>,
}

#[derive(Deserialize)]
struct Root {
    #[serde(default)]
    path: PathBuf,
}

/// The container's root on the host; empty if unknown.
pub(super) fn container_root(file: Option<&Path>, input: &mut dyn Read) -> Result<PathBuf> {
    let mut text = String::new();
    let read = match file.filter(|file| *file != Path::new("-") && !file.as_os_str().is_empty()) {
        Some(file) => std::fs::read_to_string(file).map(|read| text = read),
        None => input.read_to_string(&mut text).map(drop),
    };
    read.map_err(failed("cannot read the container's state"))?;
    let wrong = |error: serde_json::Error| Error::External(format!("the container's state is not understood: {error}"));
    let state: State = serde_json::from_str(&text).map_err(wrong)?;
    if !state.root.as_os_str().is_empty() {
        return Ok(state.bundle.join(state.root));
    }
    let path = state.bundle.join("config.json");
    let text = std::fs::read_to_string(&path).map_err(failed(format!("cannot read {}", path.display())))?;
    let bundle: Bundle = serde_json::from_str(&text).map_err(wrong)?;
    Ok(match bundle.root {
        Some(root) if !root.path.as_os_str().is_empty() => state.bundle.join(root.path),
        _ => PathBuf::new(),
    })
}
