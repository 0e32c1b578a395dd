//! Which daemons run, and the limits of their clients.

use capstan_hw::gpu::nvidia::ComputeCapability;

use crate::config::{InvalidValue, Replicated, ResourceName, Sharing, SharingStrategy};
use crate::device_plugin::{Device, Resource};

/// The daemon of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Daemon {
    /// The resource.
    pub resource: ResourceName,
    /// UUIDs of its GPUs: a daemon sees no others, so that daemons do not conflict.
    pub gpus: Vec<String>,
    /// Pinned memory limit of a client in MiB, for each GPU in the same order.
    pub memory_mib: Vec<u64>,
    /// Active thread percentage of a client.
    pub thread_percentage: u32,
}

impl Daemon {
    /// Control commands to run after start. GPUs are numbered as the daemon sees them.
    pub(crate) fn commands(&self) -> Vec<String> {
        let limits = self.memory_mib.iter().enumerate();
        let limits = limits.map(|(place, memory)| format!("set_default_device_pinned_mem_limit {place} {memory}M"));
        limits.chain([format!("set_default_active_thread_percentage {}", self.thread_percentage)]).collect()
    }
}

/// The daemons of all MPS-shared resources.
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

/// Maximum number of MPS clients per GPU.
fn clients(compute: ComputeCapability) -> u32 {
    if compute >= (ComputeCapability { major: 7, minor: 5 }) { 48 } else { 16 }
}

/// Checks the replicas against the client limit of every GPU.
pub(crate) fn within_limits(shared: &Replicated, devices: &[Device]) -> Result<(), InvalidValue> {
    for device in devices {
        let most = clients(device.compute);
        if shared.replicas > most {
            let field = format!("sharing.mps replicas of {}", shared.name);
            return Err(InvalidValue::new(
                field,
                shared.replicas,
                format!("are too many for {}; write {most} or less", device.id),
            ));
        }
    }
    Ok(())
}
