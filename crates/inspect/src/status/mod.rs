//! The status of a whole cluster as one tree, its first line the verdict.
//!
//! [`tree()`] decides from a snapshot and nothing else; [`text`] renders it. Each product has a [`Section`].

pub(crate) mod gpu;
pub(crate) mod nemo;
pub(crate) mod nim;
pub(crate) mod operator;
pub mod text;
mod tree;

#[cfg(test)]
mod tests;

pub use gpu::{Nodes, Operand, Resource, Share, Took, Upgrade, Waiting, Waits};
pub use nemo::NemoService;
pub use nim::Model;
pub use operator::Operator;
pub use tree::{Tree, Verdict, tree};

use crate::paint::Paint;
use crate::products::{self, PRODUCTS};
use crate::snapshot::{Snapshot, name_of};

/// What a product adds to a status.
pub(crate) struct Section {
    /// Fills in the fields of the tree that belong to the product.
    pub(crate) fill: fn(&Snapshot, &mut Tree),
    /// How much of what was asked for works, for the verdict: `2 of 2 GPU nodes work`.
    pub(crate) counts: fn(&Tree) -> Vec<String>,
    /// The first reason why something does not work.
    pub(crate) trouble: fn(&Tree) -> Option<String>,
    /// The lines of the product.
    pub(crate) lines: fn(&Tree) -> Vec<text::Line>,
}

fn sections() -> impl Iterator<Item = &'static Section> {
    PRODUCTS.iter().filter_map(|product| product.status.as_ref())
}

/// Kinds that a status is made of: the others need not be read for it.
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

/// The text of a snapshot's status, without colours.
pub fn plain(snapshot: &Snapshot) -> String {
    text::draw(&tree(snapshot), Paint::Plain)
}
