//! NIMBuild.

use capstan_operands::nim::nim_build::{check, plan};
use serde_json::{Value, json};

use super::{Case, Observation, assert_alive, facts, object, ready_cache};

#[test]
fn every_field_of_a_build_does_something() {
    let observe = |value: &Value| {
        let build = serde_json::from_value(value.clone()).unwrap();
        let plan = plan(&build, &facts([ready_cache()], &[]));
        Observation::of(&plan, check(&build), Vec::new())
    };
    let spec = json!({
        "nimCache": {"name": "models", "profile": "p1"}, "image": {"repository": "r", "tag": "t"},
    });
    assert_alive(&[Case {
        kind: "NIMBuild",
        setting: "building",
        base: object("NIMBuild", "engine", spec),
        contexts: &[],
        samples: &[("nimCache.profile", json!("p2")), ("image.pullPolicy", json!("Always"))],
        refused: &[],
        elsewhere: &[],
        observe: &observe,
    }]);
}
