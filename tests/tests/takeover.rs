//! One operator goes and another comes: with everything in place it writes nothing, however little it knows at first.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use capstan_operator::queries::QueryBackend;
use capstan_tests::examples;
use capstan_tests::nim::{API, condition, service, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::{Operator, World};
use serde_json::Value;

/// Another operator takes over from `first`; says how many writes it made.
async fn taken_over(world: &World, first: &Operator, ask: QueryBackend) -> usize {
    world.settled(first).await;
    first.kill();
    let second = world.operator_asking(Fault::None, ask).await;
    world.settled(&second).await
}

#[tokio::test(start_paused = true)]
async fn with_every_example_in_place_the_next_operator_writes_nothing() {
    let world = examples::world().await;
    examples::ready_cache(&world, "llama-3-1-8b").await;
    examples::gpus(&world).await;
    let first = world.operator(Fault::None).await;
    let all: Vec<Value> = examples::NAMES.iter().map(|name| examples::read(name)).collect();
    let ready = async {
        for example in &all {
            world.apply(example.clone()).await;
        }
        for example in &all {
            let (kind, name) = (example["kind"].as_str().unwrap(), example["metadata"]["name"].as_str().unwrap());
            world.until(API, kind, name, state("Ready")).await;
        }
    };
    tokio::select! {
        () = ready => {}
        () = examples::others(&world) => {}
    }
    assert_eq!(taken_over(&world, &first, QueryBackend::offline()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_was_silent_before_is_no_news() {
    let world = World::start().await;
    let silent = || QueryBackend(Arc::new(|_| Box::pin(async { Err("connection refused".to_owned().into()) })));
    let first = world.operator_asking(Fault::None, silent()).await;
    world.apply(service()).await;
    let told = |object: &Value| condition(object, "EndpointUnreachable")["status"] == "True";
    world.until(API, "NIMService", "llama", told).await;
    assert_eq!(taken_over(&world, &first, silent()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_ready_is_left_alone_by_the_next_operator() {
    let world = World::start_bare(2).await;
    let first = world.operator(Fault::None).await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/gpu/clusterpolicy.yaml");
    let policy: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let name = policy["metadata"]["name"].as_str().unwrap().to_owned();
    world.apply(policy).await;
    world.until("nvidia.com/v1", "ClusterPolicy", &name, state("ready")).await;
    assert_eq!(taken_over(&world, &first, QueryBackend::offline()).await, 0);
}
