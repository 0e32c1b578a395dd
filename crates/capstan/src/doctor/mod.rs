//! `capstan doctor`: why something does not work, with evidence and a fix.
//!
//! Rules are pure functions over one look at the cluster; each class of cause has a file, and [`RULES`] is the list. A
//! rule says what its cause explains, so that consequences are not told as causes.

mod barrier;
mod cache;
mod crash;
mod crds;
mod discovery;
mod driver;
mod fabric;
mod finding;
mod images;
mod look;
mod network;
mod plugin;
mod policy;
mod release;
mod report;
mod runtime;
mod schedule;
#[cfg(test)]
mod testing;
mod values;
mod version;
mod volumes;
mod webhook;
mod xid;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::show::{self, Format, Paint};
use crate::snapshot::{Snapshot, Source};
pub(crate) use crds::steered;
pub(crate) use finding::Finding;
use look::Look;
pub(crate) use report::Report;

/// A class of cause.
pub(crate) struct Rule {
    /// Its name: also that of the fault with which `capstan up` shows it.
    pub(crate) name: &'static str,
    /// Rules whose findings follow from this one, at the same place: some lists of them.
    explains: &'static [&'static [&'static str]],
    check: fn(&Look<'_>) -> Vec<Finding>,
}

impl Rule {
    /// Whether a finding of that other rule follows from one of this, at the same place.
    pub(crate) fn explains(&self, other: &str) -> bool {
        self.explains.iter().any(|list| list.contains(&other))
    }
}

/// What is not ready because something else is not well.
const NOT_READY: &[&str] = &["not-ready"];
/// What waits where GPUs are not offered.
const WAITS: &[&str] = &["init-barrier", "operand-crashes", "gpus-insufficient", "not-ready"];
/// What offers GPUs.
const PLUGIN: &[&str] = &["plugin-not-running"];
/// What a driver and those who use it say that does not run.
const DRIVER: &[&str] = &["driver-crashes", "driver-not-loaded", "pod-crashes"];
const MISSING: &[&str] = &["gpus-missing"];

/// What cannot work where GPUs are not offered.
const AFTER_PLUGIN: &[&[&str]] = &[WAITS];
/// What cannot work where a driver was installed and is not loaded.
const AFTER_LOADING: &[&[&str]] = &[WAITS, PLUGIN, MISSING];
/// What cannot work on a node whose driver does not.
const AFTER_DRIVER: &[&[&str]] = &[WAITS, PLUGIN, MISSING, DRIVER];
/// The same, and the image that nobody compiled.
const AFTER_KERNEL: &[&[&str]] = &[WAITS, PLUGIN, MISSING, DRIVER, &["image-pull"]];
/// What cannot work on a node that runs no containers.
const AFTER_RUNTIME: &[&[&str]] = &[WAITS, PLUGIN, MISSING, DRIVER, &["runtime-handler", "gpu-taint"]];
/// What waits for a pod that does not run.
const AFTER_POD: &[&[&str]] = &[WAITS, PLUGIN, DRIVER];

/// Every class of cause.
pub(crate) const RULES: &[Rule] = &[
    Rule { name: "helm-values", explains: &[], check: release::check },
    Rule { name: "kubernetes-version", explains: &[], check: version::check },
    Rule { name: "crd-outdated", explains: &[NOT_READY], check: crds::check },
    Rule { name: "webhook-unreachable", explains: &[NOT_READY], check: webhook::check },
    Rule { name: "feature-discovery", explains: &[&["gpus-insufficient", "not-ready"]], check: discovery::check },
    Rule { name: "node-not-ready", explains: AFTER_RUNTIME, check: runtime::node_not_ready },
    Rule { name: "runtime-broken", explains: AFTER_RUNTIME, check: runtime::broken },
    Rule { name: "runtime-class", explains: &[NOT_READY], check: runtime::class_missing },
    Rule { name: "runtime-handler", explains: AFTER_POD, check: runtime::handler_missing },
    Rule { name: "driver-headers-missing", explains: AFTER_DRIVER, check: driver::headers },
    Rule { name: "driver-nouveau-loaded", explains: AFTER_DRIVER, check: driver::nouveau },
    Rule { name: "driver-secure-boot", explains: AFTER_DRIVER, check: driver::secure_boot },
    Rule { name: "driver-kernel-unsupported", explains: AFTER_KERNEL, check: driver::kernel_unsupported },
    Rule { name: "driver-in-use", explains: AFTER_DRIVER, check: driver::in_use },
    Rule { name: "driver-crashes", explains: AFTER_DRIVER, check: driver::crashes },
    Rule { name: "driver-upgrade", explains: &[NOT_READY], check: policy::upgrade },
    Rule { name: "driver-not-loaded", explains: AFTER_LOADING, check: plugin::driver_not_loaded },
    Rule { name: "fabric-manager", explains: AFTER_POD, check: fabric::check },
    Rule { name: "plugin-not-running", explains: AFTER_PLUGIN, check: plugin::not_running },
    Rule { name: "gpus-missing", explains: &[&["gpus-insufficient"]], check: plugin::gpus_missing },
    Rule {
        name: "xid",
        explains: &[&["gpus-missing", "gpus-insufficient", "pod-crashes", "not-ready"]],
        check: xid::check,
    },
    Rule { name: "image-pull", explains: AFTER_POD, check: images::pull },
    Rule { name: "registry-secret", explains: AFTER_POD, check: images::secret },
    Rule { name: "volume-pending", explains: &[&["not-ready", "pod-crashes"]], check: volumes::pending },
    Rule { name: "volume-full", explains: &[&["not-ready", "pod-crashes"]], check: volumes::full },
    Rule { name: "cache-profile", explains: &[&["not-ready", "spec-refused", "pod-crashes"]], check: cache::check },
    Rule {
        name: "gpu-taint",
        explains: &[&["gpus-insufficient", "plugin-not-running", "not-ready"]],
        check: schedule::taint,
    },
    Rule { name: "gpu-quota", explains: &[NOT_READY], check: schedule::quota },
    Rule { name: "mig-layout", explains: &[&["gpus-insufficient", "gpus-missing", "not-ready"]], check: schedule::mig },
    Rule { name: "gpus-insufficient", explains: &[NOT_READY], check: schedule::insufficient },
    Rule { name: "rdma-missing", explains: &[NOT_READY], check: network::rdma },
    Rule { name: "vfs-missing", explains: &[&["rdma-missing", "not-ready"]], check: network::vfs },
    Rule {
        name: "spec-refused",
        explains: &[&["not-ready", "init-barrier", "plugin-not-running"]],
        check: policy::refused,
    },
    Rule { name: "init-barrier", explains: &[&["gpus-insufficient", "not-ready"]], check: barrier::check },
    Rule { name: "operand-crashes", explains: AFTER_PLUGIN, check: crash::operands },
    Rule { name: "pod-crashes", explains: &[NOT_READY], check: crash::workloads },
    Rule { name: "not-ready", explains: &[], check: policy::not_ready },
];

/// The rule of that name.
pub(crate) fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Values for the chart, to be checked as well
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,
    /// Waits without any other sign of trouble that are shorter than this many seconds are none
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    patience: u64,
    /// In which form the answer comes
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  capstan doctor                              what is wrong with the current cluster
  capstan doctor --snapshot support.tar.gz    the same for an archive of `capstan gather`, offline
  capstan doctor --values values.yaml         check values for the chart before they are installed
  capstan doctor -o json | jq '.causes[].rule'

Exit status: 0 healthy, 2 something is wrong, 1 the cluster could not be looked at.";

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let values = match &args.values {
        Some(file) => values::check(file)?,
        None => Vec::new(),
    };
    let snapshot = args.source.get().await?;
    let report = diagnose(&snapshot, Duration::from_secs(args.patience), values);
    match args.output {
        Format::Text => show::print(&report.text(Paint::detect()))?,
        format => show::data(&report, format)?,
    }
    Ok(if report.healthy { ExitCode::SUCCESS } else { ExitCode::from(crate::FOUND) })
}

/// What is wrong with a cluster, besides what was found elsewhere.
pub(crate) fn diagnose(snapshot: &Snapshot, patience: Duration, besides: Vec<Finding>) -> Report {
    let look = Look::new(snapshot, patience);
    let mut findings = besides;
    for rule in RULES {
        findings.extend((rule.check)(&look).into_iter().map(|finding| Finding { rule: rule.name, ..finding }));
    }
    let unread = snapshot.unread.iter().map(|(kind, why)| format!("{kind} ({why})")).collect();
    Report::of(findings, unread)
}
