//! An index of a snapshot's pods, logs and events for rules. It makes no decisions.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::time::Duration;

use capstan_operands::causes::{Class, words};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::finding::{Finding, Scope, Severity};
use crate::products;
use crate::snapshot::{Snapshot, named};

/// Resource name of whole GPUs.
pub(super) const GPU: &str = "nvidia.com/gpu";
/// Labels of feature discovery for a GPU on the PCI bus; one of them is present.
const PCI: [&str; 3] = ["pci-10de.present", "pci-0302_10de.present", "pci-0300_10de.present"];
/// Prefix of feature discovery labels.
pub(super) const FEATURES: &str = "feature.node.kubernetes.io/";

/// The text of a value, or empty.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list, or none.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A condition of an object.
pub(super) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"]).iter().find(|one| one["type"] == type_)
}

/// Display name of an object: `Pod capstan/driver`, `Node gpu-1`.
pub(super) fn reference(object: &Value) -> String {
    let (namespace, name) = named(object);
    let kind = text(&object["kind"]);
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

/// A text on one line, truncated.
pub(super) fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(240) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The quantity of a node or container resource as an integer: only device counts are read here.
pub(super) fn amount(value: &Value) -> i64 {
    value.as_i64().or_else(|| text(value).parse().ok()).unwrap_or(0)
}

/// Role of a pod on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Driver,
    Toolkit,
    Plugin,
    Validator,
    /// Another GPU operand.
    Operand,
    /// Any other pod.
    Workload,
}

/// A pod.
#[derive(Clone, Copy)]
pub(crate) struct Pod<'a> {
    pub(super) value: &'a Value,
    pub(super) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(super) node: &'a str,
    pub(super) role: Role,
}

/// A container status.
#[derive(Clone, Copy)]
pub(super) struct Container<'a> {
    pub(super) value: &'a Value,
    pub(super) name: &'a str,
    pub(super) init: bool,
}

impl<'a> Pod<'a> {
    fn of(value: &'a Value) -> Self {
        let (namespace, name) = named(value);
        let node = text(&value["spec"]["nodeName"]);
        let has = |wanted: &str| items(&value["spec"]["containers"]).iter().any(|one| one["name"] == wanted);
        let by_daemon_set = items(&value["metadata"]["ownerReferences"]).iter().any(|one| one["kind"] == "DaemonSet");
        let role = match () {
            () if has("nvidia-driver-ctr") => Role::Driver,
            () if has("nvidia-container-toolkit-ctr") => Role::Toolkit,
            () if has("nvidia-device-plugin") || has("capstan-node-agent") || has("gpus") => Role::Plugin,
            () if has("nvidia-operator-validator") || has("nvidia-dra-validator") => Role::Validator,
            () if by_daemon_set && is_operand(value) => Role::Operand,
            () => Role::Workload,
        };
        Self { value, namespace, name, node, role }
    }

    pub(super) fn reference(&self) -> String {
        format!("Pod {}/{}", self.namespace, self.name)
    }

    pub(super) fn phase(&self) -> &'a str {
        text(&self.value["status"]["phase"])
    }

    pub(crate) fn label(&self, key: &str) -> &'a str {
        text(&self.value["metadata"]["labels"][key])
    }

    /// Init containers first.
    pub(super) fn containers(&self) -> impl Iterator<Item = Container<'a>> + use<'a> {
        let status = &self.value["status"];
        let of = |list: &'a Value, init: bool| {
            items(list).iter().map(move |value| Container { value, name: text(&value["name"]), init })
        };
        of(&status["initContainerStatuses"], true).chain(of(&status["containerStatuses"], false))
    }

    /// The first failed container.
    pub(super) fn failure(&self) -> Option<Container<'a>> {
        self.containers().find(|one| one.failure().is_some())
    }

    /// The Job that owns it.
    pub(crate) fn job(&self) -> Option<&'a str> {
        let owner = items(&self.value["metadata"]["ownerReferences"]).first()?;
        (owner["kind"] == "Job").then(|| text(&owner["name"]))
    }

    /// The name of its owner.
    pub(super) fn owner(&self) -> &'a str {
        items(&self.value["metadata"]["ownerReferences"]).first().map_or("", |owner| text(&owner["name"]))
    }

    /// Whether all its containers run and are ready.
    pub(super) fn is_ready(&self) -> bool {
        condition(self.value, "Ready").is_some_and(|ready| ready["status"] == "True")
    }

    /// Whether it has terminated or is terminating.
    pub(super) fn is_terminated(&self) -> bool {
        self.phase() == "Succeeded" || !self.value["metadata"]["deletionTimestamp"].is_null()
    }

    /// The scheduler's message for an unscheduled pod.
    pub(super) fn unschedulable(&self) -> Option<&'a str> {
        let scheduled = condition(self.value, "PodScheduled").filter(|one| one["status"] == "False")?;
        Some(text(&scheduled["message"])).filter(|message| !message.is_empty())
    }

    /// Its request of a resource.
    pub(super) fn requested(&self, resource: &str) -> i64 {
        let of = |one: &Value| amount(&one["resources"]["limits"][resource]);
        items(&self.value["spec"]["containers"]).iter().map(of).sum()
    }

    /// Device resources that it requests.
    pub(super) fn devices(&self) -> Vec<&'a str> {
        let spec = items(&self.value["spec"]["containers"]).iter();
        let limits = spec.filter_map(|one| one["resources"]["limits"].as_object()).flatten();
        let mut names: Vec<&str> = limits.map(|(name, _)| name.as_str()).filter(|name| name.contains('/')).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// A finding about this pod. An operand affects its node, any other pod only itself and the resources it serves.
    pub(super) fn finding(&self, index: &Index<'_>, what: impl Into<String>) -> Finding {
        let whole = self.role != Role::Workload && !self.node.is_empty();
        let (at, scope) = if whole {
            (format!("node {}", self.node), Scope::Nodes(vec![self.node.into()]))
        } else {
            (self.reference(), Scope::Objects)
        };
        let mut finding = Finding::new(at, what, scope).object(self.reference());
        finding.runs_on = self.node.into();
        if whole {
            return finding.object(format!("Node {}", self.node));
        }
        index.served_by(self).into_iter().fold(finding, Finding::object)
    }
}

