//! `capstan up`: an embedded cluster with the operator, and a model server that becomes Ready.

mod data;
mod faults;
mod kubeconfig;
mod operator;
mod progress;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use capstan_api::gpu::ClusterPolicy;
use capstan_api::gpu::cluster_policy::ClusterPolicyState;
use capstan_api::nim::NimService;
use capstan_apiserver::serve::{Listen, ListenError};
use capstan_gpu_sim::faults::Fault;
use capstan_gpu_sim::{Machines, Pace};
use capstan_sim::{Cluster, NodeTemplate, StartError, node};
use capstan_trial::manifests::{self, Manifest};
use clap::ValueEnum;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use tokio_util::sync::CancellationToken;

use data::Data;
use faults::Faults;
use kubeconfig::Kubeconfig;
use operator::Operator;
use progress::View;

/// Default number of nodes of a new cluster.
const NODES: u16 = 2;
/// Largest cluster whose nodes run the operands' code; in larger ones operands are imitated.
const MAX_MACHINES: u16 = 16;
/// Namespace of the operator and its operands.
const NAMESPACE: &str = "capstan";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Number of nodes [default: 2, or the existing ones]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=5000))]
    nodes: Option<u16>,
    /// GPUs per node
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(u16).range(0..=16))]
    gpus: u16,
    /// Manifests to apply instead of the example; may be repeated
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Port of the API server on loopback [default: a free one]
    #[arg(long, default_value = "0")]
    port: u16,
    /// Persist the cluster in this directory: it survives restarts and crashes
    #[arg(long, value_name = "DIR", conflicts_with = "fault")]
    data: Option<PathBuf>,
    /// Kubeconfig output file
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Exit with status 0 as soon as everything is Ready
    #[arg(long)]
    exit_when_ready: bool,
    /// Timeout in seconds until everything is Ready
    #[arg(long, default_value = "60", value_name = "SECONDS")]
    timeout: u64,
    /// Do not run the operator: run your own with the kubeconfig of this cluster
    #[arg(long, conflicts_with = "fault")]
    no_operator: bool,
    /// Inject a fault, on one node or all, to diagnose with `capstan doctor`; may be repeated
    #[arg(long, value_name = "CLASS[@NODE]", value_parser = Fault::parse)]
    fault: Vec<Fault>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  capstan up                                             two nodes with eight GPUs each, and a model server
  capstan up -f examples/nim/cached.yaml                 the same with your own manifests
  capstan up --data ~/.capstan                           a cluster that is still there next time
  capstan up --exit-when-ready -o json                   in a pipeline: how long did it take?
  capstan up --no-operator --kubeconfig up.yaml          a cluster for an operator that you start beside it
  capstan up --fault driver-headers-missing@gpu-1        a node whose driver cannot be built
  capstan up --fault xid@gpu-0 --fault gpu-quota         several faults at once";

