//! DefaultTolerationSeconds and TaintNodesByCondition.

use serde_json::{Value, json};

use super::{Plugin, creates, is};
use crate::admit::json::{Fill, Read};
use crate::error::Result;
use crate::ops::{Operation, Request};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const SECONDS: i64 = 300;

/// Adds tolerations for five minutes of `not-ready` and `unreachable`.
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

/// Taints new nodes as not ready, until the node lifecycle controller removes the taint.
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
