//! Our CRDs in the cluster: installed at the start, and never downgraded to an older schema.

use std::time::Duration;

use capstan_api::crd::Entry;
use capstan_api::skew::{Skew, skew};
use k8s_openapi::Resource;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};

/// Why a CRD could not be installed. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// 401.
    #[error("the cluster does not know who you are ({0}): log in again or check KUBECONFIG")]
    Unauthenticated(String),
    /// 403.
    #[error(
        "no permission to install {crd}: {message}; ask for the verbs get, list, watch and patch on \
         customresourcedefinitions.apiextensions.k8s.io"
    )]
    Forbidden {
        /// The CRD.
        crd: String,
        /// The server's message.
        message: String,
    },
    /// Any other refusal.
    #[error("the API server refused {crd}: {message}")]
    Refused {
        /// Which.
        crd: String,
        /// What the server says.
        message: String,
    },
    /// No answer.
    #[error("cannot reach the API server to install {crd}: {cause}; check KUBECONFIG")]
    Unreachable {
        /// Which.
        crd: String,
        /// Why.
        cause: String,
    },
    /// Applied, but not served.
    #[error(
        "{crd} was applied but is not served after {seconds} s: see its conditions with `kubectl describe crd {crd}`"
    )]
    NotServed {
        /// Which.
        crd: String,
        /// How long we waited.
        seconds: u64,
    },
}

/// The installed CRD of a kind, compared with ours.
pub(crate) struct Found {
    /// The schema skew.
    pub(crate) skew: Skew,
    /// Owner references to ClusterRoles.
    pub(crate) anchors: Vec<OwnerReference>,
}

/// The installed CRD of `kind`, if there is one.
pub(crate) async fn find(client: &Client, kind: &Entry) -> Result<Option<Found>, Error> {
    let ours = kind.definition();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let live = api.get_opt(&ours.name_any()).await.map_err(|error| explain(error, &ours.name_any()))?;
    Ok(live.map(|live| {
        let owners = live.metadata.owner_references.clone().unwrap_or_default();
        let anchors = owners.into_iter().filter(|owner| owner.kind == ClusterRole::KIND).collect();
        Found { skew: skew(&ours, &live), anchors }
    }))
}

/// Installs or upgrades the CRD of `kind` and waits until it is served.
pub async fn apply(client: &Client, kind: &Entry, timeout: Duration) -> Result<(), Error> {
    send(client, kind, None).await?;
    served(client, kind, timeout).await
}

/// Installs or upgrades the CRD of `kind`, with an owner reference for garbage collection.
///
/// Forced, because the chart of another operator may manage the same fields.
pub(crate) async fn send(client: &Client, kind: &Entry, owner: Option<&OwnerReference>) -> Result<(), Error> {
    let mut crd = kind.definition();
    crd.metadata.owner_references = owner.map(|owner| vec![owner.clone()]);
    let name = crd.name_any();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(capstan_runtime::writer::FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&crd)).await.map_err(|error| explain(error, &name))?;
    Ok(())
}

/// Waits until the CRD of `kind` is served.
pub(crate) async fn served(client: &Client, kind: &Entry, timeout: Duration) -> Result<(), Error> {
    let crd = kind.crd_name();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let served = await_condition(api, &crd, conditions::is_crd_established());
    match tokio::time::timeout(timeout, served).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::Unreachable { crd, cause: root_cause(&error) }),
        Err(_) => Err(Error::NotServed { crd, seconds: timeout.as_secs() }),
    }
}

fn explain(error: kube::Error, crd: &str) -> Error {
    let crd = crd.to_owned();
    match error {
        kube::Error::Api(status) if status.code == 401 => Error::Unauthenticated(status.message.clone()),
        kube::Error::Api(status) if status.code == 403 => Error::Forbidden { crd, message: status.message.clone() },
        kube::Error::Api(status) => Error::Refused { crd, message: status.message.clone() },
        other => Error::Unreachable { crd, cause: root_cause(&other) },
    }
}

/// The root cause of an error: the part that a user can act on.
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
