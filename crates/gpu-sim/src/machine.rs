//! Machine of a virtual node: fake GPUs, and the files of its kernel and driver below a directory.
//!
//! Device nodes and libraries are plain files; opening the library of a loaded driver gives the fake.

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_hw::fake::{Fake, Model, ModuleFile, PciDevice, Recording, Root, node};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Gpu, Hardware, Inventory};
use capstan_hw::modules::Modules;
use capstan_hw::{Error, Result};
use k8s_openapi::api::core::v1::Node;

use crate::{HARDWARE, MODEL};

/// Root of a containerized driver, below the host root.
const DRIVER_ROOT: &str = "run/nvidia/driver";
/// Library directory, below the driver root.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Minimum set of driver libraries, with their soname versions.
const SONAMES: [(&str, u32); 4] =
    [("libnvidia-ml", 1), ("libcuda", 1), ("libnvidia-ptxjitcompiler", 1), ("libnvidia-nvvm", 4)];
const PROGRAMS: [&str; 3] = ["nvidia-smi", "nvidia-persistenced", "nvidia-cuda-mps-control"];
/// Kernel modules of the driver, in unload order.
const MODULES: [&str; 2] = ["nvidia_uvm", "nvidia"];

/// The machine of one node. Its disk and GPUs survive reboots.
pub struct Machine {
    root: PathBuf,
    gpus: Arc<Fake>,
}

impl Machine {
    /// Builds the machine that a Node object describes.
    pub(crate) fn build(root: &Path, node: &Node) -> io::Result<Self> {
        let gpus = Arc::new(Fake::new(recording(node)));
        let machine = Self { root: root.to_owned(), gpus };
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let files = Root::new(root);
        let inventory = machine.inventory()?;
        inventory.gpus.iter().try_for_each(|gpu| files.pci(&PciDevice::gpu(gpu)))?;
        machine.configure(&inventory)?;
        files.module(&ModuleFile::new("overlay"))?;
        files.file("proc/sys/kernel/osrelease", &info.map_or_else(String::new, |info| info.kernel_version.clone()))?;
        files.file("etc/os-release", "ID=ubuntu\nVERSION_ID=\"24.04\"\n")?;
        files.file("sys/class/dmi/id/product_name", "Virtual\n")?;
        std::fs::create_dir_all(root.join("dev/char"))?;
        Ok(machine)
    }

    /// Its GPUs: to inject and clear faults.
    pub fn gpus(&self) -> &Arc<Fake> {
        &self.gpus
    }

    /// UUIDs of the GPUs that respond.
    pub fn uuids(&self) -> Vec<String> {
        let found = self.gpus.inventory().map(|inventory| inventory.gpus).unwrap_or_default();
        found.into_iter().map(|gpu| gpu.uuid).collect()
    }

    fn inventory(&self) -> io::Result<Inventory> {
        self.gpus.inventory().map_err(io::Error::other)
    }

    /// Loads a driver, as a driver container does: of this version, or of the recorded one.
    pub(crate) fn load(&self, version: Option<&str>) -> io::Result<()> {
        if let Some(version) = version {
            self.gpus.edit(|recording| recording.inventory.driver = version.to_owned());
        }
        let inventory = self.inventory()?;
        Root::write(&self.root, &inventory)?;
        self.configure(&inventory)?;
        self.install(&self.root.join(DRIVER_ROOT), &inventory.driver)
    }

    /// Writes a PCI config space without capabilities: the GPUs are not virtual.
    fn configure(&self, inventory: &Inventory) -> io::Result<()> {
        let file = |gpu: &Gpu| self.root.join(format!("sys/bus/pci/devices/{}/config", gpu.pci));
        inventory.gpus.iter().try_for_each(|gpu| std::fs::write(file(gpu), [0; 256]))
    }

