//! Modules of the fake kernel.

use std::io;

use rustix::io::Errno;

use super::Kernel;
use crate::fake::ModuleFile;
use crate::modules::{Module, Modules, loaded};
use crate::sysfs::{Attributes, number};
use crate::{Error, Result};

/// The directory of a module.
fn module_dir(name: &str) -> String {
    format!("sys/module/{name}")
}

impl Kernel {
    /// Makes a module loadable.
    pub(in crate::fake) fn install(&self, module: &ModuleFile) -> io::Result<()> {
        self.save_state("modules", &module.name, module)
    }

    /// Loads a module; one of the same name is replaced.
    pub(in crate::fake) fn replace(&self, module: &ModuleFile) -> io::Result<()> {
        let _lock = self.lock();
        self.install(module)?;
        self.delete(&module_dir(&module.name))?;
        self.insert_module(&module.name, &[])
    }

    /// Sets how many references a module has beyond its holders, such as processes with its device open.
    pub fn set_references(&self, name: &str, references: u32) -> io::Result<()> {
        let _lock = self.lock();
        self.file(&format!(".kernel/references/{name}"), &references.to_string())?;
        self.write_proc_modules()
    }

    /// Loads a module and its dependencies.
    fn insert_module(&self, name: &str, parameters: &[(&str, &str)]) -> io::Result<()> {
        if self.path(&module_dir(name)).exists() {
            return Ok(());
        }
        let module: ModuleFile = self.load_state("modules", name)?;
        module.depends.iter().try_for_each(|needed| self.insert_module(needed, &[]))?;
        let unknown = |(key, _): &&(&str, &str)| !module.parameters.contains_key(*key);
        if parameters.iter().any(|parameter| unknown(&parameter)) {
            return Err(Errno::INVAL.into());
        }
        let mut values = module.parameters.clone();
        values.extend(parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        self.file(&format!("{}/initstate", module_dir(name)), "live\n")?;
        for (key, value) in values {
            self.file(&format!("{}/parameters/{key}", module_dir(name)), &format!("{value}\n"))?;
        }
        for needed in &module.depends {
            self.link(&format!("{}/holders/{name}", module_dir(needed)), &format!("../../{name}"))?;
        }
        if let Some(version) = &module.version {
            self.file(&format!("{}/version", module_dir(name)), &format!("{version}\n"))?;
        }
        if name == "nvidia" {
            let version = module.version.as_deref().unwrap_or("0.0");
            let line = format!("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n");
            self.file("proc/driver/nvidia/version", &line)?;
        }
        module.drivers.iter().try_for_each(|driver| self.add_driver(driver))?;
        self.write_proc_modules()
    }

    fn remove_module(&self, name: &str) -> io::Result<()> {
        let module: ModuleFile = self.load_state("modules", name)?;
        module.drivers.iter().try_for_each(|driver| self.remove_driver(driver))?;
        for needed in &module.depends {
            self.delete(&format!("{}/holders/{name}", module_dir(needed)))?;
        }
        if name == "nvidia" {
            self.delete("proc/driver/nvidia/version")?;
        }
        self.delete(&module_dir(name))?;
        self.write_proc_modules()
    }

    /// Writes reference counts and `/proc/modules`.
    fn write_proc_modules(&self) -> io::Result<()> {
        let mut lines = String::new();
        for name in self.names("sys/module").iter().rev() {
            let holders = self.names(&format!("{}/holders", module_dir(name)));
            let others = number(&self.path(".kernel/references"), name).unwrap_or_default();
            let count = others as usize + holders.len();
            self.file(&format!("{}/refcnt", module_dir(name)), &format!("{count}\n"))?;
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
        let _lock = self.lock();
        self.insert_module(name, parameters).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => format!("{name}: module not found"),
                _ => format!("{name}: {error}"),
            };
            Error::Call { call: "modprobe", why }
        })
    }

    fn unload(&self, name: &str) -> Result<()> {
        let _lock = self.lock();
        let found = loaded(self.root())?.into_iter().find(|module| module.name == name);
        let module = found.ok_or_else(|| Error::NotFound(format!("kernel module {name}")))?;
        if module.references > 0 {
            return Err(Error::InUse(format!("kernel module {name}")));
        }
        let failed = |error: io::Error| Error::Call { call: "delete_module", why: format!("{name}: {error}") };
        self.remove_module(name).map_err(failed)
    }
}
