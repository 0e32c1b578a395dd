//! The crash matrix of driver upgrades: whatever write is the last one before a crash, every node ends with the right
//! driver and is given back, and the policy says the same.
//!
//! Some writes get one of the three troubles, in turn; with `CRASH_MATRIX=all` every write gets all of them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::crash::{self, InjectedFailure};
use capstan_tests::upgrade::{API, POLICY, breaks, change_driver, drivers, install, nodes, policy, until_upgraded};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::{Value, json};

/// How an upgrade ends.
#[derive(Clone, Copy, Debug)]
enum Story {
    /// The driver works.
    Upgrade,
    /// It does not, and the one before comes back.
    Rollback,
}

/// What the story leaves behind, without identities and times.
async fn end(world: &World) -> Value {
    let images: Vec<_> = drivers(world).await.into_iter().map(|(node, (_, image))| (node, image)).collect();
    let annotations: Vec<Value> = world
        .list("v1", "Node")
        .await
        .iter()
        .map(|node| {
            let all = node["metadata"]["annotations"].as_object().into_iter().flatten();
            all.filter(|(key, _)| key.contains("upgrade")).map(|(key, value)| json!([key, value])).collect()
        })
        .collect();
    let policies = world.list(API, "ClusterPolicy").await;
    let conditions = policies[0]["status"]["conditions"].as_array().unwrap().iter();
    let conditions: Vec<Value> =
        conditions.map(|one| json!([one["type"], one["status"], one["reason"], one["message"]])).collect();
    json!({"drivers": images, "nodes": nodes(world).await, "annotations": annotations, "conditions": conditions})
}

async fn story(story: Story, trouble: InjectedFailure) -> (Value, usize) {
    println!("{story:?}: {trouble:?}");
    let world = World::start_bare_in_virtual_time(3).await;
    let upgrade = json!({"autoUpgrade": true, "maxParallelUpgrades": 1, "maxUnavailable": 1});
    let annotations: &[_] = match story {
        Story::Upgrade => &[],
        Story::Rollback => &[
            ("canary-size", "1"),
            ("max-failures", "0"),
            ("rollback", "true"),
            ("retries", "0"),
            ("restart-threshold", "1"),
        ],
    };
    let calm = world.operator(Fault::None).await;
    install(&world, policy("1", &upgrade, annotations)).await;
    world.settled(&calm).await;
    calm.kill();
    let told = async {
        match story {
            Story::Upgrade => {
                change_driver(&world, "2").await;
                let one_at_a_time = |nodes: &std::collections::BTreeMap<String, (String, bool)>| {
                    let away = nodes.values().filter(|(_, free)| !free).count();
                    assert!(away <= 1, "{trouble:?}: {nodes:?}");
                };
                until_upgraded(&world, "2", one_at_a_time).await;
            }
            Story::Rollback => {
                breaks(&world, "2", "*");
                change_driver(&world, "2").await;
                let back = |policy: &Value| capstan_tests::upgrade::upgrade_condition(policy).0 == "RolledBack";
                world.until(API, "ClusterPolicy", POLICY, back).await;
                until_upgraded(&world, "1", |_| {}).await;
            }
        }
        world.rest().await;
    };
    let writes = crash::run(&world, trouble, told).await;
    (end(&world).await, writes)
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_goes_on_after_any_write() {
    crash::matrix(15, 12, |trouble| story(Story::Upgrade, trouble)).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_goes_on_after_any_write() {
    crash::matrix(15, 6, |trouble| story(Story::Rollback, trouble)).await;
}
