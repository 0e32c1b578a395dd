//! Device health, from NVML events (XIDs, ECC errors) and the driver's recovery action.
//!
//! An event marks every device that it affects: all replicas, and all MIG devices of the GPU unless it names an
//! instance. A device is healthy again when its GPU responds, no recovery action is pending and no event came for
//! `recovery_delay`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_hw::Error;
use capstan_hw::gpu::nvidia::{Event, EventKind, Events, Hardware, Inventory, Recovery, Source};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::devices::{Device, Resource};
use super::node::Node;

/// Application errors: XIDs that leave the GPU usable.
const APPLICATION_XIDS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// Which XIDs mark a device unhealthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Xids {
    /// None: health checks are disabled.
    Off,
    /// All except these.
    AllBut(BTreeSet<u64>),
    /// Only these.
    Only(BTreeSet<u64>),
}

impl Xids {
    /// Parses the two environment variables; returns invalid words too.
    pub(crate) fn parse(disable: &str, enable: &str) -> (Self, Vec<String>) {
        let mut unknown = Vec::new();
        let (no_checks, ignored) = words(disable, &["all", "xids"], &mut unknown);
        let (every, wanted) = words(enable, &["all"], &mut unknown);
        let xids = match (no_checks, every) {
            (_, true) => Self::AllBut(BTreeSet::new()),
            (true, false) if wanted.is_empty() => Self::Off,
            (true, false) => Self::Only(wanted),
            (false, false) => {
                let ignored: BTreeSet<u64> = ignored.into_iter().chain(APPLICATION_XIDS).collect();
                Self::AllBut(ignored.difference(&wanted).copied().collect())
            }
        };
        (xids, unknown)
    }

    fn marks_unhealthy(&self, xid: u64) -> bool {
        match self {
            Self::Off => false,
            Self::AllBut(ignored) => !ignored.contains(&xid),
            Self::Only(wanted) => wanted.contains(&xid),
        }
    }
}

/// XIDs in a list, and whether it contains a keyword for all of them.
fn words(list: &str, every: &[&str], unknown: &mut Vec<String>) -> (bool, BTreeSet<u64>) {
    let (mut all, mut numbers) = (false, BTreeSet::new());
    for word in list.split(',').map(|word| word.trim().to_ascii_lowercase()).filter(|word| !word.is_empty()) {
        match word.parse() {
            Ok(number) => drop(numbers.insert(number)),
            Err(_) if every.contains(&word.as_str()) => all = true,
            Err(_) => unknown.push(word),
        }
    }
    (all, numbers)
}

/// Why a device is unhealthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The driver reported an XID.
    Xid(u64),
    /// The GPU fell off the bus.
    Lost,
    /// Row remapping failed.
    Remap,
    /// A recovery action is pending.
    Recovery(Recovery),
    /// The driver reported an XID without a GPU.
    Unnamed,
    /// The event subscription of the GPU failed.
    Refused(String),
    /// NVML does not respond.
    Driver(String),
    /// The MPS control daemon does not respond.
    Mps(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(xid) => write!(f, "XID {xid}"),
            Self::Lost => f.write_str("the GPU fell off the bus"),
            Self::Remap => f.write_str("broken memory could not be replaced"),
            Self::Recovery(action) => write!(f, "the driver wants it recovered: {action:?}"),
            Self::Unnamed => f.write_str("the driver reported a fault without naming the GPU"),
            Self::Refused(why) => write!(f, "the GPU reports no faults: {why}"),
            Self::Driver(why) => write!(f, "the driver does not answer: {why}"),
            Self::Mps(why) => write!(f, "the MPS daemon does not answer: {why}"),
        }
    }
}

/// A device that must not be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnhealthyDevice {
    /// Cause.
    pub cause: Cause,
    /// Time of the last event.
    pub since: Instant,
}

/// Unhealthy devices by UUID.
pub(crate) type UnhealthyDevices = BTreeMap<String, UnhealthyDevice>;

/// Devices of all resources.
pub(crate) fn all(resources: &[Resource]) -> impl Iterator<Item = &Device> {
    resources.iter().flat_map(|resource| &resource.devices)
}

