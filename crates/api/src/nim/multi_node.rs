//! One replica of a service spread over several nodes.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Spreads each replica over several nodes. Needs LeaderWorkerSet in the cluster; excludes autoscaling.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.mpi) && has(self.ray))",
    "message": "multiNode: mpi and ray are both set; keep one of them",
}]))]
pub struct MultiNode {
    /// What runs the group of pods.
    #[schemars(extend("default" = "lws"))]
    pub backend_type: Option<MultiNodeBackend>,
    /// How the model is split.
    pub parallelism: Parallelism,
    /// Starts the group with MPI, which is also what happens when neither `mpi` nor `ray` is set.
    pub mpi: Option<Mpi>,
    /// Starts the group with Ray.
    pub ray: Option<Ray>,
    /// Gives the group a ComputeDomain, and so memory shared over multi-node NVLink.
    pub compute_domain: Option<ComputeDomainRef>,
}

/// What runs the group of pods of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MultiNodeBackend {
    /// LeaderWorkerSet.
    #[default]
    #[serde(rename = "lws")]
    Lws,
}

/// How a model is split over nodes and GPUs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parallelism {
    /// Nodes of each replica. With 1, or unset, the service runs as a plain Deployment.
    #[schemars(range(min = 1))]
    pub pipeline: Option<i32>,
    /// GPUs on each node.
    #[schemars(range(min = 1))]
    pub tensor: Option<i32>,
}

/// Start by MPI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mpi {
    /// Seconds within which all nodes of the group must be up.
    #[schemars(extend("default" = 300))]
    pub mpi_start_timeout: i64,
}

/// Start by Ray.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ray {
    /// Port on which the leader's Ray head listens.
    #[schemars(range(min = 1, max = 65535), extend("default" = 6379))]
    pub ray_port: i32,
}

/// A ComputeDomain to create, or an existing one to use.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.create) && self.create) ? !has(self.name) : (has(self.name) && size(self.name) > 0)",
    "message": "computeDomain: with create: true remove name, otherwise set name to an existing ComputeDomain",
}]))]
pub struct ComputeDomainRef {
    /// Creates a ComputeDomain named after the service, with as many nodes as `parallelism.pipeline`.
    pub create: Option<bool>,
    /// Existing ComputeDomain in the same namespace; must be unset with `create`.
    pub name: Option<String>,
}
