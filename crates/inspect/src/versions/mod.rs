//! Versions: which image of every component is wanted and which runs, which driver each pool of nodes has, and what they
//! run on. Each product may add a [`Table`].

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

/// Kinds that versions are read from, besides those of tables.
const KINDS: &[&str] = &[
    "CustomResourceDefinition.apiextensions.k8s.io",
    "DaemonSet.apps",
    "Deployment.apps",
    "ReplicaSet.apps",
    "StatefulSet.apps",
    "Node",
    "Pod",
];

/// What a product adds to versions.
pub(crate) struct Table {
    /// Kinds that it is read from.
    pub(crate) kinds: &'static [&'static str],
    /// Fills in the fields that belong to the product.
    pub(crate) fill: fn(&Snapshot, &mut Versions),
    /// The table as text.
    pub(crate) draw: fn(&Versions, Paint) -> String,
}

fn tables() -> impl Iterator<Item = &'static Table> {
    PRODUCTS.iter().filter_map(|product| product.versions.as_ref())
}

/// Kinds that versions are read from: the others need not be read for them.
pub fn kinds() -> Vec<&'static str> {
    tables().flat_map(|table| table.kinds).chain(KINDS).copied().collect()
}

/// What runs where, in which version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// This program.
    pub client: String,
    /// The operator in the cluster, as the chart labels it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The API server.
    pub kubernetes: String,
    /// Every container of ours: which image is wanted, and which runs.
    pub components: Vec<Component>,
    /// Drivers, by pool of nodes that are alike.
    pub drivers: Vec<Pool>,
    /// Our CRDs.
    pub crds: Vec<Crd>,
    /// How many nodes have which container runtime.
    pub runtimes: BTreeMap<String, usize>,
    /// How many nodes have which kubelet.
    pub kubelets: BTreeMap<String, usize>,
}

/// A CRD of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crd {
    /// Its name, such as `nimservices.apps.nvidia.com`.
    pub name: String,
    /// Versions that are served.
    pub served: Vec<String>,
    /// How it differs from what this build knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

/// The text of a snapshot's versions, without colours.
pub fn plain(snapshot: &Snapshot) -> String {
    text::draw(&versions(snapshot), Paint::Plain)
}

/// The versions that a snapshot shows.
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