impl Args {
    fn nodes(&self) -> u16 {
        self.nodes.unwrap_or(NODES)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Running components, in the order in which they must stop.
struct Up {
    operator: Operator,
    cluster: Cluster,
    kubeconfig: Kubeconfig,
    /// Machines of the nodes, whose files are removed with them.
    machines: Option<Machines>,
}

pub(crate) async fn run(mut args: Args) -> Result<()> {
    let view = View::detect(args.output == Format::Json);
    let data = args.data.as_deref().map(Data::open).transpose()?;
    let data = data.as_ref();
    args.nodes = args.nodes.max(data.and_then(Data::nodes));
    // After the first start, the example objects belong to the user.
    let again = data.is_some_and(Data::is_initialized);
    let wanted = if again && args.file.is_empty() { Vec::new() } else { manifests::read(&args.file)? };
    let faults = Faults::new(&args.fault, args.nodes())?;
    log();
    let interrupted = crate::signals::termination()?;
    let begin = Instant::now();
    let late = || anyhow!("not Ready after {} s: the last line above says what it waits for", args.timeout);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(args.timeout);
    let started = tokio::select! {
        started = tokio::time::timeout_at(deadline, start(&args, &wanted, &faults, data, view)) => started,
        error = data::store_failure(data) => return Err(error),
        () = interrupted.cancelled() => return Ok(()),
    };
    let (up, client) = started.map_err(|_| late())??;
    if !faults.is_empty() {
        return broken(up, &client, &wanted, &faults, view, &args, interrupted).await;
    }
    let ready = async {
        if let Some(data) = data {
            data.pods_ready(&client, view).await?;
        }
        if args.gpus > 0 && !again {
            gpus(&client, &wanted, view, &args).await?;
        }
        serve(&client, &wanted, view).await?;
        if let Some(data) = data {
            data.mark_initialized();
        }
        summary(view, &up, &wanted, data, begin.elapsed());
        anyhow::Ok(())
    };
    let result = tokio::select! {
        result = tokio::time::timeout_at(deadline, ready) => result.unwrap_or_else(|_| Err(late())),
        error = data::store_failure(data) => Err(error),
        () = interrupted.cancelled() => return end(up, view).await,
    };
    if result.is_err() || args.exit_when_ready {
        end(up, view).await?;
        return result;
    }
    let result = tokio::select! {
        () = interrupted.cancelled() => Ok(()),
        error = data::store_failure(data) => Err(error),
    };
    end(up, view).await?;
    result
}

/// Starts the cluster with its nodes, and the operator.
async fn start(
    args: &Args,
    wanted: &[Manifest],
    faults: &Faults,
    data: Option<&Data>,
    view: View,
) -> Result<(Up, Client)> {
    let stage = view.stage("cluster");
    let machines = (args.nodes() <= MAX_MACHINES && args.gpus > 0)
        .then(|| Machines::with_faults(faults.iter().cloned().collect()))
        .transpose()
        .context("cannot make a directory for the files of nodes")?;
    let nodes = nodes(args, faults, machines.as_ref());
    let address = (std::net::Ipv4Addr::LOCALHOST, args.port).into();
    let listen = Listen { address, ..Listen::default() };
    let mut builder = Cluster::builder().node_settings(nodes).listen(listen);
    if let Some(data) = data {
        builder = builder.store(data.store.clone());
    }
    let started = builder.start().await;
    let cluster = started.map_err(|error| match error {
        StartError::Listen(ListenError::Socket(error)) if error.kind() == std::io::ErrorKind::AddrInUse => {
            anyhow!("port {} is in use: choose another with --port, or leave it out", args.port)
        }
        other => anyhow!(other).context("the cluster did not start"),
    })?;
    let listener = cluster.listener().context("the cluster has no socket")?;
    let kubeconfig = args.kubeconfig.clone().or_else(|| data.map(Data::kubeconfig));
    let kubeconfig = kubeconfig
        .unwrap_or_else(|| std::env::temp_dir().join(format!("capstan-{}.kubeconfig", listener.address().port())));
    cluster
        .kubeconfig()
        .context("the cluster has no socket")?
        .write(&kubeconfig)
        .with_context(|| format!("cannot write the kubeconfig to {}", kubeconfig.display()))?;
    let kubeconfig = match data {
        Some(_) => Kubeconfig::of_directory(kubeconfig),
        None => Kubeconfig::of_process(kubeconfig),
    };
    stage.done(&format!("Kubernetes API at {}", listener.url()));
    let client = cluster.client();
    if !data.is_some_and(Data::is_initialized) {
        manifests::apply(&client, &manifests::storage_class()).await?;
        manifests::apply(&client, &manifests::namespace(NAMESPACE)).await?;
    }
    if machines.is_some() {
        // Node Feature Discovery publishes NodeFeature objects.
        for entry in capstan_api::kinds().filter(|entry| entry.kind == "NodeFeature") {
            faults::install(&client, entry.definition()).await?;
        }
    }
    nodes_ready(&client, view, args).await?;

    let operator = if args.no_operator {
        let policies =
            if args.gpus > 0 && !configures_gpus(wanted) { manifests::cluster_policy()? } else { Vec::new() };
        Operator::wait_for_external(&client, &[wanted, &policies].concat(), &kubeconfig, view).await?
    } else {
        Operator::start(&client, faults, view).await?
    };
    Ok((Up { operator, cluster, kubeconfig, machines }, client))
}

/// Nodes and their containers: on machines they run the code of our image, otherwise operands are imitated.
fn nodes(args: &Args, faults: &Faults, machines: Option<&Machines>) -> node::Settings {
    let (plain, pace) = (vec![(node::Match::default(), containers()), operands()], Pace::default());
    let template: fn(&str, u16) -> NodeTemplate = match machines {
        Some(_) => capstan_gpu_sim::bare_node,
        None => capstan_gpu_sim::gpu_node,
    };
    let made = (0..args.nodes()).map(|index| {
        let mut node = template(&format!("gpu-{index}"), args.gpus);
        faults.iter().for_each(|fault| fault.edit(&mut node));
        node
    });
    let settings = node::Settings { nodes: made.collect(), rules: plain, ..node::Settings::default() };
    let mut settings = match machines {
        Some(machines) => machines.run(settings, &crate::own_image(), pace),
        None => node::Settings { rules: [settings.rules, capstan_gpu_sim::rules(pace)].concat(), ..settings },
    };
    let by_hardware = |fault: &&Fault| machines.is_some() && fault.is_hardware_fault();
    settings.rules.extend(faults.iter().filter(|fault| !by_hardware(fault)).flat_map(Fault::rules));
    settings
}

/// Prints log messages besides the stages, such as a rejected CRD. Roles on nodes log to their containers.
fn log() {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::prelude::*;
    let roles = ["capstan_agent", "capstan_kubelet"].map(|target| (target, LevelFilter::OFF));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).without_time().with_target(false);
    let log_filter = Targets::new().with_default(LevelFilter::WARN).with_targets(roles);
    tracing_subscriber::registry().with(lines.with_filter(log_filter)).init();
}

/// Runs a cluster with faults, without waiting for Ready.
async fn broken(
    up: Up,
    client: &Client,
    wanted: &[Manifest],
    faults: &Faults,
    view: View,
    args: &Args,
    interrupted: CancellationToken,
) -> Result<()> {
    let injected = async {
        for manifest in manifests::cluster_policy()?.iter().filter(|_| args.gpus > 0 && !configures_gpus(wanted)) {
            manifests::apply(client, manifest).await?;
        }
        for manifest in wanted {
            manifests::apply(client, manifest).await?;
        }
        faults.inject(client, view, &up.kubeconfig).await?;
        let text = format!(
            "\nThis cluster is broken on purpose. In another terminal:\n\n  export KUBECONFIG={}\n  capstan doctor\n",
            up.kubeconfig.display()
        );
        view.say("broken", &text);
        anyhow::Ok(())
    };
    let result = tokio::select! {
        result = injected => result,
        () = interrupted.cancelled() => Ok(()),
    };
    if result.is_ok() && !args.exit_when_ready {
        interrupted.cancelled().await;
    }
    faults.clean(&up.kubeconfig);
    end(up, view).await?;
    result
}

/// Containers load no model: their probes succeed soon, whatever delay they allow.
fn containers() -> node::Behaviour {
    node::Behaviour {
        pull_time: Some(Duration::from_millis(500)),
        started_after: Some(Duration::from_millis(300)),
        ready_after: Some(Duration::from_millis(200)),
        ..node::Behaviour::default()
    }
}

/// Operand images are present.
fn operands() -> (node::Match, node::Behaviour) {
    let here = node::Match { namespace: Some(NAMESPACE.into()), ..node::Match::default() };
    let soon = node::Behaviour {
        pull_time: Some(Duration::from_millis(20)),
        started_after: Some(Duration::from_millis(20)),
        ready_after: Some(Duration::from_millis(20)),
        ..node::Behaviour::default()
    };
    (here, soon)
}

async fn nodes_ready(client: &Client, view: View, args: &Args) -> Result<()> {
    let mut stage = view.stage("nodes");
    let api: Api<Node> = Api::all(client.clone());
    let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut ready = std::collections::BTreeSet::new();
    while ready.len() < usize::from(args.nodes()) {
        let Some(node) = events.try_next().await.context("cannot watch the nodes")? else { break };
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
            ready.extend(node.meta().name.clone());
        }
        stage.counted(ready.len(), usize::from(args.nodes()), "Ready");
    }
    stage.done(&format!("{} Ready", args.nodes()));
    Ok(())
}

