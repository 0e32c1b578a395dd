//! Bad weather: a server that is away, watches that keep breaking, a client that is cut off.

use std::time::Duration;

use capstan_plan::Gvk;
use capstan_runtime::Gate;
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::Instant;

use crate::support::{Cluster, config_map, reference, runtime, until};

#[tokio::test(start_paused = true)]
async fn a_watch_that_drops_every_second_for_a_minute_misses_nothing() {
    let cluster = Cluster::start().await;
    let link = cluster.link();
    let (runtime, _stop) = runtime(&link, Gate::open()).await;
    let start = Instant::now();
    for second in 0..60 {
        for part in 0..4 {
            let name = format!("map-{}", (second * 4 + part) % 17);
            if part == 3 && cluster.get(&config_map(&name, "")).await.is_some() {
                cluster.delete(&config_map(&name, "")).await;
            } else {
                cluster.apply(config_map(&name, &format!("{second}.{part}"))).await;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        link.hiccup();
    }
    assert!(start.elapsed() >= Duration::from_secs(60));
    cluster.apply(config_map("last", "1")).await;
    until(2, "the last write", || runtime.cache.get(&reference("last")).is_some()).await;
    for index in 0..17 {
        let name = format!("map-{index}");
        let there = cluster.get(&config_map(&name, "")).await.map(|object| object["data"].clone());
        let kept = runtime.cache.get(&reference(&name)).map(|object| object["data"].clone());
        assert_eq!(kept, there, "{name}");
    }
    let restarts = runtime.metrics.watch_restarts("ConfigMap");
    assert!((50..=130).contains(&restarts), "{restarts}");
}

#[tokio::test(start_paused = true)]
async fn after_thirty_seconds_without_a_server_everything_is_known_within_two() {
    let cluster = Cluster::start().await;
    cluster.install("nimservice").await;
    let link = cluster.link();
    let (runtime, _stop) = runtime(&link, Gate::open()).await;
    link.cut();
    tokio::time::sleep(Duration::from_secs(30)).await;
    for index in 0..200 {
        cluster.apply(config_map(&format!("map-{index}"), "1")).await;
    }
    assert!(runtime.cache.is_synced(), "an outage is no reason to be taken out of service");
    link.mend();
    let known = || runtime.cache.in_namespace(&Gvk::of::<ConfigMap>(), "default").len() == 200;
    until(2, "all are known", known).await;
    let asked = link.requests("/version").len();
    assert_eq!(asked, 1, "nothing is asked for again that does not change");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_at_the_start_is_waited_for() {
    let cluster = Cluster::start().await;
    let link = cluster.link();
    link.cut();
    let stop = tokio_util::sync::CancellationToken::new();
    let runtime = capstan_runtime::Runtime::start(link.client(), Default::default(), &stop);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!runtime.cache.is_synced());
    link.mend();
    until(3, "synced", || runtime.cache.is_synced()).await;
}
