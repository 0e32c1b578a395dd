//! Printers of Nodes, Namespaces, Events, Secrets and other core kinds.

use jiff::Timestamp;
use serde_json::Value;

use super::format::{UNKNOWN, count, list, number, since, text, text_or};
use super::{AGE, CREATED, Cells, Column, NAME, Printer, age, created, name};

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let (columns, cells): (&'static [Column], Cells) = match (group, kind) {
        ("", "Node") => (NODE, node),
        ("", "Namespace") => {
            (NAMESPACE, |object, now| vec![name(object), text(object, "/status/phase").into(), age(object, now)])
        }
        ("" | "events.k8s.io", "Event") => (EVENT, event),
        ("", "Secret") => (SECRET, |object, now| {
            vec![name(object), text(object, "/type").into(), count(object, "/data").into(), age(object, now)]
        }),
        ("", "ConfigMap") => (CONFIG_MAP, |object, now| {
            let data = count(object, "/data") + count(object, "/binaryData");
            vec![name(object), data.into(), age(object, now)]
        }),
        ("", "ServiceAccount") => (&[NAME, AGE], |object, now| vec![name(object), age(object, now)]),
        ("", "LimitRange") => (&[NAME, CREATED], |object, _| vec![name(object), created(object)]),
        ("", "ResourceQuota") => (RESOURCE_QUOTA, resource_quota),
        ("", "ComponentStatus") => (COMPONENT_STATUS, component_status),
        ("coordination.k8s.io", "Lease") => {
            (LEASE, |object, now| vec![name(object), text(object, "/spec/holderIdentity").into(), age(object, now)])
        }
        _ => return None,
    };
    Some(Printer { columns, cells })
}

const NODE: &[Column] = &[
    NAME,
    Column::own("Status", "string", "The status of the node"),
    Column::own("Roles", "string", "The roles of the node"),
    AGE,
    Column::of("Version", "string", "core.v1.NodeSystemInfo", "kubeletVersion"),
    Column::of("Internal-IP", "string", "core.v1.NodeStatus", "addresses").wide(),
    Column::of("External-IP", "string", "core.v1.NodeStatus", "addresses").wide(),
    Column::of("OS-Image", "string", "core.v1.NodeSystemInfo", "osImage").wide(),
    Column::of("Kernel-Version", "string", "core.v1.NodeSystemInfo", "kernelVersion").wide(),
    Column::of("Container-Runtime", "string", "core.v1.NodeSystemInfo", "containerRuntimeVersion").wide(),
];

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(object, "/status/conditions").iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| condition["status"] == "True") {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object["spec"]["unschedulable"] == true {
        status += ",SchedulingDisabled";
    }
    let address = |kind: &str| {
        let found = list(object, "/status/addresses").iter().find(|address| address["type"] == kind);
        Value::from(found.map_or("<none>", |address| text(address, "/address")))
    };
    let info = |field: &str| Value::from(text_or(object, &format!("/status/nodeInfo/{field}"), UNKNOWN));
    let kernel = text_or(object, "/status/nodeInfo/kernelVersion", UNKNOWN);
    let kernel = match text(object, "/status/nodeInfo/architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    };
    vec![
        name(object),
        status.into(),
        roles(object).into(),
        age(object, now),
        text(object, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        kernel.into(),
        info("containerRuntimeVersion"),
    ]
}

fn roles(object: &Value) -> String {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role).filter(|role| !role.is_empty()),
            None => value.as_str().filter(|role| key == "kubernetes.io/role" && !role.is_empty()),
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

const NAMESPACE: &[Column] = &[NAME, Column::own("Status", "string", "The status of the namespace"), AGE];

const EVENT: &[Column] = &[
    Column::of("Last Seen", "string", "core.v1.Event", "lastTimestamp"),
    Column::of("Type", "string", "core.v1.Event", "type"),
    Column::of("Reason", "string", "core.v1.Event", "reason"),
    Column::of("Object", "string", "core.v1.Event", "involvedObject"),
    Column::of("Subobject", "string", "core.v1.ObjectReference", "fieldPath").wide(),
    Column::of("Source", "string", "core.v1.Event", "source").wide(),
    Column::of("Message", "string", "core.v1.Event", "message"),
    Column::of("First Seen", "string", "core.v1.Event", "firstTimestamp").wide(),
    Column::of("Count", "string", "core.v1.Event", "count").wide(),
    NAME.wide(),
];

/// Both groups serve the same events with different field names; either is read.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |core: &str, new: &str| -> Value {
        [core, new]
            .iter()
            .filter_map(|key| object.pointer(key))
            .find(|found| !found.is_null())
            .cloned()
            .unwrap_or_default()
    };
    let words = |value: Value| value.as_str().unwrap_or_default().to_owned();
    let first_time = either("/firstTimestamp", "/deprecatedFirstTimestamp");
    let first = if first_time.is_null() { since(&object["eventTime"], now) } else { since(&first_time, now) };
    let last_time = either("/lastTimestamp", "/deprecatedLastTimestamp");
    let mut last = if last_time.is_null() { first.clone() } else { since(&last_time, now) };
    let mut count = either("/count", "/deprecatedCount").as_i64().unwrap_or(0);
    if object["series"].is_object() {
        last = since(&object["series"]["lastObservedTime"], now);
        count = number(object, "/series/count");
    } else if count == 0 {
        count = 1;
    }
    let regarding = either("/involvedObject", "/regarding");
    let kind = text(&regarding, "/kind").to_lowercase();
    let target = match text(&regarding, "/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        target.into(),
        text(&regarding, "/fieldPath").into(),
        source(object).into(),
        words(either("/message", "/note")).trim().into(),
        first.into(),
        count.into(),
        name(object),
    ]
}

