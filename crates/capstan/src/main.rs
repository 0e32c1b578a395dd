//! The `capstan` command.

mod crds;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "capstan", version, about = "One operator for AI clusters on Kubernetes")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the CustomResourceDefinitions, or install them
    Crds(crds::Args),
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let result = match Cli::parse().command {
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
