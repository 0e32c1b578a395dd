//! Conversion between API versions. Most versions share one schema; HorizontalPodAutoscalers and Events have a second
//! one.

use std::sync::Arc;

use serde_json::{Value, json};

use super::server::Profile;
use crate::store::Object;

/// Converts a stored object to the version of the request.
pub(crate) fn serve(profile: &Profile, object: &Arc<Object>) -> Arc<Object> {
    if object.types.api_version == profile.served.api_version {
        return object.clone();
    }
    if is_custom_form(&profile.served.api_version, &profile.served.kind, &object.types.api_version) {
        return Arc::new(Object::synthetic(&convert(&object.value(), &profile.served.api_version)));
    }
    Arc::new(object.retyped(profile.served.clone()))
}

/// Parses a stored object and converts it to the version of the request.
pub(crate) fn serve_value(profile: &Profile, object: &Object) -> Value {
    let value = object.value();
    if object.types.api_version == profile.served.api_version {
        return value;
    }
    convert(&value, &profile.served.api_version)
}

/// Converts an object to the storage version.
pub(crate) fn store_value(profile: &Profile, value: Value) -> Value {
    if profile.stored == profile.served { value } else { convert(&value, &profile.stored.api_version) }
}

fn is_custom_form(served: &str, kind: &str, stored: &str) -> bool {
    served != stored
        && matches!((kind, served), ("HorizontalPodAutoscaler", "autoscaling/v1") | ("Event", "events.k8s.io/v1"))
}

/// Converts `object` to another version of the same API.
pub(crate) fn convert(object: &Value, api_version: &str) -> Value {
    let mut object = object.clone();
    let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    object["apiVersion"] = api_version.into();
    match (kind.as_str(), from.as_str(), api_version) {
        ("HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2") => autoscaler_to_v2(&mut object),
        ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v1") => autoscaler_to_v1(&mut object),
        ("Event", "v1", "events.k8s.io/v1") => rename_event(&mut object, Direction::New),
        ("Event", "events.k8s.io/v1", "v1") => rename_event(&mut object, Direction::Old),
        _ => {}
    }
    object
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

/// `targetCPUUtilizationPercentage` becomes a resource metric; fields unknown to v1 are restored from annotations.
fn autoscaler_to_v2(object: &mut Value) {
    let mut metrics = take_annotation(object, METRICS).and_then(|text| text.as_array().cloned()).unwrap_or_default();
    if let Some(target) = take(&mut object["spec"], "targetCPUUtilizationPercentage") {
        let target = json!({"type": "Utilization", "averageUtilization": target});
        metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    if !metrics.is_empty() {
        object["spec"]["metrics"] = metrics.into();
    }
    if let Some(behavior) = take_annotation(object, BEHAVIOR) {
        object["spec"]["behavior"] = behavior;
    }
    if object["status"].is_object() {
        let mut current =
            take_annotation(object, CURRENT).and_then(|text| text.as_array().cloned()).unwrap_or_default();
        if let Some(now) = take(&mut object["status"], "currentCPUUtilizationPercentage") {
            let now = json!({"averageUtilization": now, "averageValue": "0"});
            current.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "current": now}}));
        }
        if !current.is_empty() {
            object["status"]["currentMetrics"] = current.into();
        }
        if let Some(conditions) = take_annotation(object, CONDITIONS) {
            object["status"]["conditions"] = conditions;
        }
    }
}

/// The first CPU utilization metric becomes `targetCPUUtilizationPercentage`; fields unknown to v1 go into annotations.
fn autoscaler_to_v1(object: &mut Value) {
    let is_cpu = |metric: &Value| {
        metric["resource"]["name"] == "cpu" && metric["resource"]["target"]["averageUtilization"].is_number()
    };
    if let Some(Value::Array(mut metrics)) = take(&mut object["spec"], "metrics") {
        if let Some(at) = metrics.iter().position(is_cpu) {
            let cpu = metrics.remove(at);
            object["spec"]["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"].clone();
        }
        put_annotation(object, METRICS, metrics.into());
    }
    if let Some(behavior) = take(&mut object["spec"], "behavior") {
        put_annotation(object, BEHAVIOR, behavior);
    }
    if object["status"].is_object() {
        if let Some(Value::Array(mut current)) = take(&mut object["status"], "currentMetrics") {
            let is_cpu = |metric: &Value| {
                metric["resource"]["name"] == "cpu" && metric["resource"]["current"]["averageUtilization"].is_number()
            };
            if let Some(at) = current.iter().position(is_cpu) {
                let cpu = current.remove(at);
                object["status"]["currentCPUUtilizationPercentage"] =
                    cpu["resource"]["current"]["averageUtilization"].clone();
            }
            put_annotation(object, CURRENT, current.into());
        }
        if let Some(conditions) = take(&mut object["status"], "conditions") {
            put_annotation(object, CONDITIONS, conditions);
        }
    }
}

enum Direction {
    Old,
    New,
}

/// Field names of an event in the core group and in `events.k8s.io`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn rename_event(object: &mut Value, direction: Direction) {
    for (old, new) in EVENT_FIELDS {
        let (from, to) = match direction {
            Direction::New => (old, new),
            Direction::Old => (new, old),
        };
        if let Some(value) = take(object, from) {
            object[to] = value;
        }
    }
    // Always present in the core version, omitted when empty in `events.k8s.io`.
    for field in ["reportingController", "reportingInstance"] {
        if matches!(direction, Direction::New) && object[field] == "" {
            take(object, field);
        }
    }
}

/// The stored field for a field selector of `events.k8s.io`.
pub(crate) fn event_field(path: &str) -> Option<&'static str> {
    Some(match path {
        "regarding.kind" => "involvedObject.kind",
        "regarding.namespace" => "involvedObject.namespace",
        "regarding.name" => "involvedObject.name",
        "regarding.uid" => "involvedObject.uid",
        "regarding.apiVersion" => "involvedObject.apiVersion",
        "regarding.resourceVersion" => "involvedObject.resourceVersion",
        "regarding.fieldPath" => "involvedObject.fieldPath",
        "reportingController" => "reportingComponent",
        _ => return None,
    })
}

fn take(object: &mut Value, key: &str) -> Option<Value> {
    object.as_object_mut()?.remove(key).filter(|value| !value.is_null())
}

fn take_annotation(object: &mut Value, key: &str) -> Option<Value> {
    let text = take(object["metadata"].get_mut("annotations")?, key)?;
    serde_json::from_str(text.as_str()?).ok()
}

fn put_annotation(object: &mut Value, key: &str, value: Value) {
    if !value.as_array().is_some_and(Vec::is_empty) {
        object["metadata"]["annotations"][key] = value.to_string().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoscaler_comes_back_as_it_went() {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "m"}}});
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "metrics": [cpu, pods], "behavior": {"scaleUp": {}}},
        });
        let v1 = convert(&v2, "autoscaling/v1");
        assert_eq!(v1["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}));
        let mut back = convert(&v1, "autoscaling/v2");
        back["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(back, v2);
    }

    #[test]
    fn an_event_has_other_names_in_its_own_group() {
        let old =
            json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "p"}, "message": "m", "count": 2});
        let new = convert(&old, "events.k8s.io/v1");
        let expected = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "p"}, "note": "m", "deprecatedCount": 2});
        assert_eq!(new, expected);
        assert_eq!(convert(&new, "v1"), old);
    }
}
