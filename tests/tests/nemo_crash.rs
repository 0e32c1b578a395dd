//! The crash matrix of the NeMo services: each ends the same, whatever write was the last one before a crash.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::crash::{self, InjectedFailure};
use capstan_tests::nemo;
use capstan_tests::nim::{API, state};
use capstan_tests::real;
use serde_json::Value;

macro_rules! services {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            crash::matrix(5, most(), |trouble| story(stringify!($name), trouble)).await;
        }
    )*};
}

services!(customizer, datastore, entitystore, evaluator, guardrail);

/// So many writes of a service are the last one, unless all are asked for. Real time is dear.
fn most() -> usize {
    if real::is_wanted() { 1 } else { 8 }
}

/// A service is applied and becomes ready. Returns the end state and how many writes the first operator made.
async fn story(file: &str, trouble: InjectedFailure) -> (Value, usize) {
    println!("{file}: {trouble:?}");
    let (world, service) = (nemo::world().await, nemo::service(file));
    let (kind, name) = (service["kind"].as_str().unwrap(), service["metadata"]["name"].as_str().unwrap());
    let ready = async {
        world.apply(service.clone()).await;
        world.until(API, kind, name, state("Ready")).await;
        world.rest().await;
    };
    let writes = crash::run(&world, trouble, ready).await;
    (world.end_state().await, writes)
}
