//! Interconnects between GPUs, for the preferred allocation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The closest common ancestor of two GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Relation {
    /// The node.
    System,
    /// A processor socket.
    Socket,
    /// A host bridge.
    HostBridge,
    /// Several PCIe switches.
    Switches,
    /// One PCIe switch.
    Switch,
    /// The board.
    Board,
}

type Pairs = BTreeMap<(String, String), (Relation, u32)>;

/// Common ancestor and NVLinks of every pair of GPUs, by UUID, the smaller one first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    #[serde(with = "pairs")]
    pairs: Pairs,
}

impl Topology {
    /// Sets the common ancestor and the NVLinks of two GPUs.
    pub fn set(&mut self, a: &str, b: &str, relation: Relation, nvlinks: u32) {
        self.pairs.insert(key(a, b), (relation, nvlinks));
    }

    /// The common ancestor of two GPUs; the node if unknown.
    pub fn between(&self, a: &str, b: &str) -> (Relation, u32) {
        self.pairs.get(&key(a, b)).copied().unwrap_or((Relation::System, 0))
    }
}

fn key(a: &str, b: &str) -> (String, String) {
    let (first, second) = if a <= b { (a, b) } else { (b, a) };
    (first.to_owned(), second.to_owned())
}

/// Serialised as a list: JSON has no maps with pairs as keys.
mod pairs {
    use super::*;
    use serde::{Deserializer, Serializer};

    type Row = (String, String, Relation, u32);

    pub(super) fn serialize<S: Serializer>(pairs: &Pairs, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(pairs.iter().map(|((a, b), (relation, links))| (a, b, relation, links)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        let rows = Vec::<Row>::deserialize(deserializer)?;
        Ok(rows.into_iter().map(|(a, b, relation, links)| (key(&a, &b), (relation, links))).collect())
    }
}
