//! The modules of a kernel that is not there.

use std::io;

use rustix::io::Errno;

use super::Kernel;
use crate::fake::ModuleFile;
use crate::modules::{Module, Modules, loaded};
use crate::sysfs::{Attributes, number};
use crate::{Error, Result};

/// A module's directory.
fn home(name: &str) -> String {
    format!("sys/module/{name}")
}

impl Kernel {
    /// Puts a module where it can be loaded from.
    pub(in crate::fake) fn install(&self, module: &ModuleFile) -> io::Result<()> {
        self.know("modules", &module.name, module)
    }

    /// Loads a module, in place of the one of that name.
    pub(in crate::fake) fn replace(&self, module: &ModuleFile) -> io::Result<()> {
        let _one = self.busy();
        self.install(module)?;
        self.gone(&home(&module.name))?;
        self.insert(&module.name, &[])
    }

    /// Something uses a module, such as a process with its device open, or uses it no more.
    pub fn set_references(&self, name: &str, references: u32) -> io::Result<()> {
        let _one = self.busy();
        self.file(&format!(".kernel/references/{name}"), &references.to_string())?;
        self.list()
    }

    /// Loads a module with what it needs.
    fn insert(&self, name: &str, parameters: &[(&str, &str)]) -> io::Result<()> {
        if self.path(&home(name)).exists() {
            return Ok(());
        }
        let module: ModuleFile = self.known("modules", name)?;
        module.depends.iter().try_for_each(|needed| self.insert(needed, &[]))?;
        let unknown = |(key, _): &&(&str, &str)| !module.parameters.contains_key(*key);
        if parameters.iter().any(|parameter| unknown(&parameter)) {
            return Err(Errno::INVAL.into());
        }
        let mut values = module.parameters.clone();
        values.extend(parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        self.file(&format!("{}/initstate", home(name)), "live\n")?;
        for (key, value) in values {
            self.file(&format!("{}/parameters/{key}", home(name)), &format!("{value}\n"))?;
        }
        for needed in &module.depends {
            self.link(&format!("{}/holders/{name}", home(needed)), &format!("../../{name}"))?;
        }
        if let Some(version) = &module.version {
            self.file(&format!("{}/version", home(name)), &format!("{version}\n"))?;
        }
        if name == "nvidia" {
            let version = module.version.as_deref().unwrap_or("0.0");
            let line = format!("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n");
            self.file("proc/driver/nvidia/version", &line)?;
        }
        module.drivers.iter().try_for_each(|driver| self.add_driver(driver))?;
        self.list()
    }

    fn withdraw(&self, name: &str) -> io::Result<()> {
        let module: ModuleFile = self.known("modules", name)?;
        module.drivers.iter().try_for_each(|driver| self.drop_driver(driver))?;
        for needed in &module.depends {
            self.gone(&format!("{}/holders/{name}", home(needed)))?;
        }
        if name == "nvidia" {
            self.gone("proc/driver/nvidia/version")?;
        }
        self.gone(&home(name))?;
        self.list()
    }

    /// Writes counts and the list of what is loaded.
    fn list(&self) -> io::Result<()> {
        let mut lines = String::new();
        for name in self.names("sys/module").iter().rev() {
            let holders = self.names(&format!("{}/holders", home(name)));
            let others = number(&self.path(".kernel/references"), name).unwrap_or_default();
            let count = others as usize + holders.len();
            self.file(&format!("{}/refcnt", home(name)), &format!("{count}\n"))?;
            let holders = if holders.is_empty() { "-".to_owned() } else { format!("{},", holders.join(",")) };
            lines.push_str(&format!("{name} 16384 {count} {holders} Live 0x0000000000000000\n"));
        }
        self.file("proc/modules", &lines)
    }
}

impl Modules for Kernel {
    fn loaded(&self) -> Result<Vec<Module>> {
        loaded(self.root())
    }

    fn load(&self, name: &str, parameters: &[(&str, &str)]) -> Result<()> {
        let _one = self.busy();
        self.insert(name, parameters).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => format!("{name}: module not found"),
                _ => format!("{name}: {error}"),
            };
            Error::Call { call: "modprobe", why }
        })
    }

    fn unload(&self, name: &str) -> Result<()> {
        let _one = self.busy();
        let found = loaded(self.root())?.into_iter().find(|module| module.name == name);
        let module = found.ok_or_else(|| Error::NotFound(format!("kernel module {name}")))?;
        if module.references > 0 {
            return Err(Error::InUse(format!("kernel module {name}")));
        }
        let failed = |error: io::Error| Error::Call { call: "delete_module", why: format!("{name}: {error}") };
        self.withdraw(name).map_err(failed)
    }
}
