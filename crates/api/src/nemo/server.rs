//! The server that every NeMo kind runs: what all five specs have in common, and their status.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{Affinity, EnvVar, PodAffinity, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::expose::NemoExpose;
use crate::common::{Autoscaling, Image, Metrics};

/// The server: image, pods, how many of them, how clients and Prometheus reach them. Part of every NeMo spec.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(has(self.expose.ingress) && has(self.expose.ingress.enabled) && self.expose.ingress.enabled \
            && has(self.expose.router) && has(self.expose.router.ingress))",
        "message": "spec.expose: ingress, which is deprecated, and router.ingress are both in use; remove expose.ingress",
    },
    {
        "rule": "!(has(self.scale) && has(self.scale.enabled) && self.scale.enabled && has(self.replicas))",
        "message": "spec.replicas: the autoscaler sets the number of replicas; remove replicas or set scale.enabled to \
            false",
    },
]))]
pub struct NemoServer {
    /// Image of the server, which most init containers run too.
    pub image: Image,
    /// Replaces the entrypoint of the image.
    pub command: Option<Vec<String>>,
    /// Replaces the arguments of the image.
    pub args: Option<Vec<String>>,
    /// Environment of the server; wins over what Capstan sets under the same name.
    pub env: Option<Vec<EnvVar>>,
    /// Labels of everything that is made for this object; those that Capstan sets win.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of everything that is made for this object; those that Capstan sets win.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels that a node must have to run the pods.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that the pods put up with.
    pub tolerations: Option<Vec<Toleration>>,
    /// Which nodes, and which other pods nearby, the pods want or avoid.
    pub affinity: Option<Affinity>,
    /// Deprecated: use `affinity.podAffinity`.
    pub pod_affinity: Option<PodAffinity>,
    /// Compute resources of the server's container.
    pub resources: Option<ResourceRequirements>,
    /// How clients reach the server.
    pub expose: Option<NemoExpose>,
    /// Automatic scaling; `replicas` must be unset when it is enabled.
    pub scale: Option<Autoscaling>,
    /// Scraping by Prometheus.
    pub metrics: Option<Metrics>,
    /// Number of pods; one when unset.
    #[schemars(range(min = 1))]
    pub replicas: Option<i32>,
    /// User id that the containers run as; 1000 when unset. A NemoDatastore keeps the image's user.
    #[serde(rename = "userID")]
    pub user_id: Option<i64>,
    /// Group id that the containers run as and that owns their volumes; 2000 when unset. A NemoDatastore keeps the
    /// image's group, and its volumes belong to group 1000 when unset.
    #[serde(rename = "groupID")]
    pub group_id: Option<i64>,
    /// RuntimeClass of the pods; the cluster's default runtime when unset.
    pub runtime_class: Option<String>,
}

/// How the server does.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NemoStatus {
    /// `Ready` and `Failed`, with the reason.
    pub conditions: Option<Vec<Condition>>,
    /// Pods that answer.
    pub available_replicas: Option<i32>,
    /// All in one word: `NotReady`, `Ready` or `Failed`.
    pub state: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::nemo::{KINDS, NemoCustomizer, NemoGuardrail};

    fn guardrail(spec: Value) -> Result<NemoGuardrail, serde_json::Error> {
        serde_json::from_value(json!({"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NemoGuardrail", "spec": spec}))
    }

    #[test]
    fn numbers_are_quantities_in_the_server_and_beside_it() {
        let endpoint = json!({"endpoint": "http://a"});
        let image = json!({"repository": "a", "tag": "b"});
        let gpu = json!({"limits": {"nvidia.com/gpu": 2}});
        let credentials = json!({"user": "a", "secretName": "b"});
        let object = json!({"spec": {
            "image": image, "resources": gpu, "replicas": 3,
            "databaseConfig": {"host": "a", "databaseName": "b", "credentials": credentials},
            "datastore": endpoint, "entitystore": endpoint, "mlflow": endpoint,
            "modelConfig": {"name": "a"},
            "modelDownloadJobs": {"image": "a", "ttlSecondsAfterFinished": 60, "pollIntervalSeconds": 15},
            "nemoDatastoreTools": {"image": "a"},
            "trainingConfig": {
                "image": image, "resources": gpu, "modelPVC": {}, "workspacePVC": {}, "sharedMemorySizeLimit": 1,
            },
            "wandb": {"secretName": "a"},
        }});
        let spec = serde_json::from_value::<NemoCustomizer>(object).unwrap().spec;
        assert_eq!(spec.server.replicas, Some(3));
        for resources in [spec.server.resources, spec.training_config.resources] {
            assert_eq!(resources.unwrap().limits.unwrap()["nvidia.com/gpu"].0, "2");
        }
        assert_eq!(spec.training_config.shared_memory_size_limit.unwrap().0, "1");
    }

    #[test]
    fn what_the_user_wrote_survives() {
        let spec = json!({
            "image": {"repository": "a", "tag": "b"},
            "expose": {"router": {"gateway": {"namespace": "a", "name": "b", "httpRoutesEnabled": false}}},
            "otel": {"excludedUrls": []},
            "configStore": {},
            "scale": {"hpa": {"maxReplicas": 0}},
        });
        let read = guardrail(spec.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap()["spec"], spec);
    }

    #[test]
    fn an_error_names_what_is_missing() {
        let error = guardrail(json!({"image": {"repository": "a"}})).unwrap_err().to_string();
        assert!(error.contains("`tag`"), "{error}");
        let error = guardrail(json!({"replicas": 1})).unwrap_err().to_string();
        assert!(error.contains("`image`"), "{error}");
    }

    #[test]
    fn every_kind_has_the_fields_and_rules_of_the_server() {
        for entry in KINDS {
            let schema = entry.described();
            let spec = &schema["properties"]["spec"];
            assert!(spec["properties"]["groupID"].is_object(), "{}", entry.kind);
            assert!(spec["required"].as_array().unwrap().contains(&json!("image")), "{}", entry.kind);
            assert_eq!(spec["x-kubernetes-validations"].as_array().unwrap().len(), 2, "{}", entry.kind);
        }
    }
}
