//! Kinds that we use but do not own: their CRDs come from elsewhere and may be absent.
//!
//! Each struct has only the fields that we write or read. That is safe for two uses, and for no other: to build an
//! object for server-side apply, which leaves alone what we do not set, and to read a live object, where fields that we
//! do not know are skipped and stay as they are in the cluster. NEVER send such an object as a full update (PUT): it
//! would delete every field that is missing here. To change a live object of somebody else, patch it.
//!
//! Nearly everything is optional, so that what a newer or older controller wrote still decodes.

pub mod cert_manager;
pub mod cni;
pub mod gateway;
pub mod grafana;
pub mod inference;
pub mod kmm;
pub mod kserve;
pub mod leader_worker_set;
pub mod machine_config;
pub mod maintenance;
pub mod monitoring;
pub mod openshift;
pub mod topology;
pub mod volcano;

pub use cert_manager::{Certificate, Issuer};
pub use cni::NetworkAttachmentDefinition;
pub use gateway::{GrpcRoute, HttpRoute};
pub use grafana::GrafanaDashboard;
pub use inference::InferencePool;
pub use kmm::{Module, NodeModulesConfig};
pub use kserve::{InferenceService, ServingRuntime};
pub use leader_worker_set::LeaderWorkerSet;
pub use machine_config::{MachineConfig, MachineConfigPool};
pub use maintenance::NodeMaintenance;
pub use monitoring::{PrometheusRule, ServiceMonitor};
pub use openshift::{ApiServer, ClusterVersion, ImageStream, Infrastructure, Proxy, SecurityContextConstraints};
pub use topology::NodeResourceTopology;
pub use volcano::{PodGroup, Queue};

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A condition as any controller writes it; Knative's lack fields that Kubernetes requires.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: Option<String>,
    /// Why, in a sentence.
    pub message: Option<String>,
}

/// Name of an object in the same namespace, or of one without namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameRef {
    /// Its name.
    pub name: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::resource::{Kind, Layout, Resource};

    /// What we know of `object` survives decoding; what we do not know is ignored.
    pub(super) fn assert_survives<K: Kind>(object: &Value) {
        let read: Resource<K> = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), *object);

        let mut newer = object.clone();
        let places = if K::LAYOUT == Layout::Flat { [""].as_slice() } else { &["/spec", "/status"] };
        for fields in places {
            if let Some(Value::Object(fields)) = newer.pointer_mut(fields) {
                fields.insert("unheardOf".into(), json!({"of": [1, null]}));
            }
        }
        assert_eq!(serde_json::from_value::<Resource<K>>(newer).unwrap(), read);
    }
}
