//! A fake kubelet for tests: accepts registrations, watches the devices of plugins, requests allocations, and serves
//! the pod-resources API. Over real sockets, with real messages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;

use crate::client::{Connection, Error};
use crate::device_plugin::{
    ALLOCATE, AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Device, DevicePluginOptions, Empty, HEALTHY, LIST_AND_WATCH,
    ListAndWatchResponse, OPTIONS, PREFERRED, PreferredAllocationRequest, PreferredAllocationResponse, REGISTER,
    RegisterRequest, UNHEALTHY, VERSION,
};
use crate::pod_resources::{
    ALLOCATABLE, AllocatableResourcesRequest, AllocatableResourcesResponse, LIST, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResources,
};
use crate::server::{Answer, Call, Service, listen, serve};

/// State of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// File name of its socket.
    pub endpoint: String,
    /// Its devices.
    pub devices: Vec<Device>,
    /// Registrations since the kubelet started.
    pub registrations: usize,
    /// Device lists received since the kubelet started.
    pub lists: usize,
    /// Whether its connection closed: it may register again.
    pub stopped: bool,
}

impl Plugin {
    /// IDs of its healthy devices.
    pub fn healthy(&self) -> Vec<&str> {
        self.devices.iter().filter(|device| device.health == HEALTHY).map(|device| device.id.as_str()).collect()
    }
}

type Plugins = BTreeMap<String, Plugin>;

struct State {
    dir: PathBuf,
    plugins: watch::Sender<Plugins>,
    pods: Mutex<Vec<PodResources>>,
    stop: CancellationToken,
    followers: TaskTracker,
}

/// A kubelet whose directory is `dir`: its socket and those of plugins are in it.
pub struct Kubelet {
    state: Arc<State>,
}

impl Kubelet {
    /// Starts a kubelet: like a real one, it removes sockets of earlier plugins.
    pub fn start(dir: &Path) -> std::io::Result<Self> {
        for entry in std::fs::read_dir(dir)? {
            std::fs::remove_file(entry?.path())?;
        }
        let state = Arc::new(State {
            dir: dir.to_owned(),
            plugins: watch::Sender::default(),
            pods: Mutex::default(),
            stop: CancellationToken::new(),
            followers: TaskTracker::new(),
        });
        let kubelet = Self { state };
        kubelet.listen_on(&kubelet.socket())?;
        Ok(kubelet)
    }

    /// Serves on another socket too, as real kubelets do for the pod-resources API.
    pub fn listen_on(&self, socket: &Path) -> std::io::Result<()> {
        let serving = serve(listen(socket)?, self.state.clone(), self.state.stop.clone());
        self.state.followers.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "fake kubelet socket failed");
            }
        });
        Ok(())
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.state.dir.join("kubelet.sock")
    }

    /// Stops it: connections to plugins are closed.
    pub async fn stop(self) {
        self.state.stop.cancel();
        self.state.followers.close();
        self.state.followers.wait().await;
    }

    /// Waits until the plugin of a resource matches; returns its state.
    ///
    /// # Panics
    /// On timeout: the test has failed.
    pub async fn until(&self, resource: &str, wanted: impl Fn(&Plugin) -> bool) -> Plugin {
        let mut plugins = self.state.plugins.subscribe();
        let is_so = |plugins: &Plugins| plugins.get(resource).is_some_and(&wanted);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(30), plugins.wait_for(is_so)).await;
        let found = waited.ok().and_then(|found| found.ok().and_then(|plugins| plugins.get(resource).cloned()));
        found.unwrap_or_else(|| panic!("{resource} never became as wanted: {:?}", self.plugins()))
    }

    /// Watches all plugins, by resource.
    pub fn watch(&self) -> watch::Receiver<BTreeMap<String, Plugin>> {
        self.state.plugins.subscribe()
    }

    /// Every plugin, by resource.
    pub fn plugins(&self) -> BTreeMap<String, Plugin> {
        self.state.plugins.borrow().clone()
    }

    /// Allocates devices to a container.
    pub async fn allocate(&self, resource: &str, ids: &[&str]) -> Result<ContainerAllocateResponse, Error> {
        let devices_ids = ids.iter().map(|&id| id.to_owned()).collect();
        let request = AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids }] };
        let answer: AllocateResponse = self.plugin(resource).await?.unary(ALLOCATE, request).await?;
        Ok(answer.container_responses.into_iter().next().unwrap_or_default())
    }

    /// Queries the preferred allocation of a resource.
    pub async fn preferred(&self, resource: &str, free: &[&str], size: i32) -> Result<Vec<String>, Error> {
        let container = ContainerPreferredAllocationRequest {
            available_device_ids: free.iter().map(|&id| id.to_owned()).collect(),
            must_include_device_ids: Vec::new(),
            allocation_size: size,
        };
        let request = PreferredAllocationRequest { container_requests: vec![container] };
        let answer: PreferredAllocationResponse = self.plugin(resource).await?.unary(PREFERRED, request).await?;
        Ok(answer.container_responses.into_iter().next().map(|chosen| chosen.device_ids).unwrap_or_default())
    }

    /// Sets the pods of the pod-resources API.
    pub fn set_pods(&self, pods: Vec<PodResources>) {
        *self.state.pods.lock().unwrap_or_else(PoisonError::into_inner) = pods;
    }

    async fn plugin(&self, resource: &str) -> Result<Connection, Error> {
        let endpoint = self.state.plugins.borrow().get(resource).map(|plugin| plugin.endpoint.clone());
        Connection::open(&self.state.dir.join(endpoint.unwrap_or_default())).await
    }
}

