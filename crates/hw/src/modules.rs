//! Kernel modules: listing, loading and unloading.

use std::collections::BTreeMap;
use std::path::Path;

use crate::root::command_in;
use crate::sysfs::{Attributes, Host, names, text};
use crate::{Error, Result};

/// A loaded module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Module {
    /// Its name, with underscores: `nvidia_uvm`.
    pub name: String,
    /// Reference count: modules that use it, open devices, mounts.
    pub references: u32,
    /// Modules that use it.
    pub holders: Vec<String>,
    /// Its version, if any.
    pub version: Option<String>,
    /// Its readable parameters.
    pub parameters: BTreeMap<String, String>,
}

/// The modules of a node's kernel.
pub trait Modules: Send + Sync {
    /// Loaded modules, by name.
    fn loaded(&self) -> Result<Vec<Module>>;
    /// Loads a module and its dependencies. A loaded module keeps its parameters.
    fn load(&self, name: &str, parameters: &[(&str, &str)]) -> Result<()>;
    /// Unloads one module without references. Its dependencies stay loaded.
    fn unload(&self, name: &str) -> Result<()>;
}

/// Modules that the kernel below `root` has loaded, by name.
pub fn loaded(root: &Path) -> Result<Vec<Module>> {
    let path = root.join("proc/modules");
    let listed = match std::fs::read_to_string(&path) {
        Ok(listed) => listed,
        // A kernel without modules.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::File { path, why: error.to_string() }),
    };
    let mut modules: Vec<Module> = listed.lines().filter_map(|line| module(root, line)).collect();
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(modules)
}

/// Parses a line of `/proc/modules`: name, size, references, holders, state. A module in transition is not loaded.
fn module(root: &Path, line: &str) -> Option<Module> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, _size, references, holders, state, ..] = words[..] else { return None };
    let dir = root.join("sys/module").join(name);
    let parameters = dir.join("parameters");
    // Some parameters are write-only.
    let read = |name: String| text(&parameters, &name).map(|value| (name, value));
    (state == "Live").then(|| Module {
        name: name.to_owned(),
        references: references.parse().unwrap_or_default(),
        holders: holders.split(',').filter(|name| !matches!(*name, "" | "-")).map(str::to_owned).collect(),
        version: text(&dir, "version"),
        parameters: names(&parameters).unwrap_or_default().into_iter().filter_map(read).collect(),
    })
}

impl Modules for Host {
    fn loaded(&self) -> Result<Vec<Module>> {
        loaded(self.root())
    }

    fn load(&self, name: &str, parameters: &[(&str, &str)]) -> Result<()> {
        // The host's modprobe knows dependencies, aliases and blacklists.
        let mut command = command_in(self.root(), "modprobe");
        command.arg("--").arg(name).args(parameters.iter().map(|(key, value)| format!("{key}={value}")));
        let failed = |why: String| Error::Call { call: "modprobe", why: format!("{name}: {why}") };
        let output = command.output().map_err(|error| failed(error.to_string()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }

    fn unload(&self, name: &str) -> Result<()> {
        use rustix::io::Errno;
        // O_NONBLOCK: fail with EAGAIN instead of waiting for the references to go.
        const NONBLOCK: std::ffi::c_int = 0o4000;
        let failed = |why: String| Error::Call { call: "delete_module", why: format!("{name}: {why}") };
        let text = std::ffi::CString::new(name).map_err(|error| failed(error.to_string()))?;
        rustix::system::delete_module(&text, NONBLOCK).map_err(|errno| match errno {
            Errno::NOENT => Error::NotFound(format!("kernel module {name}")),
            Errno::PERM => Error::NoPermission("unload a kernel module"),
            Errno::BUSY | Errno::AGAIN => Error::InUse(format!("kernel module {name}")),
            other => failed(other.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_modules_has_none() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(loaded(root.path()), Ok(Vec::new()));
    }

    #[test]
    fn modules_are_read_with_holders_and_parameters() {
        let root = crate::fake::Root::new(tempfile::tempdir().expect("a directory").keep());
        let lines =
            "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 3 nvidia_uvm,nvidia_drm, Live 0x0 (POE)\nice 1 0 - Loading 0x0\n";
        let files = [("proc/modules", lines), ("sys/module/nvidia/version", "580.65.06\n")];
        let more = [("sys/module/nvidia/parameters/NVreg_OpenRmEnableUnsupportedGpus", "1\n")];
        files.into_iter().chain(more).for_each(|(name, text)| root.file(name, text).expect("a file"));
        let found = loaded(root.path()).expect("readable");
        let [nvidia, uvm] = &found[..] else { panic!("{found:?}") };
        assert_eq!((uvm.name.as_str(), uvm.references, uvm.holders.len()), ("nvidia_uvm", 0, 0));
        assert_eq!((nvidia.references, nvidia.holders.join(" ")), (3, "nvidia_uvm nvidia_drm".into()));
        assert_eq!(nvidia.version.as_deref(), Some("580.65.06"));
        assert_eq!(nvidia.parameters["NVreg_OpenRmEnableUnsupportedGpus"], "1");
    }

    proptest::proptest! {
        #[test]
        fn any_list_of_modules_is_answered(text in "[ -~\n]{0,80}") {
            for line in text.lines() {
                let _ = module(Path::new("/nowhere"), line);
            }
        }
    }
}
