//! Every file of `examples/nim`, applied until it is ready: what the operator applies for it is as reviewed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::examples::{self, others, read};
use capstan_tests::nim::{API, state};
use capstan_tests::rendered::assert_rendered;
use capstan_tests::wire::Fault;

macro_rules! examples {
    ($($name:ident: $file:literal;)*) => {
        const FILES: &[&str] = &[$($file),*];
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                applied($file).await;
            }
        )*
    };
}

examples! {
    autoscaling: "autoscaling";
    build: "build";
    cache_huggingface: "cache-huggingface";
    cache_ngc: "cache-ngc";
    cached: "cached";
    devices: "devices";
    gateway: "gateway";
    ingress: "ingress";
    kserve: "kserve";
    multi_node: "multi-node";
    pipeline: "pipeline";
    proxy: "proxy";
}

#[test]
fn every_example_is_a_story() {
    assert_eq!(FILES, examples::NAMES);
}

/// Applies an example, waits until it is ready, and compares what was applied for it.
async fn applied(file: &str) {
    let (world, example) = (examples::world_in_virtual_time().await, read(file));
    match file {
        "cached" => examples::ready_cache(&world, "llama-3-1-8b").await,
        "build" => examples::ready_cache(&world, "llama").await,
        "devices" => examples::gpus(&world).await,
        _ => {}
    }
    let operator = world.operator(Fault::None).await;
    operator.wire.record_applies();
    let ready = async {
        world.apply(example.clone()).await;
        let (kind, name) = (example["kind"].as_str().unwrap(), example["metadata"]["name"].as_str().unwrap());
        world.until(API, kind, name, state("Ready")).await;
        world.settled(&operator).await;
    };
    tokio::select! {
        () = ready => {}
        () = others(&world) => {}
    }
    assert_rendered(&format!("nim/{file}"), &operator);
}
