//! Runs a host program in a container's root, in new namespaces: its mounts are private, and the container cannot reach
//! it.
//!
//! The only `unsafe` of the hooks is here: unsharing namespaces. It is sound since the file descriptor table stays
//! shared.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsmount, fsopen, mount_bind_recursive, mount_change, mount_move, move_mount, unmount,
};
use rustix::process::{chdir, chroot, pivot_root};
use rustix::thread::UnshareFlags;

use super::inside::Inside;

/// Runs `program` with `arguments` chrooted to the container; returns whether it succeeded. The calling thread stays in
/// the container's root.
pub(super) fn run_in(root: &Path, program: &[u8], arguments: &[&str]) -> std::io::Result<bool> {
    unshare_namespaces()?;
    // Mounts from here on are private to this thread.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount_bind_recursive(root, root)?;
    // Reopen: the mount that becomes the root, not the directory below it.
    let inside = Inside::open(root)?;
    let dir = format!("/run/nvidia-ctk-hook/{}", std::process::id());
    inside.make_dir(Path::new(&dir))?;
    let place = inside.handle(Path::new(&dir))?;
    let system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut copy = std::fs::File::from(openat(&mount, "program", flags, Mode::from_raw_mode(0o555))?);
    copy.write_all(program)?;
    // A file that is open for writing cannot be executed.
    drop(copy);
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, "", &place, "", flags)?;
    pivot_to(root)?;
    let status = Command::new(format!("{dir}/program")).args(arguments).env_clear().status();
    let _ = unmount(format!("/proc/self/fd/{}", mount.as_raw_fd()), UnmountFlags::DETACH)
        .or_else(|_| unmount(dir.as_str(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW));
    drop(mount);
    let _ = inside.remove_dir(Path::new(&dir));
    let _ = inside.remove_dir(Path::new("/run/nvidia-ctk-hook"));
    Ok(status?.success())
}

/// Pivots to the container's root.
fn pivot_to(root: &Path) -> std::io::Result<()> {
    chdir(root)?;
    // pivot_root stacks the old root at the same place: detach it.
    if pivot_root(".", ".").is_ok() {
        unmount(".", UnmountFlags::DETACH)?;
    } else {
        // The initial ramfs cannot be pivoted.
        mount_move(".", "/")?;
        chroot(".")?;
    }
    Ok(chdir("/")?)
}

/// Unshares the mount, UTS, IPC, PID and network namespaces.
#[allow(unsafe_code)]
fn unshare_namespaces() -> std::io::Result<()> {
    let flags =
        UnshareFlags::NEWNS | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC | UnshareFlags::NEWPID | UnshareFlags::NEWNET;
    // SAFETY: the file descriptor table is not unshared, so that no descriptor loses its owner.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Unshares the mount namespace of this thread.
    pub(in crate::hook) fn unshare_mounts_for_test() -> std::io::Result<()> {
        unshare_namespaces()?;
        Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
    }
}
