//! What the operator's cache takes for each GPU node with its driver pod and its validator, counted by the allocator.

use capstan_tests::counting::{self, Counting};
use capstan_tests::gpu::{API, POLICY, policy};
use capstan_tests::nim::state;
use capstan_tests::wire::Fault;
use capstan_tests::world::World;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Nodes in the smaller and in the larger of two clusters.
const FEW: u16 = 20;
const MANY: u16 = 120;
/// Bytes for one node and its two pods.
const BUDGET: usize = 6 * 1024;

/// What a cache of all kinds takes that sees so many nodes whose GPUs work.
async fn cached(nodes: u16) -> usize {
    let world = World::start_fleet(nodes).await;
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
    world.settled(&operator).await;
    operator.kill();
    let (bytes, objects) = counting::cached(&world).await;
    assert!(objects > 3 * usize::from(nodes), "nodes, drivers and validators are kept");
    assert!(objects < 4 * usize::from(nodes) + 200, "{objects} objects: no other pods are kept");
    bytes
}

#[tokio::test(start_paused = true)]
async fn a_node_with_its_pods_takes_little_room_in_the_cache() {
    let (few, many) = (cached(FEW).await, cached(MANY).await);
    let each = many.saturating_sub(few) / usize::from(MANY - FEW);
    println!("{each} bytes for each node, {few} bytes for {FEW}");
    assert!(each < BUDGET, "{each} bytes for each node, the budget is {BUDGET}");
}
