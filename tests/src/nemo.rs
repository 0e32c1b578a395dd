//! What the stories of the NeMo kinds have in common: the examples of `examples/nemo`, and what they need of a cluster.

use serde_json::{Value, json};

use crate::nim::FOREIGN;
use crate::world::World;

/// The five kinds.
pub const KINDS: [&str; 5] = ["NemoCustomizer", "NemoDatastore", "NemoEntitystore", "NemoEvaluator", "NemoGuardrail"];

/// Examples that are services, by the name of their files.
pub const NAMES: [&str; 6] = ["customizer", "datastore", "entitystore", "evaluator", "guardrail", "pipeline"];

/// CRDs of others that services work with: group, version, kind, plural.
const OTHERS: [(&str, &str, &str, &str); 6] = [
    ("argoproj.io", "v1alpha1", "Workflow", "workflows"),
    ("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
    ("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    ("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
    ("nvidia.com", "v1alpha1", "NemoTrainingJob", "nemotrainingjobs"),
    ("run.ai", "v2alpha1", "TrainingWorkload", "trainingworkloads"),
];

/// The objects of an example, in order.
pub fn read(name: &str) -> Vec<Value> {
    let path = format!("{}/../examples/nemo/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let parse = |text: &str| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split("\n---\n").map(parse).collect()
}

/// The first object of an example that is of a NeMo kind.
pub fn service(name: &str) -> Value {
    let objects = read(name);
    let found = objects.into_iter().find(|one| KINDS.iter().any(|kind| one["kind"] == *kind));
    found.unwrap_or_else(|| panic!("{name} has no service"))
}

/// The services of an example: everything that has a state.
pub fn services(name: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = read(name);
    let ours = objects.iter().filter(|one| text(&one["apiVersion"]).starts_with("apps.nvidia.com/"));
    ours.map(|one| (text(&one["kind"]), text(&one["metadata"]["name"]))).collect()
}

/// A cluster with what all examples need.
pub async fn world() -> World {
    furnished(World::start().await).await
}

/// The same that is embedded whatever is wanted.
pub async fn world_in_virtual_time() -> World {
    furnished(World::start_in_virtual_time(2).await).await
}

/// A world with our CRDs, and with nothing else that services need.
pub async fn installed(world: World) -> World {
    for kind in KINDS {
        world.install_ours(kind).await;
    }
    world
}

async fn furnished(world: World) -> World {
    let world = installed(world).await;
    for (group, version, kind, plural) in FOREIGN.iter().chain(&OTHERS) {
        world.install(group, version, kind, plural).await;
    }
    for object in read("prerequisites") {
        // Databases are virtual here: nobody connects to them.
        if object["kind"] != "StatefulSet" {
            world.apply(object).await;
        }
    }
    world
}

/// A Secret.
pub fn secret(name: &str, key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {key: value}})
}
