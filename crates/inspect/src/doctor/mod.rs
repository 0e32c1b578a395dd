//! Diagnosis: why something does not work, with evidence and a fix.
//!
//! Rules are pure functions over an indexed snapshot. A folder per product holds one file per class of cause and the
//! product's `RULES`; [`rules`] is all of them. A rule names the rules that its cause explains, so that consequences are
//! not reported as causes.

pub(crate) mod cluster;
mod finding;
pub(crate) mod gpu;
pub(crate) mod index;
pub(crate) mod nemo;
pub(crate) mod network;
pub(crate) mod nim;
mod report;
#[cfg(test)]
mod testing;

use std::sync::LazyLock;
use std::time::Duration;

pub use cluster::crds::reconciled_kinds;
pub use cluster::values;
pub use finding::{Finding, Reach, Severity};
use index::Index;
pub use report::{Cause, Consequence, Report};

use crate::products::PRODUCTS;
use crate::snapshot::Snapshot;

/// A class of cause.
pub struct Rule {
    /// Its name: also that of the fault with which `capstan up` shows it.
    pub name: &'static str,
    /// Rules whose findings follow from this one, at the same place: some lists of them.
    pub(crate) explains: &'static [&'static [&'static str]],
    pub(crate) check: fn(&Index<'_>) -> Vec<Finding>,
}

impl Rule {
    /// Whether a finding of that other rule follows from one of this, at the same place.
    pub fn explains(&self, other: &str) -> bool {
        self.explains.iter().any(|list| list.contains(&other))
    }
}

/// What is not ready because something else is not well.
const NOT_READY: &[&str] = &["not-ready"];
/// What waits where GPUs are not offered.
const WAITS: &[&str] = &["init-barrier", "operand-crashes", "gpus-insufficient", "not-ready"];
/// What offers GPUs.
const PLUGIN: &[&str] = &["plugin-not-running"];
/// What a driver and its users report when the driver does not run.
const DRIVER: &[&str] = &["driver-crashes", "driver-not-loaded", "pod-crashes"];
/// GPUs that a node has and does not offer.
const MISSING: &[&str] = &["gpus-missing"];

/// What cannot work on a node that runs no containers.
const AFTER_RUNTIME: &[&[&str]] = &[WAITS, PLUGIN, MISSING, DRIVER, &["runtime-handler", "gpu-taint"]];
/// What waits for a pod that does not run.
const AFTER_POD: &[&[&str]] = &[WAITS, PLUGIN, DRIVER];

/// The rules of all products. A rule stands before those that it explains.
pub fn rules() -> &'static [&'static Rule] {
    static RULES: LazyLock<Vec<&'static Rule>> =
        LazyLock::new(|| causes_first(PRODUCTS.iter().flat_map(|product| product.rules).collect()));
    &RULES
}

/// Sorts rules so that none comes after one that it explains; otherwise their order stays.
fn causes_first(mut rules: Vec<&'static Rule>) -> Vec<&'static Rule> {
    let mut sorted = Vec::with_capacity(rules.len());
    while !rules.is_empty() {
        let is_explained = |rule: &Rule| rules.iter().any(|other| other.name != rule.name && other.explains(rule.name));
        let next = rules.iter().position(|rule| !is_explained(rule)).unwrap_or(0);
        sorted.push(rules.remove(next));
    }
    sorted
}

/// The rule of that name.
pub fn rule(name: &str) -> Option<&'static Rule> {
    rules().iter().copied().find(|rule| rule.name == name)
}

/// What all rules find in a snapshot, before consequences are told from causes. Waits that are shorter than the grace
/// period are no finding.
pub fn findings(snapshot: &Snapshot, grace_period: Duration) -> Vec<Finding> {
    let index = Index::new(snapshot, grace_period);
    let found = rules()
        .iter()
        .flat_map(|rule| (rule.check)(&index).into_iter().map(|finding| Finding { rule: rule.name, ..finding }));
    found.collect()
}

/// What is wrong with a cluster, besides findings from elsewhere, such as those of [`values::check`].
pub fn diagnose(snapshot: &Snapshot, grace_period: Duration, besides: Vec<Finding>) -> Report {
    let all = besides.into_iter().chain(findings(snapshot, grace_period)).collect();
    let unread = snapshot.unread.iter().map(|(kind, why)| format!("{kind} ({why})")).collect();
    Report::of(all, unread)
}
