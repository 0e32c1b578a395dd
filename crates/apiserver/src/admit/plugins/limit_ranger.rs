//! LimitRanger: default requests and limits of containers, and their minimum and maximum.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Plugin, forbidden, is};
use crate::admit::json::{Fill, Read};
use crate::error::Result;
use crate::ops::{Operation, Request};
use crate::store::{Selection, TableKey};
use capstan_semantics::Quantity;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Applies the LimitRanges of a namespace to pods and claims.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitRanger;

impl Plugin for LimitRanger {
    fn handles(&self, request: &Request) -> bool {
        let pods = is(request, "", "pods") && request.operation == Operation::Create;
        let claims = is(request, "", "persistentvolumeclaims")
            && matches!(request.operation, Operation::Create | Operation::Update);
        pods || claims
    }

    fn mutate(&self, request: &Request, object: &mut Value) -> Result<()> {
        if is(request, "", "pods") {
            for range in ranges(request) {
                fill(&range, object);
            }
        }
        Ok(())
    }

    fn validate(&self, request: &Request, object: Option<&Value>) -> Result<()> {
        let Some(object) = object else { return Ok(()) };
        for range in ranges(request) {
            let wrong: Vec<String> = if is(request, "", "pods") {
                range["spec"].list("limits").iter().flat_map(|item| check_pod(item, &object["spec"])).collect()
            } else {
                let claims = range["spec"].list("limits").iter();
                let claims = claims.filter(|item| item.text("type") == "PersistentVolumeClaim");
                claims.flat_map(|item| bounds(item, "PersistentVolumeClaim", &object["spec"]["resources"])).collect()
            };
            match wrong.as_slice() {
                [] => {}
                [one] => return Err(forbidden(request, object, one)),
                many => return Err(forbidden(request, object, &format!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

fn ranges(request: &Request) -> Vec<Value> {
    let selection = Selection::namespace(request.target.namespace.as_deref().unwrap_or_default());
    let found = request.server.store().select(&TableKey::new("", "limitranges"), &selection);
    found.iter().map(|range| range.value()).collect()
}

/// Sets default requests and limits, and records them in an annotation of the pod.
fn fill(range: &Value, pod: &mut Value) {
    let Some(item) = range["spec"].list("limits").iter().find(|item| item.text("type") == "Container") else { return };
    let mut notes = Vec::new();
    let Some(spec) = pod.inner("spec") else { return };
    for (key, word) in [("containers", "container"), ("initContainers", "init container")] {
        for container in spec.items(key) {
            let name = container.text("name").to_owned();
            let Some(resources) = container.inner_or_new("resources") else { continue };
            for (from, to, what) in [("defaultRequest", "requests", "request"), ("default", "limits", "limit")] {
                let mut added = BTreeSet::new();
                for (resource, amount) in item.members(from) {
                    if !resources[to].has(resource)
                        && let Some(list) = resources.inner_or_new(to)
                    {
                        list.put(resource, amount.clone());
                        added.insert(resource.clone());
                    }
                }
                if !added.is_empty() {
                    let added: Vec<String> = added.into_iter().collect();
                    notes.push(format!("{} {what} for {word} {name}", added.join(", ")));
                }
            }
        }
    }
    if let (false, Some(meta)) = (notes.is_empty(), pod.inner_or_new("metadata"))
        && let Some(annotations) = meta.inner_or_new("annotations")
    {
        annotations.put(ANNOTATION, format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

fn check_pod(item: &Value, spec: &Value) -> Vec<String> {
    let kind = item.text("type");
    match kind {
        "Container" => {
            let containers = spec.list("containers").iter().chain(spec.list("initContainers"));
            containers.flat_map(|container| bounds(item, kind, &container["resources"])).collect()
        }
        "Pod" => bounds(item, kind, &totals(spec)),
        _ => Vec::new(),
    }
}

/// Total requests and limits of all containers of a pod.
fn totals(spec: &Value) -> Value {
    let mut totals = json!({});
    for container in spec.list("containers") {
        for list in ["requests", "limits"] {
            for (name, amount) in container["resources"].members(list) {
                let (Ok(amount), Some(sums)) = (Quantity::from_json(amount), totals.inner_or_new(list)) else {
                    continue;
                };
                let sum = Quantity::from_json(&sums[name]).unwrap_or(Quantity::ZERO);
                sums.put(name, sum.plus(amount).to_string());
            }
        }
    }
    totals
}

fn bounds(item: &Value, kind: &str, resources: &Value) -> Vec<String> {
    let amount = |list: &str, name: &str| Quantity::from_json(&resources[list][name]).ok();
    let mut wrong = Vec::new();
    for (name, least) in item.members("min") {
        let Ok(bound) = Quantity::from_json(least) else { continue };
        match (amount("requests", name), amount("limits", name)) {
            (None, _) => wrong.push(format!("minimum {name} usage per {kind} is {bound}.  No request is specified")),
            (Some(request), _) if request < bound => {
                wrong.push(format!("minimum {name} usage per {kind} is {bound}, but request is {request}"));
            }
            (_, Some(limit)) if limit < bound => {
                wrong.push(format!("minimum {name} usage per {kind} is {bound}, but limit is {limit}"));
            }
            _ => {}
        }
    }
    for (name, most) in item.members("max") {
        let Ok(bound) = Quantity::from_json(most) else { continue };
        if kind == "PersistentVolumeClaim" {
            if let Some(request) = amount("requests", name).filter(|request| *request > bound) {
                wrong.push(format!("maximum {name} usage per {kind} is {bound}, but request is {request}"));
            }
            continue;
        }
        match (amount("requests", name), amount("limits", name)) {
            (_, None) => wrong.push(format!("maximum {name} usage per {kind} is {bound}.  No limit is specified")),
            (_, Some(limit)) if limit > bound => {
                wrong.push(format!("maximum {name} usage per {kind} is {bound}, but limit is {limit}"));
            }
            (Some(request), _) if request > bound => {
                wrong.push(format!("maximum {name} usage per {kind} is {bound}, but request is {request}"));
            }
            _ => {}
        }
    }
    for (name, ratio) in item.members("maxLimitRequestRatio") {
        let Ok(bound) = Quantity::from_json(ratio) else { continue };
        match (amount("requests", name), amount("limits", name)) {
            (Some(request), Some(limit)) if request > Quantity::ZERO => {
                let actual = limit.milli() as f64 / request.milli() as f64;
                if actual * 1000.0 > bound.milli() as f64 {
                    wrong.push(format!(
                        "{name} max limit to request ratio per {kind} is {bound}, but provided ratio is {actual:.6}"
                    ));
                }
            }
            (None, _) => wrong.push(format!(
                "{name} max limit to request ratio per {kind} is {bound}, but no request is specified or request is 0"
            )),
            _ => wrong.push(format!(
                "{name} max limit to request ratio per {kind} is {bound}, but no limit is specified or limit is 0"
            )),
        }
    }
    wrong
}
