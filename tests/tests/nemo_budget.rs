//! What a NeMo service costs: so many requests until it is silent, and none while nothing changes.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_tests::nemo::{self, KINDS};
use capstan_tests::nim::{API, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::{Operator, World};
use serde_json::Value;

/// Requests for the five objects that every service has, two states and one event.
const BUDGET: usize = 8;

fn since(before: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let change = |(kind, count): (&String, &usize)| (kind.clone(), count - before.get(kind).unwrap_or(&0));
    // The operator reads its CRDs once in a while, however many services there are.
    let of_services = |(kind, count): &(String, usize)| *count > 0 && !kind.ends_with("customresourcedefinitions");
    now.iter().map(change).filter(of_services).collect()
}

/// What each further object takes: a claim, a configuration, and a Secret with the password that is read for it.
fn further(service: &Value) -> usize {
    match service["kind"].as_str().unwrap() {
        "NemoDatastore" => 1,
        "NemoEvaluator" => 2,
        "NemoCustomizer" => 4,
        _ => 0,
    }
}

async fn spent(world: &World, operator: &Operator, service: &Value) -> (usize, BTreeMap<String, usize>) {
    let (kind, name) = (service["kind"].as_str().unwrap(), service["metadata"]["name"].as_str().unwrap());
    let begin = operator.wire.requests();
    world.apply(service.clone()).await;
    world.until(API, kind, name, state("Ready")).await;
    world.settled(operator).await;
    let spent = since(&begin, &operator.wire.requests());
    (spent.values().sum(), spent)
}

#[tokio::test(start_paused = true)]
async fn eight_requests_for_a_service_one_for_each_further_object_and_none_while_idle() {
    let world = nemo::world_in_virtual_time().await;
    let operator = world.operator(Fault::None).await;
    let pipeline = nemo::read("pipeline");
    for object in pipeline.iter().filter(|one| one["kind"] == "ConfigMap") {
        world.apply(object.clone()).await;
    }
    for kind in KINDS {
        let mut service = pipeline.iter().find(|one| one["kind"] == kind).unwrap().clone();
        // Alone: no other service changes what it says.
        service["metadata"]["name"] = format!("alone-{}", kind.to_lowercase()).into();
        for field in ["datastore", "entitystore"] {
            if service["spec"][field].is_object() {
                service["spec"][field]["endpoint"] = "http://elsewhere.example.com".into();
            }
        }
        let (total, each) = spent(&world, &operator, &service).await;
        println!("{kind}: {total} requests: {each:?}");
        assert!(total <= BUDGET + further(&service), "{kind}: {total} requests: {each:?}");
    }
    let idle = operator.wire.requests();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(since(&idle, &operator.wire.requests()), BTreeMap::new(), "while nothing changes");
}

#[tokio::test(start_paused = true)]
async fn the_next_operator_reads_and_writes_nothing() {
    let world = nemo::world().await;
    let first = world.operator(Fault::None).await;
    for object in nemo::read("pipeline") {
        world.apply(object).await;
    }
    for (kind, name) in nemo::services("pipeline") {
        world.until(API, &kind, &name, state("Ready")).await;
    }
    world.settled(&first).await;
    first.kill();
    let second = world.operator(Fault::None).await;
    assert_eq!(world.settled(&second).await, 0);
    let secrets = second.wire.requests().into_iter().filter(|(kind, _)| kind.contains("secrets"));
    assert_eq!(secrets.collect::<Vec<_>>(), Vec::new(), "no password is read again");
}
