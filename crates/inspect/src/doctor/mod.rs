//! Diagnosis: root causes with evidence and a fix.
//!
//! Rules are pure functions over an indexed snapshot. A folder per product holds one file per class of causes and the
//! product's `RULES`; [`rules`] is all of them. A rule lists the rules that it explains, so that consequences are not
//! reported as causes.

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
pub use finding::{Finding, Scope, Severity};
use index::Index;
pub use report::{Cause, Consequence, Report};

use crate::products::PRODUCTS;
use crate::snapshot::Snapshot;

/// A class of causes.
pub struct Rule {
    /// Its name, also that of the fault that `capstan up` can inject.
    pub name: &'static str,
    /// Rules whose findings follow from this one at the same place.
    pub(crate) explains: &'static [&'static [&'static str]],
    pub(crate) check: fn(&Index<'_>) -> Vec<Finding>,
}

impl Rule {
    /// Whether a finding of the other rule follows from one of this rule, at the same place.
    pub fn explains(&self, other: &str) -> bool {
        self.explains.iter().any(|list| list.contains(&other))
    }
}

/// Resources that are not ready as a consequence.
const NOT_READY: &[&str] = &["not-ready"];
/// Pods that wait where GPUs are not offered.
const WAITING: &[&str] = &["init-barrier", "operand-crashes", "gpus-insufficient", "not-ready"];
/// The device plugin.
const PLUGIN: &[&str] = &["plugin-not-running"];
/// Findings about a driver and its clients when the driver does not run.
const DRIVER: &[&str] = &["driver-crashes", "driver-not-loaded", "pod-crashes"];
/// GPUs that a node has but does not offer.
const MISSING: &[&str] = &["gpus-missing"];

/// Consequences of a node that runs no containers.
const AFTER_RUNTIME: &[&[&str]] = &[WAITING, PLUGIN, MISSING, DRIVER, &["runtime-handler", "gpu-taint"]];
/// Consequences of a pod that does not run.
const AFTER_POD: &[&[&str]] = &[WAITING, PLUGIN, DRIVER];

/// The rules of all products. A rule precedes those that it explains.
pub fn rules() -> &'static [&'static Rule] {
    static RULES: LazyLock<Vec<&'static Rule>> =
        LazyLock::new(|| causes_first(PRODUCTS.iter().flat_map(|product| product.rules).collect()));
    &RULES
}

/// Sorts rules so that none follows one that it explains; otherwise stable.
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

/// The findings of all rules, before consequences are separated from causes. Waits shorter than the grace period are
/// not reported.
pub fn findings(snapshot: &Snapshot, grace_period: Duration) -> Vec<Finding> {
    let index = Index::new(snapshot, grace_period);
    let found = rules()
        .iter()
        .flat_map(|rule| (rule.check)(&index).into_iter().map(|finding| Finding { rule: rule.name, ..finding }));
    found.collect()
}

/// Diagnoses a cluster, with findings from elsewhere added, such as those of [`values::check`].
pub fn diagnose(snapshot: &Snapshot, grace_period: Duration, besides: Vec<Finding>) -> Report {
    let all = besides.into_iter().chain(findings(snapshot, grace_period)).collect();
    let unread = snapshot.unread.iter().map(|(kind, why)| format!("{kind} ({why})")).collect();
    Report::of(all, unread)
}
