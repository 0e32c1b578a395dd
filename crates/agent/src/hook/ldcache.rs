//! `update-ldcache`: adds the driver's library directories to the container's loader configuration and, with the host's
//! ldconfig, to its cache.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::inside::Inside;
use super::{failed, isolate};
use crate::config::Pattern;
use crate::{Error, Result};

const CONF: &str = "/etc/ld.so.conf";
const CONF_DIR: &str = "/etc/ld.so.conf.d";

/// Writes the configuration, then runs ldconfig in the container's root.
pub(super) fn update(inside: &Inside, root: &Path, folders: &[String], ldconfig: &str) -> Result<()> {
    if root == Path::new("/") {
        return Err(Error::Config("update-ldcache: the container's root is the host's".into()));
    }
    configure(inside, folders).map_err(failed("cannot configure the container's loader"))?;
    let path = program(ldconfig);
    let bytes = std::fs::read(&path).map_err(failed(format!("cannot read {}", path.display())))?;
    let arguments = ["-f", CONF, "-C", "/etc/ld.so.cache"];
    let done = isolate::run_in(root, &bytes, &arguments).map_err(failed("cannot run ldconfig"))?;
    if !done {
        return Err(Error::External("ldconfig failed in the container's root".into()));
    }
    Ok(())
}

/// The host's ldconfig. On some distributions it is a shell script, which cannot run in the container.
fn program(given: &str) -> PathBuf {
    let path = Path::new(given.trim_start_matches('@'));
    let path = if path.as_os_str().is_empty() { Path::new("/sbin/ldconfig") } else { path };
    let real = path.with_extension("real");
    if real.is_file() { real } else { path.to_owned() }
}

/// Writes the configuration files.
pub(super) fn configure(inside: &Inside, folders: &[String]) -> std::io::Result<()> {
    match inside.read(Path::new(CONF)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            inside.write(Path::new(CONF), format!("include {CONF_DIR}/*.conf\n").as_bytes())?;
        }
        _ => {}
    }
    let system = system_paths(inside);
    let known = named(inside);
    let mut added: Vec<&str> = Vec::new();
    for folder in folders {
        let new = !known.contains(folder) && !system.contains(&folder.as_str()) && !added.contains(&folder.as_str());
        if new {
            added.push(folder);
        }
    }
    for (prefix, dirs) in [("00-nvcr", &added), ("zz-nvcr", &system)] {
        if dirs.is_empty() {
            continue;
        }
        let lines: String = dirs.iter().map(|dir| format!("{dir}\n")).collect();
        let names = (0..100).map(|number| format!("{prefix}-{number}.conf"));
        inside.write_new(CONF_DIR, names, lines.as_bytes())?;
    }
    musl(inside, folders)
}

/// The container's system library directories: listed again at the end, so that the driver's directories precede them.
fn system_paths(inside: &Inside) -> Vec<&'static str> {
    match (inside.resolve(Path::new("/etc/debian_version")).is_ok(), std::env::consts::ARCH) {
        (true, "aarch64") => {
            vec!["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib"]
        }
        (true, _) => vec!["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib"],
        (false, _) => vec!["/lib64", "/usr/lib64", "/lib", "/usr/lib"],
    }
}

/// Directories named by the configuration, includes followed.
pub(super) fn named(inside: &Inside) -> BTreeSet<String> {
    let (mut todo, mut seen, mut dirs) = (vec![PathBuf::from(CONF)], BTreeSet::new(), BTreeSet::new());
    while let Some(path) = todo.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let text = inside.read(&path).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line.split_once(char::is_whitespace) {
                Some(("include", patterns)) => {
                    patterns.split_whitespace().for_each(|pattern| todo.extend(included(inside, pattern)));
                }
                _ if line.starts_with('/') => drop(dirs.insert(line.to_owned())),
                _ => {}
            }
        }
    }
    dirs
}

/// Expands an include; wildcards in the last component only.
fn included(inside: &Inside, pattern: &str) -> Vec<PathBuf> {
    let path = Path::new("/etc").join(pattern);
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let pattern = Pattern::new(name);
    let found = inside.list(dir).unwrap_or_default();
    found.into_iter().filter(|(name, _)| pattern.matches(name)).map(|(name, _)| dir.join(name)).collect()
}

/// musl's loader has a path file of its own, which replaces its default path.
fn musl(inside: &Inside, folders: &[String]) -> std::io::Result<()> {
    if !inside.is_file(Path::new("/etc/alpine-release")) || folders.is_empty() {
        return Ok(());
    }
    let path = PathBuf::from(format!("/etc/ld-musl-{}.path", std::env::consts::ARCH));
    let text = inside.read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let mut text = text.unwrap_or_else(|_| "/lib\n/usr/local/lib\n/usr/lib\n".into());
    for folder in folders {
        let there = text.split([':', '\n']).any(|dir| dir == folder);
        if !there {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(folder);
            text.push('\n');
        }
    }
    inside.write(&path, text.as_bytes())
}
