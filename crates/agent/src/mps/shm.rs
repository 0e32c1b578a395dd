//! The shared memory of MPS daemons and clients, and the SELinux label of their pipes.

use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount as mount_at, unmount};

use crate::{Error, Result};

/// Mounts the shared memory at `/mps/shm`, replacing one left by an earlier pod.
pub(super) fn mount(root: &Path) -> Result<()> {
    let dir = root.join("mps/shm");
    let failed =
        |what: &str, source: std::io::Error| Error::Io { what: format!("cannot {what} {}", dir.display()), source };
    // It may not be mounted: ignore the error.
    let _ = unmount(&dir, UnmountFlags::DETACH);
    std::fs::create_dir_all(&dir).map_err(|source| failed("make", source))?;
    let memory = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let options = std::ffi::CString::new(format!("size={}", size(&memory))).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
    mount_at("shm", &dir, "tmpfs", flags, options.as_c_str()).map_err(|error| failed("mount", error.into()))
}

/// Half of the node's memory.
fn size(meminfo: &str) -> String {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    total.map_or_else(|| "65536k".into(), |kilobytes| format!("{}k", kilobytes / 2))
}

/// Relabels a directory for containers, where SELinux is enabled.
pub(super) fn relabel(root: &Path, dir: &Path) {
    if !root.join("sys/fs/selinux/enforce").exists() {
        return;
    }
    let label = b"system_u:object_r:container_file_t:s0";
    if let Err(error) = rustix::fs::lsetxattr(dir, "security.selinux", label, XattrFlags::empty()) {
        tracing::warn!(dir = %dir.display(), %error, "SELinux relabel failed; containers may not reach the MPS daemon");
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            relabel(root, &entry.path());
        } else {
            let _ = rustix::fs::lsetxattr(entry.path(), "security.selinux", label, XattrFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_half_of_all_memory() {
        assert_eq!(size("MemTotal:       16384 kB\nMemFree: 1 kB\n"), "8192k");
        assert_eq!(size(""), "65536k");
    }
}
