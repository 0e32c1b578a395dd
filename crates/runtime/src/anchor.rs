//! Garbage collection with the release: objects that only we create are owned by one object of the Helm chart. When the
//! chart is uninstalled, the cluster's garbage collector deletes them; no running operator is needed.

use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Api;
use kube::{Client, Resource};

use crate::error::Error;

/// The owner from the chart: a ClusterRole, because it can own cluster-scoped objects and objects of any namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Name of the ClusterRole.
    pub cluster_role: String,
}

impl Anchor {
    /// The owner reference for created objects; `None` if the ClusterRole is absent or being deleted. Read each time: a
    /// reference to a replaced owner would have the object garbage-collected at once.
    pub async fn reference(&self, client: &Client) -> Result<Option<OwnerReference>, Error> {
        let api: Api<ClusterRole> = Api::all(client.clone());
        let response = api.get_metadata_opt(&self.cluster_role).await;
        let owner =
            response.map_err(|error| Error::request("get", format!("ClusterRole {}", self.cluster_role), error))?;
        let terminating =
            |meta: &kube::core::PartialObjectMeta<ClusterRole>| meta.metadata.deletion_timestamp.is_some();
        Ok(owner.filter(|meta| !terminating(meta)).and_then(|meta| {
            Some(OwnerReference {
                api_version: ClusterRole::api_version(&()).into_owned(),
                kind: ClusterRole::kind(&()).into_owned(),
                name: meta.metadata.name?,
                uid: meta.metadata.uid?,
                ..OwnerReference::default()
            })
        }))
    }
}

/// Owner references for an object that is being created. If the ClusterRole cannot be read, the object is created
/// without an owner.
pub(crate) async fn owners(anchor: Option<&Anchor>, client: &Client) -> Option<Vec<OwnerReference>> {
    let reference = match anchor?.reference(client).await {
        Ok(reference) => reference,
        Err(error) => {
            tracing::warn!(error = error.chain(), "owner reference to the release not set; created objects outlive it");
            None
        }
    };
    reference.map(|reference| vec![reference])
}
