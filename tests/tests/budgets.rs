//! What a look at a settled object costs the operator: how often it asks for memory, and for how much. A look that costs
//! more than before is felt by everybody who has thousands of them.
//!
//! And what an event takes that waits until the server takes it, of which there may be thousands.
//!
//! An object is changed in a way that means nothing, again and again, with an operator that looks at it and without one:
//! the difference is what the operator took, to hear of the change and to find that nothing is to be done.

use std::time::Duration;

use capstan_api::nim::NimService;
use capstan_plan::{Note, Ref, Severity};
use capstan_runtime::{Clock, Events, Gate, Metrics};
use capstan_tests::counting::{Counting, Work};
use capstan_tests::nim::state;
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use capstan_tests::{gpu, nim};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often an object is touched.
const TOUCHES: usize = 20;

/// About a tenth above what was measured. To set a new one, say in the commit what is worth more.
const OF_A_NIM_SERVICE: Work = Work { allocations: 3_100, bytes: 353_000 };
const OF_A_CLUSTER_POLICY: Work = Work { allocations: 33_000, bytes: 4_320_000 };

/// Nodes below the policy.
const NODES: u16 = 100;

/// What a change that means nothing makes everybody do.
async fn touched(world: &World, object: &Value) -> Work {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api, kind, name) = (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]));
    let before = Work::so_far();
    for number in 0..TOUCHES {
        let touch = json!({"metadata": {"annotations": {"touched": number.to_string()}}});
        world.patch(&api, &kind, &name, touch).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Work::so_far().beyond(before).each(TOUCHES)
}

/// What a look at a settled object takes, held to a budget.
async fn holds(world: World, object: Value, ready: &'static str, budget: Work) {
    let operator = world.operator(Fault::None).await;
    let (api, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let (api, kind) = (api.unwrap_or_default().to_owned(), kind.unwrap_or_default().to_owned());
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    world.apply(object.clone()).await;
    world.until(&api, &kind, &name, state(ready)).await;
    let writes = world.settled(&operator).await;
    // What is kept from the first look on is no part of the next ones.
    touched(&world, &object).await;
    let with = touched(&world, &object).await;
    assert_eq!(operator.wire.writes(), writes, "a look at a settled {kind} writes nothing");
    operator.kill();
    world.rest().await;
    let look = with.beyond(touched(&world, &object).await);
    assert!(look.allocations > 0, "the operator looks at a {kind} that is touched");
    keeps(&format!("a look at a settled {kind}"), look, budget);
}

fn keeps(what: &str, work: Work, budget: Work) {
    println!("{what}: {work:?}, the budget is {budget:?}");
    assert!(
        work.allocations <= budget.allocations && work.bytes <= budget.bytes,
        "{what} takes {} allocations of {} bytes, the budget is {} of {}",
        work.allocations,
        work.bytes,
        budget.allocations,
        budget.bytes,
    );
}

#[tokio::test(start_paused = true)]
async fn a_look_at_a_settled_nim_service_keeps_to_its_budget() {
    holds(World::start_in_virtual_time(2).await, nim::service(), "Ready", OF_A_NIM_SERVICE).await;
}

#[tokio::test(start_paused = true)]
async fn a_look_at_a_settled_cluster_policy_keeps_to_its_budget() {
    holds(World::start_fleet(NODES).await, gpu::policy(), "ready", OF_A_CLUSTER_POLICY).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_waits_keeps_to_its_budget() {
    const OBJECTS: usize = 5000;
    const BUDGET: Work = Work { allocations: 20, bytes: 1_500 };
    let world = World::start_in_virtual_time(1).await;
    let name = ("capstan", "test");
    let (metrics, stop) = (Metrics::default(), CancellationToken::new());
    let events = Events::start(world.admin.clone(), Gate::open(), metrics, Clock::Real, name, stop);
    let message = "deployment \"model\" successfully rolled out";
    let note = Note { severity: Severity::Normal, reason: "Ready", message: message.into() };
    let objects = (0..OBJECTS).map(|object| {
        let uid = format!("00000000-0000-0000-0000-{object:012}");
        (Ref::of::<NimService>("default", &format!("model-{object}")), uid)
    });
    let objects: Vec<_> = objects.collect();
    let before = Work::so_far();
    objects.iter().for_each(|(reference, uid)| events.record(reference, uid, &note));
    keeps("an event that waits", Work::so_far().beyond(before).each(OBJECTS), BUDGET);
}
