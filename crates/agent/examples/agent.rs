//! The agent alone, small enough to be carried to a machine with GPUs: `agent validator --component=cuda`.

use std::sync::Arc;
use std::time::Instant;

use capstan_agent::Cx;
use capstan_agent::roles::Role;
use capstan_agent::supervise::{Settings, supervise};
use capstan_hw::gpu::nvidia::Source;
use capstan_hw::gpu::nvidia::driver::Roots;
use clap::Parser;
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
struct Cli {
    /// Several roles in one process
    #[arg(long, value_delimiter = ',')]
    roles: Vec<String>,
    #[command(subcommand)]
    role: Option<Role>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), capstan_agent::Error> {
    let started = Instant::now();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let cli = Cli::parse();
    let stop = CancellationToken::new();
    let signalled = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        signalled.cancel();
    });
    let cx = Cx::new(Arc::new(Source::nvml(Roots::local())), Roots::local(), "/", stop);
    let result = match cli.role {
        Some(role) => role.run(cx).await,
        None => {
            let roles = cli.roles.iter().map(|name| Role::from_env(name)).collect::<Result<_, _>>()?;
            supervise(roles, Settings::default(), cx).await
        }
    };
    tracing::info!(took = ?started.elapsed(), "done");
    result
}
