//! A cluster inside a test: a Deployment rolls out, then a day of virtual time passes at once.
//!
//! `cargo run -p capstan-sim --example in_a_test`

use std::time::{Duration, Instant};

use capstan_sim::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In a test: #[tokio::test(start_paused = true)].
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(story())
}

async fn story() -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let cluster = Cluster::builder().nodes(3).start().await?;
    println!("cluster up after {} ms", begin.elapsed().as_millis());

    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client());
    let wanted = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    });
    deployments.patch("web", &PatchParams::apply("example"), &Patch::Apply(wanted)).await?;

    // Virtual time: controllers, scheduler and kubelets run while this task sleeps.
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    let status = deployments.get("web").await?.status.unwrap_or_default();
    println!("{} of 3 replicas are ready a day later", status.ready_replicas.unwrap_or(0));
    println!("all that took {} ms", begin.elapsed().as_millis());
    Ok(())
}