/// Operands carry labels of the operator that created them.
fn is_operand(pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    let label_contains = |key: &str, part: &str| text(&labels[key]).contains(part);
    label_contains("app.kubernetes.io/managed-by", "gpu-operator")
        || label_contains("app.kubernetes.io/part-of", "gpu-operator")
        || ["nvidia", "gpu-feature-discovery", "mofed", "capstan"].iter().any(|part| label_contains("app", part))
}

impl<'a> Container<'a> {
    /// Reason and message of a waiting container.
    pub(super) fn waiting(&self) -> Option<(&'a str, &'a str)> {
        let waiting = &self.value["state"]["waiting"];
        waiting.is_object().then(|| (text(&waiting["reason"]), text(&waiting["message"])))
    }

    /// Start time of a running container.
    pub(super) fn running(&self) -> Option<&'a Value> {
        Some(&self.value["state"]["running"]["startedAt"]).filter(|time| time.is_string())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.value["ready"] == true
    }

    pub(super) fn restarts(&self) -> i64 {
        self.value["restartCount"].as_i64().unwrap_or(0)
    }

    /// Its last termination, if it failed and has not recovered since.
    pub(super) fn failure(&self) -> Option<&'a Value> {
        let ends = [&self.value["state"]["terminated"], &self.value["lastState"]["terminated"]];
        let end = ends.into_iter().find(|end| end.is_object())?;
        (end["exitCode"].as_i64().unwrap_or(0) != 0 && !self.is_ready()).then_some(end)
    }
}

/// A snapshot with lookups for rules.
pub(crate) struct Index<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) pods: Vec<Pod<'a>>,
    /// Shorter waits are not reported.
    pub(super) grace_period: Duration,
    events: HashMap<(&'a str, &'a str, &'a str), Vec<&'a Value>>,
    nodes: HashMap<&'a str, &'a Value>,
    /// Indexes into `pods`, by node.
    by_node: HashMap<&'a str, Vec<usize>>,
    /// Failure classes of driver pods, by namespace and name: cached, as five rules read them.
    pub(super) driver_classes: OnceCell<HashMap<(&'a str, &'a str), Classified<'a>>>,
}

/// A failure class, with the container and the line that identify it.
pub(super) type Classified<'a> = Option<(Class, &'a str, &'a str)>;

