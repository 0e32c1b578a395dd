//! The `capstan` command.

mod agent;
mod complete;
mod crds;
mod doctor;
mod gather;
mod logging;
mod memory;
mod operator;
mod plan;
mod show;
mod signals;
mod sim;
mod source;
mod status;
mod up;
mod versions;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Parser, Subcommand};
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

#[derive(Parser)]
#[command(name = "capstan", version = env!("CAPSTAN_VERSION"), about = "One operator for AI clusters on Kubernetes")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const OPERATOR: &str = "\
Examples:
  capstan operator                        # against the cluster of your kubeconfig
  capstan operator --leader-elect --health-probe-bind-address=:8081";

const AGENT: &str = "\
Examples:
  capstan agent --fake 8xH200 exporter    # metrics of GPUs that are not there
  capstan agent validator --help          # what a role can be told";

const CRDS: &str = "\
Examples:
  capstan crds | kubectl apply --server-side -f -
  capstan crds --apply                    # the same, and wait until they are served
  capstan crds --kind NIMService -o json";

#[derive(Subcommand)]
enum Command {
    /// Try it: a cluster in this process, the operator on it, and a model server that becomes Ready
    Up(up::Args),
    /// Run the operator against a cluster
    #[command(after_help = OPERATOR)]
    Operator(Box<operator::Args>),
    /// Run a part of a node: metrics, checks, devices
    #[command(after_help = AGENT)]
    Agent(Box<agent::Args>),
    /// Show how the whole cluster fares: operator, policies, nodes, upgrades, models; the first line is the verdict
    Status(status::Args),
    /// Show which image, driver and version of everything is wanted, and which runs
    Versions(versions::Args),
    /// Write an archive for whoever helps: objects, logs and a timeline, without secrets
    Gather(gather::Args),
    /// Show what manifests, or the operator as it is, would change in a cluster; nothing is written
    Plan(plan::Args),
    /// Try an install, an upgrade or a failure on a fleet that is not there, in virtual time, with the operator itself
    Sim(sim::Args),
    /// Say what is wrong with a cluster: causes with evidence and a fix
    Doctor(doctor::Args),
    /// Print the CustomResourceDefinitions, or install them
    #[command(after_help = CRDS)]
    Crds(crds::Args),
    /// Print a script that completes commands and flags in a shell
    Completions(complete::Completions),
    /// Print the man page
    Man(complete::Man),
}

fn main() -> ExitCode {
    let command = Cli::parse_from(agent::called_as(std::env::args().collect())).command;
    if matches!(command, Command::Operator(_) | Command::Agent(_)) {
        memory::be_frugal();
    }
    let mut runtime = match command {
        // An agent waits: what takes its time, such as a question to the driver, has threads of its own.
        Command::Agent(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if matches!(command, Command::Operator(_)) {
        runtime.worker_threads(workers());
    }
    let result = runtime.enable_all().build().map_err(Into::into).and_then(|runtime| {
        runtime.block_on(async {
            match command {
                Command::Up(args) => up::run(args).await.map(|()| ExitCode::SUCCESS),
                Command::Operator(args) => operator::run(*args).await.map(|()| ExitCode::SUCCESS),
                Command::Agent(args) => agent::run(*args).await.map(|()| ExitCode::SUCCESS),
                Command::Status(args) => status::run(args).await,
                Command::Versions(args) => versions::run(args).await,
                Command::Gather(args) => gather::run(args).await,
                Command::Plan(args) => plan::run(args).await,
                Command::Sim(args) => sim::run(args).await,
                Command::Doctor(args) => doctor::run(args).await,
                Command::Crds(args) => crds::run(args).await.map(|()| ExitCode::SUCCESS),
                Command::Completions(args) => complete::completions(&args).map(|()| ExitCode::SUCCESS),
                Command::Man(args) => complete::man(&args).map(|()| ExitCode::SUCCESS),
            }
        })
    });
    result.unwrap_or_else(|error| {
        eprintln!("capstan: {error:#}");
        ExitCode::FAILURE
    })
}

/// How a command ends that found something: changes to make, a cause of trouble, a part that is not ready.
const FOUND: u8 = 2;

/// The image of a release of this version.
fn own_image() -> String {
    format!("ghcr.io/capstan/capstan:{}", env!("CARGO_PKG_VERSION"))
}

/// The operator waits for the API server most of the time: more threads than these only take memory on large machines.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4))
}

/// A client for the cluster that a kubeconfig file or the environment names. Its requests carry the `User-Agent` of a
/// command.
async fn connect(file: Option<&Path>, command: &str) -> Result<Client> {
    let config = match file {
        None => Config::infer().await.map_err(|error| capstan_operator::crds::root_cause(&error)),
        Some(file) => from_file(file).await,
    };
    let client = config.and_then(|mut config| {
        let agent = HeaderValue::try_from(capstan_http::user_agent(command)).map_err(|error| error.to_string())?;
        config.headers.push((USER_AGENT, agent));
        Client::try_from(config).map_err(|error| capstan_operator::crds::root_cause(&error))
    });
    client.map_err(|why| {
        let named = file.map(|file| file.display().to_string()).or_else(|| std::env::var("KUBECONFIG").ok());
        let place = named.unwrap_or_else(|| "~/.kube/config".into());
        anyhow!("no cluster to talk to: {place}: {why}; point KUBECONFIG at a kubeconfig file, or run inside a pod")
    })
}

async fn from_file(file: &Path) -> Result<Config, String> {
    let why = |error: &dyn std::error::Error| capstan_operator::crds::root_cause(error);
    let kubeconfig = Kubeconfig::read_from(file).map_err(|error| why(&error))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| why(&error))
}
