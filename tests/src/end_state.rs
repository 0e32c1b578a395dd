//! End state of a story, normalized so that two runs can be compared.

use serde_json::Value;

use crate::world::World;

impl World {
    /// The end state: our objects without UIDs and times, and the number of others.
    pub async fn end_state(&self) -> Value {
        let mut state = serde_json::Map::new();
        let ours = [
            ("apps.nvidia.com/v1alpha1", "NIMService"),
            ("apps.nvidia.com/v1alpha1", "NIMCache"),
            ("apps.nvidia.com/v1alpha1", "NIMBuild"),
            ("apps.nvidia.com/v1alpha1", "NIMPipeline"),
            ("apps.nvidia.com/v1alpha1", "NemoCustomizer"),
            ("apps.nvidia.com/v1alpha1", "NemoDatastore"),
            ("apps.nvidia.com/v1alpha1", "NemoEntitystore"),
            ("apps.nvidia.com/v1alpha1", "NemoEvaluator"),
            ("apps.nvidia.com/v1alpha1", "NemoGuardrail"),
            ("nvidia.com/v1", "ClusterPolicy"),
            ("nvidia.com/v1alpha1", "GPUCluster"),
            ("nvidia.com/v1alpha1", "NVIDIADriver"),
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "Deployment"),
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
            ("batch/v1", "Job"),
            ("gateway.networking.k8s.io/v1", "GRPCRoute"),
            ("gateway.networking.k8s.io/v1", "HTTPRoute"),
            ("inference.networking.k8s.io/v1", "InferencePool"),
            ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
            ("monitoring.coreos.com/v1", "ServiceMonitor"),
            ("networking.k8s.io/v1", "Ingress"),
            ("resource.k8s.io/v1", "ResourceClaimTemplate"),
            ("resource.nvidia.com/v1beta1", "ComputeDomain"),
            ("serving.kserve.io/v1beta1", "InferenceService"),
            ("v1", "ConfigMap"),
            ("v1", "Service"),
            ("v1", "ServiceAccount"),
            ("v1", "PersistentVolumeClaim"),
            ("rbac.authorization.k8s.io/v1", "Role"),
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ];
        for (api_version, kind) in ours {
            if self.serves(api_version, kind).await {
                let mut all = self.list(api_version, kind).await;
                // The CA certificate is new in each cluster.
                all.retain(|object| object["metadata"]["name"] != "kube-root-ca.crt");
                all.iter_mut().for_each(forget);
                if kind == "HorizontalPodAutoscaler" {
                    // A real autoscaler syncs every 15 s, independent of the operator.
                    all.iter_mut().for_each(|object| object["status"] = Value::Null);
                }
                state.insert(kind.into(), all.into());
            }
        }
        for (api_version, kind) in [("apps/v1", "ReplicaSet"), ("v1", "Pod")] {
            state.insert(kind.into(), self.list(api_version, kind).await.len().into());
        }
        // Keys are generated for every story.
        let secrets = self.list("v1", "Secret").await;
        state.insert("Secret".into(), secrets.iter().map(|secret| secret["metadata"]["name"].clone()).collect());
        // Only the namespace differs between stories.
        let text = Value::Object(state).to_string().replace(&self.namespace, "story");
        serde_json::from_str(&text).expect("still JSON")
    }
}

/// Drops what differs between two runs of one story.
fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "managedFields",
                "generation",
                "clusterIP",
                "clusterIPs",
                "volumeName",
                "clusterEndpoint",
                "lastTransitionTime",
                "lastUpdateTime",
                "observedGeneration",
                "deployment.kubernetes.io/revision",
                // A hash over the applied object, which is compared, and the owner's UID, which differs.
                "nvidia.com/last-applied-hash",
                "nvidia.com/pvc-uid",
                "batch.kubernetes.io/controller-uid",
                "controller-uid",
                "startTime",
                "completionTime",
                "lastProbeTime",
            ] {
                fields.remove(name);
            }
            // The message names a ReplicaSet by a hash that depends on the namespace.
            if fields.get("reason").is_some_and(|reason| reason == "NewReplicaSetAvailable") {
                fields.remove("message");
            }
            // Claims are named after their pods, which have random names.
            for claim in fields.get_mut("resourceClaimStatuses").and_then(Value::as_array_mut).into_iter().flatten() {
                claim["name"] = Value::Null;
            }
            fields.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}
