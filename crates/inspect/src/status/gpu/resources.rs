//! ClusterPolicies, NVIDIADrivers and GPUClusters: their state, operands, and driver upgrades.

use std::collections::BTreeMap;

use capstan_operands::gpu::nodes::{Node, OWNER};
use capstan_operands::gpu::upgrade::{self, State, keys};
use serde::Serialize;
use serde_json::Value;

use crate::snapshot::{Snapshot, named};
use crate::status::tree::{condition, condition_message, conditions, text};

/// A GPU custom resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// `ClusterPolicy`, `GPUCluster` or `NVIDIADriver`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// `ready`, `notReady`, `ignored` or `disabled`; empty before the first reconcile.
    pub state: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Why it is not ready: the message of its condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its operands.
    pub operands: Vec<Operand>,
    /// Its driver upgrade, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// Other conditions: ignored fields, kernels without a driver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// Rollout of an operand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operand {
    /// The type of its condition.
    pub name: String,
    /// Whether it runs on all its nodes.
    pub ready: bool,
    /// Ready and desired nodes; on large clusters in steps of ten per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Share>,
    /// The condition message.
    pub message: String,
}

/// A part of a total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Done.
    pub done: u64,
    /// Total.
    pub all: u64,
}

/// State of a driver upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// `Complete`, `NothingToUpgrade`, `InProgress`, `Canary`, `NodesFailed`, `Halted`, `RolledBack` or `Held`.
    pub state: String,
    /// The condition message.
    pub message: String,
    /// Number of nodes by upgrade state.
    pub nodes: BTreeMap<String, u64>,
    /// `maxParallelUpgrades`; 0 is unlimited.
    pub max_parallel: i64,
    /// `maxUnavailable`.
    pub max_unavailable: String,
}

pub(super) fn of(snapshot: &Snapshot) -> Vec<Resource> {
    ["ClusterPolicy", "GPUCluster", "NVIDIADriver"]
        .into_iter()
        .flat_map(|kind| snapshot.of("nvidia.com", kind).iter().map(move |object| (kind, object)))
        .map(|(kind, object)| resource(snapshot, kind, object))
        .collect()
}

fn resource(snapshot: &Snapshot, kind: &'static str, object: &Value) -> Resource {
    let state = text(&object["status"]["state"]);
    let has_state = !state.is_empty();
    let message = condition_message(object, "Error", "True").or_else(|| condition_message(object, "Ready", "False"));
    let message =
        message.unwrap_or_else(|| if has_state { String::new() } else { "the operator has not looked at it".into() });
    let ready = ["ready", "ignored", "disabled"].contains(&state.as_str());
    let upgrade = upgrade(snapshot, kind, object);
    let remarks = conditions(object).filter(|one| {
        let always = ["Ready", "Error", upgrade::CONDITION];
        one["status"] == "True" && one["type"] == one["reason"] && !always.iter().any(|type_| one["type"] == *type_)
    });
    let remarks = remarks.map(|one| format!("{}: {}", text(&one["type"]), text(&one["message"]))).collect();
    let operands = conditions(object).filter_map(operand).collect();
    Resource { kind, name: named(object).1.into(), state, ready, message, operands, upgrade, remarks }
}

/// Operand conditions have the reason Ready, NotReady or Failed.
fn operand(condition: &Value) -> Option<Operand> {
    let (name, reason) = (text(&condition["type"]), text(&condition["reason"]));
    let about_all = ["Ready", "Error", upgrade::CONDITION].contains(&name.as_str());
    if about_all || !["Ready", "NotReady", "Failed"].contains(&reason.as_str()) {
        return None;
    }
    let message = text(&condition["message"]);
    Some(Operand { name, ready: condition["status"] == "True", nodes: share(&message), message })
}

/// Parses `3 of 5 nodes` or `40 % of 200 nodes`.
fn share(message: &str) -> Option<Share> {
    let (first, rest) = message.split_once(" of ")?;
    let all = rest.split_once(" nodes")?.0.parse().ok()?;
    let done = match first.strip_suffix(" %") {
        Some(percent) => percent.parse::<u64>().ok()? * all / 100,
        None => first.parse().ok()?,
    };
    Some(Share { done, all })
}

fn upgrade(snapshot: &Snapshot, kind: &str, object: &Value) -> Option<Upgrade> {
    let has_state = condition(object, upgrade::CONDITION)?;
    let (policy, name) = match kind {
        "NVIDIADriver" => (&object["spec"]["upgradePolicy"], Some(named(object).1)),
        _ => (&object["spec"]["driver"]["upgradePolicy"], None),
    };
    let mut nodes = BTreeMap::new();
    for node in snapshot.of("", "Node") {
        let node = Node::of(node);
        let here = name.is_none_or(|name| node.labels.is(OWNER, name));
        if here && !matches!(State::of(node.labels), State::Unset) {
            *nodes.entry(node.labels.get(keys::STATE).unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    let most = &policy["maxUnavailable"];
    let most = most.as_str().map(str::to_owned).or_else(|| most.as_i64().map(|count| count.to_string()));
    Some(Upgrade {
        state: text(&has_state["reason"]),
        message: text(&has_state["message"]),
        nodes,
        max_parallel: policy["maxParallelUpgrades"].as_i64().unwrap_or(1),
        max_unavailable: most.unwrap_or_else(|| "25%".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_conditions_say() {
        assert_eq!(share("3 of 5 nodes"), Some(Share { done: 3, all: 5 }));
        assert_eq!(share("40 % of 200 nodes"), Some(Share { done: 80, all: 200 }));
        assert_eq!(
            share("1 of 3 nodes; 2 of the nodes that should have it cannot run it"),
            Some(Share { done: 1, all: 3 })
        );
        assert_eq!(share("DaemonSet x is being written"), None);
        assert_eq!(share(""), None);
    }
}
