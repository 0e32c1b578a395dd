//! Writes the plugin's CDI specs with the generator of this node.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{CdiSpecs, Options, Wanted};
use crate::Result;
use crate::cdi::{Extras, FeatureFlags, HookName, NameStrategy, Settings, write_for_plugin};
use crate::config::DeviceIdStrategy;

/// The generator, told how.
pub(super) struct Generator {
    dir: PathBuf,
    flags: FeatureFlags,
    disabled_hooks: BTreeSet<HookName>,
}

impl Generator {
    /// Writes where runtimes look.
    pub(super) fn new(options: &Options, root: &std::path::Path) -> Result<Self> {
        let hooks = options.cdi_disable_hooks.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
        Ok(Self {
            dir: root.join("var/run/cdi"),
            flags: FeatureFlags::parse(&options.cdi_feature_flags)?,
            disabled_hooks: hooks.map(str::parse).collect::<Result<_>>()?,
        })
    }
}

impl CdiSpecs for Generator {
    fn write(&self, wanted: &Wanted<'_>) -> Result<Vec<String>> {
        if wanted.inventory.gpus.is_empty() {
            return Ok(Vec::new());
        }
        let names = match wanted.settings.device_id {
            DeviceIdStrategy::Uuid => NameStrategy::Uuid,
            DeviceIdStrategy::Index => NameStrategy::Index,
        };
        let settings = Settings {
            root: wanted.root.to_owned(),
            names: vec![names],
            all_device: false,
            hook: wanted.settings.cdi_hook.clone(),
            disabled_hooks: self.disabled_hooks.clone(),
            flags: self.flags,
            ..Settings::default()
        };
        let extras = Extras {
            channels: wanted.channels.to_vec(),
            gdrcopy: wanted.settings.gdrcopy,
            gds: wanted.settings.gds,
            mofed: wanted.settings.mofed,
        };
        write_for_plugin(wanted.inventory, wanted.roots, &settings, &extras, &self.dir)
    }
}
