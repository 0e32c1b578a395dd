//! Status of GPUs: their custom resources, and the progress of nodes.

mod nodes;
mod resources;
mod text;

pub use nodes::{Nodes, PhaseCount, PhaseDuration, WaitingNode};
pub use resources::{Operand, Resource, Share, Upgrade};

use super::Section;
use super::tree::Tree;

/// GPU resources and nodes.
pub(crate) const SECTION: Section = Section {
    fill: |snapshot, tree| {
        tree.resources = resources::of(snapshot);
        tree.nodes = nodes::of(snapshot);
    },
    counts,
    problem,
    lines: text::lines,
};

fn counts(tree: &Tree) -> Vec<String> {
    if tree.nodes.total > 0 {
        vec![format!("{} of {} GPU nodes work", tree.nodes.working, tree.nodes.total)]
    } else if !tree.resources.is_empty() {
        vec!["there are no GPU nodes".into()]
    } else {
        Vec::new()
    }
}

fn problem(tree: &Tree) -> Option<String> {
    let mut failed = tree.resources.iter().filter(|one| !one.ready);
    let with_message = failed.clone().find(|one| !one.message.is_empty());
    with_message
        .map(|one| format!("{} {}: {}", one.kind, one.name, one.message))
        .or_else(|| failed.next().map(|one| format!("{} {} is {}", one.kind, one.name, one.state)))
        .or_else(|| {
            let waiting = tree.nodes.waiting.first();
            waiting.map(|one| format!("node {} waits for {}: {}", one.name, one.phase, one.why))
        })
}