/// Closes its socket and connections.
impl Drop for Kubelet {
    fn drop(&mut self) {
        self.state.stop.cancel();
    }
}

impl Service for State {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            match call.name() {
                REGISTER => call.unary(move |request: RegisterRequest| self.register(request)).await,
                LIST => {
                    let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    call.unary(move |_: ListPodResourcesRequest| Ok(ListPodResourcesResponse { pod_resources: pods }))
                        .await
                }
                ALLOCATABLE => {
                    call.unary(|_: AllocatableResourcesRequest| Ok(AllocatableResourcesResponse::default())).await
                }
                _ => call.unknown(),
            }
        })
    }
}

impl State {
    fn register(self: Arc<Self>, request: RegisterRequest) -> Result<Empty, Status> {
        if request.version != VERSION {
            return Err(Status::invalid_argument(format!("version {} is not {VERSION}", request.version)));
        }
        let state = self.clone();
        self.followers.spawn(async move {
            let stop = state.stop.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                followed = state.follow(request) => {
                    if let Err(error) = followed {
                        tracing::warn!(%error, "fake kubelet lost a device plugin");
                    }
                }
            }
        });
        Ok(Empty {})
    }

    /// Handles a plugin as a kubelet does: reads its options, then streams its devices.
    async fn follow(&self, request: RegisterRequest) -> Result<(), Error> {
        let connection = Connection::open(&self.dir.join(&request.endpoint)).await?;
        let _: DevicePluginOptions = connection.unary(OPTIONS, Empty {}).await?;
        let mut lists = connection.stream::<_, ListAndWatchResponse>(LIST_AND_WATCH, Empty {}).await?;
        let mut mine = 0;
        self.plugins.send_modify(|plugins| {
            let known = plugins.entry(request.resource_name.clone()).or_insert_with(|| Plugin {
                endpoint: String::new(),
                devices: Vec::new(),
                registrations: 0,
                lists: 0,
                stopped: false,
            });
            known.registrations += 1;
            known.stopped = false;
            known.endpoint.clone_from(&request.endpoint);
            mine = known.registrations;
        });
        // Ignore messages of an earlier connection once the plugin has registered again.
        let change = |change: &dyn Fn(&mut Plugin)| {
            self.plugins.send_if_modified(|plugins| match plugins.get_mut(&request.resource_name) {
                Some(known) if known.registrations == mine => {
                    change(known);
                    true
                }
                _ => false,
            });
        };
        while let Ok(Some(list)) = lists.message().await {
            change(&|plugin| {
                plugin.devices.clone_from(&list.devices);
                plugin.lists += 1;
            });
        }
        change(&|plugin| {
            plugin.stopped = true;
            plugin.devices.iter_mut().for_each(|device| device.health = UNHEALTHY.into());
        });
        Ok(())
    }
}
