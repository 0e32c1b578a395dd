//! How long pods stay on nodes that are not well, and the taint that a node starts with.

use serde_json::{Value, json};

use super::{Plugin, creates, is};
use crate::admit::json::{Fill, Read};
use crate::error::Result;
use crate::ops::{Operation, Request};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const SECONDS: i64 = 300;

/// Lets pods stay for five minutes on nodes that are not ready or not reachable.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn handles(&self, request: &Request) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update) && is(request, "", "pods")
    }

    fn mutate(&self, _: &Request, pod: &mut Value) -> Result<()> {
        let Some(spec) = pod.inner("spec") else { return Ok(()) };
        for key in [NOT_READY, UNREACHABLE] {
            let tolerated = spec.list("tolerations").iter().any(|toleration| {
                ["", key].contains(&toleration.text("key")) && ["", "NoExecute"].contains(&toleration.text("effect"))
            });
            if tolerated {
                continue;
            }
            spec.fill("tolerations", json!([]));
            if let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") {
                tolerations.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
                }));
            }
        }
        Ok(())
    }
}

/// Keeps pods off a new node until somebody has seen that it is ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaintNewNodes;

impl Plugin for TaintNewNodes {
    fn handles(&self, request: &Request) -> bool {
        creates(request, "", "nodes")
    }

    fn mutate(&self, _: &Request, node: &mut Value) -> Result<()> {
        let Some(spec) = node.inner_or_new("spec") else { return Ok(()) };
        let tainted = spec.list("taints").iter().any(|taint| taint.text("key") == NOT_READY);
        spec.fill("taints", json!([]));
        if let (false, Some(Value::Array(taints))) = (tainted, spec.get_mut("taints")) {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
        Ok(())
    }
}
