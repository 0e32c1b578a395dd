//! The plugin of one resource: its socket, its registration with the kubelet, and its gRPC service.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capstan_kubelet::Status;
use capstan_kubelet::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, DevicePlugin, DevicePluginOptions,
    ListAndWatchResponse, PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest, Served, VERSION,
    register,
};
use capstan_kubelet::server::{SocketFile, listen, serve};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::{allocate, prefer};
use crate::config::ResourceName;
use crate::{Error, Result};

const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true };

/// The gRPC service of one resource, over the shared node state.
#[derive(Clone)]
struct Plugin {
    name: ResourceName,
    node: watch::Receiver<Arc<Node>>,
}

impl DevicePlugin for Plugin {
    fn options(&self) -> DevicePluginOptions {
        OPTIONS
    }

    fn devices(&self) -> BoxStream<'static, ListAndWatchResponse> {
        let mut node = self.node.clone();
        node.mark_changed();
        let start = (node, self.name.clone(), None);
        futures::stream::unfold(start, |(mut node, name, last)| async move {
            loop {
                node.changed().await.ok()?;
                let list = node.borrow_and_update().listed(name.as_str());
                if last.as_ref() != Some(&list) {
                    return Some((list.clone(), (node, name, Some(list))));
                }
            }
        })
        .boxed()
    }

    fn preferred(&self, request: PreferredAllocationRequest) -> Result<PreferredAllocationResponse, Status> {
        let node = self.node.borrow().clone();
        let resource = node.resource(self.name.as_str()).ok_or_else(|| self.not_advertised())?;
        let mut container_responses = Vec::new();
        for wanted in request.container_requests {
            let size = usize::try_from(wanted.allocation_size).unwrap_or(0);
            let (free, must) = (&wanted.available_device_ids, &wanted.must_include_device_ids);
            let device_ids = if resource.whole_gpus() && resource.replicas.is_none() {
                prefer::aligned(&node.topology, free, must, size)
            } else {
                let replicas = usize::try_from(resource.replicas.unwrap_or(1)).unwrap_or(1);
                let total = resource.devices.iter().map(|device| (device.id.clone(), replicas)).collect();
                prefer::greedy(node.settings.allocation, &total, free, must, size).map_err(Status::invalid_argument)?
            };
            container_responses.push(ContainerPreferredAllocationResponse { device_ids });
        }
        Ok(PreferredAllocationResponse { container_responses })
    }

    fn allocate(&self, request: AllocateRequest) -> Result<AllocateResponse, Status> {
        let node = self.node.borrow().clone();
        let resource = node.resource(self.name.as_str()).ok_or_else(|| self.not_advertised())?;
        let response = |ids: &[String]| allocate::allocate(&node, resource, ids, |path| path.exists(), random_uuid);
        let containers = request.container_requests.iter().map(|container| response(&container.devices_ids));
        let container_responses = containers.collect::<Result<_, String>>().map_err(Status::invalid_argument)?;
        Ok(AllocateResponse { container_responses })
    }
}

impl Plugin {
    fn not_advertised(&self) -> Status {
        Status::unavailable(format!("{} is not offered any more", self.name))
    }
}