impl<'a> Index<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, grace_period: Duration) -> Self {
        let mut events: HashMap<_, Vec<&Value>> = HashMap::new();
        for event in snapshot.of("", "Event") {
            let about = &event["involvedObject"];
            let key = (text(&about["kind"]), text(&about["namespace"]), text(&about["name"]));
            events.entry(key).or_default().push(event);
        }
        let pods: Vec<Pod<'_>> =
            snapshot.of("", "Pod").iter().map(Pod::of).filter(|pod| !pod.is_terminated()).collect();
        let mut by_node: HashMap<_, Vec<usize>> = HashMap::new();
        for (place, pod) in pods.iter().enumerate() {
            by_node.entry(pod.node).or_default().push(place);
        }
        let nodes = snapshot.of("", "Node").iter().map(|node| (named(node).1, node)).collect();
        Self { snapshot, pods, grace_period, events, nodes, by_node, driver_classes: OnceCell::new() }
    }

    pub(super) fn nodes(&self) -> &'a [Value] {
        self.snapshot.of("", "Node")
    }

    pub(super) fn node(&self, name: &str) -> Option<&'a Value> {
        self.nodes.get(name).copied()
    }

    /// Pods of a role on a node.
    pub(super) fn on_node(&self, node: &str, role: Role) -> impl Iterator<Item = &Pod<'a>> {
        let places = self.by_node.get(node).into_iter().flatten();
        places.filter_map(|place| self.pods.get(*place)).filter(move |pod| pod.role == role)
    }

    /// Warning events about an object.
    pub(super) fn warnings(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = &'a Value> + use<'a> {
        let found: Option<&Vec<&'a Value>> = self.events.get(&(kind, namespace, name));
        let found = found.cloned().unwrap_or_default();
        found.into_iter().filter(|event| event["type"] == "Warning")
    }

    /// All warning events.
    pub(super) fn all_warnings(&self) -> impl Iterator<Item = &'a Value> {
        self.snapshot.of("", "Event").iter().filter(|event| event["type"] == "Warning")
    }

    /// All log lines of a pod, with their container.
    pub(super) fn lines(&self, pod: &Pod<'_>) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let prefix = format!("{}/{}/", pod.namespace, pod.name);
        let snapshot = self.snapshot;
        let logs = snapshot.logs.range(prefix.clone()..).take_while({
            let prefix = prefix.clone();
            move |(key, _)| key.starts_with(&prefix)
        });
        logs.flat_map(move |(key, log)| {
            let container = key[prefix.len()..].split('#').next().unwrap_or_default();
            log.lines().map(move |line| (container, line))
        })
    }

    /// All output of a pod's containers: logs and termination messages.
    pub(super) fn output_lines(&self, pod: &Pod<'a>) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let ends = pod.containers().filter_map(|one| Some((one.name, text(&one.failure()?["message"]))));
        self.lines(pod).chain(ends.flat_map(|(name, message)| message.lines().map(move |line| (name, line))))
    }

    /// The first line of a pod's output that contains one of these, ignoring case.
    pub(super) fn find_output(&self, pod: &Pod<'a>, patterns: &[&str]) -> Option<(&'a str, &'a str)> {
        self.output_lines(pod).find(|(_, line)| words::says(line, patterns))
    }

    /// The last line of a container before it failed.
    pub(super) fn last_line(&self, pod: &Pod<'_>, container: &str) -> Option<&'a str> {
        let before = self.snapshot.previous_log(pod.namespace, pod.name, container);
        let now = self.snapshot.log(pod.namespace, pod.name, container);
        let last_nonempty = |log: &'a str| log.lines().rev().map(str::trim).find(|line| !line.is_empty());
        now.and_then(last_nonempty).or_else(|| before.and_then(last_nonempty))
    }

    /// Time since then.
    pub(super) fn since(&self, time: &Value) -> Option<Duration> {
        let time: Timestamp = text(time).parse().ok()?;
        Duration::try_from(self.snapshot.taken?.duration_since(time)).ok()
    }

    /// Whether it has lasted longer than the grace period. An unknown start counts as long ago.
    pub(super) fn exceeds_grace_period(&self, time: &Value) -> bool {
        self.since(time).is_none_or(|waited| waited >= self.grace_period)
    }

    /// Severity of a pod that does not run: pods without GPUs or models matter less here.
    pub(super) fn weight(&self, pod: &Pod<'_>) -> Severity {
        let ours = pod.role != Role::Workload
            || self.serves(pod)
            || pod.devices().iter().any(|name| name.starts_with("nvidia.com/"));
        if ours { Severity::Error } else { Severity::Warning }
    }

    /// Whether a pod serves a custom resource.
    pub(super) fn serves(&self, pod: &Pod<'_>) -> bool {
        !self.served_by(pod).is_empty()
    }

    /// The custom resources that a pod serves.
    fn served_by(&self, pod: &Pod<'_>) -> Vec<String> {
        let mut all = Vec::new();
        for kind in products::kinds() {
            for object in self.snapshot.of(kind.group, kind.kind) {
                let (namespace, name) = named(object);
                if namespace == pod.namespace && !name.is_empty() && (kind.is_served_by)(name, pod) {
                    all.push(reference(object));
                }
            }
        }
        all
    }

    /// Whether the object of an event still lacks pods: events outlive their cause.
    pub(super) fn is_short_of_pods(&self, event: &Value) -> bool {
        let about = &event["involvedObject"];
        let (kind, namespace, name) = (text(&about["kind"]), text(&about["namespace"]), text(&about["name"]));
        let group = if kind == "Job" { "batch" } else { "apps" };
        let Some(object) = self.snapshot.find(group, kind, namespace, name) else { return false };
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        match kind {
            "DaemonSet" => {
                number(&object["status"]["currentNumberScheduled"])
                    < number(&object["status"]["desiredNumberScheduled"])
            }
            "Job" => number(&object["status"]["active"]) + number(&object["status"]["succeeded"]) == 0,
            _ => number(&object["status"]["replicas"]) < object["spec"]["replicas"].as_i64().unwrap_or(1),
        }
    }

    /// GPU nodes: found by feature discovery, or labelled manually.
    pub(super) fn gpu_nodes(&self) -> impl Iterator<Item = &'a Value> {
        self.nodes().iter().filter(|node| has_gpu(node))
    }
}

/// Whether a node has GPUs.
pub(super) fn has_gpu(node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    PCI.iter().any(|label| labels[format!("{FEATURES}{label}")] == "true")
        || labels[capstan_node::labels::GPU_PRESENT] == "true"
}

/// A label of a node.
pub(super) fn label<'a>(node: &'a Value, key: &str) -> &'a str {
    text(&node["metadata"]["labels"][key])
}
