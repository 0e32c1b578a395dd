//! Status of a NIMService.

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// State of the service and of what it depends on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimServiceStatus {
    /// `Ready`, `NotReady`, `Failed`, or `PVC-Created` for a moment.
    pub state: Option<String>,
    /// Details behind the state; of types `Ready` and `Failed`.
    pub conditions: Option<Vec<Condition>>,
    /// Replicas that serve.
    pub available_replicas: Option<i32>,
    /// What is served, and where.
    pub model: Option<ServedModel>,
    /// State of the claims, by the name that they have in the pods.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub dra_resource_statuses: Option<Vec<DraResourceStatus>>,
    /// State of the ComputeDomain of a multi-node service.
    pub compute_domain_status: Option<ComputeDomainState>,
}

/// A served model and its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServedModel {
    /// Name of the model, as requests must give it.
    pub name: String,
    /// Address and port inside the cluster; empty while there is none.
    pub cluster_endpoint: String,
    /// Address from outside; empty when there is none.
    pub external_endpoint: String,
}

/// State of one entry of `draResources`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.resourceClaimStatus) != has(self.resourceClaimTemplateStatus)",
    "message": "draResourceStatuses: set exactly one of resourceClaimStatus and resourceClaimTemplateStatus",
}]))]
pub struct DraResourceStatus {
    /// Name of the claim in the pods.
    pub name: String,
    /// State of the claim, where the entry names one.
    pub resource_claim_status: Option<ResourceClaimState>,
    /// State of the claims made from the template, where the entry names or creates one.
    pub resource_claim_template_status: Option<ResourceClaimTemplateState>,
}

/// State of a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimState {
    /// Name of the claim.
    pub name: String,
    /// Which of `pending`, `deleted`, `allocated` and `reserved` hold, separated by commas.
    pub state: String,
}

/// State of the claims made from a ResourceClaimTemplate.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimTemplateState {
    /// Name of the template.
    pub name: String,
    /// Its claims, oldest first.
    pub resource_claim_statuses: Option<Vec<ResourceClaimState>>,
}

/// State of a ComputeDomain.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainState {
    /// Name of the ComputeDomain.
    pub name: String,
    /// Its own status: `Ready` or `NotReady`.
    pub status: Option<String>,
    /// Its nodes.
    pub nodes: Option<Vec<ComputeDomainNode>>,
}

/// State of a node in a ComputeDomain.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainNode {
    /// Name of the node.
    pub name: String,
    /// NVLink clique of the node; empty where it has none.
    #[serde(rename = "cliqueID")]
    pub clique_id: String,
    /// Whether the node is up in the domain.
    #[schemars(extend("default" = "NotReady"))]
    pub status: Option<ComputeDomainNodeState>,
}

/// Whether a node is up in its ComputeDomain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ComputeDomainNodeState {
    /// It is.
    Ready,
    /// It is not.
    #[default]
    NotReady,
}