/// Whether the user's manifests configure GPUs.
fn configures_gpus(wanted: &[Manifest]) -> bool {
    wanted.iter().any(|manifest| ["ClusterPolicy", "GPUCluster"].contains(&manifest.kind.kind.as_str()))
}

/// Makes the nodes' GPUs usable, by the user's ClusterPolicy or the default one.
async fn gpus(client: &Client, wanted: &[Manifest], view: View, args: &Args) -> Result<()> {
    if configures_gpus(wanted) {
        return Ok(());
    }
    let policies = manifests::cluster_policy()?;
    let mut stage = view.stage("GPUs");
    for manifest in &policies {
        manifests::apply(client, manifest).await?;
    }
    let api: Api<ClusterPolicy> = Api::all(client.clone());
    let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(policy) = events.try_next().await.context("cannot watch the ClusterPolicy")? {
        let Some(status) = policy.status else { continue };
        if status.state == ClusterPolicyState::Ready {
            stage.done(&format!("ClusterPolicy ready, {} nodes offer {} GPUs each", args.nodes(), args.gpus));
            return Ok(());
        }
        let error = status.conditions.iter().flatten().find(|condition| condition.type_ == "Error");
        stage.waiting(&error.map(|condition| condition.message.clone()).unwrap_or_default());
    }
    bail!("the watch of the ClusterPolicy ended")
}

