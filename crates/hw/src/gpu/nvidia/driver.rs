//! Paths of a driver: in the host's root, in a driver container's, or on the loader's search path.
//!
//! A file is always resolved inside a root ([`crate::root`]), so that a symlink in a driver image cannot lead to one of
//! our files.

use std::path::{Path, PathBuf};

use crate::root::{executable_in, resolve_in};
use crate::{Error, Result};

/// Library directories relative to a driver root, in search order.
pub const LIBRARY_DIRS: [&str; 6] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
];

/// Program directories relative to a driver root.
pub const PROGRAM_DIRS: [&str; 6] = ["usr/bin", "usr/sbin", "bin", "sbin", "usr/lib/wsl/lib", "opt/bin"];

/// The roots of a driver and of its device nodes, on the host and in this container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// Driver root on the host.
    pub host: PathBuf,
    /// Where it is mounted in this container.
    pub here: PathBuf,
    /// Root of `dev/` on the host.
    pub dev_host: PathBuf,
    /// Where it is mounted in this container.
    pub dev_here: PathBuf,
}

impl Roots {
    /// A driver on this machine.
    pub fn local() -> Self {
        Self::new("/", "/", None)
    }

    /// A driver whose root is `host` on the host and `here` in this container. Device nodes are below it if it has a
    /// `dev` directory, else in `/`; `dev_host` overrides that.
    pub fn new(host: impl Into<PathBuf>, here: impl Into<PathBuf>, dev_host: Option<PathBuf>) -> Self {
        let (host, here) = (host.into(), here.into());
        // A driver image may have an empty `dev` as mount point.
        let has_dev = std::fs::read_dir(here.join("dev")).is_ok_and(|mut entries| entries.next().is_some());
        let (dev_host, dev_here) = match dev_host {
            Some(dev) if dev == host => (dev, here.clone()),
            Some(dev) => (dev.clone(), dev),
            None if has_dev => (host.clone(), here.clone()),
            None => ("/".into(), "/".into()),
        };
        Self { host, here, dev_host, dev_here }
    }

    /// Path of the NVML library.
    pub fn nvml(&self) -> Result<PathBuf> {
        self.library("libnvidia-ml.so.1").ok_or_else(|| Error::NoLibrary { searched: self.here.clone() })
    }

    /// Path of a library: below the driver root or, if that is `/`, anywhere on the loader's search path.
    pub fn library(&self, name: &str) -> Option<PathBuf> {
        let fixed = LIBRARY_DIRS.iter().map(|dir| self.here.join(dir));
        // A driver may be mounted anywhere on the loader's search path.
        let loader = std::iter::once_with(|| self.loader_dirs()).flatten();
        fixed.chain(loader).find_map(|dir| resolve_in(&self.here, &dir.join(name)).filter(|file| file.is_file()))
    }

    /// Path of a program: below the driver root or, if that is `/`, on `PATH`.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let fixed = PROGRAM_DIRS.iter().map(|dir| self.here.join(dir));
        let path = std::env::var_os("PATH").filter(|_| self.local_root());
        let path: Vec<PathBuf> = path.iter().flat_map(std::env::split_paths).collect();
        fixed.chain(path).map(|dir| dir.join(name)).find(|file| executable_in(&self.here, file))
    }

    /// The host path of a path in this container; compared by components, so `/driver-root2` is not below
    /// `/driver-root`.
    pub fn on_host(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.here) {
            Ok(rest) => self.host.join(rest),
            Err(_) => path.to_owned(),
        }
    }

    /// Additional library directories of the root's loader: `LD_LIBRARY_PATH`, if the root is `/`, then its
    /// configuration.
    pub fn loader_dirs(&self) -> Vec<PathBuf> {
        let named = std::env::var_os("LD_LIBRARY_PATH").filter(|_| self.local_root());
        let named = named.iter().flat_map(std::env::split_paths).filter(|dir| dir.is_absolute());
        named.chain(loader_dirs(&self.here)).collect()
    }

    fn local_root(&self) -> bool {
        self.here == Path::new("/")
    }
}

/// Directories listed in the configuration of a root's loader.
fn loader_dirs(root: &Path) -> Vec<PathBuf> {
    let parts = root.join("etc/ld.so.conf.d");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&parts)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    files.insert(0, root.join("etc/ld.so.conf"));
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(resolve_in(root, file)?).ok());
    let dirs = texts.flat_map(|text| {
        let named = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
        named.map(|line| root.join(line.trim_start_matches('/'))).collect::<Vec<_>>()
    });
    dirs.collect()
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
    fn the_library_is_found_through_links_of_the_driver_root() {
        let root = root_with(&["usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.1"]);
        let dir = root.path().join("usr/lib/x86_64-linux-gnu");
        symlink("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.1", dir.join("libnvidia-ml.so.1")).expect("a link");
        let found = Roots::new("/run/nvidia/driver", root.path(), None).nvml();
        assert_eq!(found, Ok(dir.join("libnvidia-ml.so.580.1")));
    }

    #[test]
    fn the_library_is_found_where_the_roots_own_loader_looks() {
        let root = root_with(&["usr/local/nvidia/lib64/libnvidia-ml.so.1"]);
        std::fs::create_dir_all(root.path().join("etc/ld.so.conf.d")).expect("a directory");
        std::fs::write(root.path().join("etc/ld.so.conf.d/gpu.conf"), "# a comment\n/usr/local/nvidia/lib64\n")
            .expect("a file");
        let found = Roots::new("/", root.path(), None).nvml();
        assert_eq!(found, Ok(root.path().join("usr/local/nvidia/lib64/libnvidia-ml.so.1")));
    }

    #[test]
    fn a_root_without_a_driver_is_named() {
        let root = root_with(&[]);
        let error = Roots::new("/", root.path(), None).nvml().expect_err("nothing there").to_string();
        assert!(error.contains(&root.path().display().to_string()), "{error}");
    }

    #[test]
    fn devices_are_below_the_driver_root_only_if_it_has_some() {
        let with = root_with(&["dev/null"]);
        assert_eq!(Roots::new("/run/nvidia/driver", with.path(), None).dev_host, Path::new("/run/nvidia/driver"));
        let without = root_with(&[]);
        assert_eq!(Roots::new("/run/nvidia/driver", without.path(), None).dev_host, Path::new("/"));
    }

    #[test]
    fn host_paths_replace_whole_components() {
        let roots = Roots::new("/run/nvidia/driver", "/driver-root", None);
        assert_eq!(roots.on_host(Path::new("/driver-root/usr/lib64/x")), Path::new("/run/nvidia/driver/usr/lib64/x"));
        assert_eq!(roots.on_host(Path::new("/driver-root2/x")), Path::new("/driver-root2/x"));
        assert_eq!(roots.on_host(Path::new("/driver-root")), Path::new("/run/nvidia/driver"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn any_configuration_of_the_loader_is_answered(text in "[ -~\n]{0,80}") {
            let root = root_with(&["etc/ld.so.conf"]);
            std::fs::write(root.path().join("etc/ld.so.conf"), text).expect("a file");
            let found = loader_dirs(root.path());
            proptest::prop_assert!(found.iter().all(|dir| dir.starts_with(root.path())));
        }
    }
}
