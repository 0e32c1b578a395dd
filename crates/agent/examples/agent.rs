//! The agent alone, small enough to be carried to a machine with GPUs: `agent validator --component=cuda`.

use std::sync::Arc;
use std::time::Instant;

use capstan_agent::Cx;
use capstan_agent::roles::{Role, run_all};
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
    let told = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        told.cancel();
    });
    let cx = Cx { hardware: Arc::new(Source::nvml(Roots::local())), roots: Roots::local(), root: "/".into(), stop };
    let mut roles: Vec<(String, Role)> = cli.role.map(|role| (String::new(), role)).into_iter().collect();
    for name in cli.roles {
        let role = Role::from_env(&name)?;
        roles.push((name, role));
    }
    let result = run_all(roles, cx).await;
    tracing::info!(took = ?started.elapsed(), "done");
    result
}
