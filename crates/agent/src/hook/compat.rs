//! `enable-cuda-compat`: an image may have newer driver libraries for CUDA forward compatibility. If the host's driver
//! supports them, they are added to the loader's configuration.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::inside::Inside;
use super::{elf, failed};
use crate::Result;

/// Directory of the compat libraries in images.
pub(super) const ROOT: &str = "/usr/local/cuda/compat";
const SECTION: &str = ".note.cuda.fwd_compatibility";
const OWNER: &str = "NVIDIA Corporation";

/// The compatibility header of a library.
#[derive(Debug, Default, Deserialize, PartialEq)]
struct Header {
    #[serde(rename = "CUDA Version", default)]
    cuda: String,
    /// Supported driver branches, as numbers or text.
    #[serde(rename = "Driver", default)]
    drivers: Vec<Value>,
}

/// Adds the image's compat library to the loader's configuration, if usable.
pub(super) fn enable(inside: &Inside, driver: &str, cuda: &str, root: &str) -> Result<()> {
    let dir = Path::new(root);
    // Exactly one: with several the choice is ambiguous.
    let named = inside.list(dir).unwrap_or_default().into_iter().map(|(name, _)| name);
    let mut versions =
        named.filter(|name| name.strip_prefix("libcuda.so.").is_some_and(|version| version.contains('.')));
    let (Some(name), None) = (versions.next(), versions.next()) else { return Ok(()) };
    let Ok(bytes) = inside.read(&dir.join(&name)) else { return Ok(()) };
    let compat = name.trim_start_matches("libcuda.so.");
    if !usable(&bytes, compat, driver, cuda) {
        return Ok(());
    }
    let Ok(resolved) = inside.resolve(dir) else { return Ok(()) };
    let line = format!("{}\n", resolved.display());
    let names = (0..100).map(|number| format!("00-compat-{number}.conf"));
    let written = inside.write_new("/etc/ld.so.conf.d", names, line.as_bytes());
    written.map(drop).map_err(failed("cannot write /etc/ld.so.conf.d/00-compat-*.conf"))
}

/// Whether a library of version `compat` is newer than the host's driver and supported by it.
pub(super) fn usable(library: &[u8], compat: &str, driver: &str, cuda: &str) -> bool {
    let (compat, driver, cuda) = (version(compat), version(driver), version(cuda));
    let header = elf::note(library, SECTION, OWNER);
    let header = header.and_then(|text| serde_json::from_slice::<Header>(text).ok());
    match header {
        Some(header) => match (&compat, &driver) {
            (Some(compat), Some(driver)) => {
                let major = driver.first().copied().unwrap_or_default();
                header.drivers.iter().any(|branch| branch_number(branch) == Some(major)) && compat > driver
            }
            _ => cuda.is_some_and(|host| version(&header.cuda).is_some_and(|own| own > host)),
        },
        // Without a header use the old rule: a newer branch, and no CUDA version known.
        None if cuda.is_some() => false,
        None => compat.zip(driver).is_some_and(|(compat, driver)| compat.first() > driver.first()),
    }
}

fn branch_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => version(text)?.first().copied(),
        _ => None,
    }
}

/// Parses a version into numbers.
fn version(text: &str) -> Option<Vec<u64>> {
    text.trim().split('.').map(|part| part.parse().ok()).collect()
}
