//! Compute domains: sets of nodes whose GPUs share memory over NVLink for the life of a workload.
//!
//! The user makes a ComputeDomain; daemons on its nodes meet in ComputeDomainCliques, one per NVLink partition.

pub mod clique;
pub mod domain;

pub use clique::{ComputeDomainClique, ComputeDomainCliqueSpec};
pub use domain::{ComputeDomain, ComputeDomainSpec};

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Entry;

/// API group of all kinds here.
pub const GROUP: &str = "resource.nvidia.com";

/// Kinds of this domain.
pub const KINDS: &[Entry] = &[Entry::of::<ComputeDomainSpec>(), Entry::of::<ComputeDomainCliqueSpec>()];

/// Whether a domain, or the daemon of one node, takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Readiness {
    /// It does.
    Ready,
    /// Not yet, or not any more.
    #[default]
    NotReady,
}
