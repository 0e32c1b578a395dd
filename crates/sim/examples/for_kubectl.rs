//! A cluster for kubectl: `cargo run -p capstan-sim --example for_kubectl`, then set `KUBECONFIG` as it says.

use capstan_apiserver::serve::Listen;
use capstan_sim::Cluster;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::builder().nodes(3).listen(Listen::default()).start().await?;
    let path = std::env::temp_dir().join("embedded.kubeconfig");
    cluster.kubeconfig().ok_or("the cluster has no socket")?.write(&path)?;
    println!("export KUBECONFIG={}", path.display());
    println!("Ctrl-C ends it");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
