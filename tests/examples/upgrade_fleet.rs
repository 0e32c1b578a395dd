//! What the driver upgrade of a large fleet costs, in virtual time, 5 % of the nodes at once.
//!
//!     cargo run --release -p capstan-tests --example upgrade_fleet -- 5000
//!
//! It fails when more nodes were out of use at any moment than the policy lets be.

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let nodes = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(500);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let began = Instant::now();
    let cost = runtime.expect("a runtime starts").block_on(capstan_tests::upgrade::fleet(nodes));
    println!(
        "{} nodes in {:.0} s of virtual and {:.0} s of real time; {} out of use at most, of {}; {:.2} writes for a node",
        cost.nodes,
        cost.took.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        cost.most,
        cost.budget,
        cost.writes(),
    );
    println!("{:?}", cost.requests);
    if cost.most <= cost.budget { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
