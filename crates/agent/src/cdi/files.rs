//! A driver's files below its root: libraries, programs, configuration, firmware, sockets.
//!
//! Every directory is read once, and a file is only inspected when its name matches: a stat on a compressed image costs
//! more than everything else. Missing files are skipped; only a driver without `libcuda` is an error.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use capstan_cdi::Mount;
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::root::{executable_in, resolve_in};

use super::{Settings, ldcache};
use crate::config::Pattern;
use crate::{Error, Result};

/// Library directories below the driver root, in order.
const LIBRARY_DIRS: [&str; 12] = [
    "",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib/x86_64-linux-gnu/nvidia/current",
    "lib/aarch64-linux-gnu/nvidia/current",
    "lib64/nvidia/current",
];

const FILE_OPTIONS: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];
const SOCKET_OPTIONS: [&str; 5] = ["nosuid", "nodev", "rbind", "rprivate", "noexec"];

/// A directory with driver libraries.
#[derive(Debug)]
pub(super) struct LibraryDir {
    /// Its resolved path in this container.
    pub(super) path: PathBuf,
    /// Sorted names of possible libraries, and whether each is a symlink.
    pub(super) names: Vec<(String, bool)>,
}

/// The files of one driver version.
#[derive(Debug)]
pub(super) struct Driver<'a> {
    /// Its roots.
    pub(super) roots: &'a Roots,
    /// Its version.
    pub(super) version: String,
    /// Its library directories.
    pub(super) dirs: Vec<LibraryDir>,
}

impl<'a> Driver<'a> {
    /// Finds the driver of this version; empty for the version in its file names.
    pub(super) fn find(roots: &'a Roots, settings: &Settings, version: &str) -> Result<Self> {
        let fixed = LIBRARY_DIRS.iter().map(|dir| roots.here.join(dir));
        let wanted = settings.library_search_paths.iter().map(|dir| below(roots, dir));
        let mut dirs = Vec::new();
        let mut seen = BTreeSet::new();
        let mut version = version.to_owned();
        read(roots, wanted.chain(fixed), &mut seen, &mut dirs);
        find_version(&mut version, &dirs);
        if !has_cuda(&dirs, &version) {
            read(roots, roots.loader_dirs().into_iter(), &mut seen, &mut dirs);
            find_version(&mut version, &dirs);
        }
        if !has_cuda(&dirs, &version) {
            let cache = std::fs::read(roots.here.join("etc/ld.so.cache")).unwrap_or_default();
            let named = ldcache::paths(&cache).into_iter().filter(|path| path.contains("/libcuda.so"));
            let named = named.filter_map(|path| Some(below(roots, Path::new(&path).parent()?)));
            read(roots, named, &mut seen, &mut dirs);
            find_version(&mut version, &dirs);
        }
        if !has_cuda(&dirs, &version) {
            let shown = if version.is_empty() { "*" } else { &version };
            return Err(Error::Check(format!(
                "no libcuda.so.{shown} below {}: every container with a GPU would fail; is the driver installed there?",
                roots.here.display()
            )));
        }
        let suffix = format!(".so.{version}");
        dirs.retain(|dir| dir.names.iter().any(|(name, _)| name.ends_with(&suffix)));
        let more: Vec<PathBuf> = dirs.iter().map(|dir| dir.path.join("vdpau")).collect();
        read(roots, more.into_iter(), &mut seen, &mut dirs);
        dirs.retain(|dir| dir.names.iter().any(|(name, _)| name.ends_with(&suffix)));
        Ok(Self { roots, version, dirs })
    }

    /// The path of a file in the container: relative to the driver root.
    pub(super) fn in_container(&self, path: &Path) -> String {
        let rest = path.strip_prefix(&self.roots.here).unwrap_or(path);
        Path::new("/").join(rest).to_string_lossy().into_owned()
    }

    /// A bind mount at the same path below the root.
    pub(super) fn mount(&self, path: &Path) -> Option<Mount> {
        self.mount_at(path, self.in_container(path))
    }

    fn mount_at(&self, path: &Path, container_path: String) -> Option<Mount> {
        let real = resolve_in(&self.roots.here, path)?;
        Some(self.mount_of(&real, container_path, &FILE_OPTIONS))
    }

