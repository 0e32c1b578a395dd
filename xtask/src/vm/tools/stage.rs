//! A folder of the cache that is there as a whole or not at all.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::cluster::tools::fingerprint;

/// A folder to be made, named after what it is made of.
pub(super) struct Stage {
    name: &'static str,
    path: PathBuf,
}

impl Stage {
    /// The one that is made of this content.
    pub(super) fn new(name: &'static str, content: &[&[u8]]) -> Result<Self> {
        let path = super::folder()?.join(format!("{name}-{}", fingerprint(&content.join(&0))));
        Ok(Self { name, path })
    }

    /// Where it is, if it is complete.
    pub(super) fn ready(&self) -> Option<PathBuf> {
        self.path.is_dir().then(|| self.path.clone())
    }

    /// Makes it unless it is complete.
    pub(super) fn make(&self, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        if let Some(path) = self.ready() {
            return Ok(path);
        }
        let begin = Instant::now();
        eprintln!("making {}", self.path.display());
        let part = self.path.with_extension("part");
        match std::fs::remove_dir_all(&part) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", part.display()));
            }
            _ => std::fs::create_dir_all(&part)?,
        }
        make(&part).with_context(|| format!("cannot make {} of a guest", self.name))?;
        std::fs::rename(&part, &self.path)?;
        eprintln!("made {} in {} s", self.path.display(), begin.elapsed().as_secs());
        Ok(self.path.clone())
    }
}

/// Runs a command with its output in a log beside the stages, whose last lines are the error.
pub(super) fn logged(name: &str, command: &mut Command) -> Result<()> {
    let log = super::folder()?.join(format!("{name}.log"));
    let file = File::create(&log)?;
    let status = command.stdout(file.try_clone()?).stderr(file).status().context("cannot run setpriv")?;
    if status.success() {
        return Ok(std::fs::remove_file(&log)?);
    }
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(5)..].join(" | ");
    bail!("{name} failed: {tail}; all of it is in {}", log.display())
}
