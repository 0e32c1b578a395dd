//! The `capstan` command.

mod crds;
mod operator;
mod up;

use anyhow::{Result, anyhow};
use clap::{Parser, Subcommand};
use kube::Client;

#[derive(Parser)]
#[command(name = "capstan", version, about = "One operator for AI clusters on Kubernetes")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Try it: a cluster in this process, the operator on it, and a model server that becomes Ready
    Up(up::Args),
    /// Run the operator against a cluster
    Operator(operator::Args),
    /// Print the CustomResourceDefinitions, or install them
    Crds(crds::Args),
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let result = match Cli::parse().command {
        Command::Up(args) => up::run(args).await,
        Command::Operator(args) => operator::run(args).await,
        Command::Crds(args) => crds::run(args).await,
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("capstan: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// A client for the cluster that the environment names.
async fn connect() -> Result<Client> {
    Client::try_default().await.map_err(|error| {
        let place = std::env::var("KUBECONFIG").unwrap_or_else(|_| "~/.kube/config".into());
        let why = capstan_operator::crds::root_cause(&error);
        anyhow!("no cluster to talk to: {place}: {why}; point KUBECONFIG at a kubeconfig file, or run inside a pod")
    })
}
