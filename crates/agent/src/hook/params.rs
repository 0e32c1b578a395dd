//! `disable-device-node-modification`: libcuda creates missing device nodes unless the driver's parameters forbid it.
//! The container gets a copy of them that does.

use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsmount,
    fsopen, mount_remount, move_mount, open_tree,
};

use super::failed;
use super::inside::Inside;
use crate::Result;

const FILE: &str = "/proc/driver/nvidia/params";

/// Mounts modified parameters into the container, if the driver's allow device node creation.
pub(super) fn disable(inside: &Inside) -> Result<()> {
    let host = match std::fs::read_to_string(FILE) {
        Ok(text) => text,
        // No driver, no parameters.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(format!("cannot read {FILE}"))(error)),
    };
    match changed(&host) {
        Some(text) => replace(inside, Path::new(FILE), &text).map_err(failed(format!("cannot replace {FILE}"))),
        None => Ok(()),
    }
}

/// The parameters with ModifyDeviceFiles off; `None` if it is already.
pub(super) fn changed(text: &str) -> Option<String> {
    if !text.lines().any(|line| line == "ModifyDeviceFiles: 1") {
        return None;
    }
    let line = |line: &str| match line {
        "ModifyDeviceFiles: 1" => "ModifyDeviceFiles: 0\n".to_owned(),
        other => format!("{other}\n"),
    };
    Some(text.lines().map(line).collect())
}

/// Mounts a file with this text over one of the container, from a private tmpfs.
pub(super) fn replace(inside: &Inside, path: &Path, text: &str) -> std::io::Result<()> {
    let target = inside.handle(path)?;
    let system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&system)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&mount, "params", flags, Mode::from_raw_mode(0o444))?;
    std::io::Write::write_all(&mut std::fs::File::from(file), text.as_bytes())?;
    let tree = open_tree(&mount, "params", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", &target, "", flags)?;
    // The mount handle resolves to what is on top now.
    let here = format!("/proc/self/fd/{}", tree.as_raw_fd());
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount_remount(here, flags, "")?)
}
