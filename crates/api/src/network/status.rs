//! Status shared by the network kinds.

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// State of a policy or of one of its components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Not asked for, or an object that the operator does not act on.
    Ignore,
    /// On its way.
    #[default]
    NotReady,
    /// In effect.
    Ready,
    /// Stuck until someone changes something.
    Error,
}

/// State of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NetworkState {
    /// The NetworkAttachmentDefinition does not exist yet.
    #[default]
    NotReady,
    /// Pods can use the network.
    Ready,
    /// Stuck until someone changes something.
    Error,
}

/// State of one component.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedState {
    /// Name of the component, e.g. `state-OFED`.
    pub name: String,
    /// How far it is.
    pub state: State,
    /// Why it is not ready.
    pub message: Option<String>,
}

/// How far the operator is with a policy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicPolicyStatus {
    /// State of the policy as a whole.
    pub state: State,
    /// Why the policy as a whole is ignored or in error.
    pub reason: Option<String>,
    /// State per component.
    pub applied_states: Option<Vec<AppliedState>>,
    /// `Ready` for the policy as a whole, and one condition per component that the policy asks for.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
