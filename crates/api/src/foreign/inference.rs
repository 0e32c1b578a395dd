//! Gateway API inference extension (inference.networking.k8s.io/v1): InferencePool, model servers behind one picker.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::{Kind, Namespaced, NoStatus, Resource};

/// Model servers, of which an endpoint picker chooses one per request.
pub type InferencePool = Resource<InferencePoolSpec>;

/// Model servers, of which an endpoint picker chooses one per request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferencePoolSpec {
    /// Which pods.
    pub selector: Option<PoolSelector>,
    /// Ports that they serve on.
    pub target_ports: Option<Vec<PoolPort>>,
    /// Who chooses.
    pub endpoint_picker_ref: Option<EndpointPickerRef>,
}

impl Kind for InferencePoolSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = "inference.networking.k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "InferencePool";
    const PLURAL: &'static str = "inferencepools";
}

/// Which pods; a pool knows no expressions.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSelector {
    /// Labels of the pods.
    pub match_labels: Option<BTreeMap<String, String>>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolPort {
    /// Its number.
    pub number: i32,
}

/// Service of the endpoint picker.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPickerRef {
    /// Name of the Service.
    pub name: String,
    /// Port of the Service.
    pub port: Option<PoolPort>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn survives() {
        super::super::tests::assert_survives::<InferencePoolSpec>(&json!({
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": {"name": "llm", "namespace": "nim"},
            "spec": {
                "selector": {"matchLabels": {"app": "llm"}},
                "targetPorts": [{"number": 8000}],
                "endpointPickerRef": {"name": "llm-epp", "port": {"number": 9002}},
            },
        }));
    }
}
