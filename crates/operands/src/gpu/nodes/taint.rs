//! The startup taint: keeps pods off a new node until its GPUs work.
//!
//! Taints are one list without keys for the API server: whoever writes it writes all of it. So a change names the version
//! of the node that it was decided on, and another's taint that appears in between makes it fail instead of vanish. An
//! annotation says which taint is ours, so that it goes even when nobody remembers the option that asked for it.

use std::fmt;

use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Value, json};

use super::keys;
use super::patch::NodePatch;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A taint: `key`, `key:Effect` or `key=value:Effect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupTaint {
    key: String,
    value: Option<String>,
    effect: String,
}

impl StartupTaint {
    /// Reads what a user wrote.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, effect) = text.trim().split_once(':').unwrap_or((text.trim(), EFFECTS[0]));
        let (key, value) = name.split_once('=').map_or((name, None), |(key, value)| (key, Some(value)));
        let legal = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
        if key.is_empty() || !legal(key) || !legal(value.unwrap_or_default()) {
            return Err(format!(
                "{text:?} has no valid key; write key:Effect, such as capstan.dev/gpu-not-ready:NoSchedule"
            ));
        }
        if !EFFECTS.contains(&effect) {
            return Err(format!("{effect:?} is no effect of a taint; write NoSchedule, PreferNoSchedule or NoExecute"));
        }
        Ok(Self { key: key.into(), value: value.map(Into::into), effect: effect.into() })
    }

    /// What operands need to run on a node that has it.
    pub fn toleration(&self) -> Toleration {
        Toleration {
            key: Some(self.key.clone()),
            operator: Some("Exists".into()),
            effect: Some(self.effect.clone()),
            ..Toleration::default()
        }
    }

    /// Whether this is it; a taint is known by key and effect.
    fn is(&self, taint: &Value) -> bool {
        taint["key"] == *self.key && taint["effect"] == *self.effect
    }

    fn to_json(&self) -> Value {
        let mut taint = json!({"key": self.key, "effect": self.effect});
        if let Some(value) = &self.value {
            taint["value"] = value.as_str().into();
        }
        taint
    }
}

impl fmt::Display for StartupTaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
        write!(f, "{}{value}:{}", self.key, self.effect)
    }
}

/// What a node is about to be, as far as the taint is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is labelled just now: its GPUs were never used with us.
    New,
    /// Its GPUs do not work yet, or no longer, or that is not known. It keeps what it has: only a new node gets the taint.
    Waiting,
    /// Its GPUs work.
    Works,
    /// It is none of ours, or nobody wants a taint.
    Free,
}

/// Adds to `patch` what makes the taint of a node what it should be.
pub(super) fn settle(wanted: Option<&StartupTaint>, node: &Value, stage: Stage, patch: &mut NodePatch) {
    let noted = node["metadata"]["annotations"][keys::STARTUP_TAINT].as_str();
    let ours = noted.and_then(|text| StartupTaint::parse(text).ok());
    let old = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |one: &StartupTaint| old.iter().any(|taint| one.is(taint));
    let mut taints = old.to_vec();
    let stage = if wanted.is_none() { Stage::Free } else { stage };
    // Under another name it goes on where it still had to be.
    let moved = ours.as_ref().filter(|ours| Some(*ours) != wanted && has(ours));
    let keep = wanted.filter(|wanted| match stage {
        Stage::New => true,
        Stage::Waiting => has(wanted) || moved.is_some(),
        Stage::Works | Stage::Free => false,
    });
    let lifted = wanted.filter(|_| stage == Stage::Works).into_iter().chain(ours.as_ref());
    for one in lifted.filter(|one| Some(*one) != keep) {
        taints.retain(|taint| !one.is(taint));
    }
    if let Some(keep) = keep.filter(|keep| !has(keep)) {
        taints.push(keep.to_json());
    }
    if taints != old {
        patch.taints = Some(taints);
    }
    let note = keep.map(StartupTaint::to_string);
    match note {
        Some(note) if noted != Some(&note) => patch.annotate(keys::STARTUP_TAINT, &note),
        None if noted.is_some() => patch.strip(keys::STARTUP_TAINT),
        _ => {}
    }
}