/// A random UUID.
fn random_uuid() -> String {
    let bits = (fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62)) | (4 << 76) | (2 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Sockets of plugins and kubelet.
#[derive(Debug, Clone)]
pub(super) struct Sockets {
    /// Directory of the plugin sockets.
    pub dir: PathBuf,
    /// Socket of the kubelet; `None` to serve without registering.
    pub kubelet: Option<PathBuf>,
    /// Maximum backoff.
    pub max_backoff: Duration,
}

/// Counts restarts, to give up on a socket that fails repeatedly.
#[derive(Debug, Default)]
struct Restarts {
    count: u32,
    last: Option<Instant>,
}

impl Restarts {
    /// Counts a restart; returns whether the limit is exceeded.
    fn too_many(&mut self, now: Instant) -> bool {
        let soon = self.last.is_some_and(|last| now.duration_since(last) < Duration::from_secs(3600));
        self.count = if soon { self.count + 1 } else { 1 };
        self.last = Some(now);
        self.count > 5
    }
}

/// Serves and registers one plugin until stopped. `kubelet` changes whenever the kubelet restarts.
pub(super) async fn serve_and_register(
    name: ResourceName,
    sockets: Sockets,
    node: watch::Receiver<Arc<Node>>,
    mut kubelet: watch::Receiver<u64>,
    stop: CancellationToken,
) -> Result<()> {
    let endpoint = format!("nvidia-{}.sock", name.part());
    let socket = sockets.dir.join(&endpoint);
    let service = Arc::new(Served(Plugin { name: name.clone(), node }));
    let request =
        RegisterRequest { version: VERSION.into(), endpoint, resource_name: name.to_string(), options: Some(OPTIONS) };
    let (mut restarts, mut backoff) = (Restarts::default(), Backoff::new(sockets.max_backoff));
    let mut file = None;
    // Remove our own socket only: a successor in a new pod may listen there already.
    let remove_socket = |file: Option<SocketFile>| match file.map_or(Ok(()), |file| file.remove()) {
        Ok(()) => Ok(()),
        Err(source) => Err(Error::Io { what: format!("cannot remove {}", socket.display()), source }),
    };
    loop {
        kubelet.mark_unchanged();
        let end = stop.child_token();
        let ended = match listen(&socket) {
            Err(error) => Ended::Failed(error),
            Ok(listener) => {
                file = Some(SocketFile::of(&socket));
                let mut serving = std::pin::pin!(serve(listener, service.clone(), end.clone()));
                let registered = register_with_backoff(&sockets, &request, &mut backoff);
                let ended = tokio::select! {
                    // Check stop first: it also ends serving, which is no failure then.
                    biased;
                    () = stop.cancelled() => Ended::Stopped,
                    changed = kubelet.changed() => if changed.is_ok() { Ended::KubeletRestarted } else { Ended::Stopped },
                    served = &mut serving => Ended::Failed(served.err().unwrap_or_else(|| std::io::ErrorKind::Other.into())),
                    () = registered => Ended::Stopped,
                };
                end.cancel();
                if !matches!(ended, Ended::Failed(_)) {
                    let _ = serving.await;
                }
                ended
            }
        };
        match ended {
            Ended::Stopped => return remove_socket(file),
            Ended::KubeletRestarted => tracing::info!(resource = %name, "kubelet restarted; registering again"),
            Ended::Failed(source) => {
                tracing::warn!(resource = %name, error = %source, "device plugin socket failed");
                if restarts.too_many(Instant::now()) {
                    return Err(Error::Io { what: format!("cannot serve {}", socket.display()), source });
                }
                tokio::select! {
                    () = stop.cancelled() => return remove_socket(file),
                    () = backoff.wait() => {}
                }
            }
        }
    }
}

enum Ended {
    Stopped,
    KubeletRestarted,
    Failed(std::io::Error),
}

/// Registers with backoff until the kubelet accepts, then pends forever.
async fn register_with_backoff(sockets: &Sockets, request: &RegisterRequest, backoff: &mut Backoff) {
    if let Some(kubelet) = &sockets.kubelet {
        while let Err(error) = register(kubelet, request.clone()).await {
            tracing::warn!(resource = request.resource_name, %error, "registration failed; retrying");
            backoff.wait().await;
        }
        backoff.reset();
        tracing::info!(resource = request.resource_name, "registered with the kubelet");
    }
    std::future::pending().await
}

/// Exponential backoff.
struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    fn new(max: Duration) -> Self {
        Self { next: max.min(Duration::from_secs(1)), max }
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(self.max);
    }

    fn reset(&mut self) {
        *self = Self::new(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_fails_six_times_within_hours_is_given_up() {
        let (mut restarts, start) = (Restarts::default(), Instant::now());
        let minutes = |minutes: u64| start + Duration::from_secs(60 * minutes);
        assert!((0..5).all(|n| !restarts.too_many(minutes(n))));
        assert!(restarts.too_many(minutes(5)));
        assert!(!restarts.too_many(minutes(5 + 61)), "a quiet hour forgives");
    }

    #[test]
    fn names_of_annotations_are_uuids_of_their_own() {
        let (a, b) = (random_uuid(), random_uuid());
        assert_ne!(a, b);
        assert_eq!((a.len(), &a[14..15]), (36, "4"));
    }
}
