//! `enable-cuda-compat`: an image may bring a newer driver library than the host has. Where the host's driver can work
//! with it, the loader is told to take it.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::inside::Inside;
use super::{elf, failed};
use crate::Result;

/// Where images have it.
pub(super) const ROOT: &str = "/usr/local/cuda/compat";
const SECTION: &str = ".note.cuda.fwd_compatibility";
const OWNER: &str = "NVIDIA Corporation";

/// What a library says about the drivers that it works with.
#[derive(Debug, Default, Deserialize, PartialEq)]
struct Header {
    #[serde(rename = "CUDA Version", default)]
    cuda: String,
    /// Branches of drivers, as numbers or text.
    #[serde(rename = "Driver", default)]
    drivers: Vec<Value>,
}

/// Tells the container's loader about the image's library, if it is to be used.
pub(super) fn enable(inside: &Inside, driver: &str, cuda: &str, root: &str) -> Result<()> {
    let dir = Path::new(root);
    // Exactly one: of several no one knows which is meant.
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

/// Whether a library of version `compat` is newer than the host's and works with its driver.
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
        // Without a header the loader's own rule has to do: a newer branch, and nothing known about CUDA.
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

/// The numbers of a version; what is none is unknown.
fn version(text: &str) -> Option<Vec<u64>> {
    text.trim().split('.').map(|part| part.parse().ok()).collect()
}
