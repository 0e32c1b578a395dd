//! NIMPipeline.

use capstan_operands::nim::nim_pipeline::{check, plan};
use serde_json::{Value, json};

use super::{Case, Observation, assert_alive, facts, object};

#[test]
fn every_field_of_a_pipeline_does_something() {
    let observe = |value: &Value| {
        let pipeline = serde_json::from_value(value.clone()).unwrap();
        let facts = facts([], &[]);
        // What is wrong with a service is the service's own test.
        let _ = check(&pipeline, &facts);
        Observation::of(&plan(&pipeline, &facts), Vec::new(), Vec::new())
    };
    let service = json!({"name": "llm", "enabled": true, "spec": {"image": {"repository": "r", "tag": "t"}}});
    let base = object("NIMPipeline", "rag", json!({"services": [service]}));
    let named = |value: &mut Value| {
        value["spec"]["services"][0]["dependencies"] = json!([{"name": "embed", "port": 8000, "envName": "EMBED"}]);
    };
    assert_alive(&[Case {
        kind: "NIMPipeline",
        setting: "enabled",
        base,
        contexts: &[("spec.services.dependencies", named)],
        samples: &[],
        refused: &[],
        elsewhere: &[],
        observe: &observe,
    }]);
}
