//! Files of an image: a sorted list with modes, filled from this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cluster::output;

/// CA bundles of distributions.
const CERTIFICATES: &[&str] = &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Files by path, without a leading slash.
#[derive(Default)]
pub(super) struct Files(BTreeMap<String, Entry>);

/// A directory or a file.
pub(super) enum Entry {
    Folder { mode: u32 },
    File { mode: u32, content: Vec<u8> },
}

impl Files {
    /// Base of all images: a user, a temporary directory, host names, CA certificates.
    pub(super) fn base(user: u32) -> Self {
        let mut files = Self::default();
        files.folder("tmp", 0o1777);
        let passwd = format!("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:{user}:{user}:nonroot:/:/sbin/nologin\n");
        files.file("etc/passwd", 0o644, passwd.into_bytes());
        files.file("etc/group", 0o644, format!("root:x:0:\nnonroot:x:{user}:\n").into_bytes());
        files.file("etc/nsswitch.conf", 0o644, b"hosts: files dns\n".to_vec());
        if let Some(bundle) = CERTIFICATES.iter().find_map(|path| std::fs::read(path).ok()) {
            files.file("etc/ssl/certs/ca-certificates.crt", 0o644, bundle);
        }
        files
    }

    /// Adds a program with its shared libraries, each where the loader expects it.
    pub(super) fn program(&mut self, from: &Path, to: &str) -> Result<()> {
        self.copy(from, to)?;
        for library in libraries(from)? {
            self.copy(&library, library.to_string_lossy().trim_start_matches('/'))?;
        }
        Ok(())
    }

    fn copy(&mut self, from: &Path, to: &str) -> Result<()> {
        let content = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.file(to, 0o755, content);
        Ok(())
    }

    /// Adds a file, and its parent directories.
    pub(super) fn file(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        for (at, _) in path.match_indices('/') {
            self.folder(&path[..at], 0o755);
        }
        self.0.insert(path.to_owned(), Entry::File { mode, content });
    }

    fn folder(&mut self, path: &str, mode: u32) {
        self.0.entry(path.to_owned()).or_insert(Entry::Folder { mode });
    }

    /// All entries, directories before their contents.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }
}

/// Shared libraries of `program`, by ldd.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let text = match output("ldd", &[&program.display().to_string()]) {
        Ok(text) => text,
        // ldd fails for a static program, which needs none.
        Err(error) if format!("{error:#}").contains("not a dynamic executable") => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(needed(&text))
}

/// Parses `libc.so.6 => /lib/libc.so.6 (0x…)` and `/lib64/ld-linux.so.2 (0x…)`; the vDSO has no file.
fn needed(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let name = line.rsplit("=>").next()?.split_whitespace().next()?;
        name.starts_with('/').then(|| PathBuf::from(name))
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_with_a_path() {
        let text = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(needed(text), expected);
    }

    #[test]
    fn folders_come_before_what_lies_in_them() {
        let mut files = Files::default();
        files.file("usr/bin/x", 0o755, Vec::new());
        let paths: Vec<&str> = files.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["usr", "usr/bin", "usr/bin/x"]);
    }
}
