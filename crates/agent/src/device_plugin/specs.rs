//! Writes the plugin's CDI specs with the generator of this node.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{CDI_VENDOR, CdiSpecs, Options, Wanted};
use crate::cdi::{FeatureFlags, HookName, Mode, NameStrategy, Settings, generate, remove, write};
use crate::config::DeviceIdStrategy;
use crate::{Error, Result};

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

    /// One spec; whether it has devices. One that has none is taken away.
    fn one(&self, wanted: &Wanted<'_>, mode: Mode, class: &str) -> Result<bool> {
        let names = match wanted.settings.device_id {
            DeviceIdStrategy::Uuid => NameStrategy::Uuid,
            DeviceIdStrategy::Index => NameStrategy::Index,
        };
        let settings = Settings {
            mode,
            root: wanted.root.to_owned(),
            vendor: Some(CDI_VENDOR.into()),
            class: Some(class.into()),
            names: vec![names],
            all_device: !matches!(mode, Mode::Nvml | Mode::Imex),
            hook: wanted.settings.cdi_hook.clone(),
            disabled_hooks: self.disabled_hooks.clone(),
            flags: self.flags,
            ..Settings::default()
        };
        let file = self.dir.join(format!("{CDI_VENDOR}-{class}.json"));
        let spec = generate(wanted.inventory, wanted.roots, &settings)?;
        if spec.devices.is_empty() {
            return remove(&file).map(|()| false);
        }
        write(&spec, &file).map(|_| true)
    }
}

impl CdiSpecs for Generator {
    fn write(&self, wanted: &Wanted<'_>) -> Result<Vec<String>> {
        if !wanted.inventory.gpus.is_empty() {
            self.one(wanted, Mode::Nvml, "gpu")?;
        }
        if !wanted.channels.is_empty() && !self.one(wanted, Mode::Imex, "imex-channel")? {
            return Err(Error::Outside("no CDI spec can be made for the IMEX channels".into()));
        }
        let settings = wanted.settings;
        let more = [
            (settings.gdrcopy, Mode::Gdrcopy, "gdrcopy"),
            (settings.gds, Mode::Gds, "gds"),
            (settings.mofed, Mode::Mofed, "mofed"),
        ];
        let mut classes = Vec::new();
        for (_, mode, class) in more.into_iter().filter(|(enabled, _, _)| *enabled) {
            match self.one(wanted, mode, class) {
                Ok(true) => classes.push(class.to_owned()),
                Ok(false) => tracing::debug!(class, "nothing on this node for such a CDI spec"),
                Err(error) => tracing::warn!(class, %error, "no CDI spec; containers do not get it"),
            }
        }
        Ok(classes)
    }
}
