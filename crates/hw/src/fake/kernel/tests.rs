//! Device writes, on a fake kernel that rejects what real ones reject.

use proptest::prelude::*;

use crate::Error;
use crate::fake::{Kernel, Model, ModuleFile, PciDevice, Root, node};
use crate::modules::{Module, Modules};
use crate::net::{Interface, interfaces};
use crate::pci::{Bus, PciAddress, VirtualFunctions};

fn at(text: &str) -> PciAddress {
    PciAddress::parse(text).expect("an address")
}

/// A node with a GPU, a network adapter and vfio.
fn machine() -> (tempfile::TempDir, Kernel, PciAddress, PciAddress) {
    let dir = tempfile::tempdir().expect("a directory");
    let inventory = node(Model::H200, 1).inventory;
    let root = Root::write(dir.path(), &inventory).expect("a root");
    let nic = at("0000:3b:00.0");
    root.pci(&PciDevice::connectx7(nic.clone(), "enp59s0np0", "mlx5_0")).expect("an adapter");
    root.driver("vfio-pci").expect("a driver");
    root.kernel().probe(&inventory.gpus[0].pci).expect("bound");
    (dir, root.kernel(), inventory.gpus[0].pci.clone(), nic)
}

fn driver(kernel: &Kernel, at: &PciAddress) -> Option<String> {
    kernel.device(at).expect("a device").driver
}

fn names(kernel: &Kernel) -> Vec<String> {
    let found = interfaces(crate::sysfs::Attributes::root(kernel)).expect("readable");
    found.into_iter().map(|it| it.name).collect()
}

#[test]
fn a_gpu_is_given_to_a_virtual_machine_and_taken_back() {
    let (_dir, kernel, gpu, _) = machine();
    assert_eq!(driver(&kernel, &gpu).as_deref(), Some("nvidia"));
    assert!(kernel.device(&gpu).expect("a device").iommu_group.is_some());
    kernel.unbind(&gpu).expect("unbound");
    kernel.unbind(&gpu).expect("nothing to do");
    assert!(matches!(kernel.bind(&gpu, "vfio-pci"), Err(Error::Write { .. })), "vfio-pci does not know it");
    kernel.set_driver_override(&gpu, Some("vfio-pci")).expect("kept");
    kernel.bind(&gpu, "vfio-pci").expect("bound");
    let found = kernel.device(&gpu).expect("a device");
    assert_eq!((found.driver.as_deref(), found.driver_override.as_deref()), (Some("vfio-pci"), Some("vfio-pci")));
    kernel.set_driver_override(&gpu, None).expect("free");
    assert_eq!(driver(&kernel, &gpu).as_deref(), Some("vfio-pci"), "the driver that it has stays");
    kernel.unbind(&gpu).expect("unbound");
    kernel.probe(&gpu).expect("probed");
    assert_eq!(driver(&kernel, &gpu).as_deref(), Some("nvidia"));
}

#[test]
fn a_refused_write_names_file_value_and_reason() {
    let (dir, kernel, gpu, _) = machine();
    let error = kernel.bind(&gpu, "nvidia").expect_err("bound already").to_string();
    let file = dir.path().join("sys/bus/pci/drivers/nvidia/bind");
    assert!(error.contains(&file.display().to_string()) && error.contains(gpu.as_str()), "{error}");
    assert!(error.contains("busy"), "{error}");
    assert_eq!(kernel.remove(&at("0000:99:00.0")), Err(Error::NotFound("0000:99:00.0".into())));
}

#[test]
fn a_removed_device_comes_back_with_a_rescan() {
    let (_dir, kernel, gpu, nic) = machine();
    kernel.set_vfs(&nic, 2).expect("parts");
    kernel.remove(&nic).expect("removed");
    assert_eq!((kernel.devices().expect("readable").len(), names(&kernel).len()), (1, 0));
    kernel.rescan().expect("rescanned");
    assert_eq!(kernel.device(&nic).expect("back").sriov, Some((8, 0)));
    assert_eq!(names(&kernel), ["enp59s0np0"]);
    kernel.reset(&gpu).expect("reset");
    assert_eq!((kernel.resets(&gpu), kernel.resets(&nic)), (1, 0));
}

#[test]
fn an_adapter_is_read_with_its_interface_and_rdma_device() {
    let (dir, kernel, _, nic) = machine();
    let found = interfaces(dir.path()).expect("readable");
    let [port] = &found[..] else { panic!("{found:?}") };
    let wanted = Interface {
        name: "enp59s0np0".into(),
        pci: Some(nic.clone()),
        address: Some("b8:3f:d2:3b:00:00".into()),
        mtu: Some(1500),
        operstate: Some("up".into()),
        rdma: vec!["mlx5_0".into()],
        switch_id: None,
        port_name: None,
    };
    assert_eq!(port, &wanted);
    kernel.unbind(&nic).expect("unbound");
    assert_eq!(interfaces(dir.path()), Ok(Vec::new()), "an interface is its driver's");
}

