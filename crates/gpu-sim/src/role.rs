//! Containers of the operator's own image: their command runs in this process, on the machine of their node and with
//! their pod's RBAC permissions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_agent::{ApiAccess, Cx, Error, OpenDriver, Place, Result, Variables, after, roles, supervise};
use capstan_hw::gpu::nvidia::Source;
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_node::deploy_label;
use capstan_sim::node::{ContainerContext, ExitCode};
use clap::Parser;
use k8s_openapi::api::core::v1::{Container, Node};
use tokio_util::sync::CancellationToken;
use tracing::instrument::WithSubscriber;

use crate::imitation::TOOLKIT;
use crate::logs;
use crate::machine::Machine;

/// Interval at which a kubelet updates files from ConfigMaps.
const SYNC_INTERVAL: std::time::Duration = std::time::Duration::from_secs(60);

/// Runs the command of a container until it exits or is stopped.
pub(crate) async fn run(cx: ContainerContext, machine: Arc<Machine>, root: PathBuf) -> ExitCode {
    let root = ContainerRoot(root);
    let stop = CancellationToken::new();
    // Tasks of the command end with it, also when it is killed.
    let _ends = stop.clone().drop_guard();
    let command = async {
        prepare(&cx, &machine, &root.0).await?;
        let words: Vec<String> = cx.command.iter().skip(1).chain(&cx.args).cloned().collect();
        let process = Process { cx: &cx, machine: machine.clone(), root: root.0.clone(), stop: stop.clone() };
        tokio::select! {
            ended = process.run(&words, cx.env.clone()) => ended,
            never = sync_files(&cx, &root.0) => never,
        }
    };
    let stop_signal = async {
        cx.stopped().await;
        stop.cancel();
        std::future::pending().await
    };
    let ended = async {
        tokio::select! {
            ended = command => ended,
            never = stop_signal => never,
        }
    };
    match ended.with_subscriber(logs::subscriber(cx.log.clone())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cx.log.line(format!("Error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Root directory of a container, removed with it.
struct ContainerRoot(PathBuf);

impl Drop for ContainerRoot {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    let what = what.to_owned();
    move |source| Error::Io { what: what.clone(), source }
}

/// Creates the file system of a container, as a runtime does: mounts, kernel files, and the driver if the container
/// gets GPUs.
async fn prepare(cx: &ContainerContext, machine: &Machine, root: &Path) -> Result<()> {
    if has_gpus(cx) {
        wait_for_toolkit(cx).await;
    }
    let laid_out = cx.files.lay_out(root).and_then(|()| {
        let host = cx.node.host().path().unwrap_or(Path::new("/"));
        for dir in ["proc", "sys", "dev"].iter().filter(|name| !root.join(name).exists()) {
            std::os::unix::fs::symlink(host.join(dir), root.join(dir))?;
        }
        for own in ["tmp", "etc", "run"].iter().filter(|name| !root.join(name).exists()) {
            std::fs::create_dir_all(root.join(own))?;
        }
        if has_gpus(cx) { machine.inject(root) } else { Ok(()) }
    });
    laid_out.map_err(failed("cannot make the file system of a container"))
}

/// Whether the runtime injects GPUs: by runtime class, by name, or by resource request.
fn has_gpus(cx: &ContainerContext) -> bool {
    let spec = cx.pod.spec.as_ref();
    let class = spec.and_then(|spec| spec.runtime_class_name.as_deref());
    let named = format!("nvidia.cdi.k8s.io/container.{}", cx.container);
    let annotated = cx.pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(&named));
    let lists = spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let requested = lists.filter(|one| one.name == cx.container).any(requests_gpus);
    class.is_some_and(|class| class.starts_with("nvidia")) || annotated || requested
}

fn requests_gpus(container: &Container) -> bool {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    limits.is_some_and(|limits| limits.keys().any(|name| name.starts_with("nvidia.com/")))
}

/// Waits for the toolkit, where one is deployed: without it a runtime fails to create the container, and the kubelet
/// retries.
async fn wait_for_toolkit(cx: &ContainerContext) {
    let deployed = |node: &Node| {
        let labels = node.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(deploy_label!("container-toolkit"))).is_some_and(|value| value == "true")
    };
    if cx.node.object().is_some_and(|node| deployed(&node)) {
        cx.node.host().wait_for(TOOLKIT).await;
    }
}

/// Updates files from ConfigMaps at intervals.
async fn sync_files(cx: &ContainerContext, root: &Path) -> Result<()> {
    loop {
        tokio::time::sleep(SYNC_INTERVAL).await;
        cx.files.lay_out(root).map_err(failed("cannot bring the files of a container up to date"))?;
    }
}

/// Command and context of a container.
struct Process<'a> {
    cx: &'a ContainerContext,
    machine: Arc<Machine>,
    root: PathBuf,
    stop: CancellationToken,
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct After {
    #[command(flatten)]
    options: after::Options,
}

impl Process<'_> {
    /// Runs a command of our program with these environment variables.
    async fn run(&self, words: &[String], mut variables: BTreeMap<String, String>) -> Result<()> {
        let mut words = words.to_vec();
        // A command may exec another one, with more variables.
        while let [agent, name, rest @ ..] = words.as_slice()
            && (agent.as_str(), name.as_str()) == ("agent", "after")
        {
            let wrong = |error: clap::Error| Error::Config(error.to_string().trim().to_owned());
            let options = After::try_parse_from(rest).map_err(wrong)?.options;
            let cx = self.context(&variables);
            after::wait(&options, &cx).await?;
            variables.extend(after::variables(&options, &cx)?);
            words = options.words;
            if words.is_empty() {
                return Ok(());
            }
        }
        match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["--version"] => Ok(()),
            ["agent", "--roles", names, ..] => self.roles(names, &variables).await,
            ["agent", name, ..] => roles::parse(name, &words[2..], &variables)?.run(self.context(&variables)).await,
            _ => Err(Error::Config(format!("a virtual node cannot run `capstan {}`", words.join(" ")))),
        }
    }

    /// Runs several roles, each enabled by its node label if it has one.
    async fn roles(&self, names: &str, variables: &BTreeMap<String, String>) -> Result<()> {
        let parsed = names.split(',').map(|name| roles::parse(name, &[], variables));
        let settings = supervise::Settings {
            node_name: variables.get("NODE_NAME").cloned().unwrap_or_default(),
            follow_node_labels: variables.get("FOLLOW_NODE_LABELS").is_some_and(|value| value == "true"),
            ..supervise::Settings::default()
        };
        supervise::supervise(parsed.collect::<Result<_>>()?, settings, self.context(variables)).await
    }

    fn context(&self, variables: &BTreeMap<String, String>) -> Cx {
        let machine = self.machine.clone();
        let open_driver: OpenDriver = Arc::new(move |roots| machine.open(roots));
        let roots = self.roots(variables);
        let (open, below) = (open_driver.clone(), roots.clone());
        let hardware = Arc::new(Source::new(move || open(&below)));
        Cx {
            open_driver,
            api: ApiAccess::Given(self.cx.client()),
            variables: Variables::Given(variables.clone()),
            place: Place::VirtualNode,
            ..Cx::new(hardware, roots, &self.root, self.stop.clone())
        }
    }

    /// Driver roots, as the agent's command line sets them.
    fn roots(&self, variables: &BTreeMap<String, String>) -> Roots {
        let set = |name: &str| variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let mounted = set("DRIVER_ROOT_CTR_PATH")
            .unwrap_or_else(|| if self.root.join("driver-root").is_dir() { "/driver-root".into() } else { "/".into() });
        let here = self.root.join(mounted.strip_prefix("/").unwrap_or(&mounted));
        let host = set("NVIDIA_DRIVER_ROOT").unwrap_or_else(|| "/".into());
        Roots::new(host, here, set("NVIDIA_DEV_ROOT"))
    }
}
