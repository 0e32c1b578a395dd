//! Faults as the driver reports them.

use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::{Device, Nvml};

use super::{raw, told};
use crate::gpu::nvidia::{Event, EventKind, Events, Watched};
use crate::{Error, Result};

/// What a GPU instance number says when a fault is not confined to one.
const WHOLE: u32 = u32::MAX;

struct Listener {
    set: raw::EventSet,
}

/// Listens to all GPUs at once.
pub(super) fn watch(nvml: &Arc<Nvml>, devices: &[Device<'_>]) -> Result<Watched> {
    let set = raw::EventSet::new(nvml)?;
    let (mut silent, mut refused) = (Vec::new(), Vec::new());
    for device in devices {
        let uuid = device.uuid().map_err(|error| told("nvmlDeviceGetUUID", error))?;
        match set.register(device) {
            Ok(()) => {}
            Err(Error::NotSupported) => silent.push(uuid),
            Err(error) => refused.push((uuid, error)),
        }
    }
    Ok(Watched { events: Box::new(Listener { set }), silent, refused })
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
        // On a GPU that is not cut up, the driver fills the instance with zeroes: only MIG makes it mean something.
        let instance = (confined && raw.mig).then_some((raw.gi, raw.ci));
        Ok(Some(Event { gpu: raw.uuid, instance, kind }))
    }
}
