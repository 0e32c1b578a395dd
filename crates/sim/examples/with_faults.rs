//! A cluster with injected faults: `cargo run -p capstan-sim --example with_faults`

use capstan_apiserver::error::Status;
use capstan_apiserver::faults::{Fault, Matcher, Verb};
use capstan_sim::Cluster;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::builder().start().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let creates = || Matcher::new().verb(Verb::Create).resource("configmaps").namespace("default");

    // The second create is rejected; the third succeeds but its response is lost.
    let refused = Status::new(500, "InternalError", "a fault on purpose");
    cluster.server.faults().add(Fault::fail(creates(), refused).nth(2));
    cluster.server.faults().add(Fault::lose_answer(creates()).nth(3));

    for name in ["first", "second", "third"] {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        let answer = maps.create(&PostParams::default(), &map).await;
        let there = maps.get_opt(name).await?.is_some();
        println!("{name}: answer {}, in the cluster: {there}", if answer.is_ok() { "ok" } else { "error" });
    }
    Ok(())
}
