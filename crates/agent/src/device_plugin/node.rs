//! What the plugins of a node share: one value, replaced as a whole, that every stream and every call reads.

use std::collections::BTreeMap;

use capstan_hw::gpu::nvidia::Topology;
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_kubelet::device_plugin as wire;

use super::devices::Resource;
use super::health::UnhealthyDevice;
use super::settings::Settings;

/// What is offered and what is wrong with it.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// What is done in effect.
    pub settings: Settings,
    /// Where devices are.
    pub roots: Roots,
    /// Resources with at least one device.
    pub resources: Vec<Resource>,
    /// How near GPUs are to each other.
    pub topology: Topology,
    /// Devices that may not be handed out, by UUID.
    pub sick: BTreeMap<String, UnhealthyDevice>,
    /// IMEX channels that are there.
    pub channels: Vec<u32>,
    /// CDI classes beyond GPUs whose spec is there.
    pub classes: Vec<String>,
}

impl Node {
    /// A resource by name.
    pub(crate) fn resource(&self, name: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.name.as_str() == name)
    }

    /// The devices of a resource as the kubelet is told; none when the resource went.
    pub(crate) fn listed(&self, name: &str) -> wire::ListAndWatchResponse {
        let Some(resource) = self.resource(name) else { return wire::ListAndWatchResponse::default() };
        let devices = resource.offered().map(|(id, device)| {
            let health = if self.sick.contains_key(&device.id) { wire::UNHEALTHY } else { wire::HEALTHY };
            let topology = device.numa.map(|id| wire::TopologyInfo { nodes: vec![wire::NumaNode { id }] });
            wire::Device { id, health: health.into(), topology }
        });
        wire::ListAndWatchResponse { devices: devices.collect() }
    }
}
