//! Detects the platform: NVML, WSL or Tegra.

use std::path::Path;

use capstan_hw::gpu::nvidia::Inventory;
use capstan_hw::gpu::nvidia::driver::Roots;

use crate::config::DiscoveryStrategy;

/// How the GPUs of a machine are advertised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Platform {
    /// One by one, from NVML.
    Nvml,
    /// WSL: all GPUs as one device.
    Wsl,
    /// Tegra: the integrated GPU as one device.
    Tegra,
}

/// Files that identify the platform, checked before NVML is called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PlatformFiles {
    /// `libdxcore.so`, the GPU library of WSL.
    pub dxcore: bool,
    /// Files of a Tegra system.
    pub tegra: bool,
    /// `libnvidia-ml.so`.
    pub nvml: bool,
}

impl PlatformFiles {
    /// Checks which exist.
    pub(crate) fn read(roots: &Roots, root: &Path) -> Self {
        let family = std::fs::read_to_string(root.join("sys/devices/soc0/family")).unwrap_or_default();
        let tegra = root.join("etc/nv_tegra_release").exists() || family.to_ascii_lowercase().starts_with("tegra");
        Self { dxcore: roots.library("libdxcore.so").is_some(), tegra, nvml: roots.nvml().is_ok() }
    }

    /// The platform as far as files tell; NVML by default.
    pub(crate) fn platform(self, strategy: DiscoveryStrategy) -> Platform {
        match strategy {
            DiscoveryStrategy::Nvml => Platform::Nvml,
            DiscoveryStrategy::Tegra => Platform::Tegra,
            DiscoveryStrategy::Auto if self.dxcore => Platform::Wsl,
            DiscoveryStrategy::Auto if self.tegra && !self.nvml => Platform::Tegra,
            DiscoveryStrategy::Auto => Platform::Nvml,
        }
    }
}

/// The platform after NVML answered: integrated GPUs are one device.
pub(crate) fn refine_with_nvml(strategy: DiscoveryStrategy, inventory: &Inventory) -> Platform {
    let integrated = !inventory.gpus.is_empty() && inventory.gpus.iter().all(capstan_hw::gpu::nvidia::Gpu::integrated);
    if strategy == DiscoveryStrategy::Auto && integrated { Platform::Tegra } else { Platform::Nvml }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capstan_hw::fake::{Model, node};

    #[test]
    fn a_machine_is_told_by_its_signs() {
        let files = |dxcore, tegra, nvml| PlatformFiles { dxcore, tegra, nvml };
        let cases = [
            (DiscoveryStrategy::Auto, files(true, true, true), Platform::Wsl),
            (DiscoveryStrategy::Auto, files(false, true, false), Platform::Tegra),
            (DiscoveryStrategy::Auto, files(false, true, true), Platform::Nvml),
            (DiscoveryStrategy::Auto, files(false, false, false), Platform::Nvml),
            (DiscoveryStrategy::Nvml, files(true, true, false), Platform::Nvml),
            (DiscoveryStrategy::Tegra, files(false, false, true), Platform::Tegra),
        ];
        for (strategy, files, platform) in cases {
            assert_eq!(files.platform(strategy), platform, "{strategy:?} {files:?}");
        }
    }

    #[test]
    fn gpus_of_the_processor_are_one_device() {
        let mut inventory = node(Model::L40s, 1).inventory;
        assert_eq!(refine_with_nvml(DiscoveryStrategy::Auto, &inventory), Platform::Nvml);
        inventory.gpus[0].name = "NVIDIA Thor".into();
        assert_eq!(refine_with_nvml(DiscoveryStrategy::Auto, &inventory), Platform::Tegra);
        assert_eq!(refine_with_nvml(DiscoveryStrategy::Nvml, &inventory), Platform::Nvml);
    }
}
