//! Status of a cluster as a tree with a summary line.
//!
//! [`tree()`] is computed from a snapshot alone; [`text`] renders it. Each product has a [`Section`].

pub(crate) mod gpu;
pub(crate) mod nemo;
pub(crate) mod nim;
pub(crate) mod operator;
pub mod text;
mod tree;

#[cfg(test)]
mod tests;

pub use gpu::{Nodes, Operand, PhaseCount, PhaseDuration, Resource, Share, Upgrade, WaitingNode};
pub use nemo::NemoService;
pub use nim::Model;
pub use operator::Operator;
pub use tree::{Summary, Tree, tree};

use crate::paint::Paint;
use crate::products::{self, PRODUCTS};
use crate::snapshot::{Snapshot, name_of};

/// Section of a product.
pub(crate) struct Section {
    /// Fills in the product's fields of the tree.
    pub(crate) fill: fn(&Snapshot, &mut Tree),
    /// Counts for the summary line: `2 of 2 GPU nodes work`.
    pub(crate) counts: fn(&Tree) -> Vec<String>,
    /// The first problem, if any.
    pub(crate) problem: fn(&Tree) -> Option<String>,
    /// The product's lines.
    pub(crate) lines: fn(&Tree) -> Vec<text::Line>,
}

fn sections() -> impl Iterator<Item = &'static Section> {
    PRODUCTS.iter().filter_map(|product| product.status.as_ref())
}

/// Kinds that a status needs.
pub fn kinds() -> Vec<String> {
    let shared = [
        "CustomResourceDefinition.apiextensions.k8s.io",
        "Deployment.apps",
        "Lease.coordination.k8s.io",
        "Node",
        "Pod",
    ];
    let own = products::kinds().map(|kind| name_of(kind.group, kind.kind));
    own.chain(shared.map(str::to_owned)).collect()
}

/// The status of a snapshot as text, without colours.
pub fn plain(snapshot: &Snapshot) -> String {
    text::draw(&tree(snapshot), Paint::Plain)
}
