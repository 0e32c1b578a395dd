//! Puts a spec where runtimes find it: whole, readable, and only when it says something new.

use std::path::Path;

use capstan_cdi::{Format, Spec};

use crate::{Error, Result, files};

/// Writes a spec in the format that the file's name asks for (YAML when it asks for none), and returns whether that
/// changed anything. What is written was read back first: a runtime that cannot read a spec starts no container.
pub fn write(spec: &Spec, path: &Path) -> Result<bool> {
    let text = spec.to_text(Format::of(path).unwrap_or(Format::Yaml)).map_err(outside)?;
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(false);
    }
    Spec::parse(&text).and_then(|read| read.validate()).map_err(outside)?;
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir)
            .map_err(|source| Error::Io { what: format!("cannot make {}", dir.display()), source })?;
    }
    files::write(path, text.as_bytes())?;
    Ok(true)
}

/// Takes a spec away: what it names is not there any more.
pub fn remove(path: &Path) -> Result<()> {
    files::remove(path)
}

fn outside(error: capstan_cdi::Error) -> Error {
    Error::Outside(error.to_string())
}
