//! Rules about NeMo services: what they refer to, their database, their claims, and what runs their jobs.

mod claims;
mod conditions;
mod queue;

use serde_json::Value;

use super::Rule;
use super::index::Index;

/// What follows from something that is missing.
const AFTER: &[&[&str]] = &[&["not-ready", "pod-crashes", "spec-refused"]];

/// Rules about NeMo services.
pub(crate) const RULES: &[Rule] = &[
    Rule { name: "nemo-reference-missing", explains: AFTER, check: conditions::references },
    Rule { name: "nemo-database", explains: AFTER, check: conditions::database },
    Rule { name: "nemo-api-missing", explains: &[], check: conditions::apis },
    Rule { name: "nemo-claim-small", explains: AFTER, check: claims::check },
    Rule { name: "volcano-queue-full", explains: &[], check: queue::check },
];

const KINDS: [&str; 5] = ["NemoCustomizer", "NemoDatastore", "NemoEntitystore", "NemoEvaluator", "NemoGuardrail"];

/// All NeMo services of a snapshot.
fn services<'a>(index: &Index<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    let snapshot = index.snapshot;
    KINDS.into_iter().flat_map(move |kind| snapshot.of("apps.nvidia.com", kind).iter())
}
