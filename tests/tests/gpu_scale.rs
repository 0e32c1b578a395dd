//! A fleet in counts: what it costs to make its GPUs usable, and that nothing is sent while nothing changes.
//!
//! `cargo run --release -p capstan-tests --example gpu_scale` does the same with 1,000 and 5,000 nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_tests::gpu;

const NODES: u16 = 50;

#[tokio::test(start_paused = true)]
async fn a_node_costs_a_request_and_an_idle_fleet_none() {
    let cost = gpu::fleet(NODES).await;
    println!("{cost:?}");
    let total: usize = cost.install.values().sum();
    assert!(
        total <= cost.budget(),
        "{total} requests for {NODES} nodes, the budget is {}: {:?}",
        cost.budget(),
        cost.install
    );
    assert_eq!(cost.install.get("PATCH nodes"), Some(&usize::from(NODES)), "each node is patched once");
    assert_eq!(cost.join.get("PATCH nodes"), Some(&1), "a node that joins is patched once: {:?}", cost.join);
    assert!(cost.labelled < Duration::from_millis(500), "a node that joins waits {:?} for its labels", cost.labelled);
    assert_eq!(cost.idle, BTreeMap::new(), "while nothing changes");
}
