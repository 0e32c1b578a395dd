//! Writes the plugin's CDI specs with the spec generator.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{CdiSpecs, Options, SpecRequest};
use crate::Result;
use crate::cdi::{Extras, FeatureFlags, HookName, NameStrategy, Settings, write_for_plugin};
use crate::config::DeviceIdStrategy;

/// The CDI spec generator with its options.
pub(super) struct Generator {
    dir: PathBuf,
    flags: FeatureFlags,
    disabled_hooks: BTreeSet<HookName>,
}

impl Generator {
    /// A generator that writes to the default CDI directory.
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
    fn write(&self, request: &SpecRequest<'_>) -> Result<Vec<String>> {
        if request.inventory.gpus.is_empty() {
            return Ok(Vec::new());
        }
        let names = match request.settings.device_id {
            DeviceIdStrategy::Uuid => NameStrategy::Uuid,
            DeviceIdStrategy::Index => NameStrategy::Index,
        };
        let settings = Settings {
            root: request.root.to_owned(),
            names: vec![names],
            all_device: false,
            hook: request.settings.cdi_hook.clone(),
            disabled_hooks: self.disabled_hooks.clone(),
            flags: self.flags,
            ..Settings::default()
        };
        let extras = Extras {
            channels: request.channels.to_vec(),
            gdrcopy: request.settings.gdrcopy,
            gds: request.settings.gds,
            mofed: request.settings.mofed,
        };
        write_for_plugin(request.inventory, request.roots, &settings, &extras, &self.dir)
    }
}