fn source(object: &Value) -> String {
    let either = |core: &str, deprecated: &str, new: &str| {
        [core, deprecated, new].map(|key| text(object, key)).into_iter().find(|text| !text.is_empty())
    };
    let component = either("/source/component", "/deprecatedSource/component", "/reportingComponent")
        .unwrap_or_else(|| text(object, "/reportingController"));
    match either("/source/host", "/deprecatedSource/host", "/reportingInstance") {
        Some(host) => format!("{component}, {host}"),
        None => component.to_owned(),
    }
}

const SECRET: &[Column] = &[
    NAME,
    Column::of("Type", "string", "core.v1.Secret", "type"),
    Column::of("Data", "string", "core.v1.Secret", "data"),
    AGE,
];

const CONFIG_MAP: &[Column] = &[NAME, Column::of("Data", "string", "core.v1.ConfigMap", "data"), AGE];

const LEASE: &[Column] = &[NAME, Column::of("Holder", "string", "coordination.v1.LeaseSpec", "holderIdentity"), AGE];

const RESOURCE_QUOTA: &[Column] = &[
    NAME,
    Column::own("Request", "string", "Request represents a minimum amount of cpu/memory that a container may consume."),
    Column::own(
        "Limit",
        "string",
        "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
    ),
    AGE,
];

fn resource_quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = object.pointer("/status/hard").and_then(Value::as_object);
    for (resource, most) in hard.into_iter().flatten() {
        let used = object["status"]["used"][resource].as_str().unwrap_or("0");
        let line = format!("{resource}: {used}/{}", most.as_str().unwrap_or_default());
        if resource.starts_with("limits") { limits.push(line) } else { requests.push(line) }
    }
    vec![name(object), requests.join(", ").into(), limits.join(", ").into(), age(object, now)]
}

const COMPONENT_STATUS: &[Column] = &[
    NAME,
    Column::own("Status", "string", "Status of the component conditions"),
    Column::own("Message", "string", "Message of the component conditions"),
    Column::own("Error", "string", "Error of the component conditions"),
];

fn component_status(object: &Value, _now: Timestamp) -> Vec<Value> {
    let healthy = list(object, "/conditions").iter().find(|condition| condition["type"] == "Healthy");
    let status = match healthy.map(|condition| condition["status"] == "True") {
        Some(true) => "Healthy",
        Some(false) => "Unhealthy",
        None => "Unknown",
    };
    let field = |key: &str| Value::from(healthy.map_or("", |condition| text(condition, key)));
    vec![name(object), status.into(), field("/message"), field("/error")]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_shows_its_state_and_roles() {
        let object = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": "",
            "kubernetes.io/role": "gpu"}}, "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
        let cells = node(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1..3], [json!("Ready,SchedulingDisabled"), json!("gpu,worker")]);
        assert_eq!(cells[5..8], [json!("10.0.0.1"), json!("<none>"), json!("<unknown>")]);
    }

    #[test]
    fn events_of_both_groups_look_the_same() {
        let now = "2024-01-01T00:01:00Z".parse().unwrap();
        let old = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "Pulled", "message": "m ",
            "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet", "host": "n"},
            "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:30Z", "count": 2});
        let new = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "Pulled", "note": "m ",
            "regarding": {"kind": "Pod", "name": "p"}, "deprecatedSource": {"component": "kubelet", "host": "n"},
            "deprecatedFirstTimestamp": "2024-01-01T00:00:00Z", "deprecatedLastTimestamp": "2024-01-01T00:00:30Z",
            "deprecatedCount": 2});
        let cells = event(&old, now);
        assert_eq!(cells, event(&new, now));
        let expected = json!(["30s", "Normal", "Pulled", "pod/p", "", "kubelet, n", "m", "60s", 2, "e"]);
        assert_eq!(Value::from(cells), expected);
    }
}
