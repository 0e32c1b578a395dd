//! Which daemons run, and what each client of theirs may use.

use capstan_hw::gpu::nvidia::ComputeCapability;

use crate::config::{Replicated, ResourceName, Sharing, SharingStrategy, Wrong};
use crate::device_plugin::{Device, Resource};

/// The daemon of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Daemon {
    /// The resource.
    pub resource: ResourceName,
    /// UUIDs of its GPUs: a daemon sees no others, so that two of them do not get into each other's way.
    pub gpus: Vec<String>,
    /// Memory in MiB that a client may pin on each of them, in the same order.
    pub memory_mib: Vec<u64>,
    /// Part of the multiprocessors that a client may use.
    pub thread_percentage: u32,
}

impl Daemon {
    /// What the daemon is told when it runs. GPUs are counted as the daemon sees them.
    pub(crate) fn commands(&self) -> Vec<String> {
        let limits = self.memory_mib.iter().enumerate();
        let limits = limits.map(|(place, memory)| format!("set_default_device_pinned_mem_limit {place} {memory}M"));
        limits.chain([format!("set_default_active_thread_percentage {}", self.thread_percentage)]).collect()
    }
}

/// The daemons of all resources that are shared through MPS.
pub(crate) fn plan(resources: &[Resource], sharing: &Sharing) -> Vec<Daemon> {
    let shared = resources.iter().filter(|resource| resource.sharing == SharingStrategy::Mps);
    let daemons = shared.filter_map(|resource| {
        let replicated = sharing.of(&resource.unshared)?;
        let replicas = replicated.replicas.max(1);
        let part = |device: &Device| replicated.memory_mib.unwrap_or(device.memory_mib / u64::from(replicas));
        Some(Daemon {
            resource: resource.name.clone(),
            gpus: resource.devices.iter().map(|device| device.id.clone()).collect(),
            memory_mib: resource.devices.iter().map(part).collect(),
            thread_percentage: replicated.thread_percentage.unwrap_or(100 / replicas),
        })
    });
    daemons.collect()
}

/// Clients that one GPU serves at a time.
fn clients(compute: ComputeCapability) -> u32 {
    if compute >= (ComputeCapability { major: 7, minor: 5 }) { 48 } else { 16 }
}

/// Whether every GPU can serve so many clients.
pub(crate) fn within_limits(shared: &Replicated, devices: &[Device]) -> Result<(), Wrong> {
    for device in devices {
        let most = clients(device.compute);
        if shared.replicas > most {
            let field = format!("sharing.mps replicas of {}", shared.name);
            return Err(Wrong::new(
                field,
                shared.replicas,
                format!("are too many for {}; write {most} or less", device.id),
            ));
        }
    }
    Ok(())
}
