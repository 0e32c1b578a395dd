//! Devices by dynamic resource allocation (DRA).

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Devices for the pods of a service: an existing claim, an existing claim template, or a template to create.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.resourceClaimName) ? 1 : 0) + (has(self.resourceClaimTemplateName) ? 1 : 0) + (has(self.claimCreationSpec) ? 1 : 0) == 1",
    "message": "draResources: set exactly one of resourceClaimName, resourceClaimTemplateName and claimCreationSpec",
}]))]
pub struct DraResource {
    /// Existing ResourceClaim, shared by all pods of the service.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
    )]
    pub resource_claim_name: Option<String>,
    /// Existing ResourceClaimTemplate, from which each pod gets a claim of its own.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
    )]
    pub resource_claim_template_name: Option<String>,
    /// ResourceClaimTemplate to create, from which each pod gets a claim of its own.
    pub claim_creation_spec: Option<ClaimCreation>,
    /// Requests of the claim that containers get; all of them when unset.
    #[schemars(inner(length(min = 1)))]
    pub requests: Option<Vec<String>>,
}

/// A ResourceClaimTemplate to create.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimCreation {
    /// Start of the name of the template; `claimtemplate` when unset.
    #[schemars(length(min = 1, max = 16))]
    pub generate_name: Option<String>,
    /// Devices that the claim asks for.
    pub devices: Vec<DeviceRequest>,
}

/// A number of devices that fulfil all selectors.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.celExpressions) && !(has(self.attributeSelectors) || has(self.capacitySelectors))) || !has(self.celExpressions)",
    "message": "devices: celExpressions cannot be combined with attributeSelectors or capacitySelectors; use one way to select",
}]))]
pub struct DeviceRequest {
    /// Name of the request in the claim.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
    )]
    pub name: String,
    /// Number of devices.
    #[schemars(extend("default" = 1))]
    pub count: i32,
    /// DeviceClass of the devices.
    #[schemars(extend("default" = "gpu.nvidia.com"))]
    pub device_class_name: String,
    /// DRA driver of the devices, and domain of selector keys that name none.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
        extend("default" = "gpu.nvidia.com")
    )]
    pub driver_name: Option<String>,
    /// Conditions on attributes, such as the product name. All must hold.
    pub attribute_selectors: Option<Vec<AttributeSelector>>,
    /// Conditions on capacities, such as memory. All must hold.
    pub capacity_selectors: Option<Vec<CapacitySelector>>,
    /// Conditions in CEL, in the form that DRA defines. All must hold.
    pub cel_expressions: Option<Vec<String>>,
}

/// A condition on an attribute of a device.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttributeSelector {
    /// Attribute, as `domain/name`, or `name` in the domain of the driver.
    #[schemars(length(max = 64))]
    pub key: String,
    /// Comparison. Booleans and strings can only be equal or not equal.
    #[schemars(extend("default" = "Equal"))]
    pub op: SelectorOperator,
    /// Value to compare with.
    pub value: Option<AttributeValue>,
}

/// A condition on a capacity of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacitySelector {
    /// Capacity, as `domain/name`, or `name` in the domain of the driver.
    #[schemars(length(max = 64))]
    pub key: String,
    /// Comparison.
    #[schemars(extend("default" = "Equal"))]
    pub op: SelectorOperator,
    /// Quantity to compare with: `40Gi`.
    pub value: Quantity,
}

/// How a device's value is compared with the wanted one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectorOperator {
    /// The same.
    #[default]
    Equal,
    /// Another one.
    NotEqual,
    /// Above.
    GreaterThan,
    /// Above or the same.
    GreaterThanOrEqual,
    /// Below.
    LessThan,
    /// Below or the same.
    LessThanOrEqual,
}

/// Value of an attribute: exactly one field is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttributeValue {
    /// For a boolean attribute.
    pub bool_value: Option<bool>,
    /// For an integer attribute.
    pub int_value: Option<i32>,
    /// For a string attribute.
    #[schemars(length(max = 64))]
    pub string_value: Option<String>,
    /// For a version attribute, as a semantic version 2.0: `550.127.8`.
    #[schemars(length(max = 64))]
    pub version_value: Option<String>,
}
