//! Kinds of this domain.

use crate::crd::Entry;

/// Kinds of this domain.
pub const KINDS: &[Entry] = &[];
