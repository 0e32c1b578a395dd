//! The kubelet's device plugin API, version `v1beta1`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tonic::Status;

use crate::client::{Connection, Error};
use crate::server::{Answer, Call, Service};

/// Directory of the kubelet's socket and of the plugins'.
pub const DIRECTORY: &str = "/var/lib/kubelet/device-plugins";
/// Socket of the kubelet.
pub const SOCKET: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";
/// API version.
pub const VERSION: &str = "v1beta1";
/// A device that may be allocated.
pub const HEALTHY: &str = "Healthy";
/// A device that may not be allocated.
pub const UNHEALTHY: &str = "Unhealthy";

/// Registers a plugin.
pub const REGISTER: &str = "/v1beta1.Registration/Register";
/// Reads the options of a plugin.
pub const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
/// Streams the devices of a plugin.
pub const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
/// Queries the preferred allocation.
pub const PREFERRED: &str = "/v1beta1.DevicePlugin/GetPreferredAllocation";
/// Allocates devices.
pub const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";
/// Called before a container starts.
pub const PRE_START: &str = "/v1beta1.DevicePlugin/PreStartContainer";

/// Registers a plugin with the kubelet at `socket`.
pub async fn register(socket: &Path, request: RegisterRequest) -> Result<(), Error> {
    let connection = Connection::open(socket).await?;
    let _: Empty = connection.unary(REGISTER, request).await?;
    Ok(())
}

/// A device plugin. Calls return at once, from known state.
pub trait DevicePlugin: Send + Sync + 'static {
    /// Its optional features.
    fn options(&self) -> DevicePluginOptions;
    /// Its devices: the current list, then one after every change.
    fn devices(&self) -> BoxStream<'static, ListAndWatchResponse>;
    /// The preferred devices among the available ones.
    fn preferred(&self, request: PreferredAllocationRequest) -> Result<PreferredAllocationResponse, Status>;
    /// What a container needs to use its devices.
    fn allocate(&self, request: AllocateRequest) -> Result<AllocateResponse, Status>;
}

/// Serves a [`DevicePlugin`].
pub struct Served<P>(pub P);

impl<P: DevicePlugin> Service for Served<P> {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        use futures::StreamExt;
        Box::pin(async move {
            match call.name() {
                OPTIONS => call.unary(move |_: Empty| Ok(self.0.options())).await,
                LIST_AND_WATCH => call.stream(move |_: Empty| self.0.devices().map(Ok)).await,
                PREFERRED => call.unary(move |request| self.0.preferred(request)).await,
                ALLOCATE => call.unary(move |request| self.0.allocate(request)).await,
                PRE_START => call.unary(|_: PreStartContainerRequest| Ok(PreStartContainerResponse {})).await,
                _ => call.unknown(),
            }
        })
    }
}

/// An empty message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// Optional features of a plugin.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DevicePluginOptions {
    /// Call PreStartContainer.
    #[prost(bool, tag = "1")]
    pub pre_start_required: bool,
    /// GetPreferredAllocation is supported.
    #[prost(bool, tag = "2")]
    pub get_preferred_allocation_available: bool,
}

/// A registration.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegisterRequest {
    /// API version: [`VERSION`].
    #[prost(string, tag = "1")]
    pub version: String,
    /// File name of its socket.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// The resource that it advertises.
    #[prost(string, tag = "3")]
    pub resource_name: String,
    /// Its optional features.
    #[prost(message, optional, tag = "4")]
    pub options: Option<DevicePluginOptions>,
}

/// All devices of a plugin.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListAndWatchResponse {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// One device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Device {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// [`HEALTHY`] or [`UNHEALTHY`].
    #[prost(string, tag = "2")]
    pub health: String,
    /// Its NUMA affinity.
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// NUMA affinity of a device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TopologyInfo {
    /// Its NUMA nodes.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<NumaNode>,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NumaNode {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// A preferred allocation request, for each container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreferredAllocationRequest {
    /// The containers.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerPreferredAllocationRequest>,
}

/// A preferred allocation request of a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerPreferredAllocationRequest {
    /// Available devices.
    #[prost(string, repeated, tag = "1")]
    pub available_device_ids: Vec<String>,
    /// Devices that must be included.
    #[prost(string, repeated, tag = "2")]
    pub must_include_device_ids: Vec<String>,
    /// Number of devices.
    #[prost(int32, tag = "3")]
    pub allocation_size: i32,
}

/// Preferred allocation, for each container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreferredAllocationResponse {
    /// The containers.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerPreferredAllocationResponse>,
}

/// Preferred allocation of a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerPreferredAllocationResponse {
    /// The devices.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}

/// An allocation, for each container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AllocateRequest {
    /// The containers.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerAllocateRequest>,
}

/// An allocation of a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerAllocateRequest {
    /// The devices.
    #[prost(string, repeated, tag = "1")]
    pub devices_ids: Vec<String>,
}

/// Responses for each container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AllocateResponse {
    /// The containers.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

/// What a container needs to use its devices.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerAllocateResponse {
    /// Environment variables.
    #[prost(map = "string, string", tag = "1")]
    pub envs: HashMap<String, String>,
    /// Mounts.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<Mount>,
    /// Device nodes.
    #[prost(message, repeated, tag = "3")]
    pub devices: Vec<DeviceSpec>,
    /// Annotations for the container runtime.
    #[prost(map = "string, string", tag = "4")]
    pub annotations: HashMap<String, String>,
    /// CDI devices.
    #[prost(message, repeated, tag = "5")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// A mount.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Mount {
    /// Path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Path on the host.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Whether it is read-only.
    #[prost(bool, tag = "3")]
    pub read_only: bool,
}

/// A device node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeviceSpec {
    /// Path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Path on the host.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// `r`, `w`, `m`.
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// A CDI device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CdiDevice {
    /// `vendor/class=name`.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A container that is about to start.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreStartContainerRequest {
    /// Its devices.
    #[prost(string, repeated, tag = "1")]
    pub devices_ids: Vec<String>,
}

/// An empty response.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreStartContainerResponse {}
