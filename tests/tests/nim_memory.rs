//! What the operator's cache takes for each NIMService with its objects and its pod, counted by the allocator.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
use capstan_tests::counting::{self, Counting};
use capstan_tests::nim::{API, service, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Services in the larger of two clusters.
const MANY: usize = 40;
/// Bytes for one service, its claim and its five other objects, and its pod.
const BUDGET: usize = 24 * 1024;

/// What a cache of all kinds takes that sees so many services.
async fn cached(services: usize) -> usize {
    let world = World::start_in_virtual_time(4).await;
    let operator = world.operator(Fault::None).await;
    for number in 0..services {
        let mut one = service();
        one["metadata"]["name"] = format!("model-{number}").into();
        one["spec"].as_object_mut().unwrap().remove("resources");
        world.apply(one).await;
    }
    for number in 0..services {
        world.until(API, "NIMService", &format!("model-{number}"), state("Ready")).await;
    }
    world.settled(&operator).await;
    operator.kill();
    let (bytes, objects) = counting::cached(&world).await;
    assert!(objects > 6 * services);
    bytes
}

#[tokio::test(start_paused = true)]
async fn a_service_with_its_pod_takes_little_room_in_the_cache() {
    let (none, many) = (cached(0).await, cached(MANY).await);
    let each = many.saturating_sub(none) / MANY;
    println!("{each} bytes for each of {MANY} services, {none} bytes for an empty cluster");
    assert!(each < BUDGET, "{each} bytes for each service, the budget is {BUDGET}");
}
