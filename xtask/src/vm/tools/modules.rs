//! Kernel modules of ours, built against the guest's headers, signed, with the keys and firmware variables by which
//! Secure Boot trusts them.

use std::path::Path;

use anyhow::{Context, Result};

use super::super::namespace::isolated;
use super::stage::{Stage, logged};

const SOURCES: &str = "e2e/modules";

const BUILD: &str = r#"mount -t proc proc "$1/proc"
mount --bind "$2" "$1/mnt"
chroot "$1" sh /mnt/src/build.sh"#;

/// Another tree has another kernel, so its name counts as content.
pub(super) fn stage(root: &Path, tree: &Path) -> Result<Stage> {
    let mut content = vec![tree.file_name().unwrap_or_default().as_encoded_bytes().to_vec()];
    for name in sources(root)? {
        content.push(std::fs::read(root.join(SOURCES).join(name))?);
    }
    Stage::new("modules", &content.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

pub(super) fn make(root: &Path, tree: &Path, part: &Path) -> Result<()> {
    let copies = part.join("src");
    std::fs::create_dir(&copies)?;
    for name in sources(root)? {
        std::fs::copy(root.join(SOURCES).join(&name), copies.join(&name))?;
    }
    logged("modules", isolated("sh").args(["-euc", BUILD, "sh"]).arg(tree).arg(part))
}

fn sources(root: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(root.join(SOURCES)).with_context(|| format!("cannot read {SOURCES}"))?;
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}
