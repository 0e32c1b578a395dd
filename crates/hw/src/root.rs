//! Files below another root: a container's, the host's, a test's.
//!
//! Every symlink is resolved inside the root, so that it cannot lead outside.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// A command for a program in a root (chroot), with its own libraries.
pub fn command_in(root: &Path, program: &str) -> Command {
    if root == Path::new("/") {
        return Command::new(program);
    }
    let mut command = Command::new("chroot");
    command.arg(root).arg(program);
    command
}

/// Whether a file below `root` is executable: a regular, non-empty file with an execute bit.
pub fn executable_in(root: &Path, file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let Some(file) = resolve_in(root, file) else { return false };
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0 && meta.permissions().mode() & 0o111 != 0)
}

/// Resolves a path with every symlink relative to `root`; `None` if it does not exist, is not below `root`, or has a
/// symlink loop.
pub fn resolve_in(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut todo: Vec<PathBuf> = components(path.strip_prefix(root).ok()?);
    let mut real = root.to_owned();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == Path::new("..") {
            if real != root {
                real.pop();
            }
            continue;
        }
        let next = real.join(&part);
        let meta = next.symlink_metadata().ok()?;
        if !meta.is_symlink() {
            real = next;
            continue;
        }
        links += 1;
        if links > 40 {
            return None;
        }
        let target = std::fs::read_link(&next).ok()?;
        if target.is_absolute() {
            real = root.to_owned();
        }
        todo.extend(components(&target));
    }
    Some(real)
}

/// Components of a path in reverse, without `.`.
fn components(path: &Path) -> Vec<PathBuf> {
    let named = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        _ => None,
    });
    let mut names: Vec<PathBuf> = named.collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn root_with(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for file in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
            std::fs::write(file, "x").expect("a file");
        }
        root
    }

    #[test]
    fn a_link_cannot_leave_the_root() {
        let root = root_with(&["etc/passwd"]);
        symlink("../../../../../../etc/passwd", root.path().join("up")).expect("a link");
        assert_eq!(resolve_in(root.path(), &root.path().join("up")), Some(root.path().join("etc/passwd")));
        symlink("loop", root.path().join("loop")).expect("a link");
        assert_eq!(resolve_in(root.path(), &root.path().join("loop")), None);
        assert_eq!(resolve_in(root.path(), Path::new("/etc/passwd")), None);
    }
}
