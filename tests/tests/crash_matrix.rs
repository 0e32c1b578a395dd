//! The crash matrix: whatever write is the last one before a crash, the end is the same.
//!
//! For every write k of a story the operator dies right after it, or loses its answer, or dies and comes back to stale
//! lists. Another operator takes over, and the cluster must end as in the run without a fault.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_apiserver::faults::{self, Matcher};
use capstan_tests::nim::{self, API, state};
use capstan_tests::normal::contrasts;
use capstan_tests::real;
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::Value;

fn service(tag: &str) -> Value {
    let mut service = nim::service();
    service["spec"]["image"]["tag"] = tag.into();
    service
}

/// What went wrong in a run.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    Crash(usize),
    LostAnswer(usize),
    CrashThenStaleLists(usize),
}

/// A service is made and then changed. Returns the end state and how many writes the first operator made.
async fn story(trouble: Trouble) -> (Value, usize) {
    println!("{trouble:?}");
    let world = World::start().await;
    let fault = match trouble {
        Trouble::None => Fault::None,
        Trouble::Crash(k) | Trouble::CrashThenStaleLists(k) => Fault::DieAfter(k),
        Trouble::LostAnswer(k) => Fault::LoseAnswer(k),
    };
    let first = world.operator(fault).await;
    let user = async {
        world.apply(service("1.8")).await;
        world.until(API, "NIMService", "llama", state("Ready")).await;
        world.apply(service("1.9")).await;
        std::future::pending::<()>().await;
    };
    let operators = async {
        match trouble {
            Trouble::None | Trouble::LostAnswer(_) => std::future::pending::<()>().await,
            Trouble::Crash(_) | Trouble::CrashThenStaleLists(_) => {
                first.wire.died().await;
                first.kill();
                if let (Trouble::CrashThenStaleLists(_), Some(cluster)) = (trouble, world.embedded_cluster()) {
                    // Only the first lists of the new operator are old, as those of a cache that is behind.
                    cluster.server.faults().add(faults::Fault::stale(Matcher::new(), 3).first(8));
                }
                let _second = world.operator(Fault::None).await;
                std::future::pending::<()>().await;
            }
        }
    };
    let served = |object: &Value| {
        object["spec"]["image"]["tag"] == "1.9"
            && object["status"]["state"] == "Ready"
            && object["status"]["conditions"][0]["observedGeneration"] == object["metadata"]["generation"]
    };
    let end = async {
        world.until(API, "NIMService", "llama", served).await;
        let rolled_out = |object: &Value| {
            object["spec"]["template"]["spec"]["containers"][0]["image"]
                .as_str()
                .is_some_and(|image| image.ends_with(":1.9"))
        };
        world.until("apps/v1", "Deployment", "llama", rolled_out).await;
        world.rest().await;
    };
    tokio::select! {
        () = user => {}
        () = operators => {}
        () = end => {}
    }
    (world.end_state().await, first.wire.writes())
}

/// What may go wrong at write `k`. Real time is dear: there every third write gets one of two troubles, in turn, and
/// lists cannot be made old.
fn troubles(k: usize) -> Vec<Trouble> {
    match (real::is_wanted(), k % 6) {
        (false, _) => vec![Trouble::Crash(k), Trouble::LostAnswer(k), Trouble::CrashThenStaleLists(k)],
        (true, 1) => vec![Trouble::Crash(k)],
        (true, 4) => vec![Trouble::LostAnswer(k)],
        (true, _) => Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn every_write_may_be_the_last_one() {
    let (undisturbed, writes) = story(Trouble::None).await;
    let mut cells = 0;
    for k in 1..=writes {
        for trouble in troubles(k) {
            let (end, _) = story(trouble).await;
            let differences = contrasts(&end, &undisturbed);
            assert!(differences.is_empty(), "{trouble:?} of {writes} writes: {}", differences.join("\n"));
            cells += 1;
        }
    }
    assert!(writes >= 8, "the story has only {writes} writes: something is not counted");
    println!("crash matrix: {writes} writes, {cells} runs with trouble, all with the same end");
}
