//! GPU readiness: the node condition `GPUReady`, and the duration of each phase once it is True.
//!
//! Everything is derived from the node and its pods. The only memory is the condition itself: its transition time, and
//! that the GPUs worked before.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use capstan_plan::{Note, Severity};

/// Type of the condition.
pub const GPU_READY: &str = "GPUReady";
/// Reason of the event with the timeline.
pub const TIMELINE: &str = "GPUReady";
/// Message prefix of a node whose GPUs worked before.
const RECOVERING_PREFIX: &str = "GPUs worked before: ";
/// Minimum interval between message updates: a starting pod changes its status every second.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(30);
/// Message of a node that was never seen waiting.
const READY: &str = "GPUs can be used";
/// How long the timeline event is repeated at every reconcile: an earlier leader may have died between condition and
/// event. Events are deduplicated by content.
const EVENT_REPEAT: Duration = Duration::from_secs(300);

/// A phase from a new node to working GPUs, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The node is Ready.
    Kubelet,
    /// The node has our labels.
    Labels,
    /// The driver is loaded.
    Driver,
    /// The container toolkit is validated.
    Toolkit,
    /// The kubelet advertises GPUs.
    Plugin,
    /// The validator has succeeded.
    Validation,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 6] =
        [Self::Kubelet, Self::Labels, Self::Driver, Self::Toolkit, Self::Plugin, Self::Validation];

    /// Its name in messages.
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

/// Progress of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first incomplete phase, and what it waits for; `None` if the GPUs are ready.
    pub open: Option<(Phase, String)>,
    /// When it became a GPU node.
    pub began: Timestamp,
    /// Completed phases in order, with their end times.
    pub over: Vec<(Phase, Timestamp)>,
}

/// The change of the condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConditionUpdate {
    /// Strategic merge patch of the node's status, whose conditions are merged by type.
    pub patch: Option<Value>,
    /// Event to record once the patch, if any, is written.
    pub note: Option<Note>,
    /// Delay until the next reconcile without a change.
    pub requeue: Option<Duration>,
}

impl Progress {
    /// Whether the GPUs are ready.
    pub fn is_ready(&self) -> bool {
        self.open.is_none()
    }

    /// The change that sets the condition of `node` to this progress. `now` is only written on a change.
    pub fn condition_update(&self, node: &Value, now: Timestamp) -> ConditionUpdate {
        let old = condition(node);
        let was = |status: &str| old.is_some_and(|old| old["status"] == status);
        let worked = was("True") || text(old, "message").starts_with(RECOVERING_PREFIX);
        let (status, reason, message) = match &self.open {
            None if was("True") => {
                return ConditionUpdate { note: recent_timeline_event(old, now), ..ConditionUpdate::default() };
            }
            None => ("True", "Ready".to_owned(), self.timeline(old, worked)),
            Some((phase, why)) => {
                let before = if worked { RECOVERING_PREFIX } else { "" };
                ("False", phase.reason(), format!("{before}waits for {}: {why}", phase.name()))
            }
        };
        if was(status) && text(old, "reason") == reason && text(old, "message") == message {
            return ConditionUpdate::default();
        }
        let last_update =
            text(old, "lastHeartbeatTime").parse::<Timestamp>().ok().filter(|_| was("False") && status == "False");
        let waited =
            last_update.map(|last_update| Duration::try_from(now.duration_since(last_update)).unwrap_or_default());
        if let Some(left) =
            waited.and_then(|waited| MESSAGE_INTERVAL.checked_sub(waited)).filter(|left| !left.is_zero())
        {
            return ConditionUpdate { requeue: Some(left), ..ConditionUpdate::default() };
        }
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        let since = Some(text(old, "lastTransitionTime")).filter(|since| was(status) && !since.is_empty());
        // A node that was never seen waiting has no transition.
        let note = (status == "True" && was("False")).then(|| timeline_event(&message));
        let patch = conditions(json!({
            "type": GPU_READY, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": since.unwrap_or(&now),
        }));
        ConditionUpdate { patch: Some(patch), note, requeue: None }
    }

    /// The timeline message: seconds per phase. Concurrent phases count from the previous one.
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

/// The timeline event.
fn timeline_event(timeline: &str) -> Note {
    Note { severity: Severity::Normal, reason: TIMELINE, message: timeline.into() }
}

/// The same, for a node whose condition turned True recently.
fn recent_timeline_event(old: Option<&Value>, now: Timestamp) -> Option<Note> {
    let since = text(old, "lastTransitionTime").parse::<Timestamp>().ok()?;
    let ago = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let timeline = Some(text(old, "message")).filter(|message| *message != READY && message.starts_with(READY))?;
    (ago < EVENT_REPEAT).then(|| timeline_event(timeline))
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

/// Whether the node has the condition.
pub fn has_condition(node: &Value) -> bool {
    condition(node).is_some()
}

/// Strategic merge patch of the status that removes our condition; `None` if there is none.
pub fn forget(node: &Value) -> Option<Value> {
    let reason = text(condition(node), "reason");
    let ours = reason == "Ready" || Phase::ALL.iter().any(|phase| phase.reason() == reason);
    (has_condition(node) && ours).then(|| conditions(json!({"type": GPU_READY, "$patch": "delete"})))
}
