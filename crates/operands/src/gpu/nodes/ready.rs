//! Whether the GPUs of a node work: the node condition `GPUReady`, the startup taint that is lifted then, and how long
//! each phase took.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};

use capstan_plan::{Note, Severity};

/// Type of the condition.
pub const GPU_READY: &str = "GPUReady";
/// Reason of the event with the timeline.
pub const TIMELINE: &str = "GPUReady";
/// Annotation of a ClusterPolicy or GPUCluster that names the startup taint: `key`, `key:Effect` or `key=value:Effect`.
pub const STARTUP_TAINT: &str = "capstan.dev/startup-taint";

/// A phase on the way from a new node to working GPUs, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
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
    fn name(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Driver => "driver",
            Self::Toolkit => "toolkit",
            Self::Plugin => "device plugin",
            Self::Validation => "validation",
        }
    }

    fn waiting(self) -> &'static str {
        match self {
            Self::Labels => "WaitingForLabels",
            Self::Driver => "WaitingForDriver",
            Self::Toolkit => "WaitingForToolkit",
            Self::Plugin => "WaitingForDevicePlugin",
            Self::Validation => "WaitingForValidation",
        }
    }
}

/// How far a node is.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// When it became a GPU node.
    pub began: Timestamp,
    /// The phases of this node, in their order, and since when each one is over. Operands that are switched off have none.
    pub phases: &'a [(Phase, Option<Timestamp>)],
    /// What holds the first open phase up, in the words of the pod concerned.
    pub waits: Option<&'a str>,
}

impl Progress<'_> {
    /// The first phase that is not over.
    pub fn open(&self) -> Option<Phase> {
        self.phases.iter().find(|(_, over)| over.is_none()).map(|(phase, _)| *phase)
    }

    fn reason(&self) -> (&'static str, String) {
        match self.open() {
            None => ("Ready", "GPUs can be used".into()),
            Some(phase) => {
                let why = self.waits.map(|why| format!(": {why}")).unwrap_or_default();
                (phase.waiting(), format!("waits for {}{why}", phase.name()))
            }
        }
    }

    /// Patch of the node's status; `None` if the condition says this already. `now` is only written on a change.
    pub fn condition(&self, node: &Value, now: Timestamp) -> Option<Value> {
        let status = if self.open().is_none() { "True" } else { "False" };
        let (reason, message) = self.reason();
        let old = condition(node);
        let same = |old: &&Value| old["status"] == status && old["reason"] == reason && old["message"] == message;
        if old.filter(same).is_some() {
            return None;
        }
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        let since = old.filter(|old| old["status"] == status).and_then(|old| old["lastTransitionTime"].as_str());
        Some(conditions(json!({
            "type": GPU_READY, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": since.unwrap_or(&now),
        })))
    }

    /// What to say once the node works: seconds per phase. Phases that ran side by side count from the one before.
    pub fn timeline(&self) -> Option<Note> {
        if self.open().is_some() || self.phases.is_empty() {
            return None;
        }
        let mut before = self.began;
        let mut parts = Vec::new();
        for (phase, over) in self.phases {
            let over = over.unwrap_or(before).max(before);
            parts.push(format!("{} {} s", phase.name(), over.as_second() - before.as_second()));
            before = over;
        }
        let total = before.as_second() - self.began.as_second();
        let message = format!("GPUs can be used after {total} s: {}", parts.join(", "));
        Some(Note { severity: Severity::Normal, reason: TIMELINE, message })
    }
}

fn condition(node: &Value) -> Option<&Value> {
    let mut conditions = node["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == GPU_READY)
}

fn conditions(one: Value) -> Value {
    json!({"status": {"conditions": [one]}})
}

/// Whether the node's GPUs have ever worked.
pub fn ever_ready(node: &Value) -> bool {
    condition(node).is_some_and(|condition| condition["status"] == "True")
}

/// Strategic merge patch of the status that removes our condition; `None` if there is none.
pub fn forget(node: &Value) -> Option<Value> {
    condition(node)?;
    Some(conditions(json!({"type": GPU_READY, "$patch": "delete"})))
}

/// Keeps pods off a node until its GPUs work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupTaint {
    key: String,
    value: Option<String>,
    effect: String,
}

impl StartupTaint {
    /// Reads the annotation's value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, effect) = text.trim().split_once(':').unwrap_or((text.trim(), "NoSchedule"));
        let (key, value) = name.split_once('=').map_or((name, None), |(key, value)| (key, Some(value)));
        let legal = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
        if key.is_empty() || !legal(key) || !legal(value.unwrap_or_default()) {
            return Err(format!(
                "annotation {STARTUP_TAINT}: {text:?} has no valid key; write key:Effect, such as capstan.dev/gpu-not-ready:NoSchedule"
            ));
        }
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Err(format!(
                "annotation {STARTUP_TAINT}: {effect:?} is no effect of a taint; write NoSchedule, PreferNoSchedule or NoExecute"
            ));
        }
        Ok(Self { key: key.into(), value: value.map(Into::into), effect: effect.into() })
    }

    /// Strategic merge patch that adds the taint to a node whose GPUs have never worked, or lifts it from one that works.
    /// A node whose GPUs fail later keeps its pods: that is for the scheduler and the device plugin to handle.
    pub fn change(&self, node: &Value, ready: bool) -> Option<Value> {
        let there =
            node["spec"]["taints"].as_array().into_iter().flatten().any(|taint| taint["key"] == self.key.as_str());
        match (there, ready) {
            (true, true) => Some(self.lift()),
            (false, false) if !ever_ready(node) && condition(node).is_none() => {
                let taint = Taint {
                    key: self.key.clone(),
                    value: self.value.clone(),
                    effect: self.effect.clone(),
                    ..Taint::default()
                };
                Some(json!({"spec": {"taints": [taint]}}))
            }
            _ => None,
        }
    }

    /// Strategic merge patch that lifts the taint; for uninstalling, too.
    pub fn lift(&self) -> Value {
        json!({"spec": {"taints": [{"$patch": "delete", "key": self.key}]}})
    }
}
