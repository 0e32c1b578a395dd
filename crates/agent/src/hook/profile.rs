//! `update-application-profile`: limits graphics libraries to the container's GPUs, as they enumerate all GPUs
//! otherwise.

use std::path::Path;

use rustix::fs::FileType;

use super::failed;
use super::inside::Inside;
use crate::Result;

const FILE: &str = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";

/// A device node in the container's `/dev`.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) is_char: bool,
    pub(super) minor: u32,
}

/// Writes an application profile with the container's GPUs.
pub(super) fn update(inside: &Inside) -> Result<()> {
    let found = inside.list(Path::new("/dev")).map_err(failed("cannot list the container's /dev"))?;
    let nodes: Vec<Node> = found
        .into_iter()
        .map(|(name, stat)| Node {
            name,
            is_char: FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice,
            minor: rustix::fs::minor(stat.st_rdev),
        })
        .collect();
    let text = profile(mask(&nodes));
    inside.write(Path::new(FILE), text.as_bytes()).map_err(failed(format!("cannot write {FILE}")))
}

/// A bit for every GPU, by minor number, not by file name.
pub(super) fn mask(nodes: &[Node]) -> u64 {
    let gpu = |node: &&Node| {
        let number = node.name.strip_prefix("nvidia").unwrap_or_default();
        node.is_char && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let bits = nodes.iter().filter(gpu).filter(|node| node.minor < 64).map(|node| 1 << node.minor);
    bits.fold(0, |mask: u64, bit: u64| mask | bit)
}

pub(super) fn profile(mask: u64) -> String {
    format!(
        "{{\"profiles\": [{{\"name\": \"_container_\", \"settings\": [\"EGLVisibleDGPUDevices\", {mask:#x}]}}], \
         \"rules\": [{{\"pattern\": [], \"profile\": \"_container_\"}}]}}\n"
    )
}
