//! NVML events.

use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::{Device, Nvml};

use super::{map_error, raw};
use crate::gpu::nvidia::{Event, EventKind, EventSubscription, Events};
use crate::{Error, Result};

/// GPU instance ID of an event that is not confined to one.
const WHOLE: u32 = u32::MAX;

struct Listener {
    set: raw::EventSet,
}

/// Subscribes to events of all GPUs.
pub(super) fn watch(nvml: &Arc<Nvml>, devices: &[Device<'_>]) -> Result<EventSubscription> {
    let set = raw::EventSet::new(nvml)?;
    let (mut unsupported, mut refused) = (Vec::new(), Vec::new());
    for device in devices {
        let uuid = device.uuid().map_err(|error| map_error("nvmlDeviceGetUUID", error))?;
        match set.register(device) {
            Ok(()) => {}
            Err(Error::NotSupported) => unsupported.push(uuid),
            Err(error) => refused.push((uuid, error)),
        }
    }
    Ok(EventSubscription { events: Box::new(Listener { set }), unsupported, refused })
}

impl Events for Listener {
    fn next(&mut self, timeout: Duration) -> Result<Option<Event>> {
        let Some(raw) = self.set.wait(timeout)? else { return Ok(None) };
        let kind = match raw.kind {
            raw::XID => EventKind::Xid(raw.data),
            raw::DOUBLE_BIT => EventKind::DoubleBitEcc,
            _ => EventKind::SingleBitEcc,
        };
        let confined = raw.gi != WHOLE && raw.ci != WHOLE;
        // Without MIG the driver fills the instance with zeroes: ignore it.
        let instance = (confined && raw.mig).then_some((raw.gi, raw.ci));
        Ok(Some(Event { gpu: raw.uuid, instance, kind }))
    }
}