    fn mount_of(&self, real: &Path, container_path: String, options: &[&str]) -> Mount {
        Mount {
            host_path: self.roots.on_host(real).to_string_lossy().into_owned(),
            container_path,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            type_: None,
        }
    }

    /// Libraries that match a pattern, each name once: the first directory wins.
    pub(super) fn libraries(&self, patterns: &[String]) -> Vec<PathBuf> {
        let mut names = BTreeSet::new();
        let mut found = Vec::new();
        for dir in &self.dirs {
            for (name, _) in &dir.names {
                if patterns.iter().any(|pattern| glob(pattern, name)) && names.insert(name.clone()) {
                    found.push(dir.path.join(name));
                }
            }
        }
        found
    }

    /// Mounts of libraries. Names with the driver version are files; others may be symlinks.
    pub(super) fn library_mounts(&self, patterns: &[String]) -> Vec<Mount> {
        self.libraries(patterns).iter().filter_map(|path| self.mount(path)).collect()
    }

    /// Symlinks to these libraries in their directories, as target and link: `libcuda.so.1::/…/libcuda.so`.
    pub(super) fn links(&self, libraries: &[PathBuf]) -> Vec<(String, String)> {
        let stem = |name: &str| name.split_once(".so").map(|(stem, _)| stem.to_owned());
        let names = libraries.iter().filter_map(|path| stem(path.file_name()?.to_str()?));
        let stems: BTreeSet<String> = names.collect();
        let mut links = Vec::new();
        for dir in &self.dirs {
            let here = self.in_container(&dir.path);
            for (name, _) in dir.names.iter().filter(|(_, link)| *link) {
                if !stem(name).is_some_and(|stem| stems.contains(&stem)) || libraries.contains(&dir.path.join(name)) {
                    continue;
                }
                let target = std::fs::read_link(dir.path.join(name)).ok();
                let target = target.as_ref().and_then(|target| target.file_name()?.to_str());
                // Skip a symlink to another library than the mounted one.
                if let Some(target) = target.filter(|target| stem(target) == stem(name)) {
                    links.push((target.to_owned(), format!("{here}/{name}")));
                }
            }
        }
        links
    }

    /// Prefixes of the library directories: `/usr` for `/usr/lib64`.
    fn prefixes(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for dir in &self.dirs {
            let lib = dir
                .path
                .ancestors()
                .find(|dir| dir.file_name().is_some_and(|name| matches!(name.to_str(), Some("lib" | "lib64"))));
            let prefix = lib.and_then(Path::parent).map(Path::to_owned);
            found.extend(prefix.filter(|prefix| !found.contains(prefix)));
        }
        found
    }

    /// Mounts of driver programs.
    pub(super) fn programs(&self, names: &[&str]) -> Vec<Mount> {
        let prefixes = self.prefixes();
        let find = |name: &&str| {
            // Programs next to the libraries have the same version: they come first.
            let beside = prefixes.iter().map(|prefix| prefix.join("bin").join(name));
            let beside = beside.into_iter().find(|path| executable_in(&self.roots.here, path));
            beside.or_else(|| self.roots.program(name)).and_then(|path| self.mount(&path))
        };
        names.iter().filter_map(find).collect()
    }

    /// Mounts of files searched in `directories` below the root and next to the libraries, mounted at `place`.
    pub(super) fn configuration(
        &self,
        settings: &Settings,
        directories: &[&str],
        place: &str,
        names: &[&str],
    ) -> Vec<Mount> {
        let here = &self.roots.here;
        let more = settings.config_search_paths.iter().map(|dir| below(self.roots, dir));
        let fixed = directories.iter().map(|dir| here.join(dir));
        let beside = self.prefixes().into_iter().map(|prefix| prefix.join("share"));
        let mut searched: Vec<PathBuf> = Vec::new();
        for dir in more.chain(fixed).chain(beside) {
            if !searched.contains(&dir) && dir.is_dir() {
                searched.push(dir);
            }
        }
        let find = |name: &&str| {
            let found = searched.iter().map(|dir| dir.join(name));
            found.into_iter().find_map(|path| self.mount_at(&path, format!("{place}/{name}")))
        };
        names.iter().filter_map(find).collect()
    }

