//! RuntimeClass admission.

use serde_json::{Value, json};

use super::{Plugin, creates, find, forbidden};
use crate::admit::json::{Fill, Read};
use crate::error::Result;
use crate::ops::Request;

/// Adds overhead, node selector and tolerations of the RuntimeClass; rejects pods whose class does not exist.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn handles(&self, request: &Request) -> bool {
        creates(request, "", "pods")
    }

    fn mutate(&self, request: &Request, pod: &mut Value) -> Result<()> {
        let Some(class) = class(request, pod)? else { return Ok(()) };
        let overhead = &class["overhead"]["podFixed"];
        if overhead.is_object() {
            let given = &pod["spec"]["overhead"];
            if given.is_object() && given != overhead {
                let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
                return Err(forbidden(request, pod, why));
            }
            if let Some(spec) = pod.inner("spec") {
                spec.put("overhead", overhead.clone());
            }
        }
        for (key, value) in class["scheduling"].members("nodeSelector") {
            let given = &pod["spec"]["nodeSelector"][key];
            if given.is_string() && given != value {
                let why = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    value.as_str().unwrap_or_default(),
                    given.as_str().unwrap_or_default()
                );
                return Err(forbidden(request, pod, &why));
            }
            if let Some(selector) = pod.inner("spec").and_then(|spec| spec.inner_or_new("nodeSelector")) {
                selector.put(key, value.clone());
            }
        }
        let Some(spec) = pod.inner("spec") else { return Ok(()) };
        for toleration in class["scheduling"].list("tolerations") {
            spec.fill("tolerations", json!([]));
            if let Some(Value::Array(tolerations)) = spec.get_mut("tolerations")
                && !tolerations.contains(toleration)
            {
                tolerations.push(toleration.clone());
            }
        }
        Ok(())
    }

    fn validate(&self, request: &Request, pod: Option<&Value>) -> Result<()> {
        let Some(pod) = pod else { return Ok(()) };
        let Some(class) = class(request, pod)? else {
            if pod["spec"].has("overhead") {
                let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
                return Err(forbidden(request, pod, why));
            }
            return Ok(());
        };
        if pod["spec"].has("overhead") && !class["overhead"].has("podFixed") {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(forbidden(request, pod, why));
        }
        Ok(())
    }
}

fn class(request: &Request, pod: &Value) -> Result<Option<Value>> {
    let name = pod["spec"].text("runtimeClassName");
    if name.is_empty() {
        return Ok(None);
    }
    match find(request, "node.k8s.io", "runtimeclasses", "", name) {
        Some(class) => Ok(Some(class.value())),
        None => Err(forbidden(request, pod, &format!("pod rejected: RuntimeClass \"{name}\" not found"))),
    }
}
