//! The kubelet's pod-resources API, version 1: which pod holds which device.

use std::path::Path;

use crate::client::{Connection, Error};

/// Socket of the API.
pub const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

/// Lists the resources of pods.
pub const LIST: &str = "/v1.PodResourcesLister/List";
/// Reads the allocatable resources.
pub const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";

/// Lists the pods of the node with their resources.
pub async fn list(socket: &Path) -> Result<Vec<PodResources>, Error> {
    let connection = Connection::open(socket).await?;
    let answer: ListPodResourcesResponse = connection.unary(LIST, ListPodResourcesRequest {}).await?;
    Ok(answer.pod_resources)
}

/// Reads the allocatable resources of the node.
pub async fn allocatable(socket: &Path) -> Result<AllocatableResourcesResponse, Error> {
    Connection::open(socket).await?.unary(ALLOCATABLE, AllocatableResourcesRequest {}).await
}

/// Lists pods.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodResourcesRequest {}

/// All pods.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodResourcesResponse {
    /// The pods.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

/// Reads allocatable resources.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocatableResourcesRequest {}

/// Allocatable resources.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocatableResourcesResponse {
    /// Devices, by resource.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<ContainerDevices>,
    /// CPUs for exclusive use.
    #[prost(int64, repeated, tag = "2")]
    pub cpu_ids: Vec<i64>,
}

/// Resources of a pod.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodResources {
    /// Name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// Resources of a container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerResources {
    /// Name of the container.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Devices of device plugins.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// Devices of resource claims.
    #[prost(message, repeated, tag = "5")]
    pub dynamic_resources: Vec<DynamicResource>,
}

/// Devices of one resource.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerDevices {
    /// The resource, such as `nvidia.com/gpu`.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// Device IDs of the plugin.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
}

/// Devices of a resource claim in a container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DynamicResource {
    /// Name of the claim.
    #[prost(string, tag = "2")]
    pub claim_name: String,
    /// Its namespace.
    #[prost(string, tag = "3")]
    pub claim_namespace: String,
    /// Its devices.
    #[prost(message, repeated, tag = "4")]
    pub claim_resources: Vec<ClaimResource>,
}

/// One device of a claim.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClaimResource {
    /// CDI names for the container runtime.
    #[prost(message, repeated, tag = "1")]
    pub cdi_devices: Vec<CdiDevice>,
    /// The DRA driver, such as `gpu.nvidia.com`.
    #[prost(string, tag = "2")]
    pub driver_name: String,
    /// Its pool, usually the node name.
    #[prost(string, tag = "3")]
    pub pool_name: String,
    /// Its name in the pool.
    #[prost(string, tag = "4")]
    pub device_name: String,
    /// Share ID, for a device with consumable capacity.
    #[prost(string, optional, tag = "5")]
    pub share_id: Option<String>,
}

/// A device by its CDI name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CdiDevice {
    /// `vendor/class=name`.
    #[prost(string, tag = "1")]
    pub name: String,
}