    /// Unloads the driver: removes its modules, device nodes and files.
    pub(crate) fn unload(&self) -> io::Result<()> {
        let kernel = Root::new(&self.root).kernel();
        let loaded = kernel.loaded().map_err(io::Error::other)?;
        for name in MODULES.iter().filter(|name| loaded.iter().any(|module| module.name == **name)) {
            kernel.unload(name).map_err(io::Error::other)?;
        }
        for entry in std::fs::read_dir(self.root.join("dev"))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("nvidia") {
                remove(&entry.path())?;
            }
        }
        ["proc/driver", "proc/devices", DRIVER_ROOT].iter().try_for_each(|path| remove(&self.root.join(path)))
    }

    /// Installs the files of a driver below a root: placeholders for libraries and programs, and its device nodes.
    fn install(&self, root: &Path, version: &str) -> io::Result<()> {
        let (libraries, programs, dev) = (root.join(LIBRARIES), root.join("usr/bin"), root.join("dev"));
        for dir in [&libraries, &programs, &dev] {
            std::fs::create_dir_all(dir)?;
        }
        for (name, number) in SONAMES {
            let file = format!("{name}.so.{version}");
            std::fs::write(libraries.join(&file), "stand-in\n")?;
            link(&file, &libraries.join(format!("{name}.so.{number}")))?;
        }
        for name in PROGRAMS {
            let file = programs.join(name);
            std::fs::write(&file, "#!/bin/sh\necho this is a stand-in on a virtual node >&2\nexit 1\n")?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
        }
        for entry in std::fs::read_dir(self.root.join("dev"))?.flatten().filter(|entry| entry.path().is_file()) {
            std::fs::write(dev.join(entry.file_name()), "")?;
        }
        Ok(())
    }

    /// Injects the loaded driver into a container, as a container runtime with the toolkit does.
    pub(crate) fn inject(&self, container: &Path) -> io::Result<()> {
        let inventory = self.inventory()?;
        match self.root.join(DRIVER_ROOT).exists() {
            true => self.install(container, &inventory.driver),
            false => Ok(()),
        }
    }

    /// Opens the driver below some roots: it exists where its library is, if it is loaded.
    pub(crate) fn open(&self, roots: &Roots) -> Result<Arc<dyn Hardware>> {
        roots.nvml()?;
        match self.root.join("proc/driver/nvidia/version").exists() {
            true => Ok(self.gpus.clone()),
            false => Err(Error::NoDriver("no kernel module is loaded".into())),
        }
    }
}

/// The NVML recording of a node with its number of GPUs of its model, with UUIDs unique in the cluster.
fn recording(object: &Node) -> Recording {
    let label = |key: &str| object.metadata.labels.as_ref()?.get(key).cloned();
    let count = label(HARDWARE).and_then(|count| count.parse().ok()).unwrap_or(1);
    let wanted = label(MODEL).unwrap_or_default();
    let model = Model::ALL.into_iter().find(|model| format!("{model:?}").eq_ignore_ascii_case(&wanted));
    let recording = node(model.unwrap_or(Model::H200), count);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let text = serde_json::to_string(&recording).expect("a recording is plain data");
    let own = text.replace("-0000-4000-8000-", &format!("-{:04x}-4{:03x}-8000-", hash >> 16, hash & 0xfff));
    serde_json::from_str(&own).expect("a serialized recording parses")
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a symlink, replacing an existing one.
fn link(target: &str, place: &Path) -> io::Result<()> {
    remove(place)?;
    symlink(target, place)
}

#[cfg(test)]
mod tests {
    use capstan_sim::NodeTemplate;

    use super::*;

    fn object(name: &str, gpus: &str) -> Node {
        let template = NodeTemplate::new(name).label(HARDWARE, gpus);
        let labels = Some(template.labels);
        Node {
            metadata: kube::api::ObjectMeta { name: Some(name.into()), labels, ..Default::default() },
            ..Node::default()
        }
    }

    #[test]
    fn a_driver_is_there_while_it_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::build(dir.path(), &object("a", "2")).unwrap();
        let roots = || Roots::new("/run/nvidia/driver", dir.path().join(DRIVER_ROOT), None);
        assert!(matches!(machine.open(&roots()).map(drop), Err(Error::NoLibrary { .. })));
        assert_eq!(capstan_hw::pci::devices(dir.path()).unwrap().len(), 2, "the bus shows GPUs without a driver");
        machine.load(Some("600.1.2")).unwrap();
        let found = machine.open(&roots()).unwrap().inventory().unwrap();
        assert_eq!((found.gpus.len(), found.driver.as_str()), (2, "600.1.2"));
        assert!(dir.path().join("dev/nvidia1").exists());
        machine.unload().unwrap();
        assert!(machine.open(&roots()).is_err() && !dir.path().join("dev/nvidia1").exists());
    }

    #[test]
    fn gpus_of_two_nodes_have_names_of_their_own() {
        let uuid = |name: &str| recording(&object(name, "1")).inventory.gpus[0].uuid.clone();
        assert_ne!(uuid("gpu-0"), uuid("gpu-1"));
        assert_eq!(uuid("gpu-0").len(), "GPU-c0ffee03-0000-4000-8000-000000000000".len());
    }
}
