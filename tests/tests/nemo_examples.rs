//! Every file of `examples/nemo`, applied until it is ready: what the operator applies for it is as reviewed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::nemo::{self, NAMES, read, services};
use capstan_tests::nim::{API, condition, state};
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
    customizer: "customizer";
    datastore: "datastore";
    entitystore: "entitystore";
    evaluator: "evaluator";
    guardrail: "guardrail";
    pipeline: "pipeline";
}

#[test]
fn every_example_is_a_story() {
    assert_eq!(FILES, NAMES);
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/nemo")).unwrap();
    let mut there: Vec<String> =
        folder.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
    there.retain(|name| name != "prerequisites");
    there.sort();
    assert_eq!(there, FILES);
}

/// Applies an example, waits until all of it is ready, and compares what was applied for it.
async fn applied(file: &str) {
    let world = nemo::world_in_virtual_time().await;
    let operator = world.operator(Fault::None).await;
    operator.wire.record_applies();
    for object in read(file) {
        world.apply(object).await;
    }
    for (kind, name) in services(file) {
        let ready = world.until(API, &kind, &name, state("Ready")).await;
        for quiet in ["MissingAPI", "MissingReferences", "InvalidFields", "IgnoredFields"] {
            assert!(condition(&ready, quiet).is_null(), "{kind} {name}: {}", condition(&ready, quiet));
        }
    }
    world.settled(&operator).await;
    assert_rendered(&format!("nemo/{file}"), &operator);
}
