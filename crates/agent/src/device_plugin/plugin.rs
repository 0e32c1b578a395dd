//! One plugin: a socket, its registration with the kubelet, and the answers of one resource.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capstan_kubelet::Status;
use capstan_kubelet::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, DevicePlugin, DevicePluginOptions,
    ListAndWatchResponse, PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest, Served, VERSION,
    register,
};
use capstan_kubelet::server::{OwnFile, listen, serve};
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

/// The answers of one resource, from what the node shares.
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
        let resource = node.resource(self.name.as_str()).ok_or_else(|| self.gone())?;
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
        let resource = node.resource(self.name.as_str()).ok_or_else(|| self.gone())?;
        let answer = |ids: &[String]| allocate::allocate(&node, resource, ids, |path| path.exists(), unique);
        let containers = request.container_requests.iter().map(|container| answer(&container.devices_ids));
        let container_responses = containers.collect::<Result<_, String>>().map_err(Status::invalid_argument)?;
        Ok(AllocateResponse { container_responses })
    }
}

impl Plugin {
    fn gone(&self) -> Status {
        Status::unavailable(format!("{} is not offered any more", self.name))
    }
}

/// A random UUID.
fn unique() -> String {
    let bits = (fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62)) | (4 << 76) | (2 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Where a plugin serves and registers.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Directory of sockets.
    pub dir: PathBuf,
    /// The kubelet; `None` to serve without registering.
    pub kubelet: Option<PathBuf>,
    /// Longest pause before something is tried again.
    pub retry: Duration,
}

/// Restarts that were needed: a socket that fails again and again is given up.
#[derive(Debug, Default)]
struct Restarts {
    count: u32,
    last: Option<Instant>,
}

impl Restarts {
    /// Counts one more; whether it is one too many.
    fn too_many(&mut self, now: Instant) -> bool {
        let soon = self.last.is_some_and(|last| now.duration_since(last) < Duration::from_secs(3600));
        self.count = if soon { self.count + 1 } else { 1 };
        self.last = Some(now);
        self.count > 5
    }
}

/// Keeps one plugin serving and registered until told to stop. `kubelet` changes whenever the kubelet started.
pub(super) async fn keep(
    name: ResourceName,
    place: Place,
    node: watch::Receiver<Arc<Node>>,
    mut kubelet: watch::Receiver<u64>,
    stop: CancellationToken,
) -> Result<()> {
    let endpoint = format!("nvidia-{}.sock", name.part());
    let socket = place.dir.join(&endpoint);
    let service = Arc::new(Served(Plugin { name: name.clone(), node }));
    let request =
        RegisterRequest { version: VERSION.into(), endpoint, resource_name: name.to_string(), options: Some(OPTIONS) };
    let (mut restarts, mut pause) = (Restarts::default(), Pause::new(place.retry));
    let mut file = None;
    // A plugin that follows this one on the node, from a new pod, may listen there already.
    let leave = |file: Option<OwnFile>| match file.map_or(Ok(()), |file| file.remove()) {
        Ok(()) => Ok(()),
        Err(source) => Err(Error::Io { what: format!("cannot remove {}", socket.display()), source }),
    };
    loop {
        kubelet.mark_unchanged();
        let end = stop.child_token();
        let ended = match listen(&socket) {
            Err(error) => Ended::Failed(error),
            Ok(listener) => {
                file = Some(OwnFile::of(&socket));
                let mut serving = std::pin::pin!(serve(listener, service.clone(), end.clone()));
                let registered = announce(&place, &request, &mut pause);
                let ended = tokio::select! {
                    // First: whoever is told to stop stops serving too, which is no failure then.
                    biased;
                    () = stop.cancelled() => Ended::Told,
                    changed = kubelet.changed() => if changed.is_ok() { Ended::Kubelet } else { Ended::Told },
                    served = &mut serving => Ended::Failed(served.err().unwrap_or_else(|| std::io::ErrorKind::Other.into())),
                    () = registered => Ended::Told,
                };
                end.cancel();
                if !matches!(ended, Ended::Failed(_)) {
                    let _ = serving.await;
                }
                ended
            }
        };
        match ended {
            Ended::Told => return leave(file),
            Ended::Kubelet => tracing::info!(resource = %name, "kubelet restarted; registering again"),
            Ended::Failed(source) => {
                tracing::warn!(resource = %name, error = %source, "device plugin socket failed");
                if restarts.too_many(Instant::now()) {
                    return Err(Error::Io { what: format!("cannot serve {}", socket.display()), source });
                }
                tokio::select! {
                    () = stop.cancelled() => return leave(file),
                    () = pause.wait() => {}
                }
            }
        }
    }
}

enum Ended {
    Told,
    Kubelet,
    Failed(std::io::Error),
}

/// Registers until the kubelet takes it, then waits for ever.
async fn announce(place: &Place, request: &RegisterRequest, pause: &mut Pause) {
    if let Some(kubelet) = &place.kubelet {
        while let Err(error) = register(kubelet, request.clone()).await {
            tracing::warn!(resource = request.resource_name, %error, "registration failed; retrying");
            pause.wait().await;
        }
        pause.reset();
        tracing::info!(resource = request.resource_name, "registered with the kubelet");
    }
    std::future::pending().await
}

/// A pause that doubles.
struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    fn new(longest: Duration) -> Self {
        Self { next: longest.min(Duration::from_secs(1)), longest }
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(self.longest);
    }

    fn reset(&mut self) {
        *self = Self::new(self.longest);
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
        let (a, b) = (unique(), unique());
        assert_ne!(a, b);
        assert_eq!((a.len(), &a[14..15]), (36, "4"));
    }
}