/// Applies the manifests and waits until their objects are ready.
async fn serve(client: &Client, wanted: &[Manifest], view: View) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let stage = view.stage("apply");
    for manifest in wanted {
        manifests::apply(client, manifest).await?;
    }
    stage.done(&format!("{} objects", wanted.len()));
    for manifest in wanted.iter().filter(|manifest| is_service(manifest)) {
        service_ready(client, manifest, view).await?;
    }
    Ok(())
}

fn is_service(manifest: &Manifest) -> bool {
    manifest.kind.group == NimService::group(&()) && manifest.kind.kind == NimService::kind(&())
}

async fn service_ready(client: &Client, manifest: &Manifest, view: View) -> Result<()> {
    let (name, namespace) = (manifest.name(), manifest.namespace());
    let mut stage = view.stage("NIMService");
    let api: Api<NimService> = Api::namespaced(client.clone(), namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(api, only).default_backoff().applied_objects().boxed();
    while let Some(service) = events.try_next().await.context("cannot watch the NIMService")? {
        let status = service.status.unwrap_or_default();
        let message = |type_: &str| {
            let found = status.conditions.iter().flatten().find(|condition| condition.type_ == type_);
            found.map(|condition| condition.message.clone()).unwrap_or_default()
        };
        match status.state.as_deref() {
            Some("Ready") => {
                let endpoint = status.model.map(|model| model.cluster_endpoint).unwrap_or_default();
                stage.done(&format!("{namespace}/{name} Ready at {endpoint}"));
                return Ok(());
            }
            Some("Failed") => bail!("NIMService {namespace}/{name} failed: {}", message("Failed")),
            _ => stage.waiting(&message("Ready")),
        }
    }
    bail!("the watch of NIMService {namespace}/{name} ended")
}

fn summary(view: View, up: &Up, wanted: &[Manifest], data: Option<&Data>, elapsed: Duration) {
    let namespace = wanted.iter().find(|manifest| is_service(manifest)).map_or("default", Manifest::namespace);
    let persistence =
        data.map(|data| format!("\nKept in {}: start it again with the same --data.\n", data.dir().display()));
    let text = format!(
        "\nReady after {:.1} s. In another terminal:\n\n  export KUBECONFIG={}\n  kubectl get nodes\n  \
         kubectl get clusterpolicies,daemonsets -A\n  kubectl get nimservices,deployments,pods -n {namespace}\n  kubectl describe nimservice -n {namespace}\n{}",
        elapsed.as_secs_f64(),
        up.kubeconfig.display(),
        persistence.unwrap_or_default(),
    );
    view.say("ready", &text);
}

/// Stops everything that was started and removes temporary files.
async fn end(up: Up, view: View) -> Result<()> {
    let operator = up.operator.end().await;
    up.cluster.stop();
    drop((up.machines, up.kubeconfig));
    view.say("stopped", "stopped");
    operator
}
