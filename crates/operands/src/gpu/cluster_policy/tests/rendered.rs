//! Every operand as it is applied, a snapshot for each: what a reviewer reads.

use std::collections::BTreeSet;

use capstan_api::gpu::cluster_policy::sandbox::SandboxMode;

use super::super::{OPERANDS, everything};
use super::*;
use crate::gpu::components::PolicyCx;

/// Tables of a thousand lines have tests of their own.
const LONG: usize = 4000;

fn shortened(mut body: Value) -> Value {
    let data = body.get_mut("data").and_then(Value::as_object_mut);
    for text in data.into_iter().flat_map(|data| data.values_mut()) {
        if let Some(length) = text.as_str().map(str::len).filter(|length| *length > LONG) {
            *text = format!("{length} characters").into();
        }
    }
    body
}

#[test]
fn every_operand_is_known_to_the_letter() {
    let mut shown = BTreeSet::new();
    for mode in [SandboxMode::Kubevirt, SandboxMode::Kata] {
        let policy = ClusterPolicy::new("cluster-policy", everything(mode));
        let (facts, cluster) = (facts(), ubuntu());
        let cx = PolicyCx::new(&policy, &facts, &cluster);
        for operand in OPERANDS.iter().filter(|operand| (operand.enabled)(&cx)) {
            if shown.insert(operand.name) {
                let objects = (operand.objects)(&cx).unwrap();
                let bodies: Vec<Value> = objects.into_iter().map(|object| shortened(object.body)).collect();
                insta::assert_yaml_snapshot!(operand.name, bodies);
            }
        }
    }
    assert_eq!(shown.len(), OPERANDS.len(), "an operand has no snapshot");
}
