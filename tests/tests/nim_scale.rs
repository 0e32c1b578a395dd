//! Many services at once: a budget of requests for each, and none while nothing changes.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_tests::nim::API;
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::{Value, json};

const SERVICES: usize = 500;
/// Requests of all verbs for each: five objects, two states and one event.
const BUDGET: usize = 8;

fn service(number: usize) -> Value {
    json!({
        "apiVersion": API, "kind": "NIMService", "metadata": {"name": format!("model-{number}")},
        "spec": {
            "image": {"repository": "nvcr.io/nim/meta/llama-3.1-8b-instruct", "tag": "1.8"},
            "storage": {"emptyDir": {}}, "replicas": 1,
        },
    })
}

fn since(before: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let change = |(kind, count): (&String, &usize)| (kind.clone(), count - before.get(kind).unwrap_or(&0));
    // The operator looks at its CRDs once in a while, however many services there are.
    let of_services = |(kind, count): &(String, usize)| *count > 0 && !kind.ends_with("customresourcedefinitions");
    now.iter().map(change).filter(of_services).collect()
}

#[tokio::test(start_paused = true)]
async fn five_hundred_services_cost_eight_requests_each_and_nothing_while_idle() {
    let world = World::start_in_virtual_time(8).await;
    let operator = world.operator(Fault::None).await;
    let begin = operator.wire.requests();
    for number in 0..SERVICES {
        world.apply(service(number)).await;
    }
    let all_ready = async {
        loop {
            let ready =
                world.list(API, "NIMService").await.iter().filter(|one| one["status"]["state"] == "Ready").count();
            if ready == SERVICES {
                return;
            }
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1800), all_ready).await.expect("all services become ready");
    world.settled(&operator).await;
    let converged = operator.wire.requests();
    let spent = since(&begin, &converged);
    let total: usize = spent.values().sum();
    println!("{SERVICES} services: {total} requests, {:.2} each: {spent:?}", total as f64 / SERVICES as f64);
    assert!(
        total <= BUDGET * SERVICES,
        "{total} requests for {SERVICES} services, the budget is {BUDGET} each: {spent:?}"
    );
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(since(&converged, &operator.wire.requests()), BTreeMap::new(), "while nothing changes");
}
