//! What the operator's cache takes for each NIMService with its objects and its pod, counted by the allocator.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(unsafe_code, reason = "an allocator that counts has to allocate")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_runtime::{Gate, Runtime, Settings};
use capstan_tests::nim::{API, service, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use tokio_util::sync::CancellationToken;

/// Bytes in use.
static USED: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

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
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (before, stop) = (USED.load(Ordering::Relaxed), CancellationToken::new());
    let settings = Settings { gate: Gate::closed(), ..Settings::default() };
    let runtime = Runtime::start(world.admin.clone(), settings, &stop);
    runtime.cache.synced().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(runtime.cache.len() > 6 * services);
    USED.load(Ordering::Relaxed).saturating_sub(before)
}

#[tokio::test(start_paused = true)]
async fn a_service_with_its_pod_takes_little_room_in_the_cache() {
    let (none, many) = (cached(0).await, cached(MANY).await);
    let each = many.saturating_sub(none) / MANY;
    println!("{each} bytes for each of {MANY} services, {none} bytes for an empty cluster");
    assert!(each < BUDGET, "{each} bytes for each service, the budget is {BUDGET}");
}