/// IDs of the devices that an event affects.
pub(crate) fn affected<'a>(event: &Event, resources: &'a [Resource]) -> Vec<&'a str> {
    let concerned = |device: &&Device| match (&event.gpu, event.instance, device.instance) {
        (None, _, _) => true,
        (Some(gpu), Some(fault), Some(own)) => *gpu == device.gpu && fault == own,
        (Some(gpu), _, _) => *gpu == device.gpu,
    };
    all(resources).filter(concerned).map(|device| device.id.as_str()).collect()
}

/// The cause that an event stands for, if it makes devices unhealthy. ECC errors alone do not: rows are remapped, and
/// the probe that follows finds out if that failed.
pub(crate) fn cause_of(event: &Event, xids: &Xids) -> Option<Cause> {
    match event.kind {
        EventKind::Xid(_) if event.gpu.is_none() => Some(Cause::Unnamed),
        EventKind::Xid(79) if xids.marks_unhealthy(79) => Some(Cause::Lost),
        EventKind::Xid(xid) => xids.marks_unhealthy(xid).then_some(Cause::Xid(xid)),
        EventKind::SingleBitEcc | EventKind::DoubleBitEcc => None,
    }
}

/// Health of a GPU, as queried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuHealth {
    /// Row remapping failed.
    pub remap_failed: bool,
    /// The pending recovery action, or why it is unknown.
    pub recovery: Result<Recovery, Error>,
}

/// Queries the health of every GPU.
pub(crate) fn query_health(hardware: &dyn Hardware, inventory: &Inventory) -> BTreeMap<String, GpuHealth> {
    let query = |gpu: &capstan_hw::gpu::nvidia::Gpu| {
        let remap_failed = hardware.reading(&gpu.uuid).is_ok_and(|reading| reading.remap_failed == Some(true));
        (gpu.uuid.clone(), GpuHealth { remap_failed, recovery: hardware.recovery(&gpu.uuid) })
    };
    inventory.gpus.iter().map(query).collect()
}

/// Updates the unhealthy devices from queried health: adds faults, removes devices that recovered.
pub(crate) fn update_unhealthy(
    unhealthy: &UnhealthyDevices,
    resources: &[Resource],
    gpu_health: &BTreeMap<String, GpuHealth>,
    now: Instant,
    recovery_delay: Duration,
) -> UnhealthyDevices {
    let mut updated = UnhealthyDevices::new();
    for device in all(resources) {
        let before = unhealthy.get(&device.id);
        let fault = gpu_health.get(&device.gpu).and_then(|health| match health.recovery {
            Err(Error::Lost | Error::NotFound(_)) => Some(Cause::Lost),
            _ if health.remap_failed => Some(Cause::Remap),
            Ok(action @ (Recovery::Reset | Recovery::Reboot | Recovery::DrainAndReset)) => {
                Some(Cause::Recovery(action))
            }
            _ => None,
        });
        let healthy = gpu_health.get(&device.gpu).is_some_and(|health| {
            // A driver without this query has no pending action.
            matches!(health.recovery, Ok(Recovery::None) | Err(Error::NotSupported))
        });
        let persists = |unhealthy: &&UnhealthyDevice| match unhealthy.cause {
            // Cleared elsewhere.
            Cause::Driver(_) | Cause::Mps(_) => true,
            _ => !healthy || now.duration_since(unhealthy.since) < recovery_delay,
        };
        match (fault, before) {
            // Keep the first cause: later ones often follow from it.
            (Some(_), Some(before)) => drop(updated.insert(device.id.clone(), before.clone())),
            (Some(cause), None) => drop(updated.insert(device.id.clone(), UnhealthyDevice { cause, since: now })),
            (None, before) => {
                if let Some(before) = before.filter(persists) {
                    updated.insert(device.id.clone(), before.clone());
                }
            }
        }
    }
    updated
}

/// A message of the event thread.
#[derive(Debug)]
pub(crate) enum HealthEvent {
    /// An NVML event.
    Event(Event),
    /// Subscribed; with GPUs whose subscription failed, and GPUs without event support.
    Subscribed(Vec<(String, Error)>, Vec<String>),
    /// NVML does not respond.
    Down(Error),
}

