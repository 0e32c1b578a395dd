//! What the driver upgrade of a large fleet costs, in virtual time: `cargo run --example upgrade_fleet -- 5000`.

use std::time::Instant;

fn main() {
    let nodes = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(500);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let began = Instant::now();
    let cost = runtime.expect("a runtime starts").block_on(capstan_tests::upgrade::fleet(nodes));
    println!(
        "{} nodes: {} out of use at most, {:?} of virtual and {:?} of real time, {:?}",
        cost.nodes,
        cost.most,
        cost.took,
        began.elapsed(),
        cost.requests
    );
}