    /// Mounts of the GSP firmware, from the first directory that has this version.
    pub(super) fn firmware(&self, settings: &Settings) -> Vec<Mount> {
        let here = &self.roots.here;
        let line = |path: &str| std::fs::read_to_string(settings.root.join(path)).unwrap_or_default().trim().to_owned();
        let custom = line("sys/module/firmware_class/parameters/path");
        let kernel = line("proc/sys/kernel/osrelease");
        let mut dirs: Vec<PathBuf> = Vec::new();
        dirs.extend((!custom.is_empty()).then(|| below(self.roots, Path::new(&custom))));
        for dir in ["lib/firmware/updates", "lib/firmware"] {
            dirs.extend((!kernel.is_empty()).then(|| here.join(dir).join(&kernel)));
            dirs.push(here.join(dir));
        }
        dirs.extend(self.prefixes().into_iter().map(|prefix| prefix.join("firmware")));
        for dir in dirs {
            let dir = dir.join("nvidia").join(&self.version);
            let found: Vec<Mount> = names(&dir)
                .into_iter()
                .filter(|(name, _)| glob("gsp*.bin", name))
                .filter_map(|(name, _)| self.mount(&dir.join(name)))
                .collect();
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// Mounts of the sockets of driver daemons, if they run.
    pub(super) fn sockets(&self) -> Vec<Mount> {
        let here = &self.roots.here;
        let either = |name: &str| [format!("run/{name}"), format!("var/run/{name}")];
        let places = [
            either("nvidia-persistenced/socket").to_vec(),
            either("nvidia-fabricmanager/socket").to_vec(),
            vec!["tmp/nvidia-mps".to_owned()],
        ];
        let find = |places: &Vec<String>| {
            let found = places.iter().find_map(|place| resolve_in(here, &here.join(place)))?;
            Some(self.mount_of(&found, self.in_container(&found), &SOCKET_OPTIONS))
        };
        places.iter().filter_map(find).collect()
    }
}

/// A user-given directory, below the driver root.
fn below(roots: &Roots, dir: &Path) -> PathBuf {
    if dir.starts_with(&roots.here) {
        return dir.to_owned();
    }
    roots.here.join(dir.strip_prefix("/").unwrap_or(dir))
}

fn read(roots: &Roots, dirs: impl Iterator<Item = PathBuf>, seen: &mut BTreeSet<PathBuf>, into: &mut Vec<LibraryDir>) {
    for dir in dirs {
        let Some(path) = resolve_in(&roots.here, &dir) else { continue };
        if seen.insert(path.clone()) {
            let mut names = names(&path);
            names.retain(|(name, _)| name.contains(".so"));
            into.push(LibraryDir { path, names });
        }
    }
}

/// Sorted names in a directory, and whether each is a symlink.
pub(super) fn names(dir: &Path) -> Vec<(String, bool)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<(String, bool)> = entries
        .filter_map(|entry| {
            Some((entry.file_name().into_string().ok()?, entry.file_type().is_ok_and(|kind| kind.is_symlink())))
        })
        .collect();
    names.sort();
    names
}

fn has_cuda(dirs: &[LibraryDir], version: &str) -> bool {
    let name = format!("libcuda.so.{version}");
    dirs.iter().any(|dir| dir.names.iter().any(|(found, _)| *found == name))
}

/// The driver version in library names: at least two dots tell it from an ABI version.
fn find_version(version: &mut String, dirs: &[LibraryDir]) {
    if !version.is_empty() {
        return;
    }
    let names = dirs.iter().flat_map(|dir| &dir.names).map(|(name, _)| name.as_str());
    let suffix = |name: &'_ str| {
        let rest = name.strip_prefix("libcuda.so.").or_else(|| name.strip_prefix("libnvidia-ml.so."))?;
        rest.contains('.').then(|| rest.to_owned())
    };
    if let Some(found) = names.into_iter().find_map(suffix) {
        *version = found;
    }
}

/// Whether a name matches a pattern with `*`.
pub(super) fn glob(pattern: &str, name: &str) -> bool {
    Pattern::new(pattern).matches(name)
}
