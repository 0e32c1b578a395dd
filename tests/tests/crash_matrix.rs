//! The crash matrix: whatever write is the last one before a crash, the end is the same.
//!
//! For every write k of a story the operator dies right after it, or loses its answer, or dies and comes back to stale
//! lists. Another operator takes over, and the cluster must end as in the run without a fault.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::crash::{self, InjectedFailure};
use capstan_tests::nim::{self, API, state};
use capstan_tests::real;
use capstan_tests::world::World;
use serde_json::Value;

fn service(tag: &str) -> Value {
    let mut service = nim::service();
    service["spec"]["image"]["tag"] = tag.into();
    service
}

/// A service is made and then changed. Returns the end state and how many writes the first operator made.
async fn story(trouble: InjectedFailure) -> (Value, usize) {
    println!("{trouble:?}");
    let world = World::start().await;
    let served = |object: &Value| {
        object["spec"]["image"]["tag"] == "1.9"
            && object["status"]["state"] == "Ready"
            && object["status"]["conditions"][0]["observedGeneration"] == object["metadata"]["generation"]
    };
    let rolled_out = |object: &Value| {
        let image = object["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
        image.is_some_and(|image| image.ends_with(":1.9"))
    };
    let told = async {
        world.apply(service("1.8")).await;
        world.until(API, "NIMService", "llama", state("Ready")).await;
        world.apply(service("1.9")).await;
        world.until(API, "NIMService", "llama", served).await;
        world.until("apps/v1", "Deployment", "llama", rolled_out).await;
        world.rest().await;
    };
    let writes = crash::run(&world, trouble, told).await;
    (world.end_state().await, writes)
}

/// What may go wrong at write `k`. Real time is dear: there every third write gets one of two troubles, in turn, and
/// lists cannot be made old.
fn troubles(k: usize) -> Vec<InjectedFailure> {
    match (real::is_wanted(), k % 6) {
        (false, _) => InjectedFailure::all(k).into(),
        (true, 1) => vec![InjectedFailure::Crash(k)],
        (true, 4) => vec![InjectedFailure::LostAnswer(k)],
        (true, _) => Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn every_write_may_be_the_last_one() {
    let (undisturbed, writes) = story(InjectedFailure::None).await;
    let mut cells = 0;
    for k in 1..=writes {
        for trouble in troubles(k) {
            let (end, _) = story(trouble).await;
            crash::assert_same_end(trouble, writes, &end, &undisturbed);
            cells += 1;
        }
    }
    assert!(writes >= 8, "the story has only {writes} writes: something is not counted");
    println!("crash matrix: {writes} writes, {cells} runs with trouble, all with the same end");
}
