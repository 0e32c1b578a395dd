//! ComputeDomain: a workload's request for GPUs of several nodes that share memory.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Readiness;
use crate::resource::{Handling, Kind, Namespaced, Resource};

/// GPUs of several nodes that share memory.
pub type ComputeDomain = Resource<ComputeDomainSpec>;

/// Lets the pods of one workload share GPU memory across nodes over NVLink; forms around them and ends with them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "spec of a ComputeDomain cannot be changed; create another ComputeDomain instead",
}]))]
pub struct ComputeDomainSpec {
    /// Deprecated: nodes that must have joined before any pod starts; 0 starts each pod as soon as its own node joined.
    #[schemars(range(min = 0), extend("default" = 0))]
    pub num_nodes: Option<i64>,
    /// The channel through which the pods reach each other's memory.
    pub channel: Channel,
}

impl Kind for ComputeDomainSpec {
    type Status = ComputeDomainStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = "v1beta1";
    const KIND: &'static str = "ComputeDomain";
    const PLURAL: &'static str = "computedomains";
    const HANDLING: Handling = Handling::Made;
}

/// How pods get at the channel.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Channel {
    /// ResourceClaimTemplate that is created for the pods to refer to.
    pub resource_claim_template: ClaimTemplate,
    /// How many channels a claim gets.
    #[schemars(extend("default" = "Single"))]
    pub allocation_mode: Option<AllocationMode>,
}

/// ResourceClaimTemplate of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplate {
    /// Its name, in the namespace of the domain.
    pub name: String,
}

/// How many channels a claim gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllocationMode {
    /// All channels of the node.
    All,
    /// One channel, which is enough for one process per node.
    #[default]
    Single,
}

/// Who takes part in the domain.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainStatus {
    /// Whether the domain is usable.
    #[schemars(extend("default" = "NotReady"))]
    pub status: Readiness,
    /// Nodes of the domain, by name.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub nodes: Option<Vec<DomainNode>>,
}

/// A node of a domain.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainNode {
    /// Name of the node.
    pub name: String,
    /// Address of its daemon.
    pub ip_address: String,
    /// NVLink partition that the node is in.
    #[serde(rename = "cliqueID")]
    pub clique_id: String,
    /// Its place among the nodes of the partition, which gives its daemon a stable DNS name.
    pub index: Option<i64>,
    /// Whether its daemon takes part.
    #[schemars(extend("default" = "NotReady"))]
    pub status: Option<Readiness>,
}
