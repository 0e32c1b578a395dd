//! KServe (serving.kserve.io): InferenceService, which runs a model server and scales it, and the ServingRuntime behind it.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::apps::v1::DeploymentStrategy;
use k8s_openapi::api::core::v1::{Container, LocalObjectReference, PodSpec, Toleration, Volume};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;

use super::Condition;
use crate::resource::{Kind, Namespaced, NoStatus, Resource};
use crate::wire;

/// A model server that KServe runs.
pub type InferenceService = Resource<InferenceServiceSpec>;

/// A model server that KServe runs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceSpec {
    /// The server.
    pub predictor: Option<Predictor>,
}

impl Kind for InferenceServiceSpec {
    type Status = InferenceServiceStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = "serving.kserve.io";
    const VERSION: &'static str = "v1beta1";
    const KIND: &'static str = "InferenceService";
    const PLURAL: &'static str = "inferenceservices";
}

/// A template of model servers, which InferenceServices of a namespace share.
pub type ServingRuntime = Resource<ServingRuntimeSpec>;

/// Which models the runtime takes, and the containers that serve them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServingRuntimeSpec {
    /// Containers of the pod; the one called `kserve-container` serves.
    pub containers: Vec<Container>,
    /// Formats of models that it takes.
    pub supported_model_formats: Option<Vec<ModelFormat>>,
    /// Protocols that it speaks, such as `v2`.
    pub protocol_versions: Option<Vec<String>>,
    /// Whether it is passed over when a runtime is chosen.
    pub disabled: Option<bool>,
    /// Whether one pod serves several models.
    pub multi_model: Option<bool>,
    /// Volumes of the pod.
    pub volumes: Option<Vec<Volume>>,
    /// Labels that a node must have.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that the pod accepts.
    pub tolerations: Option<Vec<Toleration>>,
    /// Secrets to pull the images with.
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
}

impl Kind for ServingRuntimeSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = "serving.kserve.io";
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "ServingRuntime";
    const PLURAL: &'static str = "servingruntimes";
}

/// A format of models.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelFormat {
    /// Name, such as `nvidia-nim-llama3-8b`.
    pub name: String,
    /// Version.
    pub version: Option<String>,
    /// Whether the runtime is chosen for it unasked.
    pub auto_select: Option<bool>,
    /// Which runtime wins among several.
    pub priority: Option<i32>,
}

/// The server: a pod, and how many of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Predictor {
    /// How many, how replaced.
    #[serde(flatten)]
    pub scaling: Scaling,
    /// The pod, whose fields lie beside those of `scaling`.
    #[serde(flatten)]
    pub pod: PodSpec,
}

impl<'de> Deserialize<'de> for Predictor {
    /// Each half ignores the fields of the other. Not derived, because flattening hides numbers from [`wire::lenient`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let scaling = wire::lenient(value.clone()).map_err(serde::de::Error::custom)?;
        let pod = wire::lenient(value).map_err(serde::de::Error::custom)?;
        Ok(Self { scaling, pod })
    }
}

/// How many servers there are and how they are replaced.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scaling {
    /// Labels of the pods.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the pods.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Fewest servers.
    pub min_replicas: Option<i32>,
    /// Most servers.
    pub max_replicas: Option<i32>,
    /// Metric to scale by: `cpu` or `memory`.
    pub scale_metric: Option<String>,
    /// What the target means: `Utilization`, `Value` or `AverageValue`.
    pub scale_metric_type: Option<String>,
    /// Value of the metric to aim at.
    pub scale_target: Option<i32>,
    /// How pods are replaced; not with Knative.
    pub deployment_strategy: Option<DeploymentStrategy>,
}

/// Where the server is and whether it is ready.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceStatus {
    /// Conditions; `PredictorReady` says whether the server is ready.
    pub conditions: Option<Vec<Condition>>,
    /// How KServe runs it: `Standard`, `Knative`, or an older name of these.
    pub deployment_mode: Option<String>,
    /// Address for clients outside the cluster.
    pub url: Option<String>,
    /// Address for clients in the cluster.
    pub address: Option<Address>,
}

/// An address.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// As a URL.
    pub url: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_runtime_survives() {
        let object = json!({
            "apiVersion": "serving.kserve.io/v1alpha1", "kind": "ServingRuntime", "metadata": {"name": "nim"},
            "spec": {
                "containers": [{"name": "kserve-container", "image": "nim:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
                "supportedModelFormats": [{"name": "nim-llama3", "version": "1", "autoSelect": true, "priority": 1}],
                "protocolVersions": ["v2"],
            },
        });
        let read: ServingRuntime = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), object);
    }

    #[test]
    fn survives() {
        let mut service = json!({
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": "llm", "namespace": "nim"},
            "spec": {
                "predictor": {
                    "minReplicas": 1,
                    "maxReplicas": 3,
                    "scaleMetric": "cpu",
                    "scaleMetricType": "Utilization",
                    "scaleTarget": 80,
                    "deploymentStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
                    "labels": {"app": "llm"},
                    "annotations": {"a": "b"},
                    "serviceAccountName": "llm",
                    "containers": [{"name": "llm-ctr", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
                    "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
                },
            },
            "status": {
                "conditions": [{"type": "PredictorReady", "status": "True"}],
                "deploymentMode": "Standard",
                "url": "http://llm.example.com",
                "address": {"url": "http://llm.nim.svc.cluster.local"},
            },
        });
        super::super::tests::assert_survives::<InferenceServiceSpec>(&service);

        let gpus = "/spec/predictor/containers/0/resources/limits/nvidia.com~1gpu";
        *service.pointer_mut(gpus).unwrap() = json!(1);
        let read: InferenceService = serde_json::from_value(service).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap().pointer(gpus), Some(&json!("1")));
    }
}
