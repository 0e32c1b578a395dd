//! `capstan versions`: which image of every component is wanted and which runs, which driver each pool of nodes has, and
//! what they run on.

mod components;
mod drivers;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use capstan_api::skew::skew;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use serde::Serialize;

use crate::show::{self, Format, Paint};
use crate::snapshot::{Snapshot, Source};
use crate::status;
use components::Component;
use drivers::Pool;

const EXAMPLES: &str = "\
Examples:
  capstan versions
  capstan versions -o json | jq '.components[] | select(.differs)'
  capstan versions --snapshot capstan-gather.tar.gz";

/// Kinds that versions are read from.
const KINDS: &[&str] = &[
    "ClusterPolicy.nvidia.com",
    "NVIDIADriver.nvidia.com",
    "CustomResourceDefinition.apiextensions.k8s.io",
    "DaemonSet.apps",
    "Deployment.apps",
    "ReplicaSet.apps",
    "StatefulSet.apps",
    "Node",
    "Pod",
];

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

/// What runs where, in which version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Versions {
    /// This program.
    pub(crate) client: String,
    /// The operator in the cluster, as the chart labels it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator: Option<String>,
    /// The API server.
    pub(crate) kubernetes: String,
    /// Every container of ours: which image is wanted, and which runs.
    pub(crate) components: Vec<Component>,
    /// Drivers, by pool of nodes that are alike.
    pub(crate) drivers: Vec<Pool>,
    /// Our CRDs.
    pub(crate) crds: Vec<Crd>,
    /// How many nodes have which container runtime.
    pub(crate) runtimes: BTreeMap<String, usize>,
    /// How many nodes have which kubelet.
    pub(crate) kubelets: BTreeMap<String, usize>,
}

/// A CRD of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Crd {
    pub(crate) name: String,
    /// Versions that are served.
    pub(crate) served: Vec<String>,
    /// How it differs from what this build knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) differs: Option<String>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let snapshot = args.source.look(KINDS).await?;
    let versions = versions(&snapshot);
    match args.output {
        Format::Text => show::print(&text::draw(&versions, Paint::detect()))?,
        format => show::data(&versions, format)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The text of a snapshot's versions, without colours.
pub(crate) fn plain(snapshot: &Snapshot) -> String {
    text::draw(&versions(snapshot), Paint::none())
}

/// The versions that a snapshot shows.
pub(crate) fn versions(snapshot: &Snapshot) -> Versions {
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
    Versions {
        client: env!("CARGO_PKG_VERSION").into(),
        operator: operator
            .and_then(|one| one["metadata"]["labels"]["app.kubernetes.io/version"].as_str())
            .map(Into::into),
        kubernetes: snapshot.server_version.clone(),
        components: components::of(snapshot),
        drivers: drivers::of(snapshot),
        crds: crds(snapshot),
        runtimes: count("containerRuntimeVersion"),
        kubelets: count("kubeletVersion"),
    }
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
