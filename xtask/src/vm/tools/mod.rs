//! What guests need, in the cache: a Debian tree, modules built against its kernel, containerd and Multus.
//!
//! Each is a folder whose name comes from what it is made of, and that gets its name when it is complete: a run that was
//! cut short goes on where the last complete one ended. Nothing on this machine is upgraded.

mod containerd;
mod debian;
mod modules;
mod stage;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};

use crate::cluster::{packages, tools as programs};

/// Where everything lies.
pub(crate) struct Tools {
    /// The guest's root, which also has the programs that run it.
    pub(crate) tree: PathBuf,
    /// Modules, keys, and what Secure Boot boots.
    pub(crate) modules: PathBuf,
    /// containerd, as a layer over the tree.
    pub(crate) containerd: PathBuf,
    /// The CNI plugin that calls others.
    pub(crate) multus: PathBuf,
}

/// The cache of guests on this machine.
pub(crate) fn folder() -> Result<PathBuf> {
    Ok(programs::cache()?.join("vm"))
}

impl Tools {
    /// Finds all of them, and makes none.
    pub(crate) fn find(root: &Path) -> Result<Self> {
        let missing = |what: &str| anyhow!("{what} is not in the cache: run `cargo xtask vm tools`");
        let tree = debian::stage(root)?.ready().ok_or_else(|| missing("the guest's tree"))?;
        Ok(Self {
            modules: modules::stage(root, &tree)?.ready().ok_or_else(|| missing("what is built for its kernel"))?,
            containerd: containerd::stage()?.ready().ok_or_else(|| missing("containerd"))?,
            multus: programs::MULTUS.present(root)?.ok_or_else(|| missing("multus"))?,
            tree,
        })
    }

    /// A program of the tree, which runs on this machine although its libraries are of another release.
    pub(crate) fn program(&self, path: &str) -> std::process::Command {
        let libraries = self.tree.join("usr/lib/x86_64-linux-gnu");
        let mut command = std::process::Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(self.tree.join(path));
        command
    }

    /// The guest's kernel.
    pub(crate) fn kernel(&self) -> Result<PathBuf> {
        let boot = self.tree.join("boot");
        let entries = std::fs::read_dir(&boot).with_context(|| format!("cannot read {}", boot.display()))?;
        let kernels = entries.flatten().map(|entry| entry.path());
        let name = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"));
        kernels.into_iter().find(|path| name(path)).with_context(|| format!("no kernel in {}", boot.display()))
    }
}

/// Makes what is missing, and says where it is.
pub(crate) fn make(root: &Path) -> Result<()> {
    let begin = Instant::now();
    let folder = folder()?;
    std::fs::create_dir_all(&folder)?;
    // Two at once would make the same folders.
    let lock = File::create(folder.join("lock"))?;
    lock.lock().context("cannot lock the cache")?;
    let missing = if crate::cluster::in_path("debootstrap").is_none() { vec!["debootstrap"] } else { Vec::new() };
    packages::install("a guest's tree", &missing)?;
    let tools = std::thread::scope(|scope| -> Result<Tools> {
        // Compiling needs the processor, and packages the network and the disk.
        let multus = scope.spawn(|| programs::MULTUS.find(root));
        let tree = debian::stage(root)?.make(|part| debian::make(root, part))?;
        let modules = modules::stage(root, &tree)?.make(|part| modules::make(root, &tree, part))?;
        let containerd = containerd::stage()?.make(|part| containerd::make(&tree, part))?;
        let multus = multus.join().map_err(|_| anyhow!("building multus panicked"))??;
        Ok(Tools { tree, modules, containerd, multus })
    })?;
    for (name, path) in [
        ("tree", &tools.tree),
        ("modules", &tools.modules),
        ("containerd", &tools.containerd),
        ("multus", &tools.multus),
    ] {
        println!("{name} {}", path.display());
    }
    println!("acceleration {}", super::accelerator::choose(&tools)?.name());
    eprintln!("vm tools: ready in {} s", begin.elapsed().as_secs());
    Ok(())
}
