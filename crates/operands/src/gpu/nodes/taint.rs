//! The startup taint: keeps pods off a new node until its GPUs work.
//!
//! Taints are an atomic list for strategic merge patch: a write replaces all of them. So the patch has a
//! resourceVersion precondition, and a concurrent taint makes it conflict instead of being lost. An annotation records
//! our taint, so that it is removed even after the option was removed.

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
    /// Parses the user's option.
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

    /// The toleration that operands need.
    pub fn toleration(&self) -> Toleration {
        Toleration {
            key: Some(self.key.clone()),
            operator: Some("Exists".into()),
            effect: Some(self.effect.clone()),
            ..Toleration::default()
        }
    }

    /// Whether `taint` is this one, by key and effect.
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

/// Stage of a node for the startup taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// New: being labelled for the first time.
    New,
    /// Not ready, or unknown. An existing taint is kept: only a new node gets it.
    Waiting,
    /// Ready: the taint is removed.
    Works,
    /// Not managed by us, or the taint is disabled.
    Free,
}

/// Adds the change of the startup taint to `patch`.
pub(super) fn settle(wanted: Option<&StartupTaint>, node: &Value, stage: Stage, patch: &mut NodePatch) {
    let noted = node["metadata"]["annotations"][keys::STARTUP_TAINT].as_str();
    let ours = noted.and_then(|text| StartupTaint::parse(text).ok());
    let old = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |one: &StartupTaint| old.iter().any(|taint| one.is(taint));
    let mut taints = old.to_vec();
    let stage = if wanted.is_none() { Stage::Free } else { stage };
    // A renamed taint is kept where it was still set.
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
