//! Versions: desired and running images of every component, drivers by node pool, and what they run on. Each product
//! may add a [`Table`].

mod components;
pub(crate) mod gpu;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use capstan_api::skew::skew;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use serde::Serialize;

pub use components::{Component, Image, Running};
pub use gpu::Pool;
pub use text::draw;

use crate::paint::Paint;
use crate::products::PRODUCTS;
use crate::snapshot::Snapshot;
use crate::status;

/// Kinds that versions need, besides those of tables.
const KINDS: &[&str] = &[
    "CustomResourceDefinition.apiextensions.k8s.io",
    "DaemonSet.apps",
    "Deployment.apps",
    "ReplicaSet.apps",
    "StatefulSet.apps",
    "Node",
    "Pod",
];

/// Version table of a product.
pub(crate) struct Table {
    /// Kinds that it needs.
    pub(crate) kinds: &'static [&'static str],
    /// Fills in the product's fields.
    pub(crate) fill: fn(&Snapshot, &mut Versions),
    /// The table as text.
    pub(crate) draw: fn(&Versions, Paint) -> String,
}

fn tables() -> impl Iterator<Item = &'static Table> {
    PRODUCTS.iter().filter_map(|product| product.versions.as_ref())
}

/// Kinds that versions need.
pub fn kinds() -> Vec<&'static str> {
    tables().flat_map(|table| table.kinds).chain(KINDS).copied().collect()
}

/// Versions in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// This program.
    pub client: String,
    /// The operator in the cluster, by the chart's label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The API server.
    pub kubernetes: String,
    /// Desired and running image of every container of ours.
    pub components: Vec<Component>,
    /// Drivers by node pool.
    pub drivers: Vec<Pool>,
    /// Our CRDs.
    pub crds: Vec<Crd>,
    /// Number of nodes by container runtime.
    pub runtimes: BTreeMap<String, usize>,
    /// Number of nodes by kubelet version.
    pub kubelets: BTreeMap<String, usize>,
}

/// A CRD of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crd {
    /// Its name, such as `nimservices.apps.nvidia.com`.
    pub name: String,
    /// Served versions.
    pub served: Vec<String>,
    /// Difference from the CRD of this build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

/// The versions of a snapshot as text, without colours.
pub fn plain(snapshot: &Snapshot) -> String {
    text::draw(&versions(snapshot), Paint::Plain)
}

/// Computes the versions of a snapshot.
pub fn versions(snapshot: &Snapshot) -> Versions {
    let nodes = snapshot.of("", "Node");
    let count = |field: &str| {
        let mut counts = BTreeMap::new();
        for node in nodes {
            let version = node["status"]["nodeInfo"][field].as_str().filter(|version| !version.is_empty());
            *counts.entry(version.unwrap_or("unknown").to_owned()).or_default() += 1;
        }
        counts
    };
    let operator = status::operator::deployment(snapshot);
    let mut versions = Versions {
        client: env!("CARGO_PKG_VERSION").into(),
        operator: operator
            .and_then(|one| one["metadata"]["labels"]["app.kubernetes.io/version"].as_str())
            .map(Into::into),
        kubernetes: snapshot.server_version.clone(),
        components: components::of(snapshot),
        drivers: Vec::new(),
        crds: crds(snapshot),
        runtimes: count("containerRuntimeVersion"),
        kubelets: count("kubeletVersion"),
    };
    for table in tables() {
        (table.fill)(snapshot, &mut versions);
    }
    versions
}

fn crds(snapshot: &Snapshot) -> Vec<Crd> {
    let live: Vec<CustomResourceDefinition> = snapshot.typed();
    let ours = capstan_api::kinds().filter_map(|kind| {
        let live = live.iter().find(|crd| crd.name_any() == kind.crd_name())?;
        let served = live.spec.versions.iter().filter(|version| version.served).map(|version| version.name.clone());
        let differs = skew(&kind.definition(), live).message(&kind.crd_name());
        Some(Crd { name: kind.crd_name(), served: served.collect(), differs })
    });
    ours.collect()
}
