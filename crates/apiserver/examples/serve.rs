//! A Kubernetes API on loopback, for kubectl: `cargo run --example serve`, then set `KUBECONFIG` as printed.

use std::path::PathBuf;
use std::time::Instant;

use capstan_apiserver::admit;
use capstan_apiserver::auth::{Auth, UserInfo};
use capstan_apiserver::lifecycle::Lifecycle;
use capstan_apiserver::ops::{Server, Settings};
use capstan_apiserver::serve::{Api, Listen};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let (kinds, admission) = admit::standard(&admit::Settings::alone());
    let server = Server::new(Settings { kinds: Some(kinds), admission, ..Settings::default() });
    let _lifecycle = Lifecycle::start(&server).await?;
    let api = Api::start(server, Auth::new()).await?;
    let listener = api.listen(Listen::default()).await?;
    let ready = begin.elapsed();
    let path = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("capstan.kubeconfig"), PathBuf::from);
    listener.kubeconfig(UserInfo::admin()).write(&path)?;
    println!("ready after {} ms at {}", ready.as_millis(), listener.url());
    println!("export KUBECONFIG={}", path.display());
    listener.wait().await;
    Ok(())
}
