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
  capstan agent --fake 8xH200 exporter    # metrics of simulated GPUs
  capstan agent validator --help          # flags of a role";

const CRDS: &str = "\
Examples:
  capstan crds | kubectl apply --server-side -f -
  capstan crds --apply                    # the same, and wait until they are served
  capstan crds --kind NIMService -o json";

#[derive(Subcommand)]
enum Command {
    /// Start a demo: an embedded cluster with the operator, and a model server that becomes Ready
    Up(up::Args),
    /// Run the operator against a cluster
    #[command(after_help = OPERATOR)]
    Operator(Box<operator::Args>),
    /// Run a node agent role: device plugin, validator, exporter, …
    #[command(after_help = AGENT)]
    Agent(Box<agent::Args>),
    /// Show the status of the cluster: operator, policies, nodes, upgrades, models; the first line is the summary
    Status(status::Args),
    /// Show desired and running images, drivers and versions
    Versions(versions::Args),
    /// Gather a support archive: objects, logs and a timeline, without secrets
    Gather(gather::Args),
    /// Dry run: show what manifests, or the operator itself, would change in a cluster; nothing is written
    Plan(plan::Args),
    /// Simulate an install, an upgrade or a failure on a virtual fleet, in virtual time, with the real operator
    Sim(sim::Args),
    /// Diagnose a cluster: root causes with evidence and a fix
    Doctor(doctor::Args),
    /// Print the CustomResourceDefinitions, or install them
    #[command(after_help = CRDS)]
    Crds(crds::Args),
    /// Print a shell completion script
    Completions(complete::Completions),
    /// Print the man page
    Man(complete::Man),
}

fn main() -> ExitCode {
    let command = Cli::parse_from(agent::expand_program_name(std::env::args().collect())).command;
    if matches!(command, Command::Operator(_) | Command::Agent(_)) {
        memory::configure_allocator();
    }
    let mut runtime = match command {
        // Agents are mostly idle; blocking calls, such as NVML, run on their own threads.
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

/// Exit code of a command with findings: planned changes, a root cause, a component that is not ready.
const EXIT_FINDINGS: u8 = 2;

/// The release image of this version.
fn own_image() -> String {
    format!("ghcr.io/capstan/capstan:{}", env!("CARGO_PKG_VERSION"))
}

/// The operator is I/O bound: more threads only use memory on large machines.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4))
}

/// A client for the cluster of a kubeconfig file or the environment, with the `User-Agent` of a command.
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
