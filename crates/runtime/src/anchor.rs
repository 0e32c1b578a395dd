//! What goes when the release goes. Objects that only we make are owned by one object of the chart: when that is
//! uninstalled, the cluster's garbage collector takes them along, and nobody has to be alive to clean up.

use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Api;
use kube::{Client, Resource};

use crate::error::Error;

/// The object of the chart: a ClusterRole, since it may own cluster-wide objects and objects of any namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its name.
    pub cluster_role: String,
}

impl Anchor {
    /// The reference to put on what we make; none if the anchor is not there. Asked for each time: to name an owner
    /// that was replaced would have the object collected at once.
    pub async fn reference(&self, client: &Client) -> Result<Option<OwnerReference>, Error> {
        let api: Api<ClusterRole> = Api::all(client.clone());
        let answer = api.get_metadata_opt(&self.cluster_role).await;
        let there =
            answer.map_err(|error| Error::request("get", format!("ClusterRole {}", self.cluster_role), error))?;
        let going = |meta: &kube::core::PartialObjectMeta<ClusterRole>| meta.metadata.deletion_timestamp.is_some();
        Ok(there.filter(|meta| !going(meta)).and_then(|meta| {
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

/// The references for what is made now. Without an answer it is made without an owner: that it is there counts more.
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
