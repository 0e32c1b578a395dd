//! Runs a program of the host in a container's root, in namespaces of its own: what it mounts no one else sees, and
//! files of the container cannot reach it.
//!
//! The only `unsafe` of the hooks is here: leaving the process's namespaces. That is sound since file descriptors
//! stay shared.

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

/// Runs `program` with `arguments` and the container's root as its own; returns whether it succeeded. The calling
/// thread is in the container's root afterwards.
pub(super) fn run_in(root: &Path, program: &[u8], arguments: &[&str]) -> std::io::Result<bool> {
    leave()?;
    // What is mounted from here on stays with this thread.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount_bind_recursive(root, root)?;
    // Opened again: the mount that becomes the root, not what is below it.
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
    // A file that is open for writing cannot be run.
    drop(copy);
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, "", &place, "", flags)?;
    enter(root)?;
    let status = Command::new(format!("{dir}/program")).args(arguments).env_clear().status();
    let _ = unmount(format!("/proc/self/fd/{}", mount.as_raw_fd()), UnmountFlags::DETACH)
        .or_else(|_| unmount(dir.as_str(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW));
    drop(mount);
    let _ = inside.remove_dir(Path::new(&dir));
    let _ = inside.remove_dir(Path::new("/run/nvidia-ctk-hook"));
    Ok(status?.success())
}

/// Makes the container's root ours.
fn enter(root: &Path) -> std::io::Result<()> {
    chdir(root)?;
    // The old root ends up below the new one, at the same place: it is let go from there.
    if pivot_root(".", ".").is_ok() {
        unmount(".", UnmountFlags::DETACH)?;
    } else {
        // A host that runs from its initial file system cannot let go of it.
        mount_move(".", "/")?;
        chroot(".")?;
    }
    Ok(chdir("/")?)
}

/// Leaves the namespaces of mounts, names, messages, processes and networks.
#[allow(unsafe_code)]
fn leave() -> std::io::Result<()> {
    let flags =
        UnshareFlags::NEWNS | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC | UnshareFlags::NEWPID | UnshareFlags::NEWNET;
    // SAFETY: the table of file descriptors is not among what is left, so that no descriptor loses its owner.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Mounts of this thread stay its own from here on.
    pub(in crate::hook) fn leave_for_test() -> std::io::Result<()> {
        leave()?;
        Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
    }
}
