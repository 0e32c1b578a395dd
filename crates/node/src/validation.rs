//! Validation files, with which the operands of a node signal readiness. Validated components have a file with the
//! suffix [`READY_SUFFIX`]; dot files are written by the containers themselves.

/// Directory of the files.
pub const DIR: &str = "/run/nvidia/validations";
/// Suffix of the validator's files.
pub const READY_SUFFIX: &str = "-ready";

/// The driver works. Contains the driver's roots, as variables.
pub const DRIVER: &str = "driver-ready";
/// The container runtime injects the driver.
pub const TOOLKIT: &str = "toolkit-ready";
/// GPUs compute.
pub const CUDA: &str = "cuda-ready";
/// Pods of the node can get GPUs.
pub const PLUGIN: &str = "plugin-ready";
/// The MOFED driver is loaded.
pub const MOFED: &str = "mofed-ready";
/// GPUDirect Storage is loaded.
pub const NVIDIA_FS: &str = "nvidia-fs-ready";
/// GDRCopy is loaded.
pub const GDRCOPY: &str = "gdrcopy-ready";
/// GPUDirect RDMA is loaded.
pub const NVIDIA_PEERMEM: &str = "nvidia-peermem-ready";
/// GPUs are bound to vfio-pci.
pub const VFIO_PCI: &str = "vfio-pci-ready";
/// The vGPU manager container works.
pub const VGPU_MANAGER: &str = "vgpu-manager-ready";
/// The host's vGPU manager works.
pub const HOST_VGPU_MANAGER: &str = "host-vgpu-manager-ready";
/// vGPU devices exist.
pub const VGPU_DEVICES: &str = "vgpu-devices-ready";
/// The confidential computing mode is set.
pub const CC_MANAGER: &str = "cc-manager-ready";
/// Workload type of the node's GPUs, as text.
pub const WORKLOAD_TYPE: &str = "workload-type";

/// The driver container has loaded its modules. Lists the additional ones.
pub const DRIVER_CONTAINER: &str = ".driver-ctr-ready";
/// The confidential computing manager container is done.
pub const CC_MANAGER_CONTAINER: &str = ".cc-manager-ctr-ready";
/// In [`crate::paths::MOFED`]: the MOFED container has loaded its modules.
pub const MOFED_CONTAINER: &str = ".driver-ready";

macro_rules! file {
    ($name:literal) => {
        concat!("/run/nvidia/validations/", $name)
    };
}

/// The file of [`DRIVER`].
pub const DRIVER_FILE: &str = file!("driver-ready");
/// The file of [`TOOLKIT`].
pub const TOOLKIT_FILE: &str = file!("toolkit-ready");
/// The file of [`DRIVER_CONTAINER`].
pub const DRIVER_CONTAINER_FILE: &str = file!(".driver-ctr-ready");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_paths_agree_with_directory_and_name() {
        for (path, name) in [(DRIVER_FILE, DRIVER), (TOOLKIT_FILE, TOOLKIT), (DRIVER_CONTAINER_FILE, DRIVER_CONTAINER)]
        {
            assert_eq!(path, format!("{DIR}/{name}"));
        }
    }
}
