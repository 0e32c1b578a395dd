//! Whether the GPUs of a node work: the node condition `GPUReady`, and how long each phase took once they do.
//!
//! All is derived anew from the node and its pods. What has to be remembered is the condition itself: since when it
//! holds, and that the GPUs have worked before.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use capstan_plan::{Note, Severity};

/// Type of the condition.
pub const GPU_READY: &str = "GPUReady";
/// Reason of the event with the timeline.
pub const TIMELINE: &str = "GPUReady";
/// What the message of a node begins with that has worked before.
const AGAIN: &str = "GPUs worked before: ";
/// Another word about a node that waits is written after this time at the earliest: a pod that starts says something new
/// every second.
const PACE: Duration = Duration::from_secs(30);
/// What a node says that was not seen waiting.
const READY: &str = "GPUs can be used";
/// For so long the event with the timeline is said again at every look: who wrote the condition may have died before the
/// event. Events are known by what they say, so that one that is there is not written twice.
const LATELY: Duration = Duration::from_secs(300);

/// A phase on the way from a new node to working GPUs, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The kubelet reports.
    Kubelet,
    /// The node carries our labels.
    Labels,
    /// The driver is loaded.
    Driver,
    /// Containers get access to GPUs.
    Toolkit,
    /// The kubelet offers GPUs.
    Plugin,
    /// The validator has used one.
    Validation,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Kubelet, Self::Labels, Self::Driver, Self::Toolkit, Self::Plugin, Self::Validation];

    /// What messages call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Labels => "labels",
            Self::Driver => "driver",
            Self::Toolkit => "container toolkit",
            Self::Plugin => "device plugin",
            Self::Validation => "validation",
        }
    }

    /// The operand's condition in the status of a ClusterPolicy.
    pub fn condition(self) -> &'static str {
        match self {
            Self::Kubelet => "Kubelet",
            Self::Labels => "Labels",
            Self::Driver => "Driver",
            Self::Toolkit => "ContainerToolkit",
            Self::Plugin => "DevicePlugin",
            Self::Validation => "Validation",
        }
    }

    fn reason(self) -> String {
        format!("{}NotReady", self.condition())
    }
}

/// How far a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first phase that is not over, and what holds it up; `None` if the GPUs can be used.
    pub open: Option<(Phase, String)>,
    /// When it became a GPU node.
    pub began: Timestamp,
    /// Phases that are over, in their order, and since when.
    pub over: Vec<(Phase, Timestamp)>,
}

/// What to do about the condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConditionUpdate {
    /// Strategic merge patch of the node's status, whose conditions are merged by type.
    pub patch: Option<Value>,
    /// What to say once the patch, if there is one, is written.
    pub note: Option<Note>,
    /// When to look again though nothing changed.
    pub requeue: Option<Duration>,
}

impl Progress {
    /// Whether the GPUs can be used.
    pub fn is_ready(&self) -> bool {
        self.open.is_none()
    }

    /// What makes the condition of `node` say this. `now` is only written on a change.
    pub fn condition_update(&self, node: &Value, now: Timestamp) -> ConditionUpdate {
        let old = condition(node);
        let was = |status: &str| old.is_some_and(|old| old["status"] == status);
        let worked = was("True") || text(old, "message").starts_with(AGAIN);
        let (status, reason, message) = match &self.open {
            None if was("True") => return ConditionUpdate { note: lately(old, now), ..ConditionUpdate::default() },
            None => ("True", "Ready".to_owned(), self.timeline(old, worked)),
            Some((phase, why)) => {
                let before = if worked { AGAIN } else { "" };
                ("False", phase.reason(), format!("{before}waits for {}: {why}", phase.name()))
            }
        };
        if was(status) && text(old, "reason") == reason && text(old, "message") == message {
            return ConditionUpdate::default();
        }
        let told =
            text(old, "lastHeartbeatTime").parse::<Timestamp>().ok().filter(|_| was("False") && status == "False");
        let waited = told.map(|told| Duration::try_from(now.duration_since(told)).unwrap_or_default());
        if let Some(left) = waited.and_then(|waited| PACE.checked_sub(waited)).filter(|left| !left.is_zero()) {
            return ConditionUpdate { requeue: Some(left), ..ConditionUpdate::default() };
        }
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        let since = Some(text(old, "lastTransitionTime")).filter(|since| was(status) && !since.is_empty());
        // A node that was not seen waiting has not become ready: it was.
        let note = (status == "True" && was("False")).then(|| news(&message));
        let patch = conditions(json!({
            "type": GPU_READY, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": since.unwrap_or(&now),
        }));
        ConditionUpdate { patch: Some(patch), note, requeue: None }
    }

    /// What to say once the node works: seconds per phase. Phases that ran side by side count from the one before.
    fn timeline(&self, old: Option<&Value>, worked: bool) -> String {
        let waiting = text(old, "lastTransitionTime").parse::<Timestamp>().ok();
        let Some(waiting) = waiting.filter(|_| old.is_some_and(|old| old["status"] == "False")) else {
            return READY.into();
        };
        let labelled = Some((Phase::Labels, waiting)).filter(|_| !worked);
        let began = if worked { waiting } else { self.began.min(waiting) };
        let mut before = began;
        let mut parts = Vec::new();
        for (phase, over) in labelled.into_iter().chain(self.over.iter().copied()) {
            let over = over.max(before);
            parts.push(format!("{} {} s", phase.name(), over.as_second() - before.as_second()));
            before = over;
        }
        let (total, again) = (before.as_second() - began.as_second(), if worked { "again " } else { "" });
        format!("{READY} {again}after {total} s: {}", parts.join(", "))
    }
}

/// The event with the timeline.
fn news(timeline: &str) -> Note {
    Note { severity: Severity::Normal, reason: TIMELINE, message: timeline.into() }
}

/// The same, of a node whose condition says that it has become ready lately.
fn lately(old: Option<&Value>, now: Timestamp) -> Option<Note> {
    let since = text(old, "lastTransitionTime").parse::<Timestamp>().ok()?;
    let ago = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let timeline = Some(text(old, "message")).filter(|message| *message != READY && message.starts_with(READY))?;
    (ago < LATELY).then(|| news(timeline))
}

fn text<'a>(condition: Option<&'a Value>, field: &str) -> &'a str {
    condition.and_then(|condition| condition[field].as_str()).unwrap_or_default()
}

fn condition(node: &Value) -> Option<&Value> {
    let mut conditions = node["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == GPU_READY)
}

fn conditions(one: Value) -> Value {
    json!({"status": {"conditions": [one]}})
}

/// Whether the node says how its GPUs do.
pub fn is_told(node: &Value) -> bool {
    condition(node).is_some()
}

/// Strategic merge patch of the status that removes our condition; `None` if there is none.
pub fn forget(node: &Value) -> Option<Value> {
    let reason = text(condition(node), "reason");
    let ours = reason == "Ready" || Phase::ALL.iter().any(|phase| phase.reason() == reason);
    (is_told(node) && ours).then(|| conditions(json!({"type": GPU_READY, "$patch": "delete"})))
}
