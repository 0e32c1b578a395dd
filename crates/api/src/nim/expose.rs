//! Service, ingress and routes of a NIMService.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::networking::v1::IngressSpec;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::{Router, ServiceExposure};

/// Service, and optionally ingress or gateway routes, in front of the pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// The Service; type `ClusterIP`, port 8000 when unset.
    pub service: Option<ServiceExposure>,
    /// Deprecated, use `router.ingress`: an Ingress written out in full.
    pub ingress: Option<RawIngress>,
    /// Ingress or gateway routes made for the service.
    pub router: Option<Router>,
}

/// Ingress whose spec the user writes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RawIngress {
    /// Creates the Ingress; off when unset. Then `router.ingress` must not be set.
    pub enabled: Option<bool>,
    /// Annotations of the Ingress.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Spec of the Ingress, used as it is.
    pub spec: Option<IngressSpec>,
}
