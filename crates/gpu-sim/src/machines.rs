//! Machines of a cluster: the behaviour of their containers, and their host service.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use capstan_sim::node::{Behaviour, Body, ContainerContext, ExitCode, HostService, Match, NodeHandle, Settings};

use crate::faults::Fault;
use crate::machine::Machine;
use crate::{Pace, device_plugins, imitation, node_features, role};

/// Machines of virtual nodes. Their files are in a temporary directory, which is removed on drop.
pub struct Machines {
    shared: Arc<Shared>,
    _directory: tempfile::TempDir,
}

/// State shared by containers and services.
pub(crate) struct Shared {
    directory: PathBuf,
    faults: Vec<Fault>,
    machines: Mutex<HashMap<String, Arc<Machine>>>,
    containers: AtomicU64,
}

impl Machines {
    /// No machines yet: a node gets its machine when it joins.
    pub fn new() -> io::Result<Self> {
        Self::with_faults(Vec::new())
    }

    /// The same with hardware faults injected.
    pub fn with_faults(faults: Vec<Fault>) -> io::Result<Self> {
        // Unix socket paths are short, so the directory name is too. Nodes have thousands of small files, some of which
        // are synced: they belong in memory.
        let mut builder = tempfile::Builder::new();
        builder.prefix("capstan-");
        let directory = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir())?;
        let path = directory.path().to_owned();
        let shared = Shared { directory: path, faults, machines: Mutex::default(), containers: AtomicU64::default() };
        Ok(Self { shared: Arc::new(shared), _directory: directory })
    }

    /// Runs nodes on machines: their files are on disk, and containers of this image run its code. Drivers, toolkits
    /// and third-party images are imitated.
    pub fn run(&self, settings: Settings, image: &str, pace: Pace) -> Settings {
        let shared = self.shared.clone();
        let service = HostService::new(move |node| serve(shared.clone(), node));
        let mut rules = settings.rules;
        rules.extend(imitation::rules(pace));
        rules.extend(self.rules(image, pace));
        Settings { rules, hosts: Some(self.shared.directory.join("n")), service: Some(service), ..settings }
    }

    /// The machine of a node that has joined: to inject and clear GPU faults.
    pub fn get(&self, node: &str) -> Option<Arc<Machine>> {
        self.shared.machines.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned()
    }

    fn rules(&self, image: &str, pace: Pace) -> Vec<(Match, Behaviour)> {
        let body = |body: Body| Behaviour { body: Some(body), ..Behaviour::default() };
        let on_machine = |run: fn(ContainerContext, Arc<Machine>, Pace) -> BoxedExit| {
            let shared = self.shared.clone();
            Body::new(move |cx: ContainerContext| {
                let machine = shared.of(&cx.node);
                async move {
                    match machine {
                        Ok(machine) => run(cx, machine, pace).await,
                        Err(error) => failed(&cx, &error),
                    }
                }
            })
        };
        let shared = self.shared.clone();
        let own = Body::new(move |cx: ContainerContext| {
            let made = shared.of(&cx.node).map(|machine| (machine, shared.container_root()));
            async move {
                match made {
                    Ok((machine, root)) => role::run(cx, machine, root).await,
                    Err(error) => failed(&cx, &error),
                }
            }
        });
        vec![
            (
                Match::container("nvidia-driver-ctr"),
                body(on_machine(|cx, machine, pace| Box::pin(driver(cx, machine, pace)))),
            ),
            (Match::container("k8s-driver-manager"), body(on_machine(|cx, machine, _| Box::pin(manager(cx, machine))))),
            (Match::image(image), body(own)),
        ]
    }
}

type BoxedExit = futures::future::BoxFuture<'static, ExitCode>;

fn failed(cx: &ContainerContext, error: &io::Error) -> ExitCode {
    cx.log.line(format!("the machine of this node is broken: {error}"));
    ExitCode::FAILURE
}

impl Shared {
    /// The machine of a node, built on first use.
    pub(crate) fn of(&self, node: &NodeHandle) -> io::Result<Arc<Machine>> {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(machine) = machines.get(node.name()) {
            return Ok(machine.clone());
        }
        let missing = || io::Error::other("its node is unknown");
        let (root, object) = node.host().path().zip(node.object()).ok_or_else(missing)?;
        let machine = Arc::new(Machine::build(root, &object)?);
        self.faults_of(node.name()).for_each(|fault| fault.inject_before_start(&machine));
        machines.insert(node.name().to_owned(), machine.clone());
        Ok(machine)
    }

    fn faults_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Fault> {
        self.faults.iter().filter(move |fault| fault.affects(node))
    }

    /// A directory for the root of a new container.
    fn container_root(&self) -> PathBuf {
        self.directory.join(format!("r/{}", self.containers.fetch_add(1, Ordering::Relaxed)))
    }
}

/// Host service of a node: the kubelet's device manager, and the labels that Node Feature Discovery derives from
/// NodeFeatures.
async fn serve(shared: Arc<Shared>, node: NodeHandle) {
    node.until(|_| true).await;
    let machine = match shared.of(&node) {
        Ok(machine) => machine,
        Err(error) => {
            tracing::error!(node = node.name(), %error, "virtual node not created");
            return;
        }
    };
    let injected = futures::future::join_all(
        shared.faults_of(node.name()).map(|fault| fault.inject_when_allocatable(&machine, &node)),
    );
    tokio::join!(device_plugins::serve(&node), node_features::label(&node), injected);
}

/// Loads the driver that the image names. It remains loaded after its pod is deleted.
async fn driver(cx: ContainerContext, machine: Arc<Machine>, pace: Pace) -> ExitCode {
    cx.set_ready(false);
    tokio::time::sleep(pace.driver).await;
    if let Err(error) = machine.load(version(&cx.image)) {
        cx.log.line(format!("cannot load the driver: {error}"));
        return ExitCode::FAILURE;
    }
    imitation::driver_loaded(cx).await;
    ExitCode::SUCCESS
}

/// Unloads an outdated driver.
async fn manager(cx: ContainerContext, machine: Arc<Machine>) -> ExitCode {
    let host = cx.node.host().clone();
    let code = imitation::driver_manager(cx).await;
    if host.read(imitation::LOADED).is_none() && machine.unload().is_err() {
        return ExitCode::FAILURE;
    }
    code
}

/// The driver version in an image tag: `580.95.05-ubuntu24.04`.
fn version(image: &str) -> Option<&str> {
    let (_, tag) = image.rsplit_once(':')?;
    let version = tag.split('-').next()?;
    let numeric = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = version.split('.').count();
    (parts >= 2 && version.split('.').all(numeric)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_driver_names_its_version() {
        assert_eq!(version("nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"), Some("595.91.07"));
        for image in ["example.com/driver:1", "driver", "localhost:5000/driver", "driver:latest"] {
            assert_eq!(version(image), None, "{image}");
        }
    }
}
