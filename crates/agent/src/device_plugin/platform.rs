//! What kind of machine this is, where GPUs are not found through NVML alone.

use std::path::Path;

use capstan_hw::gpu::nvidia::Inventory;
use capstan_hw::gpu::nvidia::driver::Roots;

use crate::config::DiscoveryStrategy;

/// How the GPUs of a machine are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Platform {
    /// One by one, as NVML tells.
    Nvml,
    /// As one device, since Windows owns them.
    Wsl,
    /// As one device that is part of the processor.
    Tegra,
}

/// What a machine shows of itself before a GPU is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    /// The library of Windows' GPUs.
    pub dxcore: bool,
    /// The files of a Tegra system.
    pub tegra: bool,
    /// The NVML library.
    pub nvml: bool,
}

impl Signs {
    /// Looks for them.
    pub(crate) fn read(roots: &Roots, root: &Path) -> Self {
        let family = std::fs::read_to_string(root.join("sys/devices/soc0/family")).unwrap_or_default();
        let tegra = root.join("etc/nv_tegra_release").exists() || family.to_ascii_lowercase().starts_with("tegra");
        Self { dxcore: roots.library("libdxcore.so").is_some(), tegra, nvml: roots.nvml().is_ok() }
    }

    /// What can be told before NVML is asked; a machine of which nothing is known is asked through NVML.
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

/// What NVML's answer makes of it: GPUs that are all part of the processor are one device.
pub(crate) fn after_nvml(strategy: DiscoveryStrategy, inventory: &Inventory) -> Platform {
    let integrated = !inventory.gpus.is_empty() && inventory.gpus.iter().all(capstan_hw::gpu::nvidia::Gpu::integrated);
    if strategy == DiscoveryStrategy::Auto && integrated { Platform::Tegra } else { Platform::Nvml }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capstan_hw::fake::{Model, node};

    #[test]
    fn a_machine_is_told_by_its_signs() {
        let signs = |dxcore, tegra, nvml| Signs { dxcore, tegra, nvml };
        let cases = [
            (DiscoveryStrategy::Auto, signs(true, true, true), Platform::Wsl),
            (DiscoveryStrategy::Auto, signs(false, true, false), Platform::Tegra),
            (DiscoveryStrategy::Auto, signs(false, true, true), Platform::Nvml),
            (DiscoveryStrategy::Auto, signs(false, false, false), Platform::Nvml),
            (DiscoveryStrategy::Nvml, signs(true, true, false), Platform::Nvml),
            (DiscoveryStrategy::Tegra, signs(false, false, true), Platform::Tegra),
        ];
        for (strategy, signs, platform) in cases {
            assert_eq!(signs.platform(strategy), platform, "{strategy:?} {signs:?}");
        }
    }

    #[test]
    fn gpus_of_the_processor_are_one_device() {
        let mut inventory = node(Model::L40s, 1).inventory;
        assert_eq!(after_nvml(DiscoveryStrategy::Auto, &inventory), Platform::Nvml);
        inventory.gpus[0].name = "NVIDIA Thor".into();
        assert_eq!(after_nvml(DiscoveryStrategy::Auto, &inventory), Platform::Tegra);
        assert_eq!(after_nvml(DiscoveryStrategy::Nvml, &inventory), Platform::Nvml);
    }
}
