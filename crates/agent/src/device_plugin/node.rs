//! State that the plugins of a node share: one value, replaced as a whole, read by every stream and call.

use std::collections::BTreeMap;

use capstan_hw::gpu::nvidia::Topology;
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_kubelet::device_plugin as wire;

use super::devices::Resource;
use super::health::UnhealthyDevice;
use super::settings::Settings;

/// Advertised resources and the health of their devices.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Settings of the plugin.
    pub settings: Settings,
    /// Roots of the driver and device nodes.
    pub roots: Roots,
    /// Resources with at least one device.
    pub resources: Vec<Resource>,
    /// Interconnects between GPUs.
    pub topology: Topology,
    /// Unhealthy devices by UUID.
    pub unhealthy: BTreeMap<String, UnhealthyDevice>,
    /// IMEX channels that exist.
    pub channels: Vec<u32>,
    /// CDI classes besides GPUs that have a spec.
    pub classes: Vec<String>,
}

impl Node {
    /// A resource by name.
    pub(crate) fn resource(&self, name: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.name.as_str() == name)
    }

    /// The ListAndWatch response of a resource; empty when the resource is gone.
    pub(crate) fn listed(&self, name: &str) -> wire::ListAndWatchResponse {
        let Some(resource) = self.resource(name) else { return wire::ListAndWatchResponse::default() };
        let devices = resource.advertised().map(|(id, device)| {
            let health = if self.unhealthy.contains_key(&device.id) { wire::UNHEALTHY } else { wire::HEALTHY };
            let topology = device.numa.map(|id| wire::TopologyInfo { nodes: vec![wire::NumaNode { id }] });
            wire::Device { id, health: health.into(), topology }
        });
        wire::ListAndWatchResponse { devices: devices.collect() }
    }
}
