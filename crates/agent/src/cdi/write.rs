//! Writes a CDI spec where runtimes find it: atomically, world-readable, and only if it changed.

use std::path::Path;

use capstan_cdi::{Format, Spec};

use crate::{Error, Result, files};

/// Writes a spec in the format of the file's extension (YAML by default), and returns whether it changed. The text is
/// parsed back first: a runtime that cannot parse a spec starts no container.
pub fn write(spec: &Spec, path: &Path) -> Result<bool> {
    let text = spec.to_text(Format::of(path).unwrap_or(Format::Yaml)).map_err(external)?;
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(false);
    }
    Spec::parse(&text).and_then(|read| read.validate()).map_err(external)?;
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir)
            .map_err(|source| Error::Io { what: format!("cannot make {}", dir.display()), source })?;
    }
    files::write(path, text.as_bytes())?;
    Ok(true)
}

/// Removes a spec whose devices are gone.
pub fn remove(path: &Path) -> Result<()> {
    files::remove(path)
}

fn external(error: capstan_cdi::Error) -> Error {
    Error::External(error.to_string())
}