#[test]
fn virtual_functions_are_devices_with_drivers_and_interfaces() {
    let (_dir, kernel, gpu, nic) = machine();
    kernel.set_vfs(&nic, 3).expect("parts");
    let vfs = kernel.vfs(&nic).expect("parts");
    assert_eq!(vfs, [at("0000:3b:00.2"), at("0000:3b:00.3"), at("0000:3b:00.4")]);
    let vf = kernel.device(&vfs[1]).expect("a device");
    assert!(vf.virtual_function);
    assert_eq!((vf.driver.as_deref(), vf.device, vf.sriov), (Some("mlx5_core"), 0x101e, None));
    assert_eq!(names(&kernel), ["enp59s0np0", "enp59s0np0v0", "enp59s0np0v1", "enp59s0np0v2"]);
    let refused = kernel.set_vfs(&nic, 9).expect_err("too many").to_string();
    assert!(refused.contains("'9'") && refused.contains("at most 8"), "{refused}");
    assert!(kernel.set_vfs(&gpu, 1).expect_err("no SR-IOV").to_string().contains("has no SR-IOV"));
    kernel.unbind(&nic).expect("unbound");
    assert_eq!(kernel.vfs(&nic), Ok(Vec::new()));
    assert!(kernel.set_vfs(&nic, 1).is_err(), "without a driver there is no one to make them");
}

#[test]
fn a_second_kernel_finds_what_the_first_one_left() {
    let (dir, kernel, _, nic) = machine();
    kernel.set_vfs(&nic, 2).expect("parts");
    drop(kernel);
    let kernel = Kernel::open(dir.path());
    assert_eq!(kernel.vfs(&nic).expect("parts").len(), 2);
    kernel.set_vfs(&nic, 0).expect("none");
    assert_eq!(kernel.devices().expect("readable").len(), 2);
}

fn module(kernel: &Kernel, name: &str) -> Option<Module> {
    kernel.loaded().expect("readable").into_iter().find(|module| module.name == name)
}

#[test]
fn modules_come_with_what_they_need_and_go_when_nothing_uses_them() {
    let (dir, kernel, gpu, _) = machine();
    let root = Root::new(dir.path());
    let modeset = ModuleFile { depends: vec!["nvidia".into()], ..ModuleFile::new("nvidia_modeset") };
    let drm = ModuleFile {
        depends: vec!["nvidia_modeset".into()],
        parameters: [("modeset".to_owned(), "0".to_owned())].into(),
        ..ModuleFile::new("nvidia_drm")
    };
    [modeset, drm].iter().for_each(|module| root.loadable_module(module).expect("installed"));
    kernel.load("nvidia_drm", &[("modeset", "1")]).expect("loaded");
    assert_eq!(module(&kernel, "nvidia_drm").expect("there").parameters["modeset"], "1");
    let nvidia = module(&kernel, "nvidia").expect("there");
    assert_eq!((nvidia.references, nvidia.holders), (2, vec!["nvidia_modeset".to_owned(), "nvidia_uvm".to_owned()]));
    assert_eq!(kernel.unload("nvidia"), Err(Error::InUse("kernel module nvidia".into())));
    ["nvidia_drm", "nvidia_modeset", "nvidia_uvm"].iter().for_each(|name| kernel.unload(name).expect("unloaded"));
    kernel.set_references("nvidia", 1).expect("a process");
    assert!(matches!(kernel.unload("nvidia"), Err(Error::InUse(_))), "a process has its device open");
    kernel.set_references("nvidia", 0).expect("no process");
    kernel.unload("nvidia").expect("unloaded");
    assert_eq!((driver(&kernel, &gpu), kernel.loaded()), (None, Ok(Vec::new())));
    kernel.load("nvidia_uvm", &[]).expect("loaded");
    assert_eq!(driver(&kernel, &gpu).as_deref(), Some("nvidia"), "a driver takes the devices that it knows");
    let unknown = kernel.load("nouveau", &[]).expect_err("not there").to_string();
    assert!(unknown.contains("nouveau"), "{unknown}");
    assert!(kernel.load("nvidia_drm", &[("color", "red")]).is_err(), "there is no such parameter");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_numbers_of_virtual_functions_leave_the_last_one(numbers in prop::collection::vec(0u32..11, 1..5)) {
        let (_dir, kernel, _, nic) = machine();
        let mut last = 0;
        for number in numbers {
            let set = kernel.set_vfs(&nic, number);
            prop_assert_eq!(set.is_ok(), number <= 8);
            last = if number <= 8 { number } else { last };
            let vfs = kernel.vfs(&nic).expect("readable");
            prop_assert_eq!(vfs.len(), last as usize);
            let shown = kernel.devices().expect("readable");
            prop_assert_eq!(shown.iter().filter(|device| device.virtual_function).count(), last as usize);
            prop_assert!(vfs.iter().all(|vf| kernel.device(vf).is_ok()));
        }
    }
}
