//! The crash matrix of the examples: each of them ends the same, whatever write was the last one before a crash.
//!
//! Writes get one of the three troubles, in turn, and of the longer examples only some do, so that the whole takes
//! minutes; with `CRASH_MATRIX=all` every write of every example gets all of them. The plain service in `crash_matrix` gets
//! every trouble at every write.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::crash::{self, InjectedFailure};
use capstan_tests::examples::{self, others, read};
use capstan_tests::nim::{API, state};
use capstan_tests::real;
use serde_json::Value;

macro_rules! examples {
    ($($name:ident: $file:literal),* $(,)?) => {
        const FILES: &[&str] = &[$($file),*];
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                matrix($file).await;
            }
        )*
    };
}

examples! {
    autoscaling: "autoscaling",
    build: "build",
    cache_huggingface: "cache-huggingface",
    cache_ngc: "cache-ngc",
    cached: "cached",
    devices: "devices",
    gateway: "gateway",
    ingress: "ingress",
    kserve: "kserve",
    multi_node: "multi-node",
    pipeline: "pipeline",
    proxy: "proxy",
}

#[test]
fn every_example_is_in_the_matrix() {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/nim")).unwrap();
    let mut there: Vec<String> =
        folder.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
    there.sort();
    assert_eq!(there, FILES);
    assert_eq!(there, examples::NAMES);
}

/// So many writes of an example are the last one, unless all are asked for. Real time is dear.
fn most() -> usize {
    if real::is_wanted() { 1 } else { 6 }
}

async fn matrix(file: &str) {
    crash::matrix(5, most(), |trouble| story(file, trouble)).await;
}

/// An example is applied and becomes ready. Returns the end state and how many writes the first operator made.
async fn story(file: &str, trouble: InjectedFailure) -> (Value, usize) {
    println!("{file}: {trouble:?}");
    let (world, example) = (examples::world().await, read(file));
    match file {
        "cached" => examples::ready_cache(&world, "llama-3-1-8b").await,
        "build" => examples::ready_cache(&world, "llama").await,
        "devices" => examples::gpus(&world).await,
        _ => {}
    }
    let (kind, name) = (example["kind"].as_str().unwrap(), example["metadata"]["name"].as_str().unwrap());
    let told = async {
        world.apply(example.clone()).await;
        world.until(API, kind, name, state("Ready")).await;
        world.rest().await;
    };
    let with_others = async {
        tokio::select! {
            () = told => {}
            () = others(&world) => {}
        }
    };
    let writes = crash::run(&world, trouble, with_others).await;
    (world.end_state().await, writes)
}
