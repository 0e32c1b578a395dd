//! `create-symlinks` and `chmod`.

use std::path::Path;

use super::failed;
use super::inside::Inside;
use crate::{Error, Result};

/// Creates symlinks, each given as `<target>::<link>`.
pub(super) fn create(inside: &Inside, links: &[String]) -> Result<()> {
    for pair in links {
        let parts = pair.split_once("::").filter(|(target, link)| !target.is_empty() && !link.is_empty());
        let (target, link) =
            parts.ok_or_else(|| Error::Config(format!("--link: '{pair}' is no link; write it as <target>::<link>")))?;
        inside.link(target, Path::new(link)).map_err(failed(format!("cannot make the link {link}")))?;
    }
    Ok(())
}

/// Changes the mode of paths; missing ones are ignored.
pub(super) fn chmod(inside: &Inside, mode: &str, paths: &[String]) -> Result<()> {
    let bits = u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o7777);
    let bits = bits.ok_or_else(|| Error::Config(format!("--mode: '{mode}' is no mode; write it as 755")))?;
    for path in paths.iter().flat_map(|paths| paths.split(',')) {
        match inside.chmod(Path::new(path), bits) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(format!("cannot change the mode of {path}"))(error));
            }
            _ => {}
        }
    }
    Ok(())
}
