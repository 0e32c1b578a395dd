//! Files by which the parts of a node tell each other how far they are. What is proved has a file that ends in
//! [`READY_SUFFIX`]; files that begin with a dot are written by the containers themselves.

/// Directory of the files.
pub const DIR: &str = "/run/nvidia/validations";
/// How the names of files end that the validator writes.
pub const READY_SUFFIX: &str = "-ready";

/// The driver answers. Holds the driver's roots, as variables.
pub const DRIVER: &str = "driver-ready";
/// The container runtime gives containers the driver.
pub const TOOLKIT: &str = "toolkit-ready";
/// GPUs compute.
pub const CUDA: &str = "cuda-ready";
/// Pods of the node can have GPUs.
pub const PLUGIN: &str = "plugin-ready";
/// The network driver is loaded.
pub const MOFED: &str = "mofed-ready";
/// GPUDirect Storage is loaded.
pub const NVIDIA_FS: &str = "nvidia-fs-ready";
/// GDRCopy is loaded.
pub const GDRCOPY: &str = "gdrcopy-ready";
/// GPUDirect RDMA is loaded.
pub const NVIDIA_PEERMEM: &str = "nvidia-peermem-ready";
/// GPUs are bound for virtual machines.
pub const VFIO_PCI: &str = "vfio-pci-ready";
/// The vGPU manager of a container works.
pub const VGPU_MANAGER: &str = "vgpu-manager-ready";
/// The host's own vGPU manager works.
pub const HOST_VGPU_MANAGER: &str = "host-vgpu-manager-ready";
/// Virtual GPUs are made.
pub const VGPU_DEVICES: &str = "vgpu-devices-ready";
/// The mode of confidential computing is set.
pub const CC_MANAGER: &str = "cc-manager-ready";
/// What the node's GPUs are for, as text.
pub const WORKLOAD_TYPE: &str = "workload-type";

/// The driver's container has loaded its modules. Holds what it loaded beside the driver.
pub const DRIVER_CONTAINER: &str = ".driver-ctr-ready";
/// The confidential computing manager's container is done.
pub const CC_MANAGER_CONTAINER: &str = ".cc-manager-ctr-ready";
/// In [`crate::paths::MOFED`]: the network driver's container has loaded its modules.
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