/// Applies a message of the event thread; returns whether to probe the hardware.
pub(crate) fn apply_event(event: HealthEvent, xids: &Xids, node: &mut Node) -> bool {
    let now = Instant::now();
    let mut mark = |id: &str, cause: Cause| {
        node.unhealthy.insert(id.to_owned(), UnhealthyDevice { cause, since: now });
    };
    match event {
        HealthEvent::Event(event) => {
            if let Some(cause) = cause_of(&event, xids) {
                affected(&event, &node.resources).into_iter().for_each(|id| mark(id, cause.clone()));
            }
            event.kind == EventKind::DoubleBitEcc
        }
        HealthEvent::Down(error) => {
            let healthy: Vec<String> = all(&node.resources).map(|device| device.id.clone()).collect();
            let healthy: Vec<String> = healthy.into_iter().filter(|id| !node.unhealthy.contains_key(id)).collect();
            for id in healthy {
                node.unhealthy.insert(id, UnhealthyDevice { cause: Cause::Driver(error.to_string()), since: now });
            }
            false
        }
        HealthEvent::Subscribed(refused, unsupported) => {
            for gpu in unsupported {
                tracing::warn!(gpu, "GPU events not supported; health not monitored");
            }
            let was_down = node.unhealthy.values().any(|unhealthy| matches!(unhealthy.cause, Cause::Driver(_)));
            node.unhealthy.retain(|_, unhealthy| !matches!(unhealthy.cause, Cause::Driver(_)));
            for (gpu, error) in refused {
                let cause = match error {
                    Error::Lost => Cause::Lost,
                    other => Cause::Refused(other.to_string()),
                };
                let of_gpu = all(&node.resources).filter(|device| device.gpu == gpu);
                let ids: Vec<String> = of_gpu.map(|device| device.id.clone()).collect();
                for id in ids {
                    node.unhealthy.insert(id, UnhealthyDevice { cause: cause.clone(), since: now });
                }
            }
            was_down
        }
    }
}

/// Timeout of one wait: how long the thread may outlive its receiver.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Subscribes to NVML events on a thread of its own, since the call blocks, until the receiver is dropped.
/// `resubscribe` renews the subscription, for new GPUs.
pub(crate) fn subscribe(
    source: Arc<Source>,
    sender: UnboundedSender<HealthEvent>,
    resubscribe: Arc<AtomicBool>,
    max_backoff: Duration,
) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("gpu-events".into()).stack_size(256 << 10);
    thread.spawn(move || {
        let mut backoff = max_backoff.min(Duration::from_secs(1));
        while !sender.is_closed() {
            let error = match source.get().and_then(|hardware| hardware.watch()) {
                Ok(mut watched) => {
                    backoff = max_backoff.min(Duration::from_secs(1));
                    let _ = sender.send(HealthEvent::Subscribed(watched.refused, watched.unsupported));
                    match forward_events(&mut *watched.events, &sender, &resubscribe) {
                        None => None,
                        Some(error) => {
                            tracing::warn!(%error, "waiting for GPU events failed; resubscribing");
                            // Reload the library: the driver may have been replaced.
                            source.forget();
                            check_driver(&source).err()
                        }
                    }
                }
                Err(error) => {
                    source.forget();
                    Some(error)
                }
            };
            let Some(error) = error else { continue };
            let _ = sender.send(HealthEvent::Down(error));
            std::thread::park_timeout(backoff);
            backoff = (backoff * 2).min(max_backoff);
        }
    })?;
    Ok(())
}

/// Forwards events until the receiver is dropped, a new subscription is requested or waiting fails.
fn forward_events(
    events: &mut dyn Events,
    sender: &UnboundedSender<HealthEvent>,
    resubscribe: &AtomicBool,
) -> Option<Error> {
    while !sender.is_closed() && !resubscribe.swap(false, Ordering::Relaxed) {
        match events.next(EVENT_TIMEOUT) {
            Ok(Some(event)) => drop(sender.send(HealthEvent::Event(event))),
            Ok(None) => {}
            Err(error) => return Some(error),
        }
    }
    None
}

/// Reopens the driver and checks that it responds.
fn check_driver(source: &Source) -> capstan_hw::Result<()> {
    source.get()?.inventory().map(drop).or_else(|error| match error {
        // One lost GPU does not mean that the driver is gone.
        Error::Lost => Ok(()),
        other => Err(other),
    })
}
